"""Complex tensors: two real ones each, which converters of real tensors move and the ones here compute with.

At a program's ends, complex tensors are what ``torch.view_as_real`` makes of them: one dimension of 2 more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import ir, op
from weft.frontend.fourier import transformed
from weft.frontend.torch import registry
from weft.frontend.torch.node import Node
from weft.registry import Registry


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex tensor."""

    re: Any
    im: Any


_CONVERTERS: Registry[Callable[[Node], Any]] = Registry("aten.")
_MOVED = frozenset(
    """view reshape _unsafe_view permute transpose t expand unsqueeze squeeze slice select cat stack split
    split_with_sizes chunk unbind clone alias detach contiguous lift_fresh_copy flip roll repeat index index_select
    gather constant_pad_nd full full_like zeros zeros_like ones ones_like scalar_tensor sum mean cumsum neg add sub
    where masked_fill index_put scatter scatter_add select_scatter slice_scatter diagonal tril triu unfold
    as_strided copy _to_copy""".split()
)
"""What treats real and imaginary part alike."""
_VALUES = ("self", "other", "tensors", "value", "values", "src", "source", "fill_value", "s")
"""Arguments whose imaginary part counts: that of a real one is zero."""


def involved(values: Any) -> bool:
    """Whether a complex tensor or number is among what PyTorch knows of a call."""
    if isinstance(values, (list, tuple)):
        return any(map(involved, values))
    return isinstance(values, complex) or getattr(getattr(values, "dtype", None), "is_complex", False)


def find(target: Any) -> Callable[[Node], Any] | None:
    """The converter of an overload for complex tensors."""
    name = str(target).rpartition(".")[0]
    plain = registry.find(target)
    if name.removeprefix("aten.") in _MOVED and plain is not None:
        return lambda node: _by_parts(node, plain)
    return _CONVERTERS.get(str(target)) or _CONVERTERS.get(name)


def split(bb: Any, x: Any) -> Complex:
    """The parts of a tensor whose last dimension has both."""
    axis = len(x.ty.shape) - 1
    parts = bb.emit(op.make_call("split")(x, indices_or_sections=2, axis=axis))
    re, im = (bb.emit(op.make_call("squeeze")(bb.emit(ir.TupleGetItem(parts, i)), axis=(axis,))) for i in (0, 1))
    return Complex(re, im)


def joined(bb: Any, x: Complex) -> Any:
    """Both parts along a new last dimension."""
    return bb.emit(op.make_call("stack")(ir.Tuple((x.re, x.im)), axis=len(x.re.ty.shape)))


def _by_parts(node: Node, convert: Callable[[Node], Any]) -> Any:
    re = convert(node.with_args(_part(node, node.args, False)))
    if not involved(node.value):  # PyTorch drops the imaginary part
        return re
    im = convert(node.with_args(_part(node, node.args, True)))
    node.read.update(node.args)
    return [Complex(a, b) for a, b in zip(re, im, strict=True)] if isinstance(re, (list, tuple)) else Complex(re, im)


def _part(node: Node, args: dict[str, Any], imaginary: bool) -> dict[str, Any]:
    def one(v: Any, counts: bool) -> Any:
        if isinstance(v, (list, tuple)):
            return [one(x, counts) for x in v]
        if isinstance(v, Complex):
            return v.im if imaginary else v.re
        if isinstance(v, complex):
            return v.imag if imaginary else v.real
        if not (counts and imaginary) or v is None:
            return v
        return 0.0 if isinstance(v, (bool, int, float)) else node.full(node.dims(v), 0, node.dtype)

    return {name: one(v, name in _VALUES) for name, v in args.items()}


def _pair(node: Node, name: str) -> Complex:
    """An operand as a complex one."""
    x = node[name]
    if isinstance(x, Complex):
        return x
    if isinstance(x, complex):
        return _number(node, x)
    return Complex(node.tensor(x), node.scalar(0, node.dtype))


def _times(node: Node, a: Complex, b: Complex, name: str = "multiply") -> Complex:
    return Complex(
        node.op("subtract", node.op(name, a.re, b.re), node.op(name, a.im, b.im)),
        node.op("add", node.op(name, a.re, b.im), node.op(name, a.im, b.re)),
    )


def _scaled(node: Node, x: Complex, by: Any, name: str = "multiply") -> Complex:
    return Complex(node.op(name, x.re, by), node.op(name, x.im, by))


def _shaped(node: Node, x: Complex) -> Complex:
    """Both parts in the result's shape."""
    return Complex(node.expand(x.re, node.shape), node.expand(x.im, node.shape))


@_CONVERTERS.on("view_as_real")
def _view_as_real(node: Node) -> Any:
    return joined(node.bb, node["self"])


@_CONVERTERS.on("view_as_complex")
def _view_as_complex(node: Node) -> Any:
    return split(node.bb, node["self"])


@_CONVERTERS.on("complex")
def _complex(node: Node) -> Any:
    return _shaped(node, Complex(node["real"], node["imag"]))


@_CONVERTERS.on("polar")
def _polar(node: Node) -> Any:
    size, angle = node["abs"], node["angle"]
    return _shaped(node, _scaled(node, Complex(node.op("cos", angle), node.op("sin", angle)), size))


@_CONVERTERS.on("real", "imag")
def _one_part(node: Node) -> Any:
    return node["self"].re if "real" in node.name else node["self"].im


@_CONVERTERS.on("conj", "_conj", "conj_physical", "_conj_physical")
def _conjugate(node: Node) -> Any:
    x = node["self"]
    return Complex(x.re, node.op("negative", x.im))


@_CONVERTERS.on("resolve_conj", "resolve_neg")
def _resolved(node: Node) -> Any:
    return node["self"]


def _size(node: Node, x: Complex) -> Any:
    """The absolute value, from the parts over the larger one, whose squares do not overflow."""
    a, b = node.op("abs", x.re), node.op("abs", x.im)
    large, small = node.op("maximum", a, b), node.op("minimum", a, b)
    zero, one = node.scalar(0, node.dtype), node.scalar(1, node.dtype)
    plain = node.op("logical_or", node.op("equal", large, zero), node.op("isinf", large))
    ratio = node.op("divide", small, node.op("where", plain, one, large))
    root = node.op("sqrt", node.op("add", one, node.op("multiply", ratio, ratio)))
    return node.op("where", plain, large, node.op("multiply", large, root))


@_CONVERTERS.on("abs")
def _absolute(node: Node) -> Any:
    return _size(node, node["self"])


@_CONVERTERS.on("angle")
def _angle(node: Node) -> Any:
    return _direction(node, node["self"])


def _direction(node: Node, x: Complex) -> Any:
    atan2 = registry.find("aten.atan2.default")
    assert atan2 is not None
    return atan2(node.with_args({"self": x.im, "other": x.re}, "aten.atan2.default"))


@_CONVERTERS.on("mul")
def _multiply(node: Node) -> Any:
    a, b = node["self"], node["other"]
    if isinstance(a, Complex) and not isinstance(b, (Complex, complex)):
        return _scaled(node, a, node.tensor(b))
    return _times(node, _pair(node, "self"), _pair(node, "other"))


@_CONVERTERS.on("div.Tensor", "div.Scalar")
def _divide(node: Node) -> Any:
    a, b = _pair(node, "self"), node["other"]
    if not isinstance(b, (Complex, complex)):
        return _scaled(node, a, node.tensor(b), "divide")
    return _quotient(node, a, _pair(node, "other"))


def _quotient(node: Node, a: Complex, b: Complex) -> Complex:
    """By the divisor over its larger part, whose square does not overflow."""
    scale = node.op("maximum", node.op("abs", b.re), node.op("abs", b.im))
    unit = _scaled(node, b, scale, "divide")
    square = node.op("add", node.op("multiply", unit.re, unit.re), node.op("multiply", unit.im, unit.im))
    top = _times(node, a, Complex(unit.re, node.op("negative", unit.im)))
    return _scaled(node, _scaled(node, top, square, "divide"), scale, "divide")


@_CONVERTERS.on("reciprocal")
def _reciprocal(node: Node) -> Any:
    return _shaped(node, _quotient(node, _number(node, 1), node["self"]))


def _number(node: Node, value: complex) -> Complex:
    return Complex(node.scalar(value.real, node.dtype), node.scalar(value.imag, node.dtype))


@_CONVERTERS.on("exp")
def _exp(node: Node) -> Any:
    return _exponential(node, node["self"])


def _exponential(node: Node, x: Complex) -> Complex:
    return _scaled(node, Complex(node.op("cos", x.im), node.op("sin", x.im)), node.op("exp", x.re))


@_CONVERTERS.on("log", "log2", "log10")
def _log(node: Node) -> Any:
    base = {"aten.log2": 2, "aten.log10": 10}.get(node.name.rpartition(".")[0])
    found = _logarithm(node, node["self"])
    return found if base is None else _scaled(node, found, node.scalar(1 / np.log(base), node.dtype))


def _logarithm(node: Node, x: Complex) -> Complex:
    return Complex(node.op("log", _size(node, x)), _direction(node, x))


@_CONVERTERS.on("sqrt", "rsqrt")
def _sqrt(node: Node) -> Any:
    """The root's larger part is that of the mean of size and real part, which does not cancel."""
    x, zero, half = node["self"], node.scalar(0, node.dtype), node.scalar(0.5, node.dtype)
    large = node.op("add", _size(node, x), node.op("abs", x.re))
    large = node.op("sqrt", node.op("multiply", large, half))
    safe = node.op("where", node.op("equal", large, zero), node.scalar(1, node.dtype), large)
    small = node.op("divide", node.op("multiply", x.im, half), safe)
    right = node.op("greater_equal", x.re, zero)
    signed = node.op("where", node.op("less", x.im, zero), node.op("negative", large), large)
    parts = ((large, node.op("abs", small)), (small, signed))
    root = Complex(*(node.op("where", right, a, b) for a, b in parts))
    return root if "rsqrt" not in node.name else _quotient(node, _number(node, 1), root)


@_CONVERTERS.on("sin", "cos", "tan", "sinh", "cosh", "tanh")
def _circular(node: Node) -> Any:
    """Those of the circle are those of the hyperbola, turned by a quarter: ``sinh(iz) = i sin(z)``."""
    kind, x = node.name.split(".")[1], node["self"]
    if kind.endswith("h"):
        return _hyperbolic(node, kind, x)
    turned = _hyperbolic(node, kind + "h", Complex(node.op("negative", x.im), x.re))
    return turned if kind == "cos" else Complex(turned.im, node.op("negative", turned.re))


def _hyperbolic(node: Node, kind: str, x: Complex) -> Complex:
    if kind != "tanh":
        first, second = ("sinh", "cosh") if kind == "sinh" else ("cosh", "sinh")
        return Complex(
            node.op("multiply", node.op(first, x.re), node.op("cos", x.im)),
            node.op("multiply", node.op(second, x.re), node.op("sin", x.im)),
        )
    # both over exp(2 |re|), which does not overflow
    one, two = node.scalar(1, node.dtype), node.scalar(2, node.dtype)
    far = node.op("multiply", node.op("abs", x.re), node.scalar(-2, node.dtype))
    near, twice = node.op("exp", far), node.op("multiply", x.im, two)
    wave = node.op("multiply", node.op("multiply", near, two), node.op("cos", twice))
    below = node.op("add", node.op("add", one, node.op("multiply", near, near)), wave)
    rise = node.op("negative", node.op("expm1", node.op("multiply", far, two)))
    re = node.op("where", node.op("less", x.re, node.scalar(0, node.dtype)), node.op("negative", rise), rise)
    im = node.op("multiply", node.op("multiply", near, two), node.op("sin", twice))
    return _scaled(node, Complex(re, im), below, "divide")


@_CONVERTERS.on("sgn")
def _sign(node: Node) -> Any:
    x, zero = node["self"], node.scalar(0, node.dtype)
    size = _size(node, x)
    return _scaled(node, x, node.op("where", node.op("equal", size, zero), node.scalar(1, node.dtype), size), "divide")


@_CONVERTERS.on("isnan", "isinf", "isfinite")
def _classified(node: Node) -> Any:
    kind, x = node.name.split(".")[1], node["self"]
    return node.op("logical_and" if kind == "isfinite" else "logical_or", node.op(kind, x.re), node.op(kind, x.im))


@_CONVERTERS.on("pow")
def _power(node: Node) -> Any:
    exponent = node["exponent"]
    if not isinstance(exponent, int) or not 1 <= exponent <= 8:
        return _any_power(node, _pair(node, "self"), _pair(node, "exponent"))
    x = found = _pair(node, "self")
    for _ in range(exponent - 1):
        found = _times(node, found, x)
    return found


def _any_power(node: Node, x: Complex, exponent: Complex) -> Complex:
    """By the logarithm; that of zero is zero, but for the exponent zero, where all are one."""
    zero = node.scalar(0, node.dtype)

    def is_zero(z: Complex) -> Any:
        return node.op("logical_and", node.op("equal", z.re, zero), node.op("equal", z.im, zero))

    found = _exponential(node, _times(node, exponent, _logarithm(node, x)))
    chosen = []
    for part, one in ((found.re, 1), (found.im, 0)):
        nothing = node.op("where", is_zero(exponent), node.scalar(one, node.dtype), zero)
        chosen.append(node.op("where", node.op("logical_or", is_zero(x), is_zero(exponent)), nothing, part))
    return _shaped(node, Complex(*chosen))


@_CONVERTERS.on("mm", "bmm", "matmul", "mv", "dot")
def _matmul(node: Node) -> Any:
    other = next(k for k in ("mat2", "other", "vec", "tensor") if k in node.args)
    return _times(node, node["self"], node[other], "matmul")


@_CONVERTERS.on("addmm", "baddbmm", "addmv")
def _product_added(node: Node) -> Any:
    first, second = next(
        pair for pair in (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec")) if pair[0] in node.args
    )
    product = _times(node, _pair(node, first), _pair(node, second), "matmul")
    return _sum(node, *(
        _times(node, x, _number(node, by)) if isinstance(by, complex) else _scaled(node, x, node.tensor(by))
        for x, by in ((product, node["alpha"]), (node["self"], node["beta"]))
    ))  # fmt: skip


@_CONVERTERS.on("linear")
def _linear(node: Node) -> Any:
    weight = Complex(*(node.permute(p, [1, 0]) for p in (node["weight"].re, node["weight"].im)))
    product = _times(node, _pair(node, "input"), weight, "matmul")
    return product if node.get("bias") is None else _sum(node, product, _pair(node, "bias"))


def _sum(node: Node, a: Complex, b: Complex) -> Complex:
    return Complex(node.op("add", a.re, b.re), node.op("add", a.im, b.im))


@_CONVERTERS.on("eq", "ne")
def _equal(node: Node) -> Any:
    dtype = "float64"
    a, b = (x if isinstance(x, Complex) else Complex(getattr(x, "real", x), getattr(x, "imag", 0))
            for x in (node["self"], node["other"]))  # fmt: skip
    name, both = ("equal", "logical_and") if "aten.eq" in node.name else ("not_equal", "logical_or")
    parts = [node.op(name, node.tensor(p, dtype), node.tensor(q, dtype)) for p, q in ((a.re, b.re), (a.im, b.im))]
    return node.op(both, *parts)


# --- Fourier transforms -----------------------------------------------------------------------------------------------


@_CONVERTERS.on("_fft_c2c")
def _c2c(node: Node) -> Any:
    found = node["self"]
    for axis in node["dim"]:
        found = _along(node, found, axis, inverse=not node["forward"])
    return _normalized(node, found, node.dims(found.re))


@_CONVERTERS.on("_fft_r2c")
def _r2c(node: Node) -> Any:
    """The last of the axes is halved, before the others are transformed."""
    real = node["self"]
    *others, last = (node.axis(a, len(real.ty.shape)) for a in node["dim"])
    found = _along(node, Complex(real, None), last, inverse=False)
    if node["onesided"]:
        size = node.shape[last]
        found = Complex(*(_cut(node, p, last, 0, size) for p in (found.re, found.im)))
    for axis in others:
        found = _along(node, found, axis, inverse=False)
    return _normalized(node, found, node.dims(real))


@_CONVERTERS.on("_fft_c2r")
def _c2r(node: Node) -> Any:
    """The last of the axes is whole again before it is transformed: its other half is the mirror image, conjugated."""
    found = node["self"]
    *others, last = (node.axis(a, len(found.re.ty.shape)) for a in node["dim"])
    for axis in others:
        found = _along(node, found, axis, inverse=True)
    size = node.symbols.dim(node.metas["last_dim_size"]) if not isinstance(node["last_dim_size"], int) else node[
        "last_dim_size"]  # fmt: skip
    inner = (size - 1) // 2 + 1 if isinstance(size, int) else ir.floordiv(size - 1, 2) + 1

    def whole(x: Any, negated: bool) -> Any:
        tail = node.op("flip", _cut(node, x, last, 1, inner), axis=last)
        return node.op("concat", ir.Tuple((x, node.op("negative", tail) if negated else tail)), axis=last)

    found = _along(node, Complex(whole(found.re, False), whole(found.im, True)), last, inverse=True)
    return _normalized(node, found, node.shape).re


def _cut(node: Node, x: Any, axis: int, begin: int, end: Any) -> Any:
    return node.op("strided_slice", x, axes=(axis,), begin=(begin,), end=(end,), assume_inbound=True)


def _along(node: Node, x: Complex, axis: int, inverse: bool) -> Complex:
    rank = len(x.re.ty.shape)
    axis = node.axis(axis, rank)
    there = [i for i in range(rank) if i != axis] + [axis]
    back = [there.index(i) for i in range(rank)]
    re, im = (None if p is None else node.permute(p, there) for p in (x.re, x.im))
    return Complex(*(node.permute(p, back) for p in transformed(node.bb, (re, im), inverse)))


def _normalized(node: Node, x: Complex, dims: list[Any]) -> Complex:
    """Over nothing, the root of how many elements were transformed, or their number."""
    kind = node["normalization"]
    if kind == 0:
        return x
    count = node.tensor(node.product([dims[node.axis(a, len(dims))] for a in node["dim"]]))
    return _scaled(node, x, node.op("sqrt", count) if kind == 1 else count, "divide")
