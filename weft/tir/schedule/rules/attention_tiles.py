"""The loops of an attention kernel: blocks of queries in parallel, blocks of keys with an online softmax.

Neighbouring queries are lanes. A block's queries are turned once, so that both sums are register tiles that broadcast
keys and values from where they lie, the softmax is element-wise over lanes, and only the result is turned back. Nothing
but a block's scores is ever stored, and those in a near cache.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Max, Min, PrimExpr, Var, as_int, const, structural_equal
from weft.machine import Machine
from weft.tir.analysis.access import loads_of
from weft.tir.analysis.pattern import stride_along
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.intrin import call_intrin, exp
from weft.tir.schedule.rules.attention_loops import LOWEST, AttentionLoops, Stretch
from weft.tir.schedule.rules.attention_seen import SeenKeys
from weft.tir.schedule.rules.tile import tallest_tile
from weft.tir.stmt import AllocBuffer, BufferStore, Evaluate, For, ForKind, IfThenElse, Stmt, seq
from weft.tir.transform.transpose_tiles import TILE_MARK

_SHORT = 4
"""Keys of the tiles behind the last whole one."""
_ONE_VECTOR = 1.25
"""Time of a query in blocks of one vector, relative to blocks of two, measured from 16 to 197 queries."""


def tiles_of_queries(loops: AttentionLoops) -> Stmt:
    """Return the loops over batches, heads and blocks of queries, each of them a task."""
    width = _block_width(loops)
    n_blocks = (loops.n_queries + loops.number(width - 1)) // loops.number(width)
    keys = as_int(loops.n_keys)
    work = None if keys is None else max(1, keys * (loops.depth + loops.columns) * width // loops.lanes)
    return loops.tasks(n_blocks, width, _Block(loops, width // loops.lanes).body(), work)


def _block_width(loops: AttentionLoops) -> int:
    """Choose how many queries a block has: two vectors, or one where much less is computed in vain.

    One width for all blocks halves the code; a last block of few costs 2 us of 5 at 8 queries, 18% at 24, 3% at 197.
    """
    known = as_int(loops.n_queries)
    wide = 2 * loops.lanes
    if known is None:
        return wide

    def cost(width: int) -> float:
        return -(-known // width) * width * (1.0 if width == wide else _ONE_VECTOR)

    return min(wide, loops.lanes, key=cost)


def _tallest(loops: AttentionLoops, vectors: int) -> int:
    """How many rows of a tile registers hold."""
    return max(1, tallest_tile(loops.machine.vector_registers, vectors))


def _tile_height(keys: int | None, tallest: int) -> int:
    """Choose how many keys a tile has, so that little of the last one is in vain."""
    if keys is None:
        return max(1, tallest - tallest % _SHORT)
    choices = range(max(1, tallest * 5 // 7), tallest + 1)

    def computed(height: int) -> tuple[int, int]:
        return keys // height * height + -(-(keys % height) // _SHORT) * _SHORT, -height

    return min(choices, key=computed)


def _block_length(machine: Machine, keys: int | None, tile: int) -> int:
    """Choose how many keys are looked at at a time: all of them, or whole tiles that divide them evenly."""
    if keys is not None and keys <= machine.attention_whole_keys:
        return keys
    block = machine.attention_keys
    even = block if keys is None else -(-keys // -(-keys // block))
    return -(-even // tile) * tile


class _Block:
    """The statements for one block of queries."""

    def __init__(self, kernel: AttentionLoops, vectors: int) -> None:
        self.kernel, self.vectors = kernel, vectors
        self.width = vectors * kernel.lanes
        keys = as_int(kernel.n_keys)
        self.tile = _tile_height(keys, _tallest(kernel, 2))
        longest = kernel.machine.attention_whole_keys
        self.whole = keys is not None and keys <= longest and len(kernel.stretches) == 1
        self.block = _block_length(kernel.machine, keys, self.tile)
        rows = self.block + max(_SHORT, kernel.lanes)
        self.queries = self._buffer("queries", kernel.depth)
        self.scores = self._buffer("scores", rows)
        self.sums = self._buffer("sums", kernel.columns)
        self.top, self.top_before, self.total = (self._buffer(n, 1) for n in ("top", "top_before", "total"))
        self.turned: list[tuple[BufferLoad, Buffer]] = []
        for load in self._turning():
            self.turned.append((load, self._buffer(load.buffer.name + "_turned", rows)))

    def _buffer(self, name: str, rows: int) -> Buffer:
        return decl_buffer((self.kernel.number(rows), self.kernel.number(self.width)), "float32", name, scope="local")

    def _turning(self) -> list[BufferLoad]:
        """List what is added to scores from rows of keys, whose columns have to become lanes."""
        p = self.kernel.parts
        found: list[BufferLoad] = []
        for load in loads_of(p.masked):
            i, j = p.query[0], p.key[0]
            known = any(structural_equal(load, x) for x in found)
            if load.buffer is not p.score.buffer and not known and load.dtype == "float32":
                if stride_along(load, j) == 1 and i in used_vars(load.indices) and not loads_of(load.indices):
                    found.append(load)
        return found

    # --- pieces ---

    def lanes_loop(self, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Run something for all lanes of all vectors; its argument is the lane within the block."""
        k = self.kernel
        return k.loop(
            "v", self.vectors, lambda v: k.vector(lambda lane: body(v * k.number(k.lanes) + lane)), ForKind.UNROLLED
        )

    def body(self) -> Stmt:
        """Turn the queries, go through the keys, write the result."""
        k = self.kernel
        zero, lowest = const(0.0, "float32"), const(LOWEST, "float32")
        start: list[Stmt] = [
            self.lanes_loop(lambda x: BufferStore(self.total, zero, (k.number(0), x))),
            self.lanes_loop(lambda x: BufferStore(self.top, lowest, (k.number(0), x))),
        ]
        if not self.whole:
            start.append(
                k.loop("d", k.columns, lambda d: self.lanes_loop(lambda x: BufferStore(self.sums, zero, (d, x))))
            )
        seen = SeenKeys(k)
        if seen.condition is None:
            keys = seq(*start, self.blocks_of_keys(k.n_keys))
        else:
            rows = Min(k.n_queries - k.first, k.number(self.width))
            keys = seen.until_certain(
                rows, self.top, self.width, lambda n_keys: seq(*start, self.blocks_of_keys(n_keys))
            )
        result = seq(self.turn_queries(), keys, self.write())
        for buffer in (
            self.queries,
            self.scores,
            self.sums,
            self.top,
            self.top_before,
            self.total,
            *[b for _, b in self.turned],
        ):
            result = AllocBuffer(buffer, result)
        return result

    def blocks_of_keys(self, n_keys: PrimExpr) -> Stmt:
        """Go through the first `n_keys` keys, block by block."""
        k = self.kernel
        return (
            self.keys(k.stretches[0], k.number(0), n_keys)
            if self.whole
            else seq(*[self.blocks(stretch, Min(stretch.end, n_keys)) for stretch in k.stretches])
        )

    def blocks(self, keys: Stretch, end: PrimExpr) -> Stmt:
        """Go through keys of one tensor up to a place, block by block."""
        k, size = self.kernel, self.kernel.number(self.block)
        n_blocks = (end - keys.begin + k.number(self.block - 1)) // size

        def block(b: Var) -> Stmt:
            begin = keys.begin + b * size
            return self.keys(keys, begin, Min(end - begin, size))

        return k.loop("block", Max(n_blocks, k.number(0)), block)

    def turn(self, rows: int | PrimExpr, cell: Callable[[PrimExpr, PrimExpr], Stmt], guard: Any = None) -> Stmt:
        """Fill `rows` rows of lanes from where lanes are rows: in square tiles that turn in registers.

        `cell(row, lane)` is one assignment. With `guard`, a condition on the row, the last tile may go beyond.
        """
        k, n = self.kernel, self.kernel.lanes
        static = rows if isinstance(rows, int) else None
        tiles = static // n if static is not None else (rows + k.number(n - 1)) // k.number(n)

        def tile(t: Var) -> Stmt:
            def row(r: Var) -> Stmt:
                place = t * k.number(n) + r
                inner = self.by_vector(v, lambda lane: cell(place, lane))
                return inner if guard is None else IfThenElse(guard(place), inner)

            v = Var("v", k.index)
            marked = k.loop("r", n, row, notes={TILE_MARK: 1})
            return For(v, k.number(0), k.number(self.vectors), ForKind.SERIAL, marked)

        whole = k.loop("t", tiles, tile)
        if static is None or static % n == 0:
            return whole
        left = k.loop("r", static % n, lambda r: self.lanes_loop(lambda x: cell(r + k.number(static // n * n), x)))
        return seq(whole, left) if static >= n else left

    def by_vector(self, v: PrimExpr, body: Callable[[PrimExpr], Stmt]) -> Stmt:
        """Run something for the lanes of vector `v`."""
        k = self.kernel
        return k.vector(lambda lane: body(v * k.number(k.lanes) + lane))

    def query(self, lane: PrimExpr) -> PrimExpr:
        """The query of a lane; lanes behind the last one repeat it."""
        k = self.kernel
        return Min(k.first + lane, k.n_queries - k.number(1))

    def turn_queries(self) -> Stmt:
        """Copy the queries so that they are lanes."""
        k = self.kernel

        def cell(d: PrimExpr, lane: PrimExpr) -> Stmt:
            return BufferStore(self.queries, k.at(k.parts.q, query=self.query(lane), depth=d), (d, lane))

        return self.turn(k.depth, cell)

    def keys(self, keys: Stretch, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Go through one block of keys."""
        pieces: list[Stmt] = []
        k = self.kernel
        for load, buffer in self.turned:

            def cell(j: PrimExpr, lane: PrimExpr, load: BufferLoad = load, buffer: Buffer = buffer) -> Stmt:
                return BufferStore(buffer, k.at(load, query=self.query(lane), key=begin + j), (j, lane))

            pieces.append(self.turn(count, cell, lambda j: begin + j < k.n_keys))
        pieces += [self.score_tiles(keys, begin, count), self.mask(begin, count), self.exponentials(count)]
        return seq(*pieces, self.sum_tiles(keys.v, begin, count))

    def score_tiles(self, keys: Stretch, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Multiply keys with queries, a register tile of keys at a time; the last, short tiles repeat the last key."""
        k, last = self.kernel, keys.end - self.kernel.number(1)

        def tiles(height: int, done: PrimExpr, n: PrimExpr, key: Callable[[PrimExpr], PrimExpr]) -> Stmt:
            def tile(t: Var) -> Stmt:
                start = done + t * k.number(height)
                asking = self.asking(keys, begin + start, height) if height == self.tile else None
                return self.score_tile(keys.k, height, start, key, asking)

            return k.loop("t", n, tile)

        whole = count // k.number(self.tile) if self.tile != _SHORT else k.number(0)
        done = whole * k.number(self.tile)
        n_short = (count - done + k.number(_SHORT - 1)) // k.number(_SHORT)
        rest = tiles(_SHORT, done, n_short, lambda j: Min(begin + j, last))
        return rest if self.tile == _SHORT else seq(tiles(self.tile, k.number(0), whole, lambda j: begin + j), rest)

    def asking(self, keys: Stretch, key: PrimExpr, height: int) -> Callable[[PrimExpr], Stmt]:
        """Ask, over the steps of a tile's product, for the values of its keys and for the keys of the next tile."""
        k = self.kernel
        last, n_steps = keys.end - k.number(1), max(1, k.depth // 4)

        def ask(load: BufferLoad, size: int, step: PrimExpr, first: PrimExpr) -> list[Stmt]:
            line = k.machine.cache_line_bytes // 4
            lines = -(-size // line)
            each = -(-height * lines // n_steps)
            asked: list[Stmt] = []
            for i in range(each):
                n = step * k.number(each) + k.number(i)
                row, place = Min(first + n // k.number(lines), last), n % k.number(lines) * k.number(line)
                address = call_intrin("handle", "tir.address_of", k.at(load, key=row, depth=place, col=place))
                asked.append(Evaluate(call_intrin("void", "tir.prefetch", address, 0, 2, 1)))
            return asked

        after = key + k.number(height)
        return lambda step: seq(*ask(keys.k, k.depth, step, after), *ask(keys.v, k.columns, step, key))

    def score_tile(
        self, load: BufferLoad, height: int, start: PrimExpr, key: Callable[[PrimExpr], PrimExpr], asking: Any = None
    ) -> Stmt:
        """Compute the scores of `height` keys; `asking` is what each step of the sum begins with."""
        k = self.kernel
        return self.product(
            height,
            k.depth,
            lambda d, r: k.at(load, key=key(start + r), depth=d),
            self.queries,
            lambda r, x, value: BufferStore(self.scores, value, (start + r, x)),
            const(0.0, "float32"),
            asking,
        )

    def product(
        self,
        height: int,
        steps: Any,
        a: Callable[[Any, Any], PrimExpr],
        b: Buffer,
        put: Callable[..., Stmt],
        initial: Any,
        asking: Any = None,
    ) -> Stmt:
        """Add up ``a(step, row) * b[step]`` in registers for `height` rows, and hand the sums on.

        `asking` makes what each iteration begins with.
        """
        k = self.kernel
        tile = self._buffer("tile", height)

        def rows(body: Callable[[Var, PrimExpr], Stmt]) -> Stmt:
            return k.loop("r", height, lambda r: self.lanes_loop(lambda x: body(r, x)), ForKind.UNROLLED)

        def step(s: Any) -> Stmt:
            return rows(lambda r, x: BufferStore(tile, tile[r, x] + a(s, r) * b[s, x], (r, x)))

        together = next((n for n in (4, 2) if isinstance(steps, int) and steps % n == 0), 1)
        n_steps: Any = steps // together if isinstance(steps, int) else steps

        def iteration(s: Var) -> Stmt:
            body = k.loop("u", together, lambda u: step(s * k.number(together) + u), ForKind.UNROLLED)
            return body if asking is None else seq(asking(s), body)

        loop = k.loop("s", n_steps, iteration)
        start: Any = initial if callable(initial) else lambda r, x: initial
        begin = rows(lambda r, x: BufferStore(tile, start(r, x), (r, x)))
        return AllocBuffer(tile, seq(begin, loop, rows(lambda r, x: put(r, x, tile[r, x]))))

    def mask(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Scale and mask the scores, and find the largest of each query."""
        k = self.kernel
        zero = k.number(0)
        top = lambda x: self.top[zero, x]  # noqa: E731

        def cell(j: PrimExpr, x: PrimExpr) -> Stmt:
            value = self.masked(begin, j, x)
            store = BufferStore(self.scores, value, (j, x))
            return seq(store, BufferStore(self.top, Max(top(x), self.scores[j, x]), (zero, x)))

        keep = self.lanes_loop(lambda x: BufferStore(self.top_before, top(x), (zero, x)))
        return seq(keep, k.loop("j", count, lambda j: self.lanes_loop(lambda x: cell(j, x))))

    def masked(self, begin: PrimExpr, j: PrimExpr, x: PrimExpr) -> PrimExpr:
        """What the softmax is taken of, for key `j` of a block and a lane."""

        def load(node: BufferLoad) -> PrimExpr | None:
            if node.buffer is self.kernel.parts.score.buffer:
                return self.scores[j, x]
            return next((buffer[j, x] for known, buffer in self.turned if structural_equal(node, known)), None)

        return self.kernel.masked(self.query(x), begin + j, load)

    def exponentials(self, count: PrimExpr) -> Stmt:
        """Take exponentials, add them up, and shrink what was added up before by the growth of the maximum."""
        k = self.kernel
        zero = k.number(0)

        def shrink(x: PrimExpr) -> Stmt:
            by = exp(self.top_before[zero, x] - self.top[zero, x])
            return seq(
                BufferStore(self.top_before, by, (zero, x)),
                BufferStore(self.total, self.total[zero, x] * self.top_before[zero, x], (zero, x)),
            )

        def cell(j: PrimExpr, x: PrimExpr) -> Stmt:
            weight = exp(self.scores[j, x] - self.top[zero, x])
            return seq(
                BufferStore(self.scores, weight, (j, x)),
                BufferStore(self.total, self.total[zero, x] + self.scores[j, x], (zero, x)),
            )

        added = k.loop("j", count, lambda j: self.lanes_loop(lambda x: cell(j, x)))
        return added if self.whole else seq(self.lanes_loop(shrink), added)

    def sum_tiles(self, value: BufferLoad, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Add up values by weight, a register tile of columns at a time."""
        k = self.kernel
        tallest = min(_tallest(k, self.vectors), 14)
        n = -(-k.columns // tallest)
        short, more = divmod(k.columns, n)
        zero = k.number(0)

        def tile(height: int, start: PrimExpr) -> Stmt:
            before: Any = const(0.0, "float32")
            if not self.whole:
                before = lambda r, x: self.sums[start + r, x] * self.top_before[zero, x]  # noqa: E731
            return self.product(
                height,
                count,
                lambda j, r: k.at(value, key=begin + j, col=start + r),
                self.scores,
                lambda r, x, value: BufferStore(self.sums, value, (start + r, x)),
                before,
            )

        longer = [k.loop("t", more, lambda t: tile(short + 1, t * k.number(short + 1)))] if more else []
        rest = [k.loop("t", n - more, lambda t: tile(short, t * k.number(short) + k.number(more * (short + 1))))]
        return seq(*longer, *rest)

    def write(self) -> Stmt:
        """Divide by the sums of weights and turn the result back."""
        k = self.kernel
        zero, n = k.number(0), k.lanes
        out = k.parts.store

        def inverse(x: PrimExpr) -> Stmt:
            return BufferStore(self.total, k.inverse(self.total[zero, x]), (zero, x))

        def place(x: PrimExpr, d: PrimExpr) -> Stmt:
            value = self.sums[d, x] * self.total[zero, x]
            indices = tuple(k.at(i, query=k.first + x, col=d) for i in out.indices)
            return BufferStore(out.buffer, value, indices)

        def tile(v: Var, begin: PrimExpr, size: int, mark: bool) -> Stmt:
            def row(r: Var) -> Stmt:
                x = v * k.number(n) + r
                inner = k.loop("d", size, lambda d: place(x, begin + d), ForKind.VECTORIZED)
                known = as_int(k.n_queries)
                whole = known is not None and known % self.width == 0
                return inner if whole else IfThenElse(k.first + x < k.n_queries, inner)

            return k.loop("r", n, row, notes={TILE_MARK: 1} if mark else None)

        tiles = k.columns // n
        pieces = [self.lanes_loop(inverse)]
        if tiles:
            pieces.append(
                k.loop("v", self.vectors, lambda v: k.loop("t", tiles, lambda t: tile(v, t * k.number(n), n, True)))
            )
        if k.columns % n:
            pieces.append(k.loop("v", self.vectors, lambda v: tile(v, k.number(tiles * n), k.columns % n, False)))
        return seq(*pieces)
