"""Special functions beside PyTorch in float64, at poles, zeros and infinities too."""

import pytest
import torch
from torch.nn import functional as F

from tests.frontend.torch.programs import Call, check
from tests.frontend.torch.test_order import compare

INF, NAN = float("inf"), float("nan")
ENDS = torch.tensor([0.0, -0.0, 1, 2, -1, -2.5, INF, NAN, 1e-20, 33, 80])
LINE = torch.cat([torch.linspace(-12.03, 25, 500), ENDS])
UNIT = torch.cat([torch.linspace(-1, 1, 301), torch.tensor([1 - 6e-8, 1e-20, NAN])])
FUNCTIONS = [
    (torch.special.erfc, LINE),
    (torch.lgamma, LINE),
    (torch.digamma, LINE),
    (torch.i0, LINE),
    (torch.exp2, LINE),
    (torch.special.i0e, LINE),
    (torch.special.i1, LINE),
    (torch.special.i1e, LINE),
    (torch.special.erfcx, LINE),
    (torch.special.log_ndtr, LINE),
    (torch.special.modified_bessel_i1, LINE),
    (torch.erfinv, UNIT),
    (lambda x: torch.polygamma(1, x), LINE[(LINE != LINE.floor()) | (LINE > 0)]),
    (lambda x: torch.polygamma(2, x), LINE[(LINE > 0) & (LINE < INF)]),
    (lambda x: torch.mvlgamma(x.abs() + 2, 3), LINE),
]


@pytest.mark.parametrize("function", [f for f, _ in FUNCTIONS])
def test_functions(function):
    x = dict(FUNCTIONS)[function]
    check(Call(lambda x: function(x.double()).float()), (x,), tolerance=1e-6)  # what PyTorch has in float64
    check(Call(function), (x,), tolerance=1e-4)


def test_integers_and_open_dimensions():
    compare(
        lambda n: (torch.lgamma(n), torch.erfinv(n - n), torch.exp2(n), n.signbit(), n.fmax(n - 4)), torch.arange(-3, 5)
    )


def test_parts_of_numbers():
    a, b = (torch.tensor(v) for v in ([1.0, -2, NAN, 3, -0.0, NAN, INF], [-0.0, 5, 1, NAN, 0, NAN, -INF]))
    compare(
        lambda a, b: (
            a.copysign(b),
            a.fmax(b),
            a.fmin(b),
            a.signbit(),
            a.copysign(-2),
            torch.hypot(a, b),
            torch.nextafter(a, b),
            torch.ldexp(a, torch.tensor([3])),
            a.angle(),
            torch.rrelu(a),
            a.sign(),
            F.softplus(a, 2.0, 0.4),
            torch.unbind_copy(a)[1],
            torch.narrow_copy(a, 0, 1, 3),
        ),
        a,
        b,
    )
