"""Fourier transforms of the last axis as products with small matrices, for every importer."""

import math
from typing import Any

import numpy as np

from weft import ir, relax
from weft.error import InvalidArgument
from weft.op import make_call

_DIRECT = 64
"""Transforms of up to this length are one product; longer ones are split in two where the length has factors."""

_TABLE = 1 << 28
"""Elements of the largest table of angles."""

Parts = tuple[Any, Any]
"""Real and imaginary part; None is zero."""


def transformed(bb: relax.BlockBuilder, parts: Parts, inverse: bool) -> Parts:
    """Transform the last axis; nothing is divided by its length.

    Parameters
    ----------
    parts : (Expr, Expr or None)
        Real and imaginary part, ``(..., n)`` float32 or float64; `n` may be symbolic.
    inverse : bool
        Whether angles turn the other way.

    Raises
    ------
    InvalidArgument
        Where the angles of a known length do not fit memory.
    """
    return _Transform(bb, parts[0].ty.dtype, inverse).of(parts)


class _Transform:
    def __init__(self, bb: relax.BlockBuilder, dtype: Any, inverse: bool) -> None:
        self.bb, self.dtype, self.sign = bb, str(dtype), 1 if inverse else -1

    def op(self, name: str, *args: Any, **attrs: Any) -> Any:
        return self.bb.emit(make_call(name)(*args, **attrs))

    def of(self, x: Parts) -> Parts:
        """By two shorter transforms where the axis is long and has a factor."""
        *lead, n = (d.value if isinstance(d, ir.IntImm) else d for d in x[0].ty.shape)
        factor = _factor(n) if isinstance(n, int) and _DIRECT < n <= _TABLE else 1
        if isinstance(n, int) and (n if factor > 1 else n * n) > _TABLE:
            raise InvalidArgument(
                "a Fourier transform needs a table of too many angles",
                found=f"the length {n}",
                expected=f"at most {_TABLE} (the length, squared for primes)",
            )
        if factor == 1:
            return self._combined("matmul", x, *self._matrix(n))
        a, b = factor, n // factor  # index i * b + j of the signal, k + l * a of the spectrum
        columns = self.of(self._turned(x, [*lead, a, b]))  # (j, k)
        angles = np.outer(np.arange(b), np.arange(a)) % n * (2 * math.pi / n)
        c, d = self._constant(np.cos(angles)), self._constant(self.sign * np.sin(angles))
        rows = self.of(self._turned(self._combined("multiply", columns, c, d), [*lead, b, a]))  # (k, l)
        re, im = self._turned(rows, [*lead, a, b])
        return self._reshape(re, [*lead, n]), self._reshape(im, [*lead, n])

    def _turned(self, parts: Parts, shape: list[Any]) -> Parts:
        rank = len(shape)
        axes = (*range(rank - 2), rank - 1, rank - 2)
        re, im = (None if p is None else self.op("permute_dims", self._reshape(p, shape), axes=axes) for p in parts)
        return re, im

    def _reshape(self, x: Any, dims: list[Any]) -> Any:
        return self.op("reshape", x, ir.shape_expr([ir.as_expr(d) for d in dims]))

    def _constant(self, values: np.ndarray) -> Any:
        return ir.constant(values.astype(ir.numpy_dtype(self.dtype)))

    def _matrix(self, n: Any) -> Parts:
        """The matrix of a transform, computed at run time where its length is not known."""
        if isinstance(n, int):
            angles = np.outer(np.arange(n), np.arange(n)) % max(n, 1) * (2 * math.pi / max(n, 1))
            return self._constant(np.cos(angles)), self._constant(self.sign * np.sin(angles))
        line = self.op("arange", ir.const(0, "int64"), n, ir.const(1, "int64"), dtype="int64")
        length = self.op("reshape", self.bb.emit(relax.core_ops.shape_to_tensor(ir.shape_expr([n]))), ir.shape_expr([]))
        turns = self.op("mod", self.op("multiply", self._reshape(line, [n, 1]), line), length)
        ratio = self.op("divide", self.op("astype", turns, dtype="float64"), self.op("astype", length, dtype="float64"))
        angles = self.op("multiply", ratio, ir.constant(np.asarray(2 * math.pi, "float64")))
        sine = self.op("multiply", self.op("sin", angles), ir.constant(np.asarray(self.sign, "float64")))
        return self.op("astype", self.op("cos", angles), dtype=self.dtype), self.op("astype", sine, dtype=self.dtype)

    def _combined(self, name: str, x: Parts, c: Any, d: Any) -> Parts:
        re, im = x
        if im is None:
            return self.op(name, re, c), self.op(name, re, d)
        return (
            self.op("subtract", self.op(name, re, c), self.op(name, im, d)),
            self.op("add", self.op(name, re, d), self.op(name, im, c)),
        )


def _factor(n: int) -> int:
    """Return the divisor nearest to the square root."""
    return next(d for d in range(math.isqrt(n), 0, -1) if n % d == 0)
