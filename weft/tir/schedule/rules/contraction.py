"""Matrix products and convolutions as one rule.

Register tiles over rows and columns, the sum innermost, the epilogue at the write-back.

A contraction has rows (variables of the first operand alone), columns (of the second alone), batch variables (of
both) and summed variables. For a product these are ``i``, ``j``, ``b`` and ``k``; for a convolution over
channels-last data, pixels, output channels, nothing, and taps with input channels. The second operand is expected in
panels ``[.., column // P, summed.., column % P]``, as constant weights are packed; one that is not, or that does not
divide into tiles, is packed by a stage of its own.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from math import prod

from weft.error import ScheduleError
from weft.ir import DataType, PrimExpr, Var, as_int, int64, is_const_int
from weft.tir.analysis.pattern import Contraction, contraction_of, element_cost, stride_along
from weft.tir.schedule.instruction import BlockRV, LoopRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.schedule.rules.epilogue import attach_epilogue, loop_over
from weft.tir.schedule.rules.panels import pack_near, pack_panels
from weft.tir.schedule.rules.tile import (
    LIKELY_SIZE,
    Problem,
    RowPart,
    Tile,
    TileLoop,
    n_tiles,
    panel_of,
    panels_of,
    reads_far,
    row_parts,
    tile_choices,
)
from weft.tir.transform.dot_product import DOT_GROUPS
from weft.tir.transform.prefetch_streams import PANEL_MARK, PREFETCH_MARK

_UNROLLED_COST = 12
"""Work of an element of the epilogue up to which it is written out for the whole tile."""

_FEW_ROWS = 2
"""Rows for which a second operand in rows is read as it lies, by the rule for reductions of columns."""

_DOT_ROWS = 4
"""Rows for which the second operand is read so often as it lies, if summands do so side by side, rather than packed."""

_ROWS_WORTH_A_COPY = 32
"""Rows of a product from which on a large second operand that lies in rows is copied into panels."""


def schedule_contraction(ctx: RuleContext, name: str) -> set[str]:
    """Schedule a contraction with its epilogue. Returns the names of the blocks that are done."""
    rv = BlockRV(name)
    c = contraction_of(ctx.block(rv), products=False)
    if c is None:
        raise ScheduleError("contraction: not a sum of products")
    if c.vector not in c.columns or not c.reduce:
        raise ScheduleError("contraction: the output is not contiguous along a column of the second operand")
    return _Product(ctx, rv, c).schedule()


class _Product:
    """One contraction on its way through the rule; the methods are its steps."""

    def __init__(self, ctx: RuleContext, rv: BlockRV, c: Contraction) -> None:
        self.ctx, self.sch, self.rv, self.c = ctx, ctx.sch, rv, c
        self.lanes = ctx.lanes(c.output.buffer.dtype)
        self.extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
        self.copies: set[str] = set()
        self.near = False
        self.shared: list[tuple[LoopRV, int]] = []
        self.group = 1 if c.pair else _dot_group(ctx, c)
        self.panel: int | None = None

    def schedule(self) -> set[str]:
        """Apply the rule."""
        ctx, c = self.ctx, self.c
        row_var = self._row_var()
        rows = int64(1) if row_var is None else self.extents[row_var]
        columns = self.extents[c.vector]
        self._require_fit(rows, columns)
        panel = self.panel = panel_of(c)
        panels = None if panel is None else panels_of(c, panel)
        copied = panel is None and self._packable() and self._read_often()
        self.streamed = panel is not None and self._is_streamed(rows) and ctx.choose("streamed", (True, False), True)
        if self.streamed and panel is not None:
            tile = end = Tile(1, max(1, panel // self.lanes), self.lanes)
        else:
            if panel is None and not copied and self._only_narrow_near(columns):
                copied, panels = True, 1
            width, far = (2 * self.lanes, True) if copied else (panel, self._is_far())
            tile, end = self._choose_tile(rows, columns, width, panels, far)
        if c.group is not None and c.group % tile.width:
            raise ScheduleError(f"contraction: groups of {c.group} columns are not whole vectors")
        packed: set[str] = set()
        if copied or (panel is None and not (stride_along(c.b, c.vector) == 1 and _divides(columns, tile.width))):
            if self._packable():
                if not copied and (as_int(rows) or _FEW_ROWS + 1) <= _FEW_ROWS and stride_along(c.b, c.vector) == 1:
                    raise ScheduleError("contraction: panels of the second operand would be read for few rows only")
                rows_first = self._rows_first(rows, columns)
                self.near = ctx.choose(
                    "near", (False, True), not rows_first and self._copies_near(columns, tile.vectors)
                )
                if not self.near:
                    packed = pack_panels(ctx, self.rv, c, tile.width)
                    new = contraction_of(ctx.block(self.rv), products=False)
                    assert new is not None
                    self.c = Contraction(new.block, new.output, new.a, new.b, c.vector, new.pair)
            elif stride_along(c.b, c.vector) != 1:
                raise ScheduleError(
                    "contraction: the second operand neither is contiguous along the column nor can be packed"
                )
        sink, loop_of = attach_epilogue(ctx, self.rv)
        column = loop_over(loop_of, c.vector, "contraction")
        row = loop_of.get(row_var) if row_var is not None else None
        if row is None:
            row = self.sch.add_unit_loop(column)
            rows = ctx.extent(row)
        rows_first = not self.near and ctx.choose("rows_first", (False, True), self._rows_first(rows, columns))
        ragged = tile is not end or (panel is None and not packed and not _divides(columns, tile.width))
        placed: list[TileLoop] = []
        for s, r, x, t in self._stretches(sink, row, column, tile, end) if ragged else [(sink, row, column, tile)]:
            placed += self._tile_sink(s, r, x, row_parts(rows, t), t, rows_first)
        anchors = self._place(placed)
        for shared, n in self.shared if self.near else ():
            self.copies.add(pack_near(ctx, anchors[:n], self.c, shared))
            anchors = anchors[n:]
        return {self.rv.name, sink.name, *packed, *self.copies, *[x.sink.name for x in placed]}

    # --- reading the problem ---

    def _choose_tile(
        self, rows: PrimExpr, columns: PrimExpr, width: int | None, panels: int | None, far: bool
    ) -> tuple[Tile, Tile]:
        """Choose the tile, and the one for columns behind the last whole tile."""
        machine, group = self.ctx.machine, self.c.group
        few = self._widens() or self._converts() or self.c.pair
        many = (as_int(rows) or machine.far_rows + 1) > machine.far_rows  # few wait for panels, whatever their tile
        loads = 1 if many and self._pairs_words() else machine.loads_per_cycle  # what widens takes a unit that adds
        registers = machine.vector_registers * (3 if few else 4) // 4
        machine = replace(machine, vector_registers=registers, loads_per_cycle=loads)
        problem = Problem(rows, columns, self.lanes, machine, width, group, panels, far)
        tiles = tile_choices(problem, self.group > 1)
        shape = self.ctx.choose("tile", [t[:2] for t in tiles], tiles[0][:2])
        end = Tile(shape[0], shape[1], tiles[0].lanes)
        wide = next((t for t in tiles if t.vectors == 2), end)
        known = as_int(rows) is not None  # unknown ones have three heights in each stretch: much code for little
        halves = self._ends_in_half_a_panel(columns, end) and self.ctx.choose("halves", (True, False), known)
        return wide if halves else end, end

    def _madds(self) -> int | None:
        known = [as_int(e) for e in self.extents.values()]
        return None if None in known else prod(n or 0 for n in known)

    def _row_var(self) -> Var | None:
        """The row variable that tiles cover, the last, if there is one.

        Rows that lie behind each other in all operands are one variable already. Where they are two, as before a
        summand for each sequence, a tile that goes over the end of the inner one would need all of the outer.
        """
        rows = [i for i in self.c.output.indices if isinstance(i, Var) and i in self.c.rows]
        return next((v for v in reversed(rows) if not is_const_int(self.extents[v], 1)), None)

    def _rows_first(self, rows: PrimExpr, columns: PrimExpr) -> bool:
        """Whether to walk rows outside and panels inside: when the whole second operand stays in the cache."""
        c = self.c
        sizes = [as_int(self.extents[v]) for v in (*c.reduce, *c.columns)]
        if None in sizes or 4 * prod(n or 0 for n in sizes) > self.ctx.machine.resident_operand_bytes:
            return False
        m, n = as_int(rows), as_int(columns)
        return m is None or n is None or m * 4 > n

    def _panels_first(self) -> bool:
        """Whether to walk panels outside of all else: when the second operand is larger than what all rows read.

        Otherwise the whole of it would come from far for each of the outer rows. A batch of unknown size is taken to be
        one, that of most requests; other unknown sizes are likely ones.
        """
        a, b = ([as_int(d) for d in x.buffer.shape] for x in (self.c.a, self.c.b))
        if self.c.batch or None in b:
            return False
        if len(a) > 2 and a[0] is None:
            a[0] = 1
        read = prod(LIKELY_SIZE if n is None else n for n in a) * DataType(self.c.a.dtype).itemsize
        return read <= prod(n or 0 for n in b) * DataType(self.c.b.dtype).itemsize

    def _require_fit(self, rows: PrimExpr, columns: PrimExpr) -> None:
        """Refuse what other rules compute better."""
        if self._madds() is not None and (self._madds() or 0) < 256:
            raise ScheduleError("contraction: too small to tile")
        if any(is_const_int(e, 0) for e in self.extents.values()):
            raise ScheduleError("contraction: there is nothing to sum, or no place for a sum")
        if self._are_dots(rows, columns):
            raise ScheduleError("contraction: few rows or one column, whose summands lie side by side in both operands")

    def _are_dots(self, rows: PrimExpr, columns: PrimExpr) -> bool:
        """Whether sums run over what lies side by side in both operands, and rows are few or there is one column."""
        a, b, inner = self.c.a, self.c.b, self.c.reduce[-1]
        m = as_int(rows) or _DOT_ROWS + 1
        few = m <= 1 or (m <= _DOT_ROWS and not self._copies_near(columns, 2))
        few = few and stride_along(b, self.c.vector) != 1
        return (
            (few or is_const_int(columns, 1))
            and self.group == 1
            and stride_along(a, inner) == stride_along(b, inner) == 1
        )

    def _ends_in_half_a_panel(self, columns: PrimExpr, tile: Tile) -> bool:
        """Whether a narrow tile was chosen for what lies behind whole panels, which wider tiles compute better."""
        known, plain = as_int(columns) or 0, self.c.group is None and tile.lanes == self.lanes
        return plain and self.panel == 2 * self.lanes < known and tile.vectors == 1 and tile.rows > _DOT_ROWS

    def _packable(self) -> bool:
        """Whether each dimension of the second operand is one variable or one place, so that packing permutes it."""
        plain = [i for i in self.c.b.indices if not is_const_int(i, 0)]
        return all(isinstance(i, Var) for i in plain) and len(plain) == len(set(plain)) and self.c.vector in plain

    def _read_often(self) -> bool:
        """Whether enough rows, in tiles or around them, read a second operand above the first cache that a copy pays.

        As it lies, rows of a panel are far apart: at distances of powers of two they push each other out of the caches.
        Columns that fit one vector are a panel.
        """
        n, size = as_int(prod(self.extents[v] for v in self.c.rows)), DataType(self.c.b.buffer.dtype).itemsize
        size *= prod(as_int(self.extents[v]) or 0 for v in (*self.c.reduce, *self.c.columns))
        many = (as_int(self.extents[self.c.vector]) or 0) > self.lanes
        return many and n is not None and n >= _ROWS_WORTH_A_COPY and size > self.ctx.machine.l1_cache_bytes

    # --- steps ---

    def _stretches(
        self, sink: BlockRV, row: LoopRV, column: LoopRV, tile: Tile, end: Tile
    ) -> list[tuple[BlockRV, LoopRV, LoopRV, Tile]]:
        """Cut columns into what whole tiles take, whole vectors, and the rest, so that no lane is masked.

        These end in tiles as tall as `end`, if that is one of a single vector.
        """
        sch, n, size = self.sch, self.ctx.constant(column), self.ctx.extent(column)
        if n is not None and n <= tile.lanes:
            return [(sink, row, column, tile)]
        last, rest = tile.lanes if n else tile.width, n % tile.lanes if n else tile.lanes  # masked, where n is unknown
        more = n % tile.width // tile.lanes if n else 0
        rows = end.rows if end.vectors == 1 else tile.rows
        rest = tile.lanes if self.panel is not None and 2 * rest > tile.lanes else rest  # panels have whole vectors
        tiles = [
            (size // tile.width * tile.width, tile),
            (int64(more * tile.lanes), Tile(rows if more == 1 else tile.rows, more, tile.lanes)),
            (size % last, Tile(rows, 1, rest)),
        ]
        tiles = [(length, t) for length, t in tiles if not is_const_int(length, 0)]
        sch.reorder(column, *[x for x in sch.get_loops(sink) if x.var is not column.var])
        at = next(i for i, x in enumerate(sch.get_loops(sink)) if x.var is row.var)
        found = []
        pieces = sch.loop_partition(column, [m for m, _ in tiles]) if len(tiles) > 1 else [column]
        for piece, (_, t) in zip(pieces, tiles, strict=True):
            block = sch.get_child_blocks(piece)[0]
            found.append((block, sch.get_loops(block)[at], piece, t))
        return found

    def _tile_sink(
        self, sink: BlockRV, row: LoopRV, column: LoopRV, parts: list[RowPart], tile: Tile, rows_first: bool
    ) -> list[TileLoop]:
        """Tile the loops of the sink, each stretch of rows by itself."""
        sch, ctx = self.sch, self.ctx
        everything = sch.get_loops(sink)
        outer = [x for x in everything if x.var is not row.var and x.var is not column.var]
        column_outer, column_inner = sch.split(column, [None, tile.width])
        around: list[LoopRV] = []
        if rows_first and (len(parts) == 1 or not ctx.drop_unit_loops(outer)):
            order = [*outer, row, column_outer, column_inner]
        else:
            rows_first = False
            around = [column_outer, *outer] if self._panels_first() else [*outer, column_outer]
            order = [*around, row, column_inner]
        sch.reorder(*order)
        work = self._tile_work(tile)
        if len(parts) == 1 and not self.near:
            row_outer, row_inner = sch.split(row, [None, parts[0].rows])
            order = [*outer, row_outer, column_outer] if rows_first else [*around, row_outer]
            sch.reorder(*order, row_inner, column_inner)
            tiles = ctx.fuse(order)
            assert tiles is not None
            ctx.parallel(tiles, work, ctx.machine.light_task_work if self.streamed else None)
            return [TileLoop(sink, tiles, parts[0], tile)]
        pieces = sch.loop_partition(row, [p.length for p in parts]) if len(parts) > 1 else [row]
        result = []
        for piece, part in zip(pieces, parts, strict=True):
            block = sch.get_child_blocks(piece)[0]
            row_outer, row_inner = sch.split(piece, [None, part.rows])
            if rows_first:
                panels = sch.get_loops(block)[-2]
                sch.reorder(row_outer, panels, row_inner)
                tiles = ctx.fuse([row_outer, panels])
                assert tiles is not None
                ctx.parallel(tiles, work)
            else:
                tiles = row_outer
            result.append(TileLoop(block, tiles, part, tile))
        if not rows_first:
            shared = ctx.fuse(around)
            assert shared is not None
            m = as_int(parts[0].length) if all(isinstance(p.length, int) for p in parts) else None
            total = None if m is None or work is None else work * sum(int(p.length) // p.rows for p in parts)  # type: ignore[call-overload]
            self.shared.append((shared, len(result)))
            if self.near or (ctx.constant(shared) or 64) >= 2 * ctx.machine.cores:
                ctx.parallel(shared, total)
            else:
                for x in result:
                    ctx.parallel(x.loop, work)
        return result

    def _copies_near(self, columns: PrimExpr, vectors: int) -> bool:
        """Whether the tasks that read panels copy them: enough of both, and the second cache holds a panel."""
        machine, c, width = self.ctx.machine, self.c, vectors * self.lanes
        tiled = {c.vector, *c.batch, self._row_var()}
        if any(v not in tiled and not is_const_int(self.extents[v], 1) for v in (*c.rows, *c.columns)):
            return False
        size = width * DataType(c.b.dtype).itemsize
        size *= prod(as_int(self.extents[v]) or machine.l2_cache_bytes for v in c.reduce)
        tasks = (as_int(columns) or 0) // width * prod(as_int(self.extents[v]) or 1 for v in c.batch)
        return tasks >= 2 * machine.cores and size <= machine.l2_cache_bytes // 4

    def _only_narrow_near(self, columns: PrimExpr) -> bool:
        """Whether the second operand is turned, and only panels of two vectors stay near."""
        turned = stride_along(self.c.b, self.c.vector) != 1 and self._packable()
        return turned and self._copies_near(columns, 2) and not self._copies_near(columns, 8)

    def _tile_work(self, tile: Tile) -> int | None:
        total = tile.rows * tile.vectors
        for v in self.c.reduce:
            n = as_int(self.extents[v])
            if n is None:
                return None
            total *= n
        return max(1, total * 2)

    def _place(self, tiles: list[TileLoop]) -> list[BlockRV]:
        """Put the sum into each tile and write out both; returns the blocks that sum."""
        anchors = [self.rv] if len(tiles) == 1 else self.sch.split_consumers(self.rv, [x.sink for x in tiles])
        longest = max(tiles, key=lambda t: n_tiles(t.part)).loop
        for anchor, (sink, loop, part, tile) in zip(anchors, tiles, strict=True):
            ahead = self._panel_ahead(tile)
            big = element_cost(self.ctx.block(sink).body) > _UNROLLED_COST
            if big and tile.rows > 1:
                self._spill(anchor, sink, loop, tile)
            if self.streamed:
                self._split_sum(anchor, loop, tile)
            else:
                self.sch.compute_at(anchor, loop)
                self.sch.set_scope(anchor, 0, "local")
                self._tile_sum(anchor, loop, tile, part.rows, ahead if loop is longest else 0)
            self._write_back(sink, loop, tile, big)
        return anchors

    def _is_streamed(self, rows: PrimExpr) -> bool:
        """Whether a product with one row reads a second operand that no near cache holds, panel by panel."""
        c = self.c
        steps = as_int(self.extents[c.reduce[-1]]) if len(c.reduce) == 1 else None
        return (
            is_const_int(rows, 1)
            and self.group == 1
            and c.group is None
            and steps is not None
            and steps % 4 == 0
            and self._packed_bytes() >= self.ctx.machine.single_stream_bytes
        )

    def _widens(self) -> bool:
        """Whether factors are widened in registers before they are multiplied, which takes some of these."""
        return self.group == 4 and not self.ctx.machine.adds_four_bytes

    def _pairs_words(self) -> bool:
        """Whether pairs of words are multiplied by bytes that widen as they are loaded."""
        return self.group == 2 and self.c.a.dtype == "int16"

    def _converts(self) -> bool:
        """Whether floats of the second operand are widened in registers, one at a time."""
        b, sums = DataType(self.c.b.dtype), DataType(self.c.output.buffer.dtype)
        return self.group == 1 and b.is_float and b.bits < sums.bits

    def _is_far(self) -> bool:
        """Whether panels come from memory, each for one summed variable."""
        c = self.c
        plain = self.group == 1 and c.group is None and not c.batch and len(c.reduce) == 1
        return plain and self._packed_bytes() >= self.ctx.machine.lost_weight_bytes

    def _packed_bytes(self) -> int:
        """Size of the second operand, 0 where it is unknown."""
        b = self.c.b.buffer
        return prod(as_int(d) or 0 for d in b.shape) * DataType(b.dtype).itemsize

    def _split_sum(self, anchor: BlockRV, tile_loop: LoopRV, tile: Tile) -> None:
        """Sum every few products by themselves, so that one panel, a single stream of memory, keeps the units busy."""
        sch, ctx = self.sch, self.ctx
        column = 1 + next(i for i, iv in enumerate(ctx.block(anchor).iter_vars) if iv.var is self.c.vector)
        loops = sch.get_loops(anchor)
        owner = ctx.owners(anchor, loops)
        (step,) = (x for x in loops if x.var in owner and owner[x.var].iter_type == "reduce")
        n = ctx.constant(step) or 1
        choices = [s for s in (2, 4, 8) if n % s == 0]
        most = max(s for s in choices if s == 2 or s * tile.vectors <= ctx.machine.sums_at_once)
        sums = ctx.choose("partial_sums", choices, most)
        _, phase = sch.split(step, [None, sums])
        part = sch.rfactor(phase, 0)
        for block in (anchor, part):
            sch.compute_at(block, tile_loop)
            sch.set_scope(block, 0, "local")
            owner = ctx.owners(block, ctx.below(block, tile_loop))
            inner = [x for x in ctx.below(block, tile_loop) if x.var in owner]
            (steps,) = (x for x in inner if owner[x.var].iter_type == "reduce")
            lanes = [x for x in inner if owner[x.var].var is ctx.block(block).iter_vars[column].var]
            others = [x for x in inner if x is not steps and x not in lanes]
            vectors: list[LoopRV] = []
            if tile.vectors > 1:
                outer, lane = sch.split(lanes[0], [None, tile.lanes])
                vectors, lanes = [outer], [lane]
            sch.reorder(steps, *others, *vectors, *lanes)
            sch.vectorize(lanes[0])
            for x in [*others, *vectors, *([steps] if block is anchor else [])]:
                sch.unroll(x)
            if block is part and self._packed_bytes() >= self.ctx.machine.lost_weight_bytes:
                sch.annotate(steps, PREFETCH_MARK, ctx.prefetch_distance())
            sch.decompose_reduction(block, steps)

    def _spill(self, anchor: BlockRV, sink: BlockRV, tile_loop: LoopRV, tile: Tile) -> None:
        """Copy the finished tile, for an epilogue that loops over its rows.

        Only what is accessed at constant places can live in registers.
        """
        sch, ctx = self.sch, self.ctx
        sums = ctx.block(anchor).writes[0].buffer
        at = next(i for i, r in enumerate(ctx.block(sink).reads) if r.buffer is sums)
        copy = sch.cache_read(sink, at, "local")
        sch.compute_at(copy, tile_loop)
        inner = ctx.below(copy, tile_loop)
        if not inner:  # the last rows of one column
            return
        n = ctx.constant(inner[-1])
        if n is not None and n > tile.lanes and n % tile.lanes == 0:
            outer, lane = sch.split(inner[-1], [None, tile.lanes])
            inner = [*inner[:-1], outer, lane]
        sch.vectorize(inner[-1])
        for x in inner[:-1]:
            sch.unroll(x)
        self.copies.add(copy.name)

    def _panel_ahead(self, tile: Tile) -> int:
        """How many elements further the next panel begins, where panels come from memory; 0 where none is asked for."""
        c = self.c
        sizes = [as_int(self.extents[v]) for v in c.reduce]
        whole = None not in sizes and self.panel and tile.width % self.panel == 0 and tile.rows > 1
        large = whole and c.group is None and self._packed_bytes() >= self.ctx.machine.lost_weight_bytes
        return prod(n or 1 for n in sizes) * tile.width if large else 0

    def _tile_sum(self, anchor: BlockRV, tile_loop: LoopRV, tile: Tile, height: int, ahead: int) -> None:
        """Order the sum: taps, then channels by fours, then the tile of a `height`, all of it unrolled.

        The next panel is asked for between a few steps where a tile takes all registers: scheduling instructions
        around what asks would spill one.
        """
        sch, ctx = self.sch, self.ctx
        block = ctx.block(anchor)
        inner = ctx.below(anchor, tile_loop)
        owner = ctx.owners(anchor, inner)
        reduce_loops = [x for x in inner if owner[x.var].iter_type == "reduce"]
        c = contraction_of(block, products=False)
        assert c is not None
        column = [x for x in inner if owner[x.var].var is c.vector]
        rows = [x for x in inner if x not in column and x not in reduce_loops]
        vectors: list[LoopRV] = []
        lanes: list[LoopRV] = []
        if column:
            n = ctx.constant(column[0])
            if n is not None and n > tile.lanes:
                outer, lane = sch.split(column[0], [None, tile.lanes])
                vectors, lanes = [outer], [lane]
            else:
                lanes = column
        # the variable along which the first operand is contiguous is innermost, the taps are outside
        order = sorted(reduce_loops, key=lambda x: c.a.indices[-1] is owner[x.var].var)
        unrolled: list[LoopRV] = []
        group: list[LoopRV] = []
        if order and self.group > 1:
            outer, inner = sch.split(order[-1], [None, self.group])
            order, group = [*order[:-1], outer], [inner]
        if order:
            n = ctx.constant(order[-1])
            most = 2 if self._pairs_words() else 4  # sums of four pairs take registers of their own
            step = next((s for s in range(most, 1, -1) if n is not None and n % s == 0 and n > s), 1)
            step = 1 if self._widens() or self._converts() else step  # of several, all are widened first: they spill
            step = 1 if 1 < height <= tile.rows // 2 else step  # what is between whole tiles and one row runs seldom
            step = ctx.choose("steps", [s for s in (1, 2, 3, 4, 6, 8) if n is not None and n % s == 0 and n > s], step)
            if step > 1:
                k_outer, k_inner = sch.split(order[-1], [None, step])
                order, unrolled = [*order[:-1], k_outer], [k_inner]
        asking = order[-1] if order and ahead else None
        if asking is not None and (tile.rows + 1) * tile.vectors + 1 >= ctx.machine.vector_registers - 1:
            n = ctx.constant(order[-1]) or 1
            apart = next((s for s in (8, 7, 6, 5, 4, 3, 2) if n % s == 0), 1)
            order = [*order[:-1], *sch.split(order[-1], [None, apart])]
            asking = order[-2]
        sch.reorder(*order, *unrolled, *rows, *vectors, *lanes, *group)
        for x in lanes:
            sch.vectorize(x)
        for x in [*unrolled, *rows, *vectors]:
            sch.unroll(x)
        if asking is not None:
            sch.annotate(asking, PANEL_MARK, ahead)
        if order:
            sch.decompose_reduction(anchor, order[0])
            if reads_far(self.c, self.extents, ctx.analyzer(self.rv)):
                with suppress(ScheduleError):  # nothing is padded
                    sch.skip_zeros(anchor)

    def _write_back(self, sink: BlockRV, tile_loop: LoopRV, tile: Tile, big: bool) -> None:
        """Write the tile in vectors, row by row where the epilogue is big."""
        sch, ctx = self.sch, self.ctx
        inner = ctx.below(sink, tile_loop)
        column = inner[-1]
        n = ctx.constant(column)
        if n is not None and n > tile.lanes:
            outer, lane = sch.split(column, [None, tile.lanes])
            sch.vectorize(lane)
            sch.unroll(outer)
        elif n is not None and n > 1:
            sch.vectorize(column)
        if not big:
            for x in inner[:-1]:
                sch.unroll(x)


def _dot_group(ctx: RuleContext, c: Contraction) -> int:
    """Return how many products one lane adds up by an instruction: what the types and the packing allow, else 1."""
    key = (str(c.a.dtype), str(c.b.dtype), str(c.output.buffer.dtype))
    group = DOT_GROUPS.get(key, 1)
    lanes = ctx.lanes(c.output.buffer.dtype)
    if group == 1 or (*key, lanes) not in ctx.machine.dot_forms or stride_along(c.b, c.vector) != group:
        return 1
    step = next((v for v in c.reduce if stride_along(c.a, v) == 1), None)
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    if step is None or not _divides(extents[step], group):
        return 1
    return group


def _divides(extent: PrimExpr, width: int) -> bool:
    n = as_int(extent)
    return n is not None and n % width == 0
