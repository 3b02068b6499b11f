"""Random programs of each language, of the generators that the tests share, under the driver.

Relay and Relax programs on the machine against their interpreters (Relay's through passes, text and the other executors
too), control flow of ONNX against ONNX Runtime, schedules of both kinds against unscheduled code, and text: what is
printed is read back, and damaged text is refused with a place.
"""

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import weft
from tests.fuzz import flows, nests, schedules, test_fuzz_schedules, test_fuzz_te, test_script
from tests.fuzz.driver import Outcome
from tests.fuzz.graphs import Graph
from tests.relay.programs.check import Disagreement, equal, run, show
from tests.relay.programs.check import check as check_everywhere
from tests.relay.programs.choices import Choices, smaller
from tests.relay.programs.draw import program
from tests.relay.text.test_fuzz import TEXTS, mutate
from weft import error, ir, relay, script

MOST_STEPS = 9
Check = Callable[[int, int], Any]
"""Of a seed and a number of steps; an exception is a failure."""


class Rejected(Exception):
    """Damaged text was refused, as it should be."""


class Drawn(NamedTuple):
    """What a check is made of."""

    seed: int
    steps: int


class Checks:
    """One generator with what must hold of what it makes."""

    complaints: tuple[Outcome, ...] = ()

    def __init__(self, check: Check) -> None:
        self.run = check

    def draw(self, rng: np.random.Generator) -> Drawn:
        return Drawn(int(rng.integers(1 << 40)), int(rng.integers(1, MOST_STEPS + 1)))

    def check(self, drawn: Drawn) -> Outcome:
        try:
            self.run(*drawn)
        except Rejected:
            return Outcome("rejected")
        except (Exception, AssertionError) as e:  # whatever is raised is a finding
            return Outcome("failed", f"{type(e).__name__}: {e}")
        return Outcome("equal")

    def smaller(self, drawn: Drawn) -> Iterator[Drawn]:
        return (Drawn(drawn.seed, steps) for steps in range(1, drawn.steps))

    def show(self, drawn: Drawn) -> str:
        return f"generator's seed {drawn.seed}, {drawn.steps} steps"


class DrawnProgram(NamedTuple):
    """What a Relay program is made of: a seed, or choices, which are those of a program made small."""

    seed: int
    fuel: int
    choices: tuple[int, ...] | None = None

    def source(self) -> Choices:
        return Choices(random.Random(self.seed) if self.choices is None else self.choices)


class RelayChecks(Checks):
    """Relay programs with what must hold of them."""

    def __init__(self, judge: Callable[[Any, Any], object], fuel: int, first_order: bool = False) -> None:
        self.judge, self.most_fuel, self.first_order = judge, fuel, first_order
        super().__init__(self.made)

    def draw(self, rng: np.random.Generator) -> DrawnProgram:
        return DrawnProgram(int(rng.integers(1 << 40)), int(rng.integers(1, self.most_fuel + 1)))

    def made(self, *drawn: Any) -> None:
        self.judge(*program(DrawnProgram(*drawn).source(), drawn[1], self.first_order))

    def smaller(self, drawn: DrawnProgram) -> Iterator[DrawnProgram]:
        """Programs of fewer or simpler choices."""
        first = drawn.source()
        program(first, drawn.fuel, self.first_order)
        for fewer in smaller(tuple(first.made)):
            source = Choices(fewer)
            program(source, drawn.fuel, self.first_order)
            if (len(source.made), source.made) < (len(first.made), first.made):
                yield drawn._replace(choices=tuple(source.made))

    def show(self, drawn: DrawnProgram) -> str:
        return f"{drawn}"


def on_the_machine(mod: Any, args: Any) -> None:
    """A program means the same on the machine as on the interpreter."""
    value, found = run("debug", mod, args), run("vm", mod, args)
    if not equal(value, found):
        raise Disagreement(f"vm: {show(found)} instead of {show(value)}", mod, args)


def damaged_script(which: int) -> Check:
    """TVMScript with tokens lost, moved and replaced."""
    text = list(test_script.texts())[which]

    def check(seed: int, steps: int) -> None:
        bad = test_script.damage(text, random.Random(seed))
        try:
            result = script.from_source(bad)
        except error.WeftError as e:
            if error.is_defect(e):
                raise
            said = str(e)
            if not isinstance(e, error.ErrorGroup) and e.where is None:
                assert "defines no function" in said or "damaged" in said, f"no place: {said}\n{bad}"
            raise Rejected from e
        assert str(result)

    return check


def damaged_relay(seed: int, steps: int) -> None:
    """Relay's text with pieces lost, moved and replaced; what parses survives printing."""
    rng = random.Random(seed)
    text = mutate(rng, rng.choice(TEXTS))
    try:
        made = relay.fromtext(text)
    except error.WeftError as e:
        if error.is_defect(e):
            raise
        raise Rejected from e
    assert ir.structural_equal(relay.fromtext(made.astext()), made, map_free_vars=True), text


def printed_schedule(name: str) -> Check:
    """A scheduled function is printed and read back."""

    def check(seed: int, steps: int) -> None:
        r = random.Random(seed)
        made, _ = schedules.random_schedule(schedules.PROGRAMS[name](r), r, steps)
        again = script.from_source(made.func.script())
        ir.assert_structural_equal(again["main"] if isinstance(again, ir.IRModule) else again, made.func)

    return check


def printed_graph(seed: int, steps: int) -> None:
    """A Relax module is printed and read back."""
    mod = weft.frontend.onnx.from_onnx(Graph(seed, 4 * steps).model())
    ir.assert_structural_equal(script.from_source(mod.script(show_meta=True)), mod, map_free_vars=True)


CHECKS: dict[str, Callable[[], Check]] = {
    **{
        f"schedule:{name}": lambda name=name: lambda seed, steps: test_fuzz_schedules.check(name, seed, steps)
        for name in schedules.PROGRAMS
    },
    **{
        f"te:{name}": lambda name=name: lambda seed, steps: test_fuzz_te.check(name, seed)
        for name in test_fuzz_te.PROGRAMS
    },
    **{f"script:printed schedule {name}": lambda name=name: printed_schedule(name) for name in schedules.PROGRAMS},
    "script:printed graph": lambda: printed_graph,
    **{f"script:damaged {which}": lambda which=which: damaged_script(which) for which in range(3)},
    "relay text:damaged": lambda: damaged_relay,
    "relax:control flow": lambda: flows.check,
    "onnx:control flow": lambda: nests.check,
}


RELAY: dict[str, Callable[[], RelayChecks]] = {
    "relay:machine": lambda: RelayChecks(on_the_machine, 90),
    "relay:machine, first order": lambda: RelayChecks(on_the_machine, 90, first_order=True),
    "relay:everywhere": lambda: RelayChecks(check_everywhere, 54),
}


class Programs:
    """The suite of all generators."""

    check_seconds = 60.0
    own_cache = True

    def __init__(self) -> None:
        on_the_machine(*program(Choices(()), 1))  # loads what each child would load again

    def subjects(self) -> list[str]:
        return [*RELAY, *CHECKS]

    def open(self, subject: str) -> Checks:
        return RELAY[subject]() if subject in RELAY else Checks(CHECKS[subject]())
