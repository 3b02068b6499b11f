"""Special functions beside PyTorch in float64, at poles, zeros and infinities too."""

import math

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

from tests.frontend.torch.programs import Call, check, exported, machine
from tests.frontend.torch.test_order import compare
from weft import tir
from weft.frontend.torch import from_exported_program, registry
from weft.frontend.torch.backend import _partitioned
from weft.frontend.torch.special import _UNARY
from weft.ir import CallIntrin, walk
from weft.runtime import tensor
from weft.topi import special

INF, NAN = float("inf"), float("nan")
ENDS = torch.tensor([0.0, -0.0, 1, 2, -1, -2.5, INF, NAN, 1e-20, 33, 80])
LINE = torch.cat([torch.linspace(-12.03, 25, 500), ENDS])
UNIT = torch.cat([torch.linspace(-1, 1, 301), torch.tensor([1 - 6e-8, 1e-20, NAN])])
NAMES = "erfc digamma exp2 i0 i0e i1 i1e erfcx log_ndtr modified_bessel_i1".split()
FUNCTIONS = [
    *((getattr(torch.special, name), LINE) for name in NAMES),
    (torch.lgamma, LINE),
    (torch.erfinv, UNIT),
    (lambda x: torch.polygamma(1, x), LINE[(LINE != LINE.floor()) | (LINE > 0)]),
    *((lambda x, n=n: torch.polygamma(n, x), LINE[(LINE > 0) & (LINE < INF)]) for n in (2, 8)),
    (lambda x: torch.mvlgamma(x.abs() + 2, 3), LINE),
]


@pytest.mark.usefixtures("compiled")
@pytest.mark.parametrize("function", [f for f, _ in FUNCTIONS])
def test_functions(function):
    x = dict(FUNCTIONS)[function]
    check(Call(lambda x: function(x.double()).float()), (x,), tolerance=1e-6)  # what PyTorch has in float64
    check(Call(function), (x,), tolerance=1e-4)


def test_functions_divide_rarely():
    """A division takes as long as ten multiply-adds, a power as sixty."""
    x = tir.Var("x", "float32")
    for function in (*_UNARY.values(), special.polygamma(1), special.polygamma(3)):
        names = [n.op.name if isinstance(n, CallIntrin) else type(n).__name__ for n in walk(function(x))]
        assert names.count("Div") + 6 * names.count("tir.pow") <= 24, function


def test_complementary_error_function_has_the_digits_of_a_double():
    x = torch.cat([torch.linspace(-6, 26.5, 1001), torch.tensor([1e-9, 27.5, 40, INF, -INF])]).double()
    run = machine(from_exported_program(exported(Call(torch.special.erfc), (x,))))
    np.testing.assert_allclose(run(tensor(x.numpy()))[0].numpy(), [math.erfc(v) for v in x], rtol=1e-14, atol=1e-307)


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
            *torch.frexp(a * 2**-140),
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


WAVES = [getattr(torch.special, f"{name}{n}") for name in ("bessel_j", "bessel_y", "modified_bessel_k") for n in (0, 1)]


@pytest.mark.parametrize("function", [*WAVES, torch.special.airy_ai, torch.special.spherical_bessel_j0])
def test_cylinder_functions(function):
    """PyTorch's own have errors of 1e-6 between 5 and 10."""
    x = torch.cat([LINE, -LINE, torch.tensor([1e-3, 24.99, 25.01, 300])]).double()
    check(Call(lambda x: (function(x), function(x.float()))), (x,), tolerance=3e-6)


def test_polynomials_and_divisors():
    names = [name for name in dir(torch.special) if "polynomial" in name]
    x, n = torch.tensor([-1.5, -1, -0.3, 0, 0.2, 1, 2]).double(), torch.tensor([-1, 0, 1, 2, 3, 7, 12])
    compare(lambda x, n: tuple(getattr(torch.special, k)(x[:, None], n.double()) for k in names), x, n)
    a, b = torch.tensor([0, 12, -18, 0, 2**40, 1071]), torch.tensor([0, 18, 12, -4, 6 * 2**30, 462])
    compare(lambda a, b: (a.gcd(b), a.lcm(b), a[:, None].int().gcd(b.to(torch.int8)), a[:0].gcd(b[:0])), a, b)


def test_incomplete_gamma_functions():
    x = torch.tensor([-1, 0, 0.01, 0.5, 1, 2.5, 10, 11, 50, 1000, INF, NAN]).double()
    compare(lambda x: (torch.igamma(x[:, None], x), torch.igammac(x[:, None], x)), x)


def test_other_names_of_operators():
    for alias, name in registry._ALIASES.items():
        packets = [getattr(torch.ops.aten, n) for n in (alias, name)]
        for overload in packets[0].overloads():
            if "out" not in overload and overload in packets[1].overloads():
                given, known = (getattr(p, overload)._schema.arguments for p in packets)
                assert [a.name for a in given] == [a.name for a in known]
    graph = make_fx(lambda a, b: a / b)(torch.ones(3), torch.arange(3) + 1.0)
    (call,) = graph.graph.find_nodes(op="call_function", target=torch.ops.aten.div.Tensor)
    call.target = torch.ops.aten.true_divide.Tensor
    made = _partitioned(graph, set(), {})
    assert [node.op for node in made.graph.nodes] == ["placeholder", "placeholder", "call_module", "output"]
    assert made(torch.ones(3), torch.arange(3) + 1.0)[1] == 0.5
