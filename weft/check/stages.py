"""Each pass of the pipeline: the program after it, interpreted, against the program that was given."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from weft import ir, relax
from weft.check.difference import Difference, Tolerance, compare, compare_all
from weft.error import WeftError


class Stages(ir.PassInstrument):
    """Keeps the program after each pass that a pipeline runs, by the pass's name; its second run is ``FuseOps:2``."""

    def __init__(self, imported: ir.IRModule) -> None:
        self.programs: dict[str, ir.IRModule] = {"import": imported}
        self.last = "import"
        """The pass that ran last, or runs."""

    def run_before_pass(self, mod: ir.IRModule, info: ir.Pass) -> None:
        """Note which pass it is that may fail."""
        self.last = info.name

    def run_after_pass(self, mod: ir.IRModule, info: ir.Pass) -> None:
        """Keep the program."""
        name, count = info.name, 1
        while name in self.programs:
            count += 1
            name = f"{info.name}:{count}"
        if info.name != "default":
            self.programs[name] = mod

    def changed(self) -> list[str]:
        """The names, less passes that left the program as it was."""
        names = list(self.programs)
        return names[:1] + [b for a, b in itertools.pairwise(names) if self.programs[a] is not self.programs[b]]


class Outcome(NamedTuple):
    """What came of interpreting a program: its results, and values by name; or why there are none."""

    results: list[Any]
    values: dict[str, tuple[Any, str]]
    error: str = ""
    beyond: bool = False
    """Whether the program has what only the virtual machine can run."""


class WrongPass(NamedTuple):
    """A pass whose program computes something else than the one before it."""

    name: str
    before: str
    output: str
    difference: Difference
    value: str
    """The first value inside the program that differs from one of the same name before the pass, or nothing."""


def outcome_of(mod: ir.IRModule, feeds: Sequence[Any], kernels: Callable[..., None]) -> Outcome:
    """Interpret ``main`` of a program."""
    values: dict[str, tuple[Any, str]] = {}

    def watch(binding: Any, value: Any) -> None:
        if isinstance(value, np.ndarray):  # what later kernels write into it belongs to it
            values[binding.var.name_hint] = value, str(binding.span or "")

    try:
        out = relax.Interpreter(mod, kernels, watch).run("main", *feeds)
    except relax.MachineOnly as e:
        return Outcome([], values, e.what, beyond=True)
    except (WeftError, ValueError, TypeError, IndexError, ArithmeticError, RuntimeError) as e:
        return Outcome([], values, f"{type(e).__name__}: {e}")
    return Outcome(list(out) if isinstance(out, tuple) else [out], values)


def is_beyond(mod: ir.IRModule) -> bool:
    """Whether only the virtual machine can run a program: its dimensions lie on the machine's heap of shapes."""
    heap = "vm.builtin.alloc_shape_heap"
    return any(getattr(n, "global_symbol", "") == heap for _, f in mod.items() for n in ir.walk(f))


class _Judge:
    """Compares programs with the first one, each once."""

    def __init__(
        self, programs: Mapping[str, ir.IRModule], feeds: Sequence[Any], outputs: Sequence[str], tolerance: Tolerance
    ) -> None:
        self.programs, self.feeds, self.outputs, self.tolerance = programs, feeds, outputs, tolerance
        self.kernels = relax.UnscheduledKernels()  # most kernels are those of the stage before
        self.right = self.outcome("import")

    def outcome(self, name: str) -> Outcome:
        return outcome_of(self.programs[name], self.feeds, self.kernels)

    def wrong(self, name: str) -> tuple[str, Difference] | None:
        """Which output of a stage differs, and how."""
        found = self.outcome(name)
        if found.beyond:
            return None
        if found.error:
            return "the program", Difference(f"cannot be run: {found.error}")
        return compare_all(found.results, self.right.results, self.outputs, self.tolerance)

    def finding(self, before: str, name: str, wrong: tuple[str, Difference]) -> WrongPass:
        return WrongPass(name, before, *wrong, self.first_value(before, name))

    def first_value(self, before: str, name: str) -> str:
        """The first value that two stages both name and compute differently."""
        one, other = (_lasting(self.outcome(n).values) for n in (before, name))
        for variable, (value, place) in other.items():
            known = one.get(variable)
            if known is not None and known[0].shape == value.shape and known[0].dtype == value.dtype:
                difference = compare(value, known[0], self.tolerance)
                if difference is not None:
                    return f"'{variable}'" + (f", {place}" if place else "") + f": {difference}"
        return ""


def _lasting(values: Mapping[str, tuple[Any, str]]) -> dict[str, tuple[Any, str]]:
    """Values whose memory no other has: at the end of a program that plans storage, others hold what came later."""

    def memory(array: Any) -> int:
        while isinstance(array.base, np.ndarray):
            array = array.base
        return id(array)

    places = Counter(memory(v) for v, _ in values.values())
    return {n: v for n, v in values.items() if places[memory(v[0])] == 1}


def wrong_passes(
    stages: Stages, feeds: Sequence[Any], outputs: Sequence[str], tolerance: Tolerance, each: bool = False
) -> tuple[list[WrongPass], list[str], Outcome]:
    """Find the first pass that changes what the program computes.

    Parameters
    ----------
    stages : Stages
        What the pipeline made.
    feeds : sequence of array
        For the parameters of ``main``.
    outputs : sequence of str
        Names of the results.
    tolerance : Tolerance
    each : bool
        Interpret every stage and name every pass that makes a wrong program of a right one; by default the last is
        interpreted, and only where it is wrong the first wrong one is sought, by halving.

    Returns
    -------
    (list of WrongPass, list of str, Outcome)
        Those passes, the names of the stages that were (or, being right at the end, need not be) compared, and what
        the first program computes.
    """
    judge = _Judge(stages.programs, feeds, outputs, tolerance)
    names = [n for n in stages.changed() if not is_beyond(stages.programs[n])]
    if judge.right.error:
        return [], names, judge.right
    if each:
        verdicts = {n: judge.wrong(n) for n in names[1:]}
        found = [
            judge.finding(a, b, w)
            for a, b in itertools.pairwise(names)
            if (w := verdicts[b]) is not None and verdicts.get(a) is None
        ]
        return found, names, judge.right
    low, high = 0, len(names) - 1
    wrong = judge.wrong(names[high]) if high else None
    if wrong is None:
        return [], names, judge.right
    while high - low > 1:
        middle = (low + high) // 2
        verdict = judge.wrong(names[middle])
        if verdict is None:
            low = middle
        else:
            high, wrong = middle, verdict
    return [judge.finding(names[low], names[high], wrong)], names, judge.right
