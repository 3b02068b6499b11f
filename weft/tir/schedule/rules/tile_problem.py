"""What is multiplied on matrix tiles: a contraction as a product of two matrices, and whether tiles would pay."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod
from typing import NamedTuple

from weft import ir
from weft.arith import Analyzer
from weft.error import ScheduleError
from weft.ir import int64
from weft.machine import Machine
from weft.tir.analysis.pattern import Contraction, contraction_of
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import BufferLoad
from weft.tir.schedule.instruction import BlockRV
from weft.tir.schedule.rules.context import RuleContext
from weft.tir.tiles import TILE_ROWS

SIDE = 2 * TILE_ROWS
"""Rows and columns that are summed at a time: two by two tiles."""

LANES = 16

FEW = 4
"""Sums that do not wait for each other, and rows of bytes up to which multiply-adds of words are faster than tiles."""

_SPLIT_ORDER = ((2, 0), (1, 0), (1, 1), (0, 1), (0, 2), (0, 0))
"""Which parts of both operands are multiplied, small products first; each loads one operand anew."""

_PACK_CYCLES, _PACK_NEAR_CYCLES, _PACK_BYTE_CYCLES, _PACK_WORD_CYCLES, _GAIN = 1.5, 0.5, 0.06, 0.3, 0.85
"""Cycles for splitting and packing a number into three parts, which goes to the second cache and further, or is read
by the task that packed it; for copying a byte, and for putting it into a word; and the share of the time below which
tiles pay."""

_PAIR_PRODUCTS = 0.5
"""Multiply-adds of a dot product of bfloat16, where there are tiles, for one of float32: measured."""

_TASK_CYCLES, _BLOCK_CYCLES = 600, 200
"""Cycles of a task of bytes without its products, most for configuring tiles, and of bringing back 32 x 32 sums."""


class TileProblem(NamedTuple):
    """A contraction as a plain product of ``rows`` by ``depth`` by ``columns``."""

    c: Contraction
    row_vars: Sequence[ir.Var]
    rows: ir.PrimExpr
    columns: int
    depth: int
    parts: int

    @property
    def kind(self) -> str:
        """The kind of the tile product."""
        return f"{self.c.a.dtype}{self.c.b.dtype}" if self.bytes else "bf16"

    @property
    def bytes(self) -> bool:
        """Whether the operands are bytes."""
        return ir.DataType(self.c.a.dtype).bits == 8

    @property
    def element(self) -> str:
        """What tiles of the first operand hold."""
        return str(self.c.a.dtype) if self.bytes else "bfloat16"

    @property
    def sums(self) -> str:
        """What the products are summed in."""
        return str(self.c.output.buffer.dtype)

    @property
    def group(self) -> int:
        """Summands of a word."""
        return 4 if self.bytes else 2

    @property
    def step(self) -> int:
        """Summands of one tile product."""
        return TILE_ROWS * self.group

    @property
    def few(self) -> int:
        """Rows up to which multiply-adds of words are faster than tiles."""
        return FEW if self.bytes else 1

    @property
    def lanes(self) -> int:
        """Neighbouring summands that are copied together: of windows, those of one place."""
        most, extents = LANES if self.parts > 1 else self.step, self.extents
        return gcd(ir.as_int(extents[self.c.reduce[-1]]) or 0, most) if len(self.c.reduce) > 1 else most

    @property
    def extents(self) -> dict[ir.Var, ir.PrimExpr]:
        """How far the variables go."""
        return {iv.var: iv.dom.extent for iv in self.c.block.iter_vars if iv.dom is not None}

    @property
    def least_rows(self) -> int:
        """How many rows there are where sizes that are unknown are one."""
        return prod(n if (n := ir.as_int(self.extents[v])) is not None else 1 for v in self.row_vars)

    @property
    def row_tiles(self) -> ir.PrimExpr:
        """How often 32 rows begin."""
        return Analyzer().simplify(ir.floordiv(self.rows + int64(SIDE - 1), int64(SIDE)))

    @property
    def column_tiles(self) -> int:
        """How often 32 columns begin."""
        return -(-self.columns // SIDE)

    @property
    def steps(self) -> int:
        """Tile products that one sum is made of."""
        return -(-self.depth // self.step)

    @property
    def order(self) -> tuple[tuple[int, int], ...]:
        """Which parts of the operands are multiplied."""
        return _SPLIT_ORDER if self.parts == 3 else ((0, 0),)

    def left(self, row: ir.PrimExpr, k: ir.PrimExpr) -> BufferLoad:
        """An element of the first operand."""
        return ir.substitute(self.c.a, self.places(row, k))

    def right(self, k: ir.PrimExpr, column: ir.PrimExpr) -> BufferLoad:
        """An element of the second operand."""
        vector = self.c.vector
        return ir.substitute(self.c.b, {vector: ir.cast(vector.dtype, column), **self.places(int64(0), k)})

    def places(self, row: ir.PrimExpr, k: ir.PrimExpr) -> dict[ir.Var, ir.PrimExpr]:
        """The values of the variables for a row and a summand; those that run over one value have it."""
        single = {iv.var: iv.dom.min for iv in self.c.block.iter_vars if iv.dom and ir.is_const_int(iv.dom.extent, 1)}
        return single | _unravel(self.row_vars, self.extents, row) | _unravel(self.c.reduce, self.extents, k)


def tile_problem(ctx: RuleContext, rv: BlockRV) -> TileProblem:
    """Look at a block as a product for tiles, or raise a ScheduleError that says what does not fit."""
    c = contraction_of(ctx.block(rv))
    if c is None or c.vector not in c.columns or not c.reduce or c.group is not None:
        raise ScheduleError("matrix tiles: not a product of two matrices")
    types = (str(c.a.dtype), str(c.b.dtype), str(c.output.buffer.dtype))
    if types not in ctx.machine.tile_forms:
        raise ScheduleError(f"matrix tiles: the target has none for {' x '.join(types[:2])}")
    extents = {iv.var: iv.dom.extent for iv in c.block.iter_vars if iv.dom is not None}
    if any(ir.is_const_int(e, 0) for e in extents.values()):
        raise ScheduleError("matrix tiles: there is nothing to multiply")
    if any(not ir.is_const_int(extents[v], 1) for v in (*c.batch, *c.columns) if v is not c.vector):
        raise ScheduleError("matrix tiles: more than one product")
    order: list[ir.Var] = [i for i in c.output.indices if isinstance(i, ir.Var) and i in c.rows]
    if set(order) != set(c.rows):
        raise ScheduleError("matrix tiles: rows are not plain")
    columns, depth = ir.as_int(extents[c.vector]), [ir.as_int(extents[v]) for v in c.reduce]
    if columns is None or None in depth:
        raise ScheduleError("matrix tiles: the columns or the sum have no constant size")
    inner = [v for v in c.reduce if v in used_vars(c.a.indices[-1])]
    summed = [*[v for v in c.reduce if v not in inner], *inner]
    together = {8: 16, 16: 8}.get(ir.DataType(c.a.dtype).bits, 32)
    if len(summed) > 1 and (ir.as_int(extents[summed[-1]]) or 1) % together:
        raise ScheduleError(f"matrix tiles: channels are no multiple of {together}")
    c.reduce = summed
    rows = prod((ir.cast("int64", extents[v]) for v in order), start=int64(1))
    return TileProblem(
        c, order, Analyzer().simplify(rows), columns, prod(n or 0 for n in depth), 3 if types[0] == "float32" else 1
    )


def tiles_pay(machine: Machine, p: TileProblem, words: bool) -> bool:
    """Estimate the cycles of both ways; rows of unknown number may be too few to pack the columns for.

    Of what lies in words few rows are multiplied without tiles.
    """
    unknown, windows = ir.as_int(p.rows) is None, len(p.c.reduce) > 1  # those of an image are many
    rows = max(p.least_rows, 4 * SIDE) if unknown and (words or (windows and p.parts == 1)) else p.least_rows
    if unknown and p.parts > 1:
        return False  # gains too little for what their code costs
    if rows <= (p.few if words else TILE_ROWS - 1) or p.depth < TILE_ROWS or p.columns < TILE_ROWS:
        return False
    blocks = -(-rows // SIDE) * p.column_tiles * p.steps
    products, loads = 4 * len(p.order), 4 if p.parts == 1 else 16
    near = not unknown and rows * p.depth * 2 * p.parts <= machine.packed_rows_bytes  # a task packs its columns
    packed = _PACK_CYCLES * rows + (0 if words else (_PACK_NEAR_CYCLES if near else _PACK_CYCLES) * p.columns)
    cycles = blocks * (products * machine.tile_product_cycles + loads * machine.tile_load_cycles)
    if p.bytes:
        cycles += p.column_tiles * (_TASK_CYCLES + _BLOCK_CYCLES * -(-rows // SIDE))
        cycles += p.depth * (_PACK_BYTE_CYCLES * rows + (0 if words else _PACK_WORD_CYCLES * p.columns))
    else:
        cycles += packed * p.depth * p.parts / 3
    at_once = (p.group if words else 1) if p.bytes else _PAIR_PRODUCTS if p.parts == 1 else 1  # dot products read words
    return cycles < _GAIN * rows * p.columns * p.depth / (machine.product_elements_per_cycle * at_once)


def are_words(p: TileProblem) -> bool:
    """Whether the second operand already lies as tiles read it: words of summands side by side, 32 columns a row."""
    group, shape = p.group, [ir.as_int(d) or 0 for d in p.c.b.buffer.shape]
    words = prod(shape[1:]) // (SIDE * group)  # of a panel: of floats also what lies behind the sum is read, zeros
    if p.parts > 1 or p.depth < p.step or p.depth % group or (not p.bytes and words < p.steps * TILE_ROWS):
        return False
    panel, word, lane, part = (ir.Var(n, "int64") for n in ("panel", "word", "lane", "part"))
    analyzer = Analyzer()
    for v, n in ((panel, p.column_tiles), (word, words), (lane, SIDE), (part, group)):
        analyzer.bind(v, ir.Range.from_min_extent(int64(0), int64(n)))
    load = p.right(word * int64(group) + part, panel * int64(SIDE) + lane)
    place: ir.PrimExpr = int64(0)
    for i, d in zip(load.indices, load.buffer.shape, strict=True):
        place = place * ir.cast("int64", d) + ir.cast("int64", i)
    wanted = ((panel * int64(words) + word) * int64(SIDE) + lane) * int64(group) + part
    return not load.buffer.strides and analyzer.can_prove_equal(place, wanted)


def _unravel(
    variables: Sequence[ir.Var], extents: dict[ir.Var, ir.PrimExpr], flat: ir.PrimExpr
) -> dict[ir.Var, ir.PrimExpr]:
    """Give values to variables, the last of which runs fastest."""
    found: dict[ir.Var, ir.PrimExpr] = {}
    for n, v in reversed(list(enumerate(variables))):
        size = ir.cast("int64", extents[v])
        found[v] = ir.cast(v.dtype, flat if n == 0 else ir.floormod(flat, size))
        flat = ir.floordiv(flat, size)
    return found
