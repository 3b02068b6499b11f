"""Panels: weights in the order in which register tiles read them, packed at once or where they come at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import numpy as np

from weft import ir, op, runtime
from weft.arith import Analyzer
from weft.relax.block_builder import BlockBuilder


def known_shape(expr: ir.Expr) -> tuple[int, ...]:
    """Return the sizes of a tensor; nothing where one is not known."""
    ty = expr.ty
    sizes = [ir.as_int(d) for d in ty.shape] if isinstance(ty, ir.TensorType) and ty.shape is not None else [None]
    return () if None in sizes else tuple(sizes)  # type: ignore[arg-type]


def shape_of(expr: ir.Expr) -> tuple[ir.PrimExpr, ...] | None:
    """Return the shape of a tensor, where it has one."""
    return expr.ty.shape if isinstance(expr.ty, ir.TensorType) else None


def reshaped(x: ir.Expr, shape: Sequence[ir.PrimExpr | int]) -> ir.Call:
    """Return a call that gives a tensor another shape."""
    return op.make_call("reshape")(x, ir.shape_expr(list(shape)))


def permute(x: ir.Expr, axes: tuple[int, ...]) -> ir.Call:
    """Return a call that reorders dimensions."""
    return ir.Call(ir.Op.get("relax.permute_dims"), (x,), ir.Attrs.of(axes=axes))


def moved_weight(weight: ir.Expr, shape: Sequence[int], axes: Sequence[int], bb: BlockBuilder) -> ir.Expr:
    """Return weights in another shape and order of dimensions: at once, or computed where they come at run time."""
    if isinstance(weight, ir.Constant):
        return ir.constant(runtime.aligned(weight.data.numpy().reshape(shape).transpose(axes)))
    return bb.emit(permute(bb.emit(reshaped(weight, shape)), tuple(axes)))


def padded_weight(weight: ir.Expr, after: Sequence[int], bb: BlockBuilder) -> ir.Expr:
    """Return weights with so many zeros behind the elements of each dimension, or without so many elements."""
    shape = known_shape(weight)
    if any(n < 0 for n in after):
        ends = [d + min(n, 0) for d, n in zip(shape, after, strict=True)]
        if isinstance(weight, ir.Constant):
            weight = ir.constant(weight.data.numpy()[tuple(slice(n) for n in ends)])
        else:
            axes = list(range(len(ends)))
            weight = bb.emit(op.make_call("strided_slice")(weight, axes=axes, begin=[0] * len(ends), end=ends))
    width = [(0, max(n, 0)) for n in after]
    if not any(n for _, n in width):
        return weight
    if isinstance(weight, ir.Constant):
        return ir.constant(np.pad(weight.data.numpy(), width))
    return bb.emit(op.make_call("nn.pad")(weight, pad_width=[n for pair in width for n in pair]))


def flipped_weight(weight: ir.Expr, axes: Sequence[int], bb: BlockBuilder) -> ir.Expr:
    """Return weights with the elements of some dimensions in reverse order."""
    if isinstance(weight, ir.Constant):
        return ir.constant(runtime.aligned(np.flip(weight.data.numpy(), tuple(axes))))
    for axis in axes:
        weight = bb.emit(op.make_call("flip")(weight, axis=axis))
    return weight


def weight_panels(weight: ir.Expr, panel: int, group: int, bb: BlockBuilder) -> ir.Expr:
    """Return weights in panels, as :func:`pack_conv_weight` does."""
    if isinstance(weight, ir.Constant):
        return ir.constant(pack_conv_weight(weight.data.numpy(), panel, group))
    o, *rest = known_shape(weight)
    weight = padded_weight(weight, [round_up(o, panel) - o, *[0] * len(rest)], bb)
    axes = (0, *range(3, len(rest) + 2), 2, 1)
    return moved_weight(weight, (-(-o // panel), panel, *rest), axes, bb)


def round_up(n: int, multiple: int) -> int:
    """Return the least multiple that is no less than `n`."""
    return -(-n // multiple) * multiple


def pack_conv_weight(kernel: np.ndarray, panel: int, group: int = 1) -> np.ndarray:
    """Pack (O, I, KH, KW) into (ceil(O / panel), KH, KW, ceil(I / group), panel * group), padded with zeros.

    The kernel may have any number of spatial dimensions.
    """
    o, i, *sizes = kernel.shape
    padded = kernel
    if o % panel or i % group:
        padded = np.zeros((round_up(o, panel), round_up(i, group), *sizes), kernel.dtype)
        padded[:o, :i] = kernel
    apart = padded.reshape(-1, panel, padded.shape[1] // group, group, *sizes)
    groups = apart.transpose(0, *range(4, apart.ndim), 2, 1, 3)
    return runtime.aligned(groups).reshape(*groups.shape[:-2], panel * group)


def each_group(
    call: ir.Call, data: ir.Expr, axis: int, convolved: Callable[[ir.Expr, np.ndarray], ir.Expr], bb: BlockBuilder
) -> ir.Call:
    """Emit the convolution of each group, from its channels of `data` to its part of the result.

    Channels lie along `axis`; `convolved` gives the convolution of a group's channels with its kernel.
    """
    weight: ir.Constant = call.args[1]  # type: ignore[assignment]
    parts = []
    for i, kernel in enumerate(np.split(weight.data.numpy(), call.attrs["groups"])):
        begin, end = i * kernel.shape[1], (i + 1) * kernel.shape[1]
        own = bb.emit(op.make_call("strided_slice")(data, axes=[axis], begin=[begin], end=[end]))
        parts.append(bb.emit(convolved(own, kernel)))
    return ir.Call(ir.Op.get("relax.concat"), (ir.Tuple(tuple(parts)),), ir.Attrs.of(axis=axis))


def group_alone(call: ir.Call, data: ir.Expr, kernel: np.ndarray, outs: int, **layouts: str) -> ir.Call:
    """Return the convolution of one group, to `outs` channels, whose kernel lies as the `layouts` say."""
    attrs = call.attrs.with_(groups=1, channels=outs, **layouts)
    return ir.Call(call.op, (data, ir.constant(kernel)), attrs, span=call.span)


def _convenient(panels: int) -> int:
    """Return a number of panels, at most a sixth more, that four, five or six of them divide.

    Products of one or two rows work on so many at once: fewer sums under way do not keep the machine busy.
    """
    most = max(panels * 7 // 6, panels)
    return next((p for p in range(panels, most + 1) if panels <= 6 or not (p % 4 and p % 5 and p % 6)), panels)


def pack_matmul_weight(weight: np.ndarray, panel: int, group: int = 1, step: int = 1) -> np.ndarray:
    """Pack (K, N) into (panels, K / group, panel * group), padded with zeros: as many panels as N needs, or more.

    `step` is a multiple of `group` that rows are padded to.
    """
    k, n = weight.shape
    width, rows = _convenient(round_up(n, panel) // panel) * panel, round_up(k, max(group, step))
    padded = weight
    if (k, n) != (rows, width):
        padded = np.zeros((rows, width), weight.dtype)
        padded[:k, :n] = weight
    groups = padded.reshape(rows // group, group, -1, panel).transpose(2, 0, 3, 1)
    return runtime.aligned(groups).reshape(*groups.shape[:2], panel * group)


def weights_bytes(func: ir.Function) -> int:
    """Count the bytes of all constants of a function."""
    constants = set(ir.find(func.body, ir.Constant))
    return sum(
        prod(ir.as_int(d) or 0 for d in ty.shape) * ir.DataType(ty.dtype).itemsize
        for ty in (n.ty for n in constants)
        if isinstance(ty, ir.TensorType) and ty.shape is not None and ty.dtype
    )


LIKELY_SIZE = 224
"""What is taken for an unknown height or width of an input where sizes decide."""


def likely(size: ir.PrimExpr, unknown: int) -> int:
    """Return a size, with `unknown` in place of its variables."""
    known = ir.as_int(size)
    if known is not None:
        return known
    variables = set(ir.find(size, ir.Var))
    found = ir.as_int(Analyzer().simplify(ir.substitute(size, {v: ir.const(unknown, v.dtype) for v in variables})))
    return found if found is not None and found > 0 else unknown
