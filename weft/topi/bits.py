"""Products of numbers of a few bits, as counts of the bits that two words share."""

from __future__ import annotations

from typing import Any

from weft import error, te, tir
from weft.ir import DataType, PrimExpr, as_int, cast, const, floordiv
from weft.spelling import named
from weft.topi.conv import conv_size, paddings, pair
from weft.topi.convolutions import resolved_padding
from weft.topi.manipulate import concatenate
from weft.topi.padding import pad
from weft.topi.shape import simplify
from weft.topi.typing import Extents, Padding


def _whole_words(data: Any, axis: int, bits: int) -> None:
    if (as_int(data.shape[axis]) or 0) % bits or as_int(data.shape[axis]) is None:
        raise error.InvalidArgument(
            f"bits are packed into words of {bits}", expected=f"a multiple of {bits}", found=str(data.shape[axis])
        )


def bitpack(
    data: te.Tensor, bits: int, pack_axis: int, bit_axis: int, pack_type: str, name: str = "QuantizeInput"
) -> Any:
    """Put the bits of numbers along `pack_axis` together into words, the first in the highest bit.

    Parameters
    ----------
    data : Tensor
        Integers of `bits` bits.
    bit_axis : int
        Where, in the result, the new axis stands that counts the bits of a number, the lowest first.
    pack_type : str
        uint8, uint16, uint32 or uint64.
    """
    width = DataType(pack_type).bits
    _whole_words(data, pack_axis, width)
    shape: list[Any] = [simplify(floordiv(d, width)) if a == pack_axis else d for a, d in enumerate(data.shape)]
    shape.insert(bit_axis, 1)

    def plane(bit: int) -> Any:
        def element(*i: Any) -> Any:
            at, word = [v for a, v in enumerate(i) if a != bit_axis], const(0, pack_type)
            first = at[pack_axis] * width
            for k in range(width):
                at[pack_axis] = first + k
                value = tir.bitwise_and(tir.shift_right(data(*at), const(bit, data.dtype)), const(1, data.dtype))
                word = tir.bitwise_or(tir.shift_left(word, const(1, pack_type)), cast(pack_type, value))
            return word

        return te.compute(tuple(shape), element, name=name)

    planes = [plane(bit) for bit in range(bits)]
    return planes[0] if bits == 1 else concatenate(planes, bit_axis)


def binarize_pack(data: te.Tensor, axis: int | None = None, name: str = "PackedInput") -> Any:
    """Put the signs of numbers (1: not negative) along an axis together into words of 32 bits."""
    along = data.ndim - 1 if axis is None else axis % data.ndim
    _whole_words(data, along, 32)
    shape = tuple(simplify(floordiv(d, 32)) if a == along else d for a, d in enumerate(data.shape))

    def element(*i: Any) -> Any:
        at, word = list(i), const(0, "uint32")
        for k in range(32):
            at[along] = i[along] * 32 + k
            sign = cast("uint32", data(*at) >= const(0, data.dtype))
            word = tir.bitwise_or(tir.shift_left(word, const(1, "uint32")), sign)
        return word

    return te.compute(shape, element, name=name)


def binary_dense(data: te.Tensor, weight: te.Tensor) -> Any:
    """``data @ weight.T`` of matrices of 1 and -1, packed by :func:`binarize_pack`, as float32."""
    if data.dtype != "uint32" or weight.dtype != "uint32" or data.ndim != 2 or weight.ndim != 2:
        raise error.InvalidArgument("binary_dense: two matrices of uint32", found=f"{data.dtype}, {weight.dtype}")
    words = data.shape[1]
    k = te.reduce_axis((0, words), "k")
    differ = te.compute(
        (data.shape[0], weight.shape[0]),
        lambda i, j: te.sum(tir.popcount(tir.bitwise_xor(data(i, k.var), weight(j, k.var))), axis=k),
        name="binary_dense",
    )
    total = cast("float32", words * 32)
    return te.compute(
        differ.shape, lambda i, j: total - const(2.0, "float32") * cast("float32", differ(i, j)), name="T_binary_dense"
    )


def _shared(x: Any, w: Any, bits: Any, out_dtype: str, unipolar: bool) -> Any:
    """What two words add to a product; weights that are `unipolar` have bits of 1 and -1."""
    count = cast(out_dtype, tir.popcount(tir.bitwise_and(x, w)))
    if unipolar:
        count = count - cast(out_dtype, tir.popcount(tir.bitwise_and(x, tir.bitwise_not(w))))
    return tir.shift_left(count, cast(out_dtype, bits))


def bitserial_dense(
    data: te.Tensor,
    weight: te.Tensor,
    data_bits: int,
    weight_bits: int,
    pack_dtype: str = "uint32",
    out_dtype: str = "int16",
    unipolar: bool = True,
) -> Any:
    """``data @ weight.T`` of numbers of a few bits.

    Parameters
    ----------
    weight : Tensor
        (outputs, inputs), or packed (outputs, bits, words).
    unipolar : bool
        Whether the bits of weights are 1 and -1 instead of 1 and 0.
    """
    x = bitpack(data, data_bits, 1, 1, pack_dtype)
    w = bitpack(weight, weight_bits, 1, 1, pack_dtype) if weight.ndim == 2 else weight
    k, i, j = (te.reduce_axis((0, n), v) for n, v in ((x.shape[2], "k"), (x.shape[1], "db"), (w.shape[1], "wb")))

    def element(row: PrimExpr, out: PrimExpr) -> Any:
        shared = _shared(x(row, i.var, k.var), w(out, j.var, k.var), i.var + j.var, out_dtype, unipolar)
        return te.sum(shared, axis=[k, i, j])

    return te.compute((data.shape[0], w.shape[0]), element, name="bitserial_dense")


def _bitserial_conv2d(layout: str, channels: str, data_axes: str, kernel_axes: str, kernel_text: str) -> Any:
    """Make the convolution of one layout, whose packed data and kernels have axes `c` of words and `b` of bits."""
    place = {axis: data_axes.index(axis) for axis in data_axes}

    def bitserial_conv2d(
        data: te.Tensor,
        kernel: te.Tensor,
        stride: Extents,
        padding: Padding,
        activation_bits: int,
        weight_bits: int,
        pack_dtype: str = "uint32",
        out_dtype: str = "int16",
        unipolar: bool = True,
    ) -> Any:
        x = bitpack(data, activation_bits, place["c"], place["b"], pack_dtype)
        w = bitpack(kernel, weight_bits, kernel_axes.index("c"), 4, pack_dtype) if kernel.ndim == 4 else kernel
        sizes = dict(zip(kernel_axes, w.shape, strict=True))
        window = (sizes["y"], sizes["x"])
        padded, s, outs = _windows(x, (place["y"], place["x"]), window, stride, padding)
        extents = (sizes["c"], *window, x.shape[place["b"]], sizes["b"])
        axes = [te.reduce_axis((0, n), v) for n, v in zip(extents, ("rc", "ry", "rx", "b1", "b2"), strict=True)]
        c, ky, kx, i, j = (a.var for a in axes)

        def element(n: PrimExpr, o: PrimExpr, y: PrimExpr, z: PrimExpr) -> Any:
            at = {"n": n, "c": c, "b": i, "y": y * s[0] + ky, "x": z * s[1] + kx}
            tap = {"o": o, "c": c, "b": j, "y": ky, "x": kx}
            value, weight = padded(*(at[a] for a in data_axes)), w(*(tap[a] for a in kernel_axes))
            return te.sum(_shared(value, weight, i + j, out_dtype, unipolar), axis=axes)

        if channels == "first":
            return te.compute((x.shape[0], sizes["o"], *outs), element, name="bitserial_conv2d")
        shape = (x.shape[0], *outs, sizes["o"])
        return te.compute(shape, lambda n, y, z, o: element(n, o, y, z), name="bitserial_conv2d")

    doc = f"""2-D convolution of numbers of a few bits, channels {channels}.

    Parameters
    ----------
    kernel : Tensor
        {kernel_text}.
    """
    return named(bitserial_conv2d, f"bitserial_conv2d_{layout}", doc)


bitserial_conv2d_nchw = _bitserial_conv2d(
    "nchw", "first", "ncbyx", "ocyxb", "(out, in, height, width), or packed (out, words, height, width, bits)"
)
bitserial_conv2d_nhwc = _bitserial_conv2d(
    "nhwc", "last", "nyxcb", "yxcob", "(height, width, in, out), or packed (height, width, words, out, bits)"
)


def _windows(x: Any, axes: tuple[int, int], size: Any, stride: Any, padding: Any) -> tuple[Any, Any, Any]:
    """Packed data with padding, strides and the sizes of the output."""
    s, (before, after) = pair(stride, 2), paddings(resolved_padding(padding, size, 1, 2), 2)
    outs = [conv_size(x.shape[a], size[d], s[d], 1, before[d], after[d]) for d, a in enumerate(axes)]
    widths = [[0] * x.ndim, [0] * x.ndim]
    for d, a in enumerate(axes):
        widths[0][a], widths[1][a] = before[d], after[d]
    return pad(x, widths[0], widths[1], 0, "pad_temp"), s, outs
