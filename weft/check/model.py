"""A model, from its nodes to its compiled code: who is the first that computes something else."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from weft import error, ir, relax, runtime
from weft.check.difference import Difference, Tolerance, compare_all
from weft.check.kernels import program_of_kernels, wrong_kernels
from weft.check.nodes import check_nodes
from weft.check.stages import Outcome, Stages, wrong_passes
from weft.frontend.onnx import from_onnx
from weft.profile.model import Sources
from weft.session import Session, TensorInfo
from weft.target import Target, TargetLike

_LEFT = (
    "every kernel is right, and every pass that can be interpreted: it is one of the last passes (from VMShapeLower "
    "on), the virtual machine, or what the cache has (`weft cache clear`)",
)


class Finding(NamedTuple):
    """Something that computes another result than what it is compared with.

    `kind` is ``node``, ``pass``, ``kernel`` or ``executable``; `files` says where its code is in a folder of
    ``WEFT_DUMP_DIR``.
    """

    kind: str
    name: str
    value: str
    difference: Difference
    details: tuple[str, ...] = ()
    files: str = ""


@dataclass
class Report:
    """What was compared: findings in the order of the way of a value, a line a stage, and what was left out and why."""

    findings: list[Finding] = field(default_factory=lambda: list[Finding]())
    lines: list[str] = field(default_factory=lambda: list[str]())
    left_out: list[str] = field(default_factory=lambda: list[str]())


def check_model(
    model: str | Path,
    feeds: Callable[[Sequence[TensorInfo]], Mapping[str, Any]],
    *,
    tolerance: Tolerance | None = None,
    target: TargetLike = "llvm",
    each: bool = False,
    shape_dict: Mapping[str, Sequence[int | str]] | None = None,
    precision: str = "float32",
) -> Report:
    """Compare every stage of a model with what it means.

    Parameters
    ----------
    model : path
        An ONNX file.
    feeds : callable
        Makes the inputs, from what the model declares of them.
    tolerance : Tolerance, optional
        What rounding may do.
    target : Target or str
        What to compile for; this machine has to run it.
    each : bool
        Find everything that differs, not the first of each kind.
    shape_dict : mapping, optional
        Input shapes in place of the model's.
    precision : str
        As in :class:`weft.Session`.

    Raises
    ------
    InvalidArgument
        When the target is no processor of this machine, or inputs are missing or unknown.
    """
    return _Check(Path(model), feeds, tolerance or Tolerance(), target, each, shape_dict, precision).run()


class _Check:
    """The stages of one comparison, in order."""

    def __init__(
        self, path: Path, feeds: Any, tolerance: Tolerance, target: Any, each: bool, shape_dict: Any, precision: str
    ) -> None:
        self.path, self.tolerance, self.target, self.each = path, tolerance, Target(target), each
        if not self.target.is_host:
            raise error.InvalidArgument(
                "models are checked on the processor here", found=f"target {self.target}", help="check for llvm or c"
            )
        self.asked = None if target == "llvm" else target  # as sessions are, whose models may be in the cache
        self.shape_dict, self.precision = shape_dict, precision
        self.report = Report()
        self.mod = from_onnx(path, shape_dict)
        described = json.loads(str(self.mod["main"].attrs["weft.io"]))  # type: ignore[attr-defined]
        infos = [TensorInfo(i["name"], i["dtype"], tuple(i["shape"])) for i in described["inputs"]]
        given = feeds(infos)
        missing = [i.name for i in infos if i.name not in given]
        unknown = [n for n in given if n not in {i.name for i in infos}]
        if missing or unknown:
            raise error.InvalidArgument(
                "wrong inputs",
                expected=", ".join(i.name for i in infos) or "none",
                found=", ".join([f"no {n}" for n in missing] + unknown),
            )
        self.feeds = {i.name: np.array(given[i.name], runtime.numpy_dtype(str(i.dtype)), order="C") for i in infos}
        self.outputs = [o["name"] for o in described["outputs"]]

    def run(self) -> Report:
        self.nodes()
        stages, sources = Stages(self.mod), Sources()
        try:
            with ir.PassContext(instruments=[stages, sources], verify=True):
                relax.get_pipeline("default", self.target, self.precision)(self.mod)
        except error.WeftError as e:  # also of the form that a pass promises
            failed = Finding("pass", stages.last, "the program", Difference(f"{type(e).__name__}: {e}"))
            self.passes(stages)
            self.report.findings.append(failed)
            return self.report
        right = self.passes(stages)
        self.kernels(stages, sources)
        self.executable(right)
        return self.report

    def nodes(self) -> None:
        """Compare the imported program with ONNX."""
        proto = error.require("onnx", extra="onnx").load(str(self.path))
        found = check_nodes(proto, {"shape_dict": self.shape_dict}, self.feeds, self.tolerance, self.each)
        self.report.left_out += found.skipped
        self.line("nodes", found.agree, len(found.wrong), "as ONNX has it")
        self.report.findings += [Finding("node", w.place, w.output, w.difference) for w in found.wrong]

    def passes(self, stages: Stages) -> Outcome:
        """Compare the program after each pass with the imported one."""
        wrong, names, right = wrong_passes(stages, list(self.feeds.values()), self.outputs, self.tolerance, self.each)
        if right.error:
            self.report.left_out.append(f"passes: the imported program cannot be interpreted: {right.error}")
        else:
            self.line("passes that changed the program", len(names) - 1 - len(wrong), len(wrong), "as imported")
        for w in wrong:
            details = (f"first value inside: {w.value}",) if w.value else ()
            files = f"*-{w.before.split(':')[0]}.py and *-{w.name.split(':')[0]}.py"
            self.report.findings.append(
                Finding(
                    "pass",
                    w.name,
                    w.output,
                    w.difference,
                    (f"the program before it, of {w.before}, is right", *details),
                    files,
                )
            )
        return right

    def kernels(self, stages: Stages, sources: Sources) -> None:
        """Compare compiled kernels with their loops."""
        mod = program_of_kernels(stages.programs)
        if mod is None:
            return
        try:
            wrong, count = wrong_kernels(
                mod, list(self.feeds.values()), self.target, sources.sites, self.tolerance, self.each
            )
        except (error.EvaluationError, ValueError, TypeError) as e:
            self.report.left_out.append(f"kernels: the program that calls them cannot be run: {type(e).__name__}: {e}")
            return
        self.line("kernels", count - len(wrong), len(wrong), "as their loops")
        for w in wrong:
            nodes = (f"computes {', '.join(w.nodes)}",) if w.nodes else ()
            self.report.findings.append(
                Finding("kernel", w.name, f"{w.argument} of call {w.call}", w.difference, nodes, f"kernels/{w.name}/")
            )

    def executable(self, right: Outcome) -> None:
        """Compare what a session computes, with all that the cache has for it."""
        if right.error:
            return
        try:
            session = Session(self.path, self.asked, shape_dict=self.shape_dict, precision=self.precision)
            results = [t.numpy() for t in session.run(self.feeds)]
        except error.WeftError as e:
            found = "the model", Difference(f"cannot be run: {type(e).__name__}: {e}")
        else:
            found = compare_all(results, right.results, self.outputs, self.tolerance)
        self.line("compiled model", int(found is None), int(found is not None), "as imported")
        if found is not None:
            why = () if self.report.findings else _LEFT
            self.report.findings.append(Finding("executable", self.path.name, *found, why))

    def line(self, what: str, agree: int, wrong: int, how: str) -> None:
        self.report.lines.append(f"{what}: {agree} {how}" + (f", {wrong} different" if wrong else ""))
