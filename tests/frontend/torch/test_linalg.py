"""Inverses, solutions, determinants and factors beside PyTorch; matrices that have none."""

import pytest
import torch

from tests.frontend.torch.programs import Call, check, exported, machine
from tests.frontend.torch.test_order import compare
from weft import runtime
from weft.frontend.torch import from_exported_program

PIVOTED = torch.tensor([[0.0, 2, 1], [3, 0, 0], [1, 1, 4]]).expand(2, 3, 3) * torch.tensor([1.0, -2])[:, None, None]
POSITIVE = PIVOTED @ PIVOTED.mT + torch.eye(3)


def test_inverses_and_solutions():
    right = torch.randn(2, 3, 5)
    compare(lambda a, b: (torch.linalg.inv(a), torch.linalg.solve(a, b), torch.linalg.solve(a, b.mT, left=False),
                          torch.linalg.solve(a[0], b[0, :, 0]), torch.linalg.solve(a[:1], b)),
            PIVOTED, right)  # fmt: skip
    check(Call(lambda a: (torch.linalg.inv_ex(a)[1], torch.linalg.det(a))), (torch.zeros(3, 2, 2),))


def test_determinants():
    compare(lambda a: (torch.linalg.det(a), *torch.linalg.slogdet(a[1])), PIVOTED)
    check(Call(torch.linalg.det), (torch.randn(0, 3, 3),))


def test_triangular_factors():
    compare(lambda a, b: (torch.linalg.cholesky(a), torch.linalg.cholesky(a, upper=True),
                          torch.linalg.solve_triangular(a, b, upper=True),
                          torch.linalg.solve_triangular(a, b.mT, upper=False, left=False, unitriangular=True),
                          torch.cholesky_solve(b, torch.linalg.cholesky(a))),
            POSITIVE, torch.randn(2, 3, 4))  # fmt: skip
    check(Call(lambda a: torch.linalg.cholesky_ex(a)[1]), (torch.stack([POSITIVE[0], -POSITIVE[0]]),))


@pytest.mark.parametrize(("function", "text"), [(torch.linalg.inv, "singular"), (torch.linalg.cholesky, "positive")])
def test_matrices_that_have_none_stop_the_program(function, text):
    run = machine(from_exported_program(exported(Call(function), (POSITIVE,))))
    run(runtime.from_dlpack(POSITIVE))
    with pytest.raises(RuntimeError, match=text):
        run(runtime.from_dlpack(torch.zeros(2, 3, 3)))
