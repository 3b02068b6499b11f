"""No kernel of an operator leaves its buffers: the cases of the contract, every access of their loops checked.

The suite takes a part of the cases, ``make sweep`` all of them.
"""

import pytest

from tests.op.contract import CASES, SIZES, Sizes, compile_call, run, with_cases
from tests.op.test_contract import WITHOUT_LOWER
from weft import environment, ir

EVERY = 1 if environment.SWEEP.read() else 12


@pytest.mark.parametrize(("name", "index"), [c for c in with_cases() if c[0] not in WITHOUT_LOWER][::EVERY])
def test_accesses_are_inside(name: str, index: int) -> None:
    symbolic = None
    for sizes in SIZES:
        case = CASES[name][index](Sizes(sizes, f"{name}{index}{sizes}"))
        if case is None:
            continue
        with ir.PassContext(config={"tir.instrument_bound_checkers": True}):
            program = case.symbolic and symbolic or compile_call(name, case, case.symbolic, scheduled=True)
        symbolic = program if case.symbolic else symbolic
        run(name, case, program, sizes)
