"""Inverses, solutions, determinants and factors beside PyTorch; matrices that have none."""

import pytest
import torch
from torch.export import Dim

from tests.frontend.torch.programs import Call, check, exported, machine
from tests.frontend.torch.test_order import compare
from tests.refusals import refuses
from weft import runtime
from weft.frontend.torch import from_exported_program

PIVOTED = torch.tensor([[0.0, 2, 1], [3, 0, 0], [1, 1, 4]]).expand(2, 3, 3) * torch.tensor([1.0, -2])[:, None, None]
POSITIVE = PIVOTED @ PIVOTED.mT + torch.eye(3)


def test_inverses_and_solutions():
    solve = torch.linalg.solve

    def solutions(a, b):
        return torch.linalg.inv(a), solve(a, b), solve(a, b.mT, left=False), solve(a[0], b[0, :, 0]), solve(a[:1], b)

    compare(solutions, PIVOTED, torch.randn(2, 3, 5))
    check(Call(lambda a: (torch.linalg.inv_ex(a)[1], torch.linalg.det(a))), (torch.zeros(3, 2, 2),))


def test_determinants():
    compare(lambda a: (torch.linalg.det(a), *torch.linalg.slogdet(a[1])), PIVOTED)
    check(Call(torch.linalg.det), (torch.randn(0, 3, 3),))


def test_triangular_factors():
    solve = torch.linalg.solve_triangular

    def factors(a, b):
        lower, upper = torch.linalg.cholesky(a), torch.linalg.cholesky(a, upper=True)
        inverses = torch.cholesky_inverse(lower), torch.cholesky_inverse(a, upper=True)
        solved = solve(a, b, upper=True), solve(a, b.mT, upper=False, left=False, unitriangular=True)
        return lower, upper, *inverses, *solved, torch.cholesky_solve(b, lower), torch.cholesky_solve(b, a, upper=True)

    compare(factors, POSITIVE, torch.randn(2, 3, 4))
    check(Call(lambda a: torch.linalg.cholesky_ex(a)[1]), (torch.stack([POSITIVE[0], -POSITIVE[0]]),))


@pytest.mark.parametrize(("offset", "dims"), [(0, (0, 1)), (2, (0, 1)), (-1, (2, 0)), (9, (1, 2))])
def test_diagonals_that_a_program_writes_to(offset, dims):
    def moved(x):
        x = x + 0
        x.diagonal(offset, *dims).mul_(3).add_(1)
        return x

    compare(moved, torch.randn(4, 6, 5))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("function", "text"),
    [(torch.linalg.inv, "singular"), (torch.linalg.cholesky, "positive"), (torch.linalg.lu_factor, "singular")],
)
def test_matrices_that_have_none_stop_the_program(function, text, apart):
    """Also in programs that have been taken apart, whose checks are calls with tokens."""
    program = exported(Call(function), (POSITIVE,))
    run = machine(from_exported_program(program.run_decompositions() if apart else program))
    run(runtime.from_dlpack(POSITIVE))
    refuses(RuntimeError, text, run, runtime.from_dlpack(torch.zeros(2, 3, 3)))


@pytest.mark.parametrize("shape", [(2, 5, 3), (3, 5), (4, 4), (2, 0, 3, 2), (3, 0), (1, 1)])
def test_orthogonal_factors(shape):
    """Singular vectors are unique up to their signs, so that what they make is compared."""

    def factors(a):
        u, s, v = torch.linalg.svd(a, full_matrices=False)
        q, r = torch.linalg.qr(a)
        whole, rest = torch.linalg.qr(a, mode="complete")
        triangles = q, r, rest, whole.mT @ whole, torch.linalg.qr(a, mode="r")[1]
        return *triangles, s, torch.linalg.svdvals(a), u @ (s[..., None] * v), u.mT @ u, v @ v.mT

    compare(factors, torch.randn(shape))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 5)])
def test_matrices_of_lower_rank(shape):
    a = torch.randn(*shape[:-1], 2) @ torch.randn(2, shape[-1])

    def factors(a):
        u, s, v = torch.linalg.svd(a)
        return u.mT @ u, v @ v.mT, s, torch.linalg.pinv(a, rtol=1e-4), torch.linalg.pinv(a, hermitian=False, atol=1e-3)

    compare(factors, a)


@pytest.mark.parametrize("size", [1, 6, 0])
def test_symmetric_matrices(size):
    """Equal eigenvalues and pairs of opposite sign among them."""
    q = torch.linalg.qr(torch.randn(2, size, size, dtype=torch.float64))[0]
    values = torch.tensor([3.0, -3.0, 1e-3, 0.0, 2.0, 2.0])[:size].double()
    a = (q * values @ q.mT).float()

    def factors(a):
        w, v = torch.linalg.eigh(a)
        return w, v @ (w[..., None] * v.mT), v.mT @ v, torch.linalg.eigvalsh(a.triu(), UPLO="U")

    compare(factors, a)


def test_exponentials():
    """A small matrix, one that is halved often, a rotation by a large angle, a nilpotent one; none at all."""
    turn = torch.tensor([[0.0, -3000, 0], [3000, 0, 0], [0, 0, -1]])
    given = torch.stack([PIVOTED[0], -40 * POSITIVE[0], turn, torch.ones(3, 3).triu(1)])
    call = Call(lambda a: torch.linalg.matrix_exp(a).float())
    opened = ({0: Dim.AUTO, 1: Dim.AUTO, 2: Dim.AUTO},)
    check(call, (given.double(),), (torch.randn(2, 5, 5).double() * 3,), dynamic=(opened,))
    check(Call(torch.linalg.matrix_exp), (torch.zeros(2, 0, 0),))
    check(Call(lambda a: torch.linalg.matrix_exp(a[0])), (POSITIVE / 9,))


def test_eigenvalues_and_reflections():
    """By the host's LAPACK, as PyTorch; a real matrix with pairs of conjugate values, and a complex one."""
    a = torch.randn(2, 4, 4)

    def residuals(a):  # vectors are as they come but for a factor of absolute value 1
        values, vectors = torch.linalg.eig(a)
        zero = torch.complex(a, torch.zeros_like(a)) @ vectors - vectors * values[..., None, :]
        return [torch.view_as_real(x) for x in (values, torch.linalg.eigvals(a), zero)] + [vectors.abs()]

    compare(residuals, a)
    sizes = Call(lambda a: [x.abs() for x in (*torch.linalg.eig(a), torch.geqrf(a).tau)])
    check(Call(lambda a: sizes(torch.complex(a, a.mT))), (a,))
    reflected = Call(lambda r: (torch.linalg.householder_product(*torch.geqrf(r)), torch.ormqr(*torch.geqrf(r), r)))
    check(reflected, (torch.randn(2, 5, 3),))


def test_packed_factors():
    """What they are and solve: wide and high matrices, from both sides, transposed."""

    def factors(a):
        packed, pivots = torch.linalg.lu_factor(a)
        return *torch.linalg.lu(a), packed, pivots, *torch.lu_unpack(packed, pivots)

    def solved(a, b):
        packed, pivots, info = torch.linalg.lu_factor_ex(a)
        sides = [
            torch.linalg.lu_solve(packed, pivots, x, left=left, adjoint=adjoint)
            for x, left in ((b, True), (b.mT, False), (b[:1], True))
            for adjoint in (False, True)
        ]
        return *sides, torch.lu_solve(b, packed, pivots), info

    for shape in ((2, 5, 3), (3, 5), (1, 1), (0, 2, 2)):
        check(Call(factors), (torch.randn(shape),))
    check(Call(solved), (torch.randn(2, 4, 4), torch.randn(2, 4, 3)))


@pytest.mark.parametrize("pivots", [[1, 2, 9], [0, 2, 3], [-1, 2, 3]])
def test_exchanges_with_rows_that_there_are_not_are_refused(pivots):
    a, b = torch.eye(3)[None], torch.ones(1, 3, 2)
    for call in (torch.linalg.lu_solve, lambda a, p, _: torch.lu_unpack(a, p)):
        program = exported(Call(call), (a, torch.tensor([[1, 2, 3]], dtype=torch.int32), b))
        run = machine(from_exported_program(program))
        given = [runtime.from_dlpack(x) for x in (a, torch.tensor([pivots], dtype=torch.int32), b)]
        refuses(RuntimeError, "do not belong together", run, *given)


@pytest.mark.parametrize("how", ["prod", "mean", "amax", "amin"])
def test_parts_that_are_combined_by_index(how):
    places = torch.tensor([0, 2, 0])
    compare(
        lambda x, s: [x.index_reduce(1, places, s, how, include_self=b) for b in (True, False)],
        torch.randn(3, 4),
        torch.randn(3, 3),
    )


def test_what_is_cut_off_counts_in_padding():
    pad = torch.nn.functional.pad
    sides = {"replicate": [(-1, 2), (-5, 6)], "reflect": [(3, -2), (-3, 3)], "constant": [(-1, 2)]}
    compare(lambda x: [pad(x, side, mode) for mode in sides for side in sides[mode]], torch.randn(1, 2, 5))
    compare(lambda a: [torch.dist(a[0], a[1], p) for p in (2, 3, 0, float("inf"))], torch.randn(2, 4))
