"""Fourier transforms, and what audio models do around them."""

import math
from typing import Any

from weft import ir, relax
from weft.frontend.fourier import Parts, transformed
from weft.frontend.onnx import scalars as s
from weft.frontend.onnx.axes import around_axis
from weft.frontend.onnx.manipulate import padded
from weft.frontend.onnx.model import dtype_name
from weft.frontend.onnx.node import Node
from weft.frontend.onnx.registry import converter
from weft.frontend.onnx.value import Dim
from weft.runtime.host import Kind


@converter("DFT")
def _dft(node: Node) -> Any:
    rank = node.ndim()
    given = node.one(2) if node.has(2) else node.attr("axis", 1 if node.opset < 20 else -2)
    axis = node.axis(given)
    if axis == rank - 1:
        node.error("the last axis holds real and imaginary parts", expected=f"0..{rank - 2}", found=str(axis))
    if s.is_known(axis):
        return _along(node, node.x(), axis)
    node.require_between("an axis of a signal, not of real and imaginary parts", axis, 0, rank - 2)
    shape = node.shape()[:-1]
    around = node.graph.named(around_axis(shape, axis))
    out = _along(node, node.reshape(node.x(), [*around, node.shape()[-1]]), 1)
    _, length, _, parts = node.dims(out)
    dims = [s.choose(s.compare("Equal", axis, i), length, d) for i, d in enumerate(shape)]
    return node.reshape(out, node.graph.named([*dims, parts]))


def _along(node: Node, x: Any, axis: int) -> Any:
    """Transform along an axis that is known."""
    rank, size = len(x.ty.shape), node.dims(x)[axis]
    inverse, onesided = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    default = s.multiply(s.subtract(size, 1), 2) if inverse and onesided else size
    length = node.one(1, sizes=True) if node.has(1) else default
    if onesided:  # of no samples there is no constant part, either
        node.require_between("the length of a transform", length, 1, None)
    parts = _parts(node, x, axis)
    if inverse and onesided:
        parts = _mirrored(node, parts, size, length)
    else:
        parts = tuple(None if p is None else _of_length(node, p, size, length) for p in parts)
    out = transformed(node.graph.bb, parts, inverse)  # type: ignore[arg-type]
    if inverse:
        scale = node.number(length, node.dtype())
        out = tuple(node.op("divide", p, scale) for p in out)
    if onesided and not inverse:
        out = tuple(_of_length(node, p, length, s.add(s.divide(length, 2), 1)) for p in out)
    order = list(range(rank - 2))
    order.insert(axis, rank - 2)
    return _joined(node, [node.permute(p, order) for p in (out[:1] if onesided and inverse else out)])


def _parts(node: Node, x: Any, axis: int) -> Parts:
    """Split the last axis into real and imaginary part, and bring `axis` to the end."""
    rank, count = len(x.ty.shape), node.dims(x)[-1]
    if count not in (1, 2):
        node.error("the last dimension holds real and imaginary parts", expected="1 or 2", found=str(count))
    order = [i for i in range(rank - 1) if i != axis] + [axis]
    fields = [node.slice(x, [rank - 1], [k], [k + 1]) if count == 2 else x for k in range(count)]
    parts = [node.permute(node.reshape(f, node.dims(f)[:-1]), order) for f in fields]
    return parts[0], parts[1] if count == 2 else None


def _joined(node: Node, parts: list[Any]) -> Any:
    """Put parts side by side along a new last axis."""
    shape = node.dims(parts[0])
    return node.concat([node.reshape(p, [*shape, 1]) for p in parts], len(shape))


def _of_length(node: Node, x: Any, size: Dim, length: Dim) -> Any:
    """Cut off the last axis, or fill it up with zeros."""
    if s.provably_equal(size, length):
        return x
    rank, kept = len(x.ty.shape), s.minimum(size, length)
    x = node.slice(x, [rank - 1], [0], [kept])
    rest = s.subtract(length, kept)
    return padded(node, x, [0] * rank, [*[0] * (rank - 1), rest], "constant", 0)


def _mirrored(node: Node, parts: Parts, size: Dim, length: Dim) -> Parts:
    """Fill up one half of a spectrum to the whole one of a real signal: the rest is its mirror image, conjugated."""
    half = s.minimum(s.add(s.divide(length, 2), 1), length)
    re, im = (None if p is None else _of_length(node, p, size, half) for p in parts)
    inner = s.add(s.divide(s.subtract(length, 1), 2), 1)  # without what has no mirror image

    def whole(x: Any, negated: bool) -> Any:
        last = len(x.ty.shape) - 1
        tail = node.op("flip", node.slice(x, [last], [1], [inner]), axis=last)
        return node.concat([x, node.op("negative", tail) if negated else tail], last)

    return whole(re, False), None if im is None else whole(im, True)


@converter("STFT")
def _stft(node: Node) -> Any:
    size, step = node.shape()[1], node.one(1)
    node.require_between("its step", step, 1, None)
    window = node.has(2)
    default = node.shape(2)[0] if window else size
    length = node.one(3, sizes=True) if node.has(3) else default
    if window:
        node.require_equal("the window's length", default, length)
    node.require_between("the length of a frame", length, 1, size)
    room = s.maximum(s.subtract(size, length), 0)
    frames = node.graph.named([s.add(s.divide(room, s.maximum(step, 1)), 1)])[0]
    starts = node.op("multiply", node.arange(frames), node.number(step, "int64"))
    places = node.op("add", node.reshape(starts, [frames, 1]), node.arange(length))
    re, im = _parts(node, node.reshape(node.x(), [*node.shape(), *([1] if node.ndim() == 2 else [])]), 1)

    def framed(x: Any) -> Any:
        taken = node.op("take", x, places, axis=1, mode="clip")
        return node.op("multiply", taken, node.x(2)) if window else taken

    out = transformed(node.graph.bb, (framed(re), None if im is None else framed(im)), False)
    if node.attr("onesided", 1):
        out = tuple(_of_length(node, p, length, s.add(s.divide(length, 2), 1)) for p in out)
    return _joined(node, list(out))


@converter("MelWeightMatrix")
def _mel(node: Node) -> Any:
    dtype = dtype_name(node.attr("output_datatype", 1), "MelWeightMatrix: attribute 'output_datatype'")
    (out,) = node.host("MelWeightMatrix", node.inputs, [Kind("tensor", "float64", 2)])
    return node.astype(node.graph.expr(out), dtype)


@converter("Unique")
def _unique(node: Node) -> Any:
    axis = node.attr("axis")
    if axis is not None:
        axis = node.axis(axis)
    ordered = node.attr("sorted", 1)
    if node.logical() != node.dtype():  # texts, and what is stored wider
        outs = [Kind("tensor", node.logical(), 1 if axis is None else node.ndim()), *[Kind("tensor", "int64", 1)] * 3]
        return node.host("Unique", node.inputs, outs, axis=axis, ordered=ordered)
    return node.graph.fields(node.emit(relax.op.unique(node.x(), ordered, True, True, True, axis)))


@converter("Det")
def _det(node: Node) -> Any:
    node.require_rank(0, 2, math.inf)
    _, _, diagonal, sign, _ = solved(node, 0)
    found = node.op("multiply", sign, node.op("prod", diagonal, axis=(-1,)))
    return node.astype(node.reshape(found, node.shape()[:-2]), node.dtype())


def solved(node: Node, columns: Dim, refusal: str = "") -> list[Any]:
    """Eliminate the input's square matrices in float64, with the first `columns` of the unit matrix on the right.

    Leading dimensions are one; the results are those of the operator ``linalg.solve``.
    """
    *lead, rows, size = node.shape()
    node.require_equal("matrices are square", size, rows)
    count = s.product(lead)
    a = node.astype(node.reshape(node.x(), [count, rows, size]), "float64")
    unit = node.op("eye", s.to_expr(rows), s.to_expr(columns), s.to_expr(0), dtype="float64")
    b = node.op("broadcast_to", unit, ir.shape_expr([s.to_expr(d) for d in (count, rows, columns)]))
    found = node.op("linalg.solve", a, b, refusal=refusal)
    return [node.emit(ir.TupleGetItem(found, i)) for i in range(5)]
