"""Complex tensors: two real ones each, which converters of real tensors move and the ones here compute with.

At a program's ends, complex tensors are what ``torch.view_as_real`` makes of them: one dimension of 2 more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft.frontend import complex_arithmetic as numbers
from weft.frontend.complex_arithmetic import Complex
from weft.frontend.torch import registry
from weft.frontend.torch.node import Node
from weft.registry import Registry

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


def _number(node: Node, value: complex) -> Complex:
    return numbers.number(node, value, node.dtype)


def _shaped(node: Node, x: Complex) -> Complex:
    """Both parts in the result's shape."""
    return Complex(node.expand(x.re, node.shape), node.expand(x.im, node.shape))


@_CONVERTERS.on("view_as_real")
def _view_as_real(node: Node) -> Any:
    return numbers.joined(node.bb, node["self"])


@_CONVERTERS.on("view_as_complex")
def _view_as_complex(node: Node) -> Any:
    return numbers.split(node.bb, node["self"])


@_CONVERTERS.on("complex")
def _complex(node: Node) -> Any:
    return _shaped(node, Complex(node["real"], node["imag"]))


@_CONVERTERS.on("polar")
def _polar(node: Node) -> Any:
    size, angle = node["abs"], node["angle"]
    return _shaped(node, numbers.scaled(node, Complex(node.op("cos", angle), node.op("sin", angle)), size))


@_CONVERTERS.on("real", "imag")
def _one_part(node: Node) -> Any:
    return node["self"].re if "real" in node.name else node["self"].im


@_CONVERTERS.on("conj", "_conj", "conj_physical", "_conj_physical")
def _conjugate(node: Node) -> Any:
    return numbers.conjugate(node, node["self"])


@_CONVERTERS.on("resolve_conj", "resolve_neg")
def _resolved(node: Node) -> Any:
    return node["self"]


@_CONVERTERS.on("abs")
def _absolute(node: Node) -> Any:
    return numbers.size(node, node["self"])


@_CONVERTERS.on("angle")
def _angle(node: Node) -> Any:
    x = node["self"]
    return node.op("atan2", x.im, x.re)


@_CONVERTERS.on("mul")
def _multiply(node: Node) -> Any:
    a, b = node["self"], node["other"]
    if isinstance(a, Complex) and not isinstance(b, (Complex, complex)):
        return numbers.scaled(node, a, node.tensor(b))
    return numbers.times(node, _pair(node, "self"), _pair(node, "other"))


@_CONVERTERS.on("div.Tensor", "div.Scalar")
def _divide(node: Node) -> Any:
    a, b = _pair(node, "self"), node["other"]
    if not isinstance(b, (Complex, complex)):
        return numbers.scaled(node, a, node.tensor(b), "divide")
    return numbers.quotient(node, a, _pair(node, "other"))


@_CONVERTERS.on("reciprocal")
def _reciprocal(node: Node) -> Any:
    return _shaped(node, numbers.quotient(node, _number(node, 1), node["self"]))


@_CONVERTERS.on("exp")
def _exp(node: Node) -> Any:
    return numbers.exponential(node, node["self"])


@_CONVERTERS.on("log", "log2", "log10")
def _log(node: Node) -> Any:
    base = {"aten.log2": 2, "aten.log10": 10}.get(node.name.rpartition(".")[0])
    found = numbers.logarithm(node, node["self"])
    return found if base is None else numbers.scaled(node, found, node.scalar(1 / np.log(base), node.dtype))


@_CONVERTERS.on("sqrt", "rsqrt")
def _sqrt(node: Node) -> Any:
    root = numbers.root(node, node["self"])
    return root if "rsqrt" not in node.name else numbers.quotient(node, _number(node, 1), root)


@_CONVERTERS.on("sin", "cos", "tan", "sinh", "cosh", "tanh")
def _circular(node: Node) -> Any:
    kind = node.name.split(".")[1]
    return (numbers.hyperbolic if kind.endswith("h") else numbers.circular)(node, kind, node["self"])


@_CONVERTERS.on("sgn")
def _sign(node: Node) -> Any:
    return numbers.direction(node, node["self"])


@_CONVERTERS.on("isnan", "isinf", "isfinite")
def _classified(node: Node) -> Any:
    kind, x = node.name.split(".")[1], node["self"]
    return node.op("logical_and" if kind == "isfinite" else "logical_or", node.op(kind, x.re), node.op(kind, x.im))


@_CONVERTERS.on("pow")
def _power(node: Node) -> Any:
    exponent = node["exponent"]
    if not isinstance(exponent, int) or not 1 <= exponent <= 8:
        return _shaped(node, numbers.power(node, _pair(node, "self"), _pair(node, "exponent")))
    x = found = _pair(node, "self")
    for _ in range(exponent - 1):
        found = numbers.times(node, found, x)
    return found


@_CONVERTERS.on("mm", "bmm", "matmul", "mv", "dot")
def _matmul(node: Node) -> Any:
    other = next(k for k in ("mat2", "other", "vec", "tensor") if k in node.args)
    return numbers.times(node, node["self"], node[other], "matmul")


@_CONVERTERS.on("addmm", "baddbmm", "addmv")
def _product_added(node: Node) -> Any:
    first, second = next(
        pair for pair in (("mat1", "mat2"), ("batch1", "batch2"), ("mat", "vec")) if pair[0] in node.args
    )
    product = numbers.times(node, _pair(node, first), _pair(node, second), "matmul")
    pairs = ((product, node["alpha"]), (node["self"], node["beta"]))
    parts = (_number(node, by) if isinstance(by, complex) else node.tensor(by) for _, by in pairs)
    return numbers.both(node, "add", *(
        numbers.times(node, x, by) if isinstance(by, Complex) else numbers.scaled(node, x, by)
        for (x, _), by in zip(pairs, parts, strict=True)
    ))  # fmt: skip


@_CONVERTERS.on("linear")
def _linear(node: Node) -> Any:
    weight = Complex(*(node.permute(p, [1, 0]) for p in (node["weight"].re, node["weight"].im)))
    product = numbers.times(node, _pair(node, "input"), weight, "matmul")
    return product if node.get("bias") is None else numbers.both(node, "add", product, _pair(node, "bias"))


@_CONVERTERS.on("eq", "ne")
def _equal(node: Node) -> Any:
    a, b = (x if isinstance(x, Complex) else Complex(getattr(x, "real", x), getattr(x, "imag", 0))
            for x in (node["self"], node["other"]))  # fmt: skip
    a, b = (Complex(node.tensor(x.re, "float64"), node.tensor(x.im, "float64")) for x in (a, b))
    return numbers.compared(node, "equal" if "aten.eq" in node.name else "not_equal", a, b)


# --- Fourier transforms -----------------------------------------------------------------------------------------------


@_CONVERTERS.on("_fft_c2c")
def _c2c(node: Node) -> Any:
    found = node["self"]
    for axis in node["dim"]:
        found = numbers.along(node, found, axis, inverse=not node["forward"])
    return _normalized(node, found, node.dims(found.re))


@_CONVERTERS.on("_fft_r2c")
def _r2c(node: Node) -> Any:
    """The last of the axes is halved, before the others are transformed."""
    real = node["self"]
    *others, last = (node.axis(a, len(real.ty.shape)) for a in node["dim"])
    found = numbers.along(node, Complex(real, None), last, inverse=False)
    if node["onesided"]:
        found = Complex(*(numbers.cut(node, p, last, 0, node.shape[last]) for p in (found.re, found.im)))
    for axis in others:
        found = numbers.along(node, found, axis, inverse=False)
    return _normalized(node, found, node.dims(real))


@_CONVERTERS.on("_fft_c2r")
def _c2r(node: Node) -> Any:
    """The last of the axes is whole again before it is transformed: its other half is the mirror image, conjugated."""
    found = node["self"]
    *others, last = (node.axis(a, len(found.re.ty.shape)) for a in node["dim"])
    for axis in others:
        found = numbers.along(node, found, axis, inverse=True)
    size = node.symbols.dim(node.metas["last_dim_size"]) if not isinstance(node["last_dim_size"], int) else node[
        "last_dim_size"]  # fmt: skip
    found = numbers.along(node, numbers.whole(node, found, last, size), last, inverse=True)
    return _normalized(node, found, node.shape).re


def _normalized(node: Node, x: Complex, dims: list[Any]) -> Complex:
    """Over nothing, the root of how many elements were transformed, or their number."""
    kind = node["normalization"]
    if kind == 0:
        return x
    count = node.tensor(node.product([dims[node.axis(a, len(dims))] for a in node["dim"]]))
    return numbers.scaled(node, x, node.op("sqrt", count) if kind == 1 else count, "divide")
