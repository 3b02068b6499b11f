"""Fourier transforms and windows."""

import math
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, as_expr, cast, const, floormod, if_then_else, select
from weft.topi.typing import Extent, Operand, Scalar, Shape


def _angle(k: Any, n: Any, extent: Any, dtype: str) -> Any:
    """``2 pi k n / extent``; whole turns go before they cost digits."""
    turn = cast("float64", floormod(cast("int64", k) * cast("int64", n), cast("int64", extent)))
    return cast(dtype, turn * const(2 * math.pi, "float64") / cast("float64", as_expr(extent)))


def dft(re_data: te.Tensor, im_data: te.Tensor, inverse: Extent) -> Any:
    """Discrete Fourier transforms of the last axis, as real and imaginary part; the inverse one divides by the length.

    Returns
    -------
    list of Tensor
        Real and imaginary part of the result.
    """
    back, extent, dtype = bool(inverse), re_data.shape[-1], re_data.dtype
    sign = const(1.0 if back else -1.0, dtype)

    def part(imaginary: bool) -> Any:
        k = te.reduce_axis((0, extent), "k")

        def element(*i: Any) -> Any:
            angle = _angle(i[-1], k.var, extent, dtype)
            real, other = re_data(*i[:-1], k.var), im_data(*i[:-1], k.var)
            c, s = tir.cos(angle), sign * tir.sin(angle)
            return te.sum(real * s + other * c if imaginary else real * c - other * s, axis=k)

        name = "dft_imaginary" if imaginary else "dft_real"
        total = te.compute(re_data.shape, element, name=name)
        return te.compute(total.shape, lambda *i: total(*i) / cast(dtype, extent), name=name) if back else total

    return [part(False), part(True)]


def stft(
    data: te.Tensor,
    n_fft: int,
    hop_length: int,
    win_length: int,
    window: te.Tensor,
    normalized: Extent,
    onesided: Extent,
    output_shape: Shape,
) -> Any:
    """Fourier transforms of windows that move along signals (batch, length).

    Parameters
    ----------
    window : Tensor
        (win_length,), by which each part of the signal is multiplied.
    normalized : bool
        Whether to divide by the square root of `n_fft`.
    output_shape : tuple
        (batch, frequencies, places, 2), real before imaginary part.
    """
    w = te.reduce_axis((0, win_length), "w")
    dtype = data.dtype

    def element(batch: PrimExpr, row: PrimExpr, column: PrimExpr, part: PrimExpr) -> Any:
        angle = _angle(row, w.var, win_length, dtype)
        turned = if_then_else(part.equal(0), tir.cos(angle), -tir.sin(angle))
        return te.sum(window(w.var) * data(batch, column * hop_length + w.var) * turned, axis=w)

    total = te.compute(tuple(output_shape), element, name="stft")
    if not bool(normalized):
        return total
    return te.compute(total.shape, lambda *i: total(*i) / tir.sqrt(cast(dtype, as_expr(n_fft))), name="stft_normalized")


def hamming_window(window_size: Operand, periodic: Extent, alpha: Scalar, beta: te.Tensor, dtype: str) -> Any:
    """``alpha - beta * cos(2 pi i / n)`` with the window's size as ``n``, one less where it is not periodic."""
    size, whole = as_expr(window_size), bool(periodic)
    scale = cast("float64", as_expr(alpha)), cast("float64", as_expr(beta))

    def element(i: PrimExpr) -> Any:
        period = size if whole else size - 1
        angle = cast("float64", i) * const(2 * math.pi, "float64") / cast("float64", tir.max(period, 1))
        return cast(dtype, select(size.equal(1), const(1.0, "float64"), scale[0] - scale[1] * tir.cos(angle)))

    return te.compute((size,), element, name="T_hamming_window")
