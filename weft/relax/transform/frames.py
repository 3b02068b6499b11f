"""Convolutions of volumes whose windows take one frame, and what lies between them, on the frames as images.

All frames of all volumes are a batch of images: channels last, ``(n, d, h, w, c)`` and ``(n * d, h, w, c)`` are one
memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from weft import ir
from weft.op import Fusion, get_op_def, simplify
from weft.relax.core_ops import is_op
from weft.relax.transform import panels

if TYPE_CHECKING:
    from weft.relax.block_builder import BlockBuilder


def on_images(call: ir.Call) -> ir.Call | None:
    """Return a convolution as one of images, channels first: an image's itself, None where windows take more frames."""
    weight, attrs, ty = call.args[1], call.attrs, call.ty
    if not isinstance(weight, ir.Constant) or not isinstance(ty, ir.TensorType) or ty.shape is None or ty.ndim == 4:
        return call if isinstance(weight, ir.Constant) else None
    kernel = weight.data.numpy()
    sizes = {name: np.resize(attrs.get(name, 1), 3).tolist() for name in ("strides", "dilation")}
    padding = np.resize(attrs.get("padding", 0), 6).tolist()
    if kernel.shape[2] != 1 or sizes["strides"][0] != 1 or padding[0] or padding[3]:
        return None
    attrs = attrs.with_(padding=(*padding[1:3], *padding[4:]), **{name: tuple(v[1:]) for name, v in sizes.items()})
    n, c, d, h, w = ty.shape
    images = ir.TensorType((simplify(n * d), c, h, w), ty.dtype, 4)
    args = (call.args[0], ir.constant(kernel[:, :, 0]))
    return ir.Call(ir.Op.get("relax.nn.conv2d"), args, attrs, span=call.span, ty=images)


def frames_of(volume: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    """Return the frames of a volume, channels last; an image is one."""
    found = _known_frames(volume, bb)
    if found is not None or volume.ty.ndim == 4:  # type: ignore[union-attr]
        return volume if found is None else found
    n, d, *rest = volume.ty.shape  # type: ignore[union-attr]
    return bb.emit(panels.reshaped(volume, (simplify(n * d), *rest)))


def volume_of(made: ir.Call, call: ir.Call, bb: BlockBuilder) -> ir.Call:
    """Return the volume, channels last, of computed frames; `call` has its shape, channels first."""
    ty: Any = call.ty
    if ty.ndim == 4:
        return made
    n, c, *rest = ty.shape
    return panels.reshaped(bb.emit(made), (n, *rest, c))


def on_frames(call: ir.Call, args: Sequence[ir.Expr], bb: BlockBuilder) -> ir.Call | None:
    """Compute an element-wise operation of volumes on frames, where an operand has them already.

    `args` are the operands channels last; others than those of the result's size are numbers or constants of a frame.
    """
    assert isinstance(call.op, ir.Op)
    ty: Any = call.ty
    if get_op_def(call.op).fusion not in (Fusion.ELEMENTWISE, Fusion.BROADCAST) or ty.ndim != 5:
        return None
    if not any(_known_frames(a, bb) is not None for a in args):
        return None
    n, c, *rest = ty.shape
    whole, operands = [str(d) for d in (n, *rest, c)], []
    for a in args:
        shape = a.ty.shape  # type: ignore[union-attr]
        if shape and [str(d) for d in shape] == whole:
            operands.append(frames_of(a, bb))
        elif isinstance(a, ir.Constant) and len(shape) == 5 and all(ir.is_const_int(d, 1) for d in shape[:2]):
            operands.append(ir.constant(a.data.numpy()[0]))
        elif shape == ():
            operands.append(a)
        else:
            return None
    return volume_of(ir.Call(call.op, tuple(operands), call.attrs, span=call.span), call, bb)


def _known_frames(volume: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
    """What a volume was made of by :func:`volume_of`, or None."""
    value: Any = bb.lookup_binding(volume) if isinstance(volume, ir.ExprVar) else None
    made = value is not None and volume.ty.ndim == 5 and is_op(value, "reshape")  # type: ignore[union-attr]
    return value.args[0] if made and value.args[0].ty.ndim == 4 else None
