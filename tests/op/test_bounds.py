"""No kernel of an operator leaves its buffers: the cases of the contract, every access of their loops checked."""

import pytest

from tests.op.contract import CASES, SIZES, Sizes, compile_call, run, with_cases
from tests.op.test_contract import WITHOUT_LOWER
from weft import ir


@pytest.mark.share(24, None)
@pytest.mark.parametrize(("name", "index"), [c for c in with_cases() if c[0] not in WITHOUT_LOWER])
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
