"""The loops of attention for few queries, as in decoding: keys and values are read once, in whole vectors.

A head's places are lanes in both sums. Partial sums of as many keys as a vector has lanes turn in registers, so that
their scores become the lanes of one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.ir import Max, Min, PrimExpr, Var, as_int, const, substitute
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.intrin import exp
from weft.tir.schedule.rules.attention_loops import LOWEST, AttentionLoops, Stretch
from weft.tir.stmt import AllocBuffer, BufferStore, ForKind, LetStmt, Stmt, seq
from weft.tir.transform.transpose_tiles import TILE_MARK

_BLOCK = 256
"""Keys of a block."""

_COST = 7
"""Work of a vector of a key or value, measured, in units of ``element_cost``: loads, and the shuffles around them."""

_TOGETHER = 4
"""Keys whose values are added up apart, so that additions do not wait for each other."""


def suits_rows(loops: AttentionLoops) -> bool:
    """Whether heads are whole vectors."""
    return loops.depth % loops.lanes == 0 and loops.columns % loops.lanes == 0


def rows_of_queries(loops: AttentionLoops) -> Stmt:
    """Return the loops over batches, heads and queries, each of them a task."""
    keys = as_int(loops.n_keys)
    work = None if keys is None else max(1, keys * (loops.depth + loops.columns) // loops.lanes * _COST)
    return loops.tasks(loops.n_queries, 1, _Row(loops).body(), work)


class _Row:
    """The statements for one query; its number is ``first`` of the loops."""

    def __init__(self, loops: AttentionLoops) -> None:
        self.k = loops
        n = loops.lanes
        self.query = self._buffer("query", loops.depth)
        self.scores = self._buffer("scores", _BLOCK)
        self.parts = self._buffer("parts", n * n)
        self.sums = self._buffer("sums", loops.columns * _TOGETHER)
        self.top, self.total, self.shrink = (self._buffer(x, n) for x in ("top", "total", "shrink"))
        self.best, self.all, self.before = (self._buffer(x, 1) for x in ("best", "all", "before"))

    def _buffer(self, name: str, size: int) -> Buffer:
        return decl_buffer((self.k.number(size),), "float32", name, scope="local")

    def store(self, buffer: Buffer, value: Any, at: Any = 0) -> Stmt:
        """Assign to an element."""
        return BufferStore(buffer, value, (self.k.number(at) if isinstance(at, int) else at,))

    def vectors(self, size: int, body: Callable[[PrimExpr], Stmt], kind: ForKind = ForKind.UNROLLED) -> Stmt:
        """Run something for whole vectors."""
        k = self.k
        step = k.number(k.lanes)
        return k.loop("v", size // k.lanes, lambda v: k.vector(lambda x: body(v * step + x)), kind)

    def body(self) -> Stmt:
        """Go through the keys, block by block."""
        k = self.k
        zero, lowest = const(0.0, "float32"), const(LOWEST, "float32")
        start = [
            self.vectors(k.depth, lambda d: self.store(self.query, k.at(k.parts.q, query=k.first, depth=d), d)),
            self.vectors(k.columns * _TOGETHER, lambda d: self.store(self.sums, zero, d), ForKind.SERIAL),
            self.store(self.best, lowest),
            self.store(self.all, zero),
        ]
        result = seq(*start, *[self.blocks(keys) for keys in k.stretches], self.write())
        for buffer in (
            self.query,
            self.scores,
            self.parts,
            self.sums,
            self.top,
            self.total,
            self.shrink,
            self.best,
            self.all,
            self.before,
        ):
            result = AllocBuffer(buffer, result)
        return result

    def blocks(self, keys: Stretch) -> Stmt:
        """Go through keys of one tensor, block by block."""
        k, size = self.k, self.k.number(_BLOCK)
        n_blocks = (keys.end - keys.begin + k.number(_BLOCK - 1)) // size

        def block(b: Var) -> Stmt:
            begin = keys.begin + b * size
            return self.block(keys, begin, Min(keys.end - begin, size))

        return k.loop("block", n_blocks, block)

    def block(self, keys: Stretch, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Go through one block of keys."""
        k = self.k
        n = k.number(k.lanes)
        tiles = (count + n - k.number(1)) // n
        scores = k.loop("t", tiles, lambda t: self.score_tile(keys, begin, t * n))
        return seq(scores, self.mask(begin, count), self.exponentials(tiles), self.weighted(keys.v, begin, count))

    def score_tile(self, keys: Stretch, begin: PrimExpr, start: PrimExpr) -> Stmt:
        """Compute the scores of as many keys as a vector has lanes."""
        k = self.k
        n, last = k.lanes, keys.end - k.number(1)

        def product(r: PrimExpr, d: PrimExpr, x: PrimExpr) -> PrimExpr:
            return k.at(keys.k, key=Min(begin + start + r, last), depth=d) * self.query[d]

        def key(r: Var) -> Stmt:
            def add(d: Var) -> Stmt:
                return k.vector(
                    lambda x: self.store(
                        self.parts,
                        self.parts[r * k.number(n) + x] + product(r, d * k.number(n) + x, x),
                        r * k.number(n) + x,
                    )
                )

            first = k.vector(lambda x: self.store(self.parts, product(r, x, x), r * k.number(n) + x))
            more = k.loop("d", k.depth // n - 1, lambda d: substitute(add(d), {d: d + k.number(1)}), ForKind.UNROLLED)
            return first if k.depth == n else seq(first, more)

        zero = const(0.0, "float32")
        clear = k.vector(lambda x: self.store(self.scores, zero, start + x))
        turn = k.loop(
            "c",
            n,
            lambda c: k.vector(
                lambda x: self.store(self.scores, self.scores[start + x] + self.parts[x * k.number(n) + c], start + x)
            ),
            notes={TILE_MARK: 1},
        )
        return seq(k.loop("r", n, key, ForKind.UNROLLED), clear, turn)

    def mask(self, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Scale and mask the scores of a block; lanes behind the last key get no weight."""
        k = self.k
        n = k.number(k.lanes)
        whole = count // n

        def cell(j: PrimExpr) -> Stmt:
            def score(load: BufferLoad) -> PrimExpr | None:
                return self.scores[j] if load.buffer is k.parts.score.buffer else None

            return self.store(self.scores, k.masked(k.first, begin + j, score), j)

        main = k.loop("t", whole, lambda t: k.vector(lambda x: cell(t * n + x)))
        left = count - whole * n
        rest = k.loop("j", left, lambda j: cell(whole * n + j))
        nothing = const(float("-inf"), "float32")
        behind = k.loop("j", (n - left) % n, lambda j: self.store(self.scores, nothing, count + j))
        return seq(main, rest, behind)

    def exponentials(self, tiles: PrimExpr) -> Stmt:
        """Take exponentials, add them up, and shrink what was added up before by the growth of the maximum."""
        k = self.k
        n, zero = k.number(k.lanes), k.number(0)
        lowest = const(LOWEST, "float32")
        steps = [
            k.vector(lambda x: self.store(self.top, lowest, x)),
            k.loop(
                "t",
                tiles,
                lambda t: k.vector(lambda x: self.store(self.top, Max(self.top[x], self.scores[t * n + x]), x)),
            ),
            self.store(self.before, self.best[zero]),
            k.loop("x", k.lanes, lambda x: self.store(self.best, Max(self.best[zero], self.top[x])), ForKind.UNROLLED),
            k.vector(lambda x: self.store(self.shrink, exp(self.before[zero] - self.best[zero]), x)),
            k.vector(lambda x: self.store(self.total, const(0.0, "float32"), x)),
            k.loop(
                "t",
                tiles,
                lambda t: k.vector(
                    lambda x: seq(
                        self.store(self.scores, exp(self.scores[t * n + x] - self.best[zero]), t * n + x),
                        self.store(self.total, self.total[x] + self.scores[t * n + x], x),
                    )
                ),
            ),
            self.store(self.all, self.all[zero] * self.shrink[zero]),
            k.loop("x", k.lanes, lambda x: self.store(self.all, self.all[zero] + self.total[x]), ForKind.UNROLLED),
        ]
        return seq(*steps)

    def weighted(self, value: BufferLoad, begin: PrimExpr, count: PrimExpr) -> Stmt:
        """Add up the values of a block by weight."""
        k = self.k
        zero, width = k.number(0), k.columns
        held = self._buffer("held", width * _TOGETHER)

        def add(j: PrimExpr, part: PrimExpr) -> Stmt:
            def one(d: PrimExpr) -> Stmt:
                at = part * k.number(width) + d
                return self.store(held, held[at] + self.scores[j] * k.at(value, key=begin + j, col=d), at)

            return self.vectors(width, one)

        together = k.number(_TOGETHER)
        main = k.loop(
            "j",
            count // together,
            lambda j: k.loop("p", _TOGETHER, lambda p: add(j * together + p, p), ForKind.UNROLLED),
        )
        done = count // together * together
        rest = k.loop("j", count - done, lambda j: add(done + j, zero))
        everything = width * _TOGETHER
        load = self.vectors(everything, lambda d: self.store(held, self.sums[d] * self.shrink[zero], d))
        keep = self.vectors(everything, lambda d: self.store(self.sums, held[d], d))
        return AllocBuffer(held, seq(load, main, rest, keep))

    def write(self) -> Stmt:
        """Add up the parts and divide by the sum of weights."""
        k = self.k
        out = k.parts.store

        def place(d: PrimExpr) -> Stmt:
            value = self.sums[d]
            for p in range(1, _TOGETHER):
                value = value + self.sums[d + k.number(p * k.columns)]
            indices = tuple(k.at(i, query=k.first, col=d) for i in out.indices)
            return BufferStore(out.buffer, value * factor, indices)

        factor = Var("factor", "float32")
        return LetStmt(factor, k.inverse(self.all[k.number(0)]), self.vectors(k.columns, place))
