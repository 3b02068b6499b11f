"""Register tiles: how many rows and vectors of accumulators fit the machine and divide a problem evenly."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, prod
from typing import NamedTuple

from weft.arith import Analyzer
from weft.ir import FloorDiv, FloorMod, IntImm, PrimExpr, Var, as_int, is_const_int, walk
from weft.machine import Machine
from weft.tir.analysis.pattern import Contraction, index_step
from weft.tir.analysis.structure import used_vars
from weft.tir.schedule.instruction import BlockRV, LoopRV


class Tile(NamedTuple):
    """`rows` times `vectors` accumulators, each of `lanes` elements."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """Columns of the tile."""
        return self.vectors * self.lanes


class RowPart(NamedTuple):
    """A stretch of rows that is a multiple of `rows`."""

    length: PrimExpr | int
    rows: int


class TileLoop(NamedTuple):
    """A stretch of rows: the block that stores it, the loop around one tile, the stretch, and the tile."""

    sink: BlockRV
    loop: LoopRV
    part: RowPart
    tile: Tile


class Problem(NamedTuple):
    """What tiles cover: `rows` and `columns`, of which symbolic ones are taken as large.

    Tiles divide `panel`, the width of packed panels, or are multiples of it, and divide `group`, the columns that share
    rows of the first operand. Some of the `panels`, by default as many as columns need, may hold nothing. Where they
    come from `far`, from memory, a tile takes one panel, so that there are many tasks and the next one has room in the
    cache.
    """

    rows: PrimExpr
    columns: PrimExpr
    lanes: int
    machine: Machine
    panel: int | None
    group: int | None = None
    panels: int | None = None
    far: bool = False


def choose_tile(problem: Problem) -> Tile:
    """Choose a register tile."""
    rows, columns, lanes, machine, panel, _, _, far = problem
    choices = _widths(problem)
    if not choices:
        return Tile(1, 1, lanes)
    m, n, registers = as_int(rows), as_int(columns), machine.vector_registers
    whole = [(v, min(t, machine.far_rows)) for v, t in choices if v * lanes == panel]
    if far and whole and prod(whole[0]) * 8 >= registers * 5 and (m is None or m >= 2 * machine.far_rows):
        return Tile(_even(m, whole[0][1], whole[0][0]), whole[0][0], lanes)
    vectors, tallest = max(choices, key=lambda c: _score(machine, m, n, c[1], c[0], lanes, panel))
    return Tile(_even(m, tallest, vectors), vectors, lanes)


def tile_choices(problem: Problem, whole: bool = False) -> list[Tile]:
    """List the tiles worth measuring, the one that :func:`choose_tile` chooses first.

    Where there are fewer columns than lanes, vectors have as many lanes as columns: sums of other lanes than those that
    are stored would be cut and put together in each step. From panels most of a vector is read at once, where its
    columns alone would be read in pieces, and all of it where an instruction takes `whole` vectors only.
    """
    m, n, lanes, _, panel, group, *_ = as_int(problem.rows), as_int(problem.columns), *problem[2:]
    tiles = [choose_tile(problem)]
    for vectors, tallest in _widths(problem):
        heights = {h if m is None else _even(m, h, vectors) for h in range(max(1, tallest // 3), tallest + 1)}
        tiles += [Tile(h, vectors, lanes) for h in sorted(heights, reverse=True)]
    narrow = n is not None and n < lanes and group is None and not whole and (panel is None or 2 * n <= lanes)
    return list(dict.fromkeys(t._replace(lanes=n) if narrow else t for t in tiles))


def _widths(problem: Problem) -> list[tuple[int, int]]:
    """List the widths of tiles in vectors that divide a problem, each with the most rows that registers hold."""
    rows, columns, lanes, machine, panel, group, panels, _ = problem
    m, n = as_int(rows), as_int(columns)
    if panel is not None and panels is None and n is not None:
        panels = -(-n // panel)
    covered = 64 * lanes if n is None else n if panel is None else n + lanes - 1
    most = max(1, covered // lanes)  # without panels, the last tile of several: one that is wider than all is masked
    choices: list[tuple[int, int]] = []
    for vectors in _vector_counts(m, lanes, panel, panels):
        width = vectors * lanes
        if (
            vectors > most
            or (panel is not None and panel % width and width % panel)
            or (panel is not None and panels is not None and panels * panel % width)
            or (group is not None and group % width)
        ):
            continue
        tallest = tallest_tile(machine.vector_registers, vectors)
        if vectors > 4 and m is not None and m > 3:
            continue
        if tallest < 1 or (m is None and vectors > 2 and tallest < 6):
            continue
        choices.append((vectors, tallest))
    return choices


def tallest_tile(registers: int, vectors: int) -> int:
    """How many rows of accumulators the registers hold beside a row of one operand and a value of the other."""
    return min(registers - vectors - 1, registers * 7 // 8) // vectors


def _vector_counts(m: int | None, lanes: int, panel: int | None, panels: int | None) -> list[int]:
    """List the widths of tiles in vectors, the best first where estimates are equal.

    A tile that went past the last panel would read what is not there, lane by masked lane, which costs a hundred times
    as much. Few rows need wide tiles, so that enough sums are under way: any number of panels that divides all of them.
    """
    counts = [2, 4, 1, 3, 8]
    if m is not None and m <= 3 and panels is not None and panel is not None and panel % lanes == 0:
        counts += [p * panel // lanes for p in range(1, panels + 1) if panels % p == 0]
    return list(dict.fromkeys(counts))


def _even(m: int | None, tallest: int, vectors: int) -> int:
    """Choose the rows of the tile so that the last one is not much smaller; with unknown rows, at most eight."""
    if m is None:
        return min(8, tallest)
    return -(-m // -(-m // tallest))


def _score(
    machine: Machine, m: int | None, n: int | None, tallest: int, vectors: int, lanes: int, panel: int | None
) -> float:
    """Estimate the share of the peak.

    Multiply-adds over the larger of the issue time, the load time and the latency bound.
    """
    rows = _even(m, tallest, vectors)
    accumulators = rows * vectors
    issue = accumulators / machine.fma_per_cycle
    share = issue / max(issue, (rows + vectors) / machine.loads_per_cycle, _SLACK * machine.fma_latency)
    load = (rows + vectors) / accumulators
    share *= 1 - 0.12 * load
    if m is not None:
        tiles = -(-m // rows)
        share *= m / (tiles * rows) if m % rows == 0 or tiles == 1 else 0.97
    if n is not None:
        width = vectors * lanes
        share *= n / (-(-n // width) * width)
        if panel is None and n % width and m is not None and m <= _FEW_ROWS:
            share *= m / (m + _COPY_ROWS)
    return share


_FEW_ROWS, _COPY_ROWS = 8, 4
"""Rows up to which a copy of the second operand into panels, which columns that end inside a tile need, counts, and
how many rows are multiplied in its time."""

_SLACK = 1.25
"""How many times the latency of a sum others take turns in, so that none waits where one came late: measured."""


def row_parts(rows: PrimExpr, tile: Tile) -> list[RowPart]:
    """Cut the rows into stretches with a tile height each, so that no tile needs a guard.

    Known extents give at most two heights that differ by one; symbolic ones a cascade: behind whole tiles the powers of
    two that are at most half of one. A tile of six is followed by tiles of two and of one: three would shorten the
    rest by a seventeenth of its time and make a third more code.
    """
    m = as_int(rows)
    if m is not None:
        tiles = -(-m // tile.rows)
        small, larger = m // tiles, m % tiles
        if larger == 0:
            return [RowPart(m, small)]
        return [RowPart(larger * (small + 1), small + 1), RowPart((tiles - larger) * small, small)]
    parts: list[RowPart] = []
    rest: PrimExpr = rows
    height = tile.rows
    while height > 1:
        parts.append(RowPart(rest // height * height, height))
        rest = rest % height
        height = 1 << (height // 2).bit_length() - 1
    parts.append(RowPart(rest, 1))
    return parts


def panel_of(c: Contraction) -> int | None:
    """Return the width of the panels in which the second operand is packed, or None where it is not."""
    panel = None
    for i in walk(c.b.indices):
        if isinstance(i, FloorMod) and i.a is c.vector and isinstance(i.b, IntImm):
            panel = i.b.value
    if panel is None:
        return None
    outer = any(isinstance(i, FloorDiv) and i.a is c.vector and is_const_int(i.b, panel) for i in c.b.indices)
    return panel if outer and c.vector in used_vars(c.b.indices[-1]) else None


def panels_of(c: Contraction, panel: int) -> int | None:
    """Return the number of panels of the second operand."""
    for i, extent in zip(c.b.indices, c.b.buffer.shape, strict=True):
        if isinstance(i, FloorDiv) and i.a is c.vector and is_const_int(i.b, panel):
            return as_int(extent)
    return None


def n_tiles(part: RowPart) -> float:
    """How many tiles a stretch of rows has; one of unknown length counts as long."""
    length = part.length if isinstance(part.length, int) else as_int(part.length)
    return inf if length is None else length / part.rows


_FAR_TAPS, LIKELY_SIZE = 8, 32
"""The part of a row that taps are apart from which on whole tiles read padding, and a row's length if it is unknown."""


def reads_far(c: Contraction, extents: Mapping[Var, PrimExpr], analyzer: Analyzer) -> bool:
    """Whether windows reach so far that whole tiles read nothing but padding of some of their taps."""
    moves = [(i, v, o) for i in c.a.indices for v in c.reduce for o in c.rows if {v, o} <= used_vars(i)]
    apart = [(index_step(i, v, analyzer) or 0, as_int(extents[o]) or LIKELY_SIZE) for i, v, o in moves]
    return any(step > 1 and _FAR_TAPS * step >= n for step, n in apart)
