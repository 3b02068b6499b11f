"""Matrix tiles: eight registers of up to 16 rows of 64 bytes, products of which add up in a third (AMX on x86).

Statements use them through intrinsics with explicit tile numbers:

- ``tile_configure(rows0, bytes0, rows1, bytes1, ...)``: give tiles their shapes; all become zero,
- ``tile_release()``: give the tiles back, as every task does before it ends,
- ``tile_zero(t)``, ``tile_load(t, address, stride)``, ``tile_store(t, address, stride)`` with bytes between rows,
- ``tile_dot(kind, c, a, b)``: ``c += a @ b``, where a row of `b` holds groups of neighbouring terms: pairs of bfloat16
  summed in float32 (kind ``bf16``), or fours of bytes summed in int32 (``uint8int8``, ``int8int8``).

:class:`TileRegisters` is what they mean; the interpreter runs it.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import ml_dtypes
import numpy as np

from weft import error, ir
from weft.tir.stmt import Evaluate, Stmt

TILE_COUNT, TILE_ROWS, TILE_BYTES = 8, 16, 64

TILE_KINDS: dict[str, tuple[type, type, type]] = {
    "bf16": (ml_dtypes.bfloat16, ml_dtypes.bfloat16, np.float32),
    "uint8int8": (np.uint8, np.int8, np.int32),
    "int8int8": (np.int8, np.int8, np.int32),
}
"""Kind of product to the types of both factors and of the sums."""

_SMALLEST = np.float32(2.0**-126)


def tile_intrinsic(name: str, *args: Any) -> Stmt:
    """Make the statement that calls ``tir.tile_<name>``; a leading string is a kind."""
    exprs: list[ir.PrimExpr] = [
        ir.StringImm(a) if isinstance(a, str) else ir.int64(a) if isinstance(a, int) else ir.as_expr(a) for a in args
    ]
    return Evaluate(ir.CallIntrin("void", ir.Op.get(f"tir.tile_{name}"), tuple(exprs)))


class TileRegisters:
    """The tiles of one thread, with the checks of the processor."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []
        self.tiles: list[np.ndarray] = []

    def configure(self, *numbers: int) -> None:
        """Give tiles their shapes, (rows, bytes) each; what they held is gone."""
        shapes = list(zip(numbers[::2], numbers[1::2], strict=True))
        if len(shapes) > TILE_COUNT or any(
            not (0 < r <= TILE_ROWS and 0 < b <= TILE_BYTES and b % 4 == 0) for r, b in shapes
        ):
            raise error.LoweringError(
                "tile_configure: no such tiles", expected="at most 8 of 1..16 rows of 4..64 bytes", found=str(shapes)
            )
        self.shapes = shapes
        self.tiles = [np.zeros(s, np.uint8) for s in shapes]

    def release(self) -> None:
        """Give the tiles back."""
        self.shapes, self.tiles = [], []

    def zero(self, t: int) -> None:
        """Set a tile to zero."""
        self._tile(t)[...] = 0

    def load(self, t: int, memory: np.ndarray, start: int, stride: int) -> None:
        """Read a tile's rows, `stride` bytes apart, from byte `start` of an array of bytes."""
        for row, place in self._rows(t, memory, start, stride):
            row[...] = place

    def store(self, t: int, memory: np.ndarray, start: int, stride: int) -> None:
        """Write a tile's rows."""
        for row, place in self._rows(t, memory, start, stride):
            place[...] = row

    def dot(self, kind: str, c: int, a: int, b: int) -> None:
        """Add the product of two tiles to a third."""
        if kind not in TILE_KINDS:
            raise error.LoweringError(f"tile_dot: there is no kind '{kind}'", expected=", ".join(TILE_KINDS))
        left, right, sums = (self._tile(t) for t in (a, b, c))
        if len({a, b, c}) < 3 or (left.shape[0], right.shape[1], left.shape[1] // 4) != (
            sums.shape[0],
            sums.shape[1],
            right.shape[0],
        ):
            raise error.LoweringError("tile_dot: shapes do not fit", found=str([self.shapes[t] for t in (c, a, b)]))
        ta, tb, tc = TILE_KINDS[kind]
        x = left.view(ta).astype(tc)
        y = right.view(tb).astype(tc).reshape(right.shape[0], right.shape[1] // 4, -1)
        total = sums.view(tc)
        if tc is np.int32:
            group = y.shape[2]
            total += np.einsum("mkg,kng->mn", x.reshape(len(x), -1, group), y, dtype=np.int32)
            return
        total[...] = _flush(_flush(total) + _flush(_pairs(_flush(x), _flush(y))))

    def _tile(self, t: int) -> np.ndarray:
        if not 0 <= t < len(self.tiles):
            raise error.LoweringError(f"tile {t} is not configured", found=f"{len(self.tiles)} tiles")
        return self.tiles[t]

    def _rows(self, t: int, memory: np.ndarray, start: int, stride: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for r, row in enumerate(self._tile(t)):
            at, end = start + r * stride, start + r * stride + row.size
            if at < 0 or end > memory.size:
                raise error.LoweringError(
                    "a tile's row is outside of its buffer", expected=f"0..{memory.size}", found=f"{at}..{end}"
                )
            yield row, memory[at:end]


def _flush(x: np.ndarray) -> np.ndarray:
    """Denormal numbers are zeros."""
    return np.where(np.abs(x) < _SMALLEST, np.copysign(np.float32(0), x), x).astype(np.float32)


def _pairs(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Sum products in float32: even terms and odd terms one after another, and the two sums."""
    chains: Sequence[np.ndarray] = [np.zeros((len(x), y.shape[1]), np.float32) for _ in range(2)]
    for k in range(len(y)):
        for g in (0, 1):
            exact = x[:, 2 * k + g, None].astype(np.float64) * y[k, :, g].astype(np.float64)
            chains[g][...] = _flush((chains[g] + exact).astype(np.float32))
    return chains[0] + chains[1]
