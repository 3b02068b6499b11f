"""Random schedules of small programs compute what the programs do: primitives are exact, or refused."""

import random

import numpy as np
import pytest

from tests.fuzz.budget import seeds
from tests.fuzz.schedules import PROGRAMS, WITH_CALLS, arrays_of, random_schedule
from tests.tir.schedule.run_scheduled import run
from weft import ir, target, tir
from weft.error import WeftError
from weft.tir.pipeline import lower


def check(name: str, seed: int, steps: int = 7) -> None:
    """Schedule a program at random and compare: as scheduled, replayed from its trace, and lowered or built."""
    r = random.Random(f"{name} {seed}")
    func = PROGRAMS[name](r)
    given = arrays_of(func, seed)
    expected = [a.copy() for a in given]
    run(func, *expected)
    sch, log = random_schedule(func, r, steps)
    try:
        found = [a.copy() for a in given]
        run(sch.func, *found)
        for e, f in zip(expected, found, strict=True):
            np.testing.assert_array_equal(f, e)
        again = tir.Schedule(func)
        sch.trace.apply_to_schedule(again)
        ir.assert_structural_equal(again.func, sch.func)
        if seed % 4 == 0 and name not in WITH_CALLS:
            found = [a.copy() for a in given]
            if seed % 8 == 0:
                tir.interpret(lower(sch.func), *found)
            else:
                target.build(sch.func, target="llvm")(*found)
            for e, f in zip(expected, found, strict=True):
                np.testing.assert_array_equal(f, e)
    except (AssertionError, WeftError, Exception) as error:
        tried = "\n".join(log)
        raise AssertionError(f"{name}, seed {seed}:\n{tried}\n{sch.trace}\n{sch.func}\n{error}") from error


@pytest.mark.share(3, None)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_schedule_keeps_the_result(name):
    for seed in seeds(share=0.1):
        check(name, seed)
