"""Products with weights of 2, 4 and 8 bits in groups, and rows quantised in such groups.

A weight is ``(q - half) * scale + offset``: `q` has `bits` bits, ``half = 2 ** (bits - 1)``; scale and offset (which may
be left out: zero) belong to `group` neighbouring weights of a column. Columns lie in panels, whose words have 32 bits::

    word (panel, step, column), byte b, bits j * bits ..    q of row  step * 32 / bits + 4 j + b

so that a mask takes four neighbouring rows of each column out of a vector of words, as dot products of bytes want them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import te, tir
from weft.error import InvalidArgument
from weft.ir import Broadcast, Ramp, as_int, cast, ceildiv, const, floordiv, floormod, int64
from weft.tir import ir_builder
from weft.tir.intrin import dot_pairs
from weft.topi.matmul import matmul, matmul_packed
from weft.topi.shape import simplify

__all__ = ["matmul_nbits", "matmul_nbits_dot", "matmul_nbits_packed", "quantize_groups", "rows_per_word"]

_LANES = 8
"""Columns that a step of a dot product has."""

_LARGEST = 127
"""Magnitude of quantised rows."""


def rows_per_word(bits: int) -> int:
    """Return how many weights of a column a word of 32 bits has."""
    return 32 // bits


def _field(word: Any, at: Any, bits: int) -> Any:
    """Return the weight of a word that begins at a bit, without its sign, as float32 about zero."""
    field = tir.bitwise_and(tir.shift_right(word, at), tir.const((1 << bits) - 1, word.dtype))
    return cast("float32", cast("int32", field) - const(1 << (bits - 1), "int32"))


def _real(q: Any, place: tuple[Any, ...], scale: Any, offset: Any) -> Any:
    value = q * cast("float32", scale(*place))
    return value if offset is None else value + cast("float32", offset(*place))


def matmul_nbits(x: Any, w: Any, scale: Any, offset: Any = None, bits: int = 4, group: int = 32) -> Any:
    """Multiply by weights (n, groups, group * bits / 8) uint8, the lowest bits first, on any target."""
    k, per = x.shape[-1], 8 // bits

    def weight(row: Any, column: Any) -> Any:
        at, inside = floordiv(row, int64(group)), floormod(row, int64(group))
        byte = w(column, at, floordiv(inside, int64(per)))
        shift = cast("uint8", floormod(inside, int64(per)) * int64(bits))
        return cast(x.dtype, _real(_field(byte, shift, bits), (column, at), scale, offset))

    weights = te.compute((k, w.shape[0]), weight, name="T_weights")
    return matmul(x, weights)


def matmul_nbits_packed(
    x: Any, w: Any, scale: Any, offset: Any = None, n: int = 0, bits: int = 4, group: int = 32
) -> Any:
    """Multiply by weights in panels, in float32."""
    per = rows_per_word(bits)

    def weight(panel: Any, row: Any, lane: Any) -> Any:
        step, inside = floordiv(row, int64(per)), floormod(row, int64(per))
        at = floordiv(inside, int64(4)) * int64(bits) + floormod(inside, int64(4)) * int64(8)
        place = (panel, floordiv(row, int64(group)), lane)
        return _real(_field(w(panel, step, lane), cast("int32", at), bits), place, scale, offset)

    weights = te.compute((w.shape[0], x.shape[-1], w.shape[2]), weight, name="T_weights")
    wide = te.compute(x.shape, lambda *i: cast("float32", x(*i)), name="T_cast") if x.dtype != "float32" else x
    out = matmul_packed(wide, weights, n)
    return out if out.dtype == x.dtype else te.compute(out.shape, lambda *i: cast(x.dtype, out(*i)), name="T_cast")


# --- rows in bytes ----------------------------------------------------------------------------------------------------


def quantize_groups(x: Any, group: int) -> list[Any]:
    """Quantise rows (..., k) to int8 in groups along the last axis, the last one filled up with zeros.

    Returns
    -------
    list of Tensor
        (..., groups * group) int8, scales (..., groups) float32, sums of the integers (..., groups) int32.
    """
    k, size = as_int(x.shape[-1]), int(group)
    if k is None or size % _LANES:
        raise InvalidArgument("quantize_groups: rows have a constant length and groups whole vectors",
                              expected=f"a multiple of {_LANES}", found=f"rows of {x.shape[-1]}, groups of {group}")  # fmt: skip
    groups, outer = -(-k // size), x.shape[:-1]
    rows = _product(outer)

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        given, q, scale, total = (ib.buffer_ptr(_matrix(b)) for b in (*ins, *outs))
        with ib.for_range(int64(0), rows, name="row", kind="parallel") as row:
            with ib.for_range(int64(0), int64(k // size), name="group") as g:
                _quantize_group(ib, given, q, scale, total, row, g, size, size)
            if k % size:
                _quantize_group(ib, given, q, scale, total, row, int64(k // size), size, k % size)
        return ib.get()

    shapes = [(*outer, int64(groups * size)), (*outer, int64(groups)), (*outer, int64(groups))]
    return te.extern(shapes, [x], body, name="quantize_groups", dtype=["int8", "float32", "int32"])


def _quantize_group(
    ib: Any, x: Any, q: Any, scale: Any, total: Any, row: Any, g: Any, size: int, known: int
) -> None:
    """Quantise the first `known` numbers of a group; the others are zero."""
    begin, lanes = g * int64(size), int64(_LANES)
    part = ib.allocate("float32", (size,), name="part", scope="local")
    top = ib.allocate("float32", (_LANES,), name="top", scope="local")
    sums = ib.allocate("int32", (_LANES,), name="sums", scope="local")
    lane = Ramp(int64(0), int64(1), _LANES)
    if known < size:
        with ib.for_range(int64(0), int64(size), name="i") as i:
            inside = tir.if_then_else(i < int64(known), cast("float32", x[row, begin + i]), const(0.0, "float32"))
            part[i] = inside

    def loaded(v: int) -> Any:
        if known < size:
            return part[lane + int64(v * _LANES)] if v else part[lane]
        return cast(f"float32x{_LANES}", x[row, Ramp(begin + int64(v * _LANES), int64(1), _LANES)])

    vectors = range(size // _LANES)
    top[lane] = _tree([tir.fabs(loaded(v)) for v in vectors], tir.max)
    largest = _tree([top[int64(i)] for i in range(_LANES)], tir.max)
    unit = ib.allocate("float32", (1,), name="unit", scope="local")
    unit[int64(0)] = largest * const(1.0 / _LARGEST, "float32")
    scale[row, g] = unit[int64(0)]
    unit[int64(0)] = tir.Select(
        largest > const(0.0, "float32"), const(float(_LARGEST), "float32") / largest, const(0.0, "float32")
    )
    for v in vectors:
        whole = cast(f"int32x{_LANES}", tir.round(loaded(v) * Broadcast(unit[int64(0)], _LANES)))
        sums[lane] = whole if v == 0 else sums[lane] + whole
        q[row, Ramp(begin + int64(v) * lanes, int64(1), _LANES)] = cast(f"int8x{_LANES}", whole)
    total[row, g] = _tree([sums[int64(i)] for i in range(_LANES)], lambda a, b: a + b)


def _tree(values: Sequence[Any], join: Any) -> Any:
    """Combine values in pairs, so that they do not wait for each other."""
    left = list(values)
    while len(left) > 1:
        left = [join(*left[i : i + 2]) if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)]
    return left[0]


def _product(dims: Sequence[Any]) -> Any:
    out: Any = int64(1)
    for d in dims:
        out = simplify(out * d)
    return out


def _matrix(buffer: Any) -> Any:
    """See a buffer as the matrix of its rows."""
    return tir.decl_buffer(
        (_product(buffer.shape[:-1]), buffer.shape[-1]), buffer.dtype, buffer.name + "_rows", data=buffer.data
    )


# --- products of bytes ------------------------------------------------------------------------------------------------


class _Dot:
    """The kernel: panels in parallel, rows in tiles, groups one after the other."""

    def __init__(self, ib: Any, buffers: list[Any], has_offset: bool, n: int, bits: int, group: int, dot: int) -> None:
        x, x_scale, x_sum, w, scale, *offset, out = (ib.buffer_ptr(b) for b in buffers)
        self.ib, self.x, self.x_scale, self.x_sum, self.out = ib, x, x_scale, x_sum, out
        self.w, self.scale, self.offset = w, scale, offset[0] if has_offset else None
        self.n, self.bits, self.group, self.dot = n, bits, group, dot
        self.lanes = dot or _LANES
        self.panels, _, self.panel = (as_int(d) or 0 for d in w.buffer.shape)
        self.groups = as_int(scale.buffer.shape[1]) or 0

    def run(self) -> Any:
        """Return the statement."""
        ib, rows = self.ib, self.out.buffer.shape[0]
        with ib.for_range(int64(0), int64(self.panels), name="panel", kind="parallel") as panel:
            known, at = as_int(rows), int64(0)
            for tall in (4, 2, 1):
                count = simplify(floordiv(rows - at, int64(tall)))
                vectors = range(self.panel // self.lanes)
                together = [vectors] if tall == 1 else [[v] for v in vectors]
                if known is None or as_int(count):
                    with ib.for_range(int64(0), count, name="tile") as tile:
                        for some in together:
                            self.tile(panel, at + tile * int64(tall), tall, list(some))
                at = simplify(at + count * int64(tall))
        return ib.get()

    def tile(self, panel: Any, row: Any, tall: int, vectors: list[int]) -> None:
        """Compute some rows of some vectors of a panel."""
        ib, lanes = self.ib, self.lanes
        cells = [(r, v) for r in range(tall) for v in vectors]
        zero = Broadcast(const(0.0, "float32"), lanes)
        with ib.new_scope():
            sums = {c: ib.allocate("float32", (lanes,), name="sum", scope="local") for c in cells}
            every = Ramp(int64(0), int64(1), lanes)
            for c in cells:
                sums[c][every] = zero
            with ib.for_range(int64(0), int64(self.groups), name="group") as g:
                whole = self.group_sums(panel, row, g, tall, vectors)
                for (r, v), value in whole.items():
                    at = Ramp(int64(v * lanes), int64(1), lanes)
                    unit = Broadcast(self.x_scale[row + r, g], lanes)
                    real = cast(f"float32x{lanes}", value) * unit
                    sums[r, v][every] = tir.fma(real, cast(f"float32x{lanes}", self.scale[panel, g, at]), sums[r, v][every])
                    if self.offset is not None:
                        total = self.x_scale[row + r, g] * cast("float32", self.x_sum[row + r, g])
                        step = cast(f"float32x{lanes}", self.offset[panel, g, at])
                        sums[r, v][every] = tir.fma(Broadcast(total, lanes), step, sums[r, v][every])
            for (r, v), value in sums.items():
                self.store(panel, row + r, v, value)

    def store(self, panel: Any, row: Any, v: int, value: Any) -> None:
        """Write a vector of results, of the last panel what there is."""
        ib, lanes = self.ib, self.lanes
        at, every = panel * int64(self.panel) + int64(v * lanes), Ramp(int64(0), int64(1), lanes)
        dtype = self.out.dtype
        if self.n % lanes == 0 and self.n % self.panel == 0:
            self.out[row, Ramp(at, int64(1), lanes)] = cast(f"{dtype}x{lanes}", value[every])
            return
        with ib.if_scope(at + int64(lanes) <= int64(self.n)):
            self.out[row, Ramp(at, int64(1), lanes)] = cast(f"{dtype}x{lanes}", value[every])
        with ib.else_scope():
            edge = ib.allocate("float32", (lanes,), name="edge", scope="local")
            edge[every] = value[every]
            with ib.for_range(int64(0), tir.max(int64(self.n) - at, int64(0)), name="lane") as lane:
                self.out[row, at + lane] = cast(dtype, edge[lane])

    def group_sums(self, panel: Any, row: Any, g: Any, tall: int, vectors: list[int]) -> dict[tuple[int, int], Any]:
        """Return the sums of products of a group, as vectors of int32."""
        per, lanes = rows_per_word(self.bits), self.lanes
        steps = self.group // per
        cells = [(r, v) for r in range(tall) for v in vectors]
        terms: dict[tuple[int, int], list[Any]] = {c: [] for c in cells}
        for t in range(steps):
            factors = {}
            step = g * int64(steps) + int64(t)
            for v in vectors:
                words = self.named("w", self.w[panel, step, Ramp(int64(v * lanes), int64(1), lanes)])
                factors[v] = [self.bytes(words, j) for j in range(8 // self.bits)]
            for j in range(8 // self.bits):
                for r in range(tall):
                    word = self.x[row + r, Ramp(step * int64(per) + int64(4 * j), int64(1), 4)]
                    spread = self.named("x", tir.reinterpret(f"int8x{4 * lanes}", Broadcast(tir.reinterpret("int32", word), lanes)))
                    for v in vectors:
                        terms[r, v].append((factors[v][j], spread))
        zero = {r: self.shift(row + r, g) for r in range(tall)}
        return {(r, v): self.named("s", self.total(terms[r, v], zero[r])) for r, v in cells}

    def named(self, name: str, value: Any) -> Any:
        """Compute a value once, here."""
        var = tir.Var(name, value.dtype)
        self.ib.emit(lambda body: tir.LetStmt(var, value, body))
        return var

    def bytes(self, words: Any, j: int) -> Any:
        """Return four rows of each column as bytes without sign; of 8 bits for pairs of products, with it."""
        lanes = self.lanes
        if self.bits == 8:
            if self.dot:
                return self.named("q", tir.reinterpret(f"uint8x{4 * lanes}", words))
            signs = Broadcast(const(-2139062144, "int32"), lanes)  # 0x80 in each byte
            return self.named("q", tir.reinterpret(f"int8x{4 * lanes}", tir.bitwise_xor(words, signs)))
        mask = ((1 << self.bits) - 1) * 0x01010101
        moved = tir.shift_right(words, Broadcast(const(j * self.bits, "int32"), lanes)) if j else words
        return self.named(
            "q", tir.reinterpret(f"uint8x{4 * lanes}", tir.bitwise_and(moved, Broadcast(const(mask, "int32"), lanes)))
        )

    def shift(self, row: Any, g: Any) -> Any:
        """Return what all products of a group have too much because weights are stored without sign."""
        if self.bits == 8 and not self.dot:
            return None
        return Broadcast(const(0, "int32") - self.x_sum[row, g] * const(1 << (self.bits - 1), "int32"), self.lanes)

    def total(self, terms: list[tuple[Any, Any]], zero: Any) -> Any:
        """Add up products of bytes."""
        lanes = self.lanes
        if self.dot:
            out = zero
            for w, x in terms:
                out = tir.CallIntrin(f"int32x{lanes}", tir.Op.get("tir.dot_accumulate"), (out, w, x))
            return out
        most = 1 if self.bits == 8 else 32767 // (2 * _LARGEST * ((1 << self.bits) - 1))
        ones = Broadcast(const(1, "int16"), 2 * lanes)
        parts = []
        for first in range(0, len(terms), most):
            pairs = [dot_pairs(*self.signed(w, x)) for w, x in terms[first : first + most]]
            parts.append(dot_pairs(_tree(pairs, lambda a, b: a + b), ones))
        return _tree(parts if zero is None else [*parts, zero], lambda a, b: a + b)

    def signed(self, w: Any, x: Any) -> tuple[Any, Any]:
        """Move the signs of weights to the other factor: one factor of pairs of products has none."""
        if self.bits < 8:
            return w, x
        sign = tir.shift_right(w, Broadcast(const(7, "int8"), 4 * self.lanes))
        return tir.reinterpret(f"uint8x{4 * self.lanes}", tir.abs(w)), tir.bitwise_xor(x, sign) - sign


def matmul_nbits_dot(
    x: Any, x_scale: Any, x_sum: Any, w: Any, scale: Any, offset: Any = None, n: int = 0, bits: int = 4,
    group: int = 32, dot: int = 0, out_dtype: str = "float32",
) -> Any:  # fmt: skip
    """Multiply quantised rows by weights in panels, in integers for each group.

    `dot` is the number of lanes of the machine's dot products of bytes, 0 where it has none.
    """
    outer = x.shape[:-1]
    given = [x, x_scale, x_sum, w, scale, *([] if offset is None else [offset])]

    def body(ins: Any, outs: Any) -> Any:
        ib = ir_builder.create()
        rows = [_matrix(b) for b in ins[:3]]
        return _Dot(ib, [*rows, *ins[3:], _matrix(outs[0])], offset is not None, n, bits, group, dot).run()

    return te.extern((*outer, int64(n)), given, body, name="T_matmul_nbits", dtype=out_dtype)
