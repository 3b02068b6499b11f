"""The kernels that multiply rows by weights of few bits in panels of words (:mod:`weft.topi.nbits` draws them)."""

from __future__ import annotations

import itertools
import operator
from typing import Any

from weft import tir
from weft.error import InvalidArgument
from weft.ir import Broadcast, CallIntrin, PrimExpr, Ramp, Range, as_expr, as_int, cast, const, floordiv, int64
from weft.tir import TILE_BYTES, TILE_ROWS, tile_intrinsic
from weft.tir.intrin import dot_pairs
from weft.topi.precision import precise
from weft.topi.shape import simplify
from weft.topi.typing import IRBuilder
from weft.topi.written import in_pairs

LANES = 8
"""Columns that a step of a dot product has."""

MANY_ROWS = 32
"""Rows from which on the weights of a panel are unpacked into memory first, or go to matrix tiles."""

_TALLEST = 8
"""Rows of a tile where vectors have 512 bits, and thus 32 registers: their products take as long as memory takes for
the next panel, which is asked for meanwhile."""

_WRITTEN_OUT = 32
"""Rows of products that are straight code; larger groups are loops of them."""

LARGEST = 127
"""Magnitude of quantised rows."""


def rows_per_word(bits: int) -> int:
    """Return how many weights of a column a word of 32 bits has."""
    return 32 // bits


class _Product:
    """A kernel: panels in parallel, rows in tiles, the sum step by step."""

    heights = (4, 2, 1)
    """Rows of a tile, from the tallest."""
    wide = "float32"
    """The type of sums."""

    def __init__(self, ib: IRBuilder, x: Any, w: Any, scale: Any, offset: Any, out: Any, n: int, bits: int) -> None:
        self.ib, self.lanes, self.n, self.bits = ib, LANES, n, bits
        self.x, self.w, self.scale, self.out = (ib.buffer_ptr(b) for b in (x, w, scale, out))
        self.offset = None if offset is None else ib.buffer_ptr(offset)
        sizes = [as_int(d) for d in (*w.shape, scale.shape[1])]
        if None in sizes:
            raise InvalidArgument(
                "products with weights in panels: the weights' sizes are constant",
                found=f"{list(w.shape)}, {scale.shape[1]} groups",
            )
        self.panels, _, self.panel, self.groups = (d or 0 for d in sizes)

    def run(self) -> None:
        """Emit the statements."""
        ib = self.ib
        with ib.for_range(int64(0), int64(self.panels), name="panel", kind="parallel") as panel:
            self.rows(panel)

    def rows(self, panel: PrimExpr) -> None:
        """Compute all rows of a panel."""
        rows, at = self.out.buffer.shape[0], int64(0)
        for tall in self.heights:
            count = simplify(floordiv(rows - at, int64(tall)))
            vectors = range(self.panel // self.lanes)
            together = [list(vectors)] if tall == 1 else [[v] for v in vectors]
            if as_int(count) != 0:
                with self.ib.for_range(int64(0), count, name="tile") as tile:
                    for some in together:
                        self.tile(panel, at + tile * int64(tall), tall, some)
            at = simplify(at + count * int64(tall))

    def tile(self, panel: PrimExpr, row: PrimExpr, tall: int, vectors: list[int]) -> None:
        """Compute some rows of some vectors of a panel."""
        ib, lanes = self.ib, self.lanes
        every = Ramp(int64(0), int64(1), lanes)
        with ib.new_scope():
            cells = [(r, v) for r in range(tall) for v in vectors]
            sums = {c: ib.allocate(self.wide, (lanes,), name="sum", scope="local") for c in cells}
            for c in cells:
                sums[c][every] = Broadcast(const(0.0, self.wide), lanes)
            self.add(panel, row, sums)
            for (r, v), value in sums.items():
                self.store(panel, row + r, v, value[every])

    def add(self, panel: PrimExpr, row: PrimExpr, sums: dict[tuple[int, int], Any]) -> None:
        """Add all products to the sums, by row and vector."""
        raise NotImplementedError

    def vector(self, buffer: Any, panel: PrimExpr, at: PrimExpr, v: int) -> Any:
        """Load a vector of a row of a panel."""
        value = buffer[panel, at, Ramp(int64(v * self.lanes), int64(1), self.lanes)]
        return value if buffer.dtype == "int32" else cast(f"{self.wide}x{self.lanes}", value)

    def store(self, panel: PrimExpr, row: PrimExpr, v: int, value: Any) -> None:
        """Write a vector of results, of the last panel what there is."""
        ib, lanes = self.ib, self.lanes
        at, every = panel * int64(self.panel) + int64(v * lanes), Ramp(int64(0), int64(1), lanes)
        dtype = self.out.dtype
        if self.n % lanes == 0 and self.n % self.panel == 0:
            self.out[row, Ramp(at, int64(1), lanes)] = cast(f"{dtype}x{lanes}", value)
            return
        with ib.if_scope(at + int64(lanes) <= int64(self.n)):
            self.out[row, Ramp(at, int64(1), lanes)] = cast(f"{dtype}x{lanes}", value)
        with ib.else_scope():
            edge = ib.allocate(self.wide, (lanes,), name="edge", scope="local")
            edge[every] = value
            with ib.for_range(int64(0), tir.max(int64(self.n) - at, int64(0)), name="lane") as lane:
                self.out[row, at + lane] = cast(dtype, edge[lane])


class Unpacked(_Product):
    """Products in float32 at least: weights are unpacked in registers, for many rows once for all of them."""

    def __init__(self, *args: Any, group: int) -> None:
        super().__init__(*args)
        self.group, self.panel_weights = group, None
        self.wide = precise(self.x)
        self.lanes = 2 * LANES if self.panel % (4 * LANES) == 0 else LANES  # a panel is two vectors of the machine

    def rows(self, panel: PrimExpr) -> None:
        """Compute all rows of a panel, over weights that are unpacked ahead where many rows read them."""
        many = self.out.buffer.shape[0] >= int64(MANY_ROWS)
        known = as_int(simplify(many))
        if known != 0:
            with self.ib.if_scope(many):
                self.panel_weights, self.heights = self.unpacked(panel), (6, 1)
                super().rows(panel)
            self.panel_weights, self.heights = None, _Product.heights
        if known is None or known == 0:
            with self.ib.if_scope(tir.Not(many)):
                super().rows(panel)

    def unpacked(self, panel: PrimExpr) -> Any:
        """Write the weights of a panel."""
        k, every = as_int(self.x.buffer.shape[1]) or 0, range(self.panel // self.lanes)
        out = self.ib.allocate(self.wide, (k, self.panel), name="weights")
        for row, step, count in self.steps():
            with row as at:
                for v in every:
                    for i, weight in enumerate(self.weights(panel, step(at), v, count)):
                        place = Ramp(int64(v * self.lanes), int64(1), self.lanes)
                        out[step(at) * int64(rows_per_word(self.bits)) + int64(i), place] = weight
        return out

    def steps(self) -> list[Any]:
        """List the loops over words: whole ones, then the last."""
        k, per = as_int(self.x.buffer.shape[1]) or 0, rows_per_word(self.bits)
        loops: list[Any] = []
        if k // per:
            loops.append((self.ib.for_range(int64(0), int64(k // per), name="step"), lambda at: at, per))
        if k % per:
            loops.append((self.ib.for_range(int64(0), int64(1), name="last"), lambda at: int64(k // per), k % per))
        return loops

    def weights(self, panel: PrimExpr, step: Any, v: int, count: int) -> list[Any]:
        """Return the first weights of the words of a step."""
        lanes, bits, per = self.lanes, self.bits, rows_per_word(self.bits)
        if self.panel_weights is not None:
            place = Ramp(int64(v * lanes), int64(1), lanes)
            return [self.panel_weights[step * int64(per) + int64(i), place] for i in range(count)]
        words = self.ib.let("w", self.vector(self.w, panel, step, v))
        group = floordiv(step * int64(per), int64(self.group))
        scale = self.ib.let("scale", self.vector(self.scale, panel, group, v))
        base = scale * Broadcast(const(-float(1 << (bits - 1)), self.wide), lanes)
        if self.offset is not None:
            base = base + self.vector(self.offset, panel, group, v)
        base = self.ib.let("base", base)
        out = []
        for i in range(count):
            at = 8 * (i % 4) + bits * (i // 4)
            moved = tir.shift_right(words, Broadcast(const(at, "int32"), lanes)) if at else words
            field = tir.bitwise_and(moved, Broadcast(const((1 << bits) - 1, "int32"), lanes))
            out.append(self.ib.let("weight", tir.fma(cast(f"{self.wide}x{lanes}", field), scale, base)))
        return out

    def add(self, panel: PrimExpr, row: PrimExpr, sums: dict[tuple[int, int], Any]) -> None:
        """Add all products to the sums, by row and vector."""
        every, per = Ramp(int64(0), int64(1), self.lanes), rows_per_word(self.bits)
        for loop, step, count in self.steps():
            with loop as at:
                unpacked = {v: self.weights(panel, step(at), v, count) for _, v in sums}
                for i in range(count):
                    for (r, v), total in sums.items():
                        value = cast(self.wide, self.x[row + r, step(at) * int64(per) + int64(i)])
                        total[every] = tir.fma(Broadcast(value, self.lanes), unpacked[v][i], total[every])


class Dot(_Product):
    """Products of bytes, which are exact in each group."""

    def __init__(self, *args: Any, x_scale: Any, x_sum: Any, group: int, dot: int) -> None:
        super().__init__(*args)
        self.x_scale, self.x_sum = (self.ib.buffer_ptr(b) for b in (x_scale, x_sum))
        self.group, self.dot, self.lanes = group, dot, dot or LANES
        if dot == 2 * LANES:
            self.heights = (_TALLEST, *self.heights)
        self.ones = Broadcast(const(1, "int16"), 2 * self.lanes)

    def run(self) -> None:
        """Emit the statements."""
        in_words = not self.dot and self.bits < 8 and self.group <= _WRITTEN_OUT
        self.starts = self.started() if in_words else None
        super().run()

    def started(self) -> Any:
        """Write where sums of pairs of products start, two of 16 bits for each row and group.

        Weights without sign make them ``half`` times the sum of the row too large. They are right in the end, as 16
        products of numbers with sign fit in 16 bits, though what is added up before may run over.
        """
        ib, m, half = self.ib, self.out.buffer.shape[0], const(1 << (self.bits - 1), "int32")
        starts = ib.allocate("int32", (m, int64(self.groups)), name="starts")
        with ib.for_range(int64(0), m, name="row", kind="parallel") as row:
            with ib.for_range(int64(0), int64(self.groups), name="group") as g:
                at = g * int64(self.group)
                low, high = (
                    in_pairs(
                        [cast("int32", self.x[row, at + int64(i)]) for i in range(self.group) if i % 4 // 2 == side],
                        operator.add,
                    )
                    for side in range(2)
                )
                low = tir.bitwise_and(const(0, "int32") - low * half, const(0xFFFF, "int32"))
                high = tir.shift_left(const(0, "int32") - high * half, const(16, "int32"))
                starts[row, g] = tir.bitwise_or(low, high)
        return starts

    def add(self, panel: PrimExpr, row: PrimExpr, sums: dict[tuple[int, int], Any]) -> None:
        """Add all products to the sums, by row and vector."""
        lanes, every = self.lanes, Ramp(int64(0), int64(1), self.lanes)
        with self.ib.for_range(int64(0), int64(self.groups), name="group") as g:
            if len({r for r, _ in sums}) == _TALLEST:
                with self.ib.if_scope(row == int64(0)):
                    self.ask(panel, g, sorted({v for _, v in sums}))
            for (r, v), value in self.group_sums(panel, row, g, list(sums)).items():
                unit, total = self.x_scale[row + r, g], sums[r, v]
                real = cast(f"float32x{lanes}", value) * Broadcast(unit, lanes)
                total[every] = tir.fma(real, self.vector(self.scale, panel, g, v), total[every])
                if self.offset is not None:
                    whole = Broadcast(unit * cast("float32", self.x_sum[row + r, g]), lanes)
                    total[every] = tir.fma(whole, self.vector(self.offset, panel, g, v), total[every])

    def ask(self, panel: PrimExpr, g: PrimExpr, vectors: list[int]) -> None:
        """Ask for a group of the next panel, which no other rows wait for, while products of this one are computed."""
        steps, after = self.group // rows_per_word(self.bits), tir.min(panel + int64(1), int64(self.panels - 1))
        for v in vectors:
            columns = _span(v * self.lanes, self.lanes)
            wanted = [(self.w, g * int64(steps) + int64(t)) for t in range(steps)] + [(self.scale, g)]
            for source, at in wanted if self.offset is None else [*wanted, (self.offset, g)]:
                region = (_span(after, 1), _span(at, 1), columns)
                self.ib.emit(tir.Prefetch(source.buffer, region))

    def group_sums(
        self, panel: PrimExpr, row: PrimExpr, g: PrimExpr, cells: list[tuple[int, int]]
    ) -> dict[tuple[int, int], Any]:
        """Return the sums of products of a group, as vectors of int32, without what all have too much."""
        parts, every = max(1, self.group // _WRITTEN_OUT), Ramp(int64(0), int64(1), self.lanes)
        zero = {r: self.shift(row + r, g) for r, _ in cells}
        if parts == 1:
            return {c: self.ib.let("s", v) for c, v in self.part_sums(panel, row, g, cells, zero).items()}
        sums = {c: self.ib.allocate("int32", (self.lanes,), name="part", scope="local") for c in cells}
        for (r, _), total in zip(cells, sums.values(), strict=True):
            total[every] = Broadcast(const(0, "int32"), self.lanes) if zero[r] is None else zero[r]
        with self.ib.for_range(int64(0), int64(parts), name="part") as part:
            start = {c: total[every] for c, total in sums.items()}
            for c, value in self.part_sums(panel, row, g * int64(parts) + part, cells, dict.fromkeys(zero)).items():
                sums[c][every] = start[c] + value
        return {c: total[every] for c, total in sums.items()}

    def part_sums(
        self, panel: PrimExpr, row: PrimExpr, part: PrimExpr, cells: list[tuple[int, int]], zero: dict[int, Any]
    ) -> dict[tuple[int, int], Any]:
        """Return the sums of products of a part of a group, which is written out."""
        per, lanes = rows_per_word(self.bits), self.lanes
        steps = min(self.group, _WRITTEN_OUT) // per
        vectors, tall = sorted({v for _, v in cells}), 1 + max(r for r, _ in cells)
        terms: dict[tuple[int, int], list[Any]] = {c: [] for c in cells}
        starts = self.starts
        pairs = {} if starts is None else {(r, v): self.start(starts[row + r, part]) for r, v in cells}
        for t in range(steps):
            factors = {}
            step = part * int64(steps) + int64(t)
            for v in vectors:
                words = self.ib.let("w", self.vector(self.w, panel, step, v))
                factors[v] = [self.bytes(words, j) for j in range(8 // self.bits)]
            for j in range(8 // self.bits):
                for r in range(tall):
                    word = self.x[row + r, Ramp(step * int64(per) + int64(4 * j), int64(1), 4)]
                    four = Broadcast(tir.reinterpret("int32", word), lanes)
                    spread = self.ib.let("x", tir.reinterpret(f"int8x{4 * lanes}", four))
                    for v in vectors:
                        terms[r, v].append((factors[v][j], spread))
            for c, known in pairs.items():
                pairs[c] = self.ib.let("pairs", known + self.pairs(terms[c]))
                terms[c] = []
        if starts is not None:
            return {c: dot_pairs(known, self.ones) for c, known in pairs.items()}
        return {(r, v): self.total(terms[r, v], zero[r]) for r, v in cells}

    def start(self, word: PrimExpr) -> PrimExpr:
        """Let sums of pairs start at what a word has, for each column."""
        return tir.reinterpret(f"int16x{2 * self.lanes}", Broadcast(word, self.lanes))

    def pairs(self, terms: list[tuple[Any, Any]]) -> PrimExpr:
        """Add up products of bytes, of neighbours in 16 bits."""
        return in_pairs([dot_pairs(*self.signed(w, x)) for w, x in terms], operator.add)

    def bytes(self, words: Any, j: int) -> Any:
        """Return four rows of each column as bytes without sign; of 8 bits for pairs of products, with it."""
        lanes = self.lanes
        if self.bits == 8:
            if self.dot:
                return self.ib.let("q", tir.reinterpret(f"uint8x{4 * lanes}", words))
            signs = Broadcast(const(-2139062144, "int32"), lanes)  # 0x80 in each byte
            return self.ib.let("q", tir.reinterpret(f"int8x{4 * lanes}", tir.bitwise_xor(words, signs)))
        mask = ((1 << self.bits) - 1) * 0x01010101
        moved = tir.shift_right(words, Broadcast(const(j * self.bits, "int32"), lanes)) if j else words
        return self.ib.let(
            "q", tir.reinterpret(f"uint8x{4 * lanes}", tir.bitwise_and(moved, Broadcast(const(mask, "int32"), lanes)))
        )

    def shift(self, row: PrimExpr, g: PrimExpr) -> Any:
        """Return what all products of a group have too much because weights are stored without sign."""
        if self.bits == 8 and not self.dot:
            return None
        return Broadcast(const(0, "int32") - self.x_sum[row, g] * const(1 << (self.bits - 1), "int32"), self.lanes)

    def total(self, terms: list[tuple[Any, Any]], zero: Any) -> Any:
        """Add up products of bytes."""
        lanes = self.lanes
        if self.dot:
            out = Broadcast(const(0, "int32"), lanes) if zero is None else zero
            for w, x in terms:
                out = tir.CallIntrin(f"int32x{lanes}", tir.Op.get("tir.dot_accumulate"), (out, w, x))
            return out
        most = 1 if self.bits == 8 else 32767 // (2 * LARGEST * ((1 << self.bits) - 1))
        parts = [dot_pairs(self.pairs(terms[i : i + most]), self.ones) for i in range(0, len(terms), most)]
        return in_pairs(parts if zero is None else [*parts, zero], operator.add)

    def signed(self, w: Any, x: Any) -> tuple[Any, Any]:
        """Move the signs of weights to the other factor: one factor of pairs of products has none."""
        if self.bits < 8:
            return w, x
        sign = tir.shift_right(w, Broadcast(const(7, "int8"), 4 * self.lanes))
        return tir.reinterpret(f"uint8x{4 * self.lanes}", tir.abs(w)), tir.bitwise_xor(x, sign) - sign


class Tiled(Unpacked):
    """Products of many rows on matrix tiles: rows and weights are rounded to bfloat16, which loses less than bytes do.

    Rows are packed once, 32 rows of 32 numbers one after another; a task unpacks the weights of a panel, two tiles
    wide, as pairs of bfloat16 and multiplies all rows by them.
    """

    def __init__(self, *args: Any, group: int) -> None:
        super().__init__(*args, group=group)
        self.depth = TILE_BYTES // 2
        words = as_int(self.w.buffer.shape[1]) or 0
        self.tile_steps = -(-words * rows_per_word(self.bits) // self.depth)

    def run(self) -> None:
        """Emit the statements."""
        ib, m, side = self.ib, self.out.buffer.shape[0], 2 * TILE_ROWS
        tiles = simplify(floordiv(m + int64(side - 1), int64(side)))
        shape = (tiles, int64(2), int64(self.tile_steps), int64(TILE_ROWS), int64(self.depth))
        packed = ib.allocate("bfloat16", shape, name="packed_rows")
        with ib.for_range(int64(0), m, name="row", kind="parallel") as row:
            self.pack(packed, row)
        with ib.for_range(int64(0), int64(self.panels), name="panel", kind="parallel") as panel:
            pairs = self.pairs(panel)
            ib.emit(tile_intrinsic("configure", *[TILE_ROWS, TILE_BYTES] * 8))
            sums = ib.allocate("float32", (2 * TILE_ROWS, self.panel), name="sums", scope="local")
            with ib.for_range(int64(0), tiles, name="tile") as tile:
                self.multiply(packed, pairs, sums, tile)
                with ib.for_range(int64(0), tir.min(int64(side), m - tile * int64(side)), name="r") as r:
                    for v in range(2):
                        at = Ramp(int64(v * self.lanes), int64(1), self.lanes)
                        self.store(panel, tile * int64(side) + r, v, sums[r, at])
            ib.emit(tile_intrinsic("release"))

    def pack(self, packed: Any, row: PrimExpr) -> None:
        """Round a row and put it into its place in tiles, filled up with zeros."""
        ib, depth, k = self.ib, self.depth, as_int(self.x.buffer.shape[1]) or 0
        tile, half, r = (
            row // int64(2 * TILE_ROWS),
            row % int64(2 * TILE_ROWS) // int64(TILE_ROWS),
            row % int64(TILE_ROWS),
        )
        whole = Ramp(int64(0), int64(1), depth)
        with ib.for_range(int64(0), int64(k // depth), name="step") as step:
            values = self.x[row, Ramp(step * int64(depth), int64(1), depth)]
            packed[tile, half, step, r, whole] = cast(f"bfloat16x{depth}", cast(f"float32x{depth}", values))
        for step in range(k // depth, self.tile_steps):
            with ib.for_range(int64(0), int64(depth), name="i") as i:
                at = int64(step * depth) + i
                value = tir.if_then_else(at < int64(k), cast("float32", self.x[row, at]), const(0.0, "float32"))
                packed[tile, half, int64(step), r, i] = cast("bfloat16", value)

    def pairs(self, panel: PrimExpr) -> Any:
        """Unpack the weights of a panel: (half, pair of rows, column), the even row in the lower bits."""
        ib, lanes, per = self.ib, self.lanes, rows_per_word(self.bits)
        words, rows = as_int(self.w.buffer.shape[1]) or 0, self.tile_steps * self.depth // 2
        out = ib.allocate("uint32", (2, rows, lanes), name="pairs")
        every = Ramp(int64(0), int64(1), lanes)
        with ib.for_range(int64(0), int64(words), name="step") as step:
            for v in range(2):
                bits = [
                    cast(f"uint32x{lanes}", tir.reinterpret(f"uint16x{lanes}", cast(f"bfloat16x{lanes}", w)))
                    for w in self.weights(panel, step, v, per)
                ]
                for i in range(per // 2):
                    high = tir.shift_left(bits[2 * i + 1], Broadcast(const(16, "uint32"), lanes))
                    out[int64(v), step * int64(per // 2) + int64(i), every] = tir.bitwise_or(bits[2 * i], high)
        for v, row in itertools.product(range(2), range(words * per // 2, rows)):
            out[int64(v), int64(row), every] = Broadcast(const(0, "uint32"), lanes)
        return out

    def multiply(self, packed: Any, pairs: Any, sums: Any, tile: PrimExpr) -> None:
        """Sum 32 x 32 products in four tiles."""
        ib, zero, line = self.ib, int64(0), int64(TILE_BYTES)
        for t in range(4):
            ib.emit(tile_intrinsic("zero", t))
        with ib.for_range(int64(0), int64(self.tile_steps), name="step") as step:
            for h in range(2):
                ib.emit(tile_intrinsic("load", 4 + h, _address(packed, tile, int64(h), step, zero, zero), line))
                ib.emit(tile_intrinsic("load", 6 + h, _address(pairs, int64(h), step * int64(TILE_ROWS), zero), line))
            for a, b in itertools.product(range(2), repeat=2):
                ib.emit(tile_intrinsic("dot", "bf16", 2 * a + b, 4 + a, 6 + b))
        for a, b in itertools.product(range(2), repeat=2):
            at = _address(sums, int64(a * TILE_ROWS), int64(b * self.lanes))
            ib.emit(tile_intrinsic("store", 2 * a + b, at, int64(4 * self.panel)))


def _span(begin: Any, extent: int) -> Range:
    return Range.from_min_extent(as_expr(begin, "int64"), int64(extent))


def _address(buffer: Any, *at: Any) -> Any:
    return CallIntrin("handle", tir.Op.get("tir.address_of"), (buffer[at],))
