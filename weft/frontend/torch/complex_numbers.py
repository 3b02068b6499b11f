"""Complex tensors: two real ones each, which converters of real tensors move and the ones here compute with.

At a program's ends, complex tensors are what ``torch.view_as_real`` makes of them: one dimension of 2 more.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft.frontend import complex_arithmetic as numbers
from weft.frontend.complex_arithmetic import Complex
from weft.frontend.torch import registry
from weft.frontend.torch.node import Node
from weft.registry import Registry

_CONVERTERS: Registry[Callable[[Node], Any]] = Registry("aten.")
_MOVED = frozenset(
    """view reshape _unsafe_view permute transpose t expand unsqueeze squeeze slice select cat stack split
    split_with_sizes chunk unbind clone alias detach contiguous lift_fresh_copy flip roll repeat index index_select
    gather constant_pad_nd full full_like new_full fill zeros zeros_like new_zeros empty empty_strided new_empty
    scalar_tensor sum mean cumsum neg where masked_fill index_put scatter scatter_add select_scatter slice_scatter
    diagonal diagonal_copy tril triu unfold as_strided copy _to_copy reflection_pad1d reflection_pad2d
    reflection_pad3d replication_pad1d replication_pad2d replication_pad3d""".split()
)
"""What treats real and imaginary part alike."""
_COMPUTED = frozenset(
    """add sub rsub abs reciprocal exp log log2 log10 sqrt rsqrt square sin cos tan sinh cosh tanh mul div mm bmm
    matmul mv dot addmm baddbmm addmv linear eq ne var std any all logical_and logical_or logical_xor logical_not
    nonzero linalg_vector_norm dist linalg_eig linalg_eigvals geqrf ormqr linalg_householder_product""".split()
)
"""Whose converters are those of real tensors: operators know what they are for complex ones."""
_VALUES = ("self", "other", "tensors", "value", "values", "src", "source", "fill_value", "s")
"""Arguments whose imaginary part counts: that of a real one is zero."""


def involved(values: object) -> bool:
    """Whether a complex tensor or number is among what PyTorch knows of a call."""
    if isinstance(values, (list, tuple)):
        return any(map(involved, values))
    return isinstance(values, complex) or getattr(getattr(values, "dtype", None), "is_complex", False)


def find(target: object) -> Callable[[Node], Any] | None:
    """The converter of an overload for complex tensors."""
    name = str(target).rpartition(".")[0]
    plain = registry.find(target)
    if name.removeprefix("aten.") in _MOVED and plain is not None:
        return lambda node: _by_parts(node, plain)
    if name.removeprefix("aten.") in _COMPUTED:
        return plain
    return _CONVERTERS.get(str(target)) or _CONVERTERS.get(name)


def _by_parts(node: Node, convert: Callable[[Node], Any]) -> Any:
    if node.args.get("reduce") not in (None, "add", "sum"):
        node.error("parts of complex numbers are combined", expected="reduce='add'", found=str(node["reduce"]))
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
        if isinstance(v, (Complex, complex)) and not counts:
            node.error("an argument is complex that is taken for both parts alike")
        if isinstance(v, Complex):
            return v.im if imaginary else v.re
        if isinstance(v, complex):
            return v.imag if imaginary else v.real
        if not (counts and imaginary) or v is None:
            return v
        return 0.0 if isinstance(v, (bool, int, float)) else node.full(node.dims(v), 0, node.dtype)

    return {name: one(v, name in _VALUES) for name, v in args.items()}


@_CONVERTERS.on("ones", "ones_like", "new_ones", "eye")
def _real_values(node: Node) -> Complex:
    convert: Any = registry.find(node.name)
    return Complex(node.astype(convert(node), node.dtype), node.full(node.shape, 0, node.dtype))


def _shaped(node: Node, x: Complex) -> Complex:
    """Both parts in the result's shape."""
    return Complex(node.expand(x.re, node.shape), node.expand(x.im, node.shape))


_SIMPLE: dict[str, Callable[[Node], Any]] = {
    "view_as_real": lambda node: numbers.joined(node.bb, node["self"]),
    "view_as_complex": lambda node: numbers.split(node.bb, node["self"]),
    "real": lambda node: node["self"].re,
    "imag": lambda node: node["self"].im,
    "angle": lambda node: node.op("atan2", node["self"].im, node["self"].re),
    "sgn": lambda node: node.op("sign", node["self"]),
    "resolve_conj resolve_neg": lambda node: node["self"],
    "conj _conj conj_physical _conj_physical": lambda node: numbers.conjugate(node, node["self"]),
}
for _names, _simple in _SIMPLE.items():
    _CONVERTERS.on(*_names.split())(_simple)


@_CONVERTERS.on("complex")
def _complex(node: Node) -> Any:
    return _shaped(node, Complex(node["real"], node["imag"]))


@_CONVERTERS.on("polar")
def _polar(node: Node) -> Any:
    size, angle = node["abs"], node["angle"]
    return _shaped(node, numbers.scaled(node, Complex(node.op("cos", angle), node.op("sin", angle)), size))


@_CONVERTERS.on("isnan", "isinf", "isfinite")
def _classified(node: Node) -> Any:
    kind, x = node.name.split(".")[1], node["self"]
    return node.op("logical_and" if kind == "isfinite" else "logical_or", node.op(kind, x.re), node.op(kind, x.im))


@_CONVERTERS.on("pow")
def _power(node: Node) -> Any:
    exponent = node["exponent"]
    if not isinstance(exponent, int) or not 1 <= exponent <= 8:
        return _shaped(node, node.op("power", node.tensor(node["self"]), node.tensor(exponent)))
    return functools.reduce(functools.partial(node.op, "multiply"), [node["self"]] * exponent)


# --- Fourier transforms -----------------------------------------------------------------------------------------------


@_CONVERTERS.on("_fft_c2c", "_fft_r2c", "_fft_c2r")
def _transform(node: Node) -> Any:
    """Divided by nothing, the root of how many elements were transformed, or their number."""
    kind, x, normalization = node.name.split(".")[1][-3:], node["self"], node["normalization"]
    axes = [node.axis(a, len(x.ty.shape)) for a in node["dim"]]
    node.get("last_dim_size")  # which the result's shape has
    size = node.shape[axes[-1]] if node.get("onesided", kind == "c2r") else None
    found = numbers.fourier(node, x, axes, kind, not node.get("forward", kind == "r2c"), size)
    if normalization:
        dims = node.shape if kind == "c2r" else node.dims(x)
        count = node.tensor(node.product([dims[a] for a in axes]))
        found = numbers.scaled(node, found, node.op("sqrt", count) if normalization == 1 else count, "divide")
    return found.re if kind == "c2r" else found
