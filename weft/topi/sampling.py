"""The next token of each sequence, drawn from what a model says of all tokens.

The order of a row is never sorted: a histogram of the highest bits of scores, with how many there are and what they
weigh, says in which of them the last that is kept lies; two more of the bits below find it. Equal scores are kept by
index. The draw then walks over what is kept, by index.
"""

from collections.abc import Callable
from typing import Any

from weft import te, tir
from weft.ir import PrimExpr, cast, const, int64, logical_and, logical_or, select
from weft.topi.threefry import encrypted
from weft.topi.typing import Buffers, IRBuilder
from weft.topi.written import written

_DIGITS = ((21, 11), (10, 11), (0, 10))
"""Places and numbers of bits of a score that a pass looks at, from the highest."""

_FRACTION = 52


def uniform_at(seed: te.Tensor, position: te.Tensor) -> Any:
    """Draw a number in [0, 1) for each seed and position, (n, 1) int64 each, by Threefry: (n, 1) float64."""

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        seeds, positions, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        zero, one = const(0, "uint64"), const(1023 << _FRACTION, "uint64")
        with ib.for_range(int64(0), cast("int64", seed.shape[0]), name="row", kind="parallel") as row:
            key, counter = (cast("uint64", b[row, int64(0)]) for b in (seeds, positions))
            word = encrypted(ib, [key, zero, zero, zero], [counter, zero, zero, zero])[0]
            fraction = tir.bitwise_or(tir.shift_right(word, const(64 - _FRACTION, "uint64")), one)
            out[row, int64(0)] = tir.reinterpret("float64", fraction) - const(1.0, "float64")

    return written([seed.shape], [seed, position], body, name="uniform_at", dtype="float64")


def sample_token(
    logits: te.Tensor,
    uniform: te.Tensor,
    temperature: te.Tensor,
    top_k: te.Tensor,
    top_p: te.Tensor,
    penalty: te.Tensor | None = None,
    history: te.Tensor | None = None,
    dtype: str = "int64",
) -> Any:
    """Draw a token for each row of logits (n, vocabulary); parameters are (n, 1), the result is (n, 1).

    The logits of tokens in `history` (n, length), where others than those of the vocabulary are none, are divided by
    `penalty`, or multiplied if they are negative. Of the `top_k` greatest (of all: 0) those remain whose probabilities,
    beginning with the greatest, reach `top_p`. A `temperature` of 0 takes the greatest. Rows that are no distribution
    give -1.
    """
    scores = _penalised(logits, penalty, history)
    n, v = (cast("int64", d) for d in logits.shape)
    r = te.reduce_axis((int64(0), v), "token")
    greatest = te.compute((n,), lambda i: te.max(scores[i, r.var], axis=r), name="greatest")
    heat = te.compute((n,), lambda i: _heat(temperature[i, int64(0)]), name="heat")
    weights = te.compute((n, v), lambda i, j: tir.exp((scores[i, j] - greatest[i]) / heat[i]), name="weights")

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, out = [ib.buffer_ptr(b) for b in ins], ib.buffer_ptr(outs[0])
        with ib.for_range(int64(0), n, name="row", kind="parallel") as row:
            u, heat, k, p = (b[row, int64(0)] for b in given[2:])
            one = cast("float32", heat).equal(const(0.0, "float32"))
            k = cast("int64", k)
            k = select(one, int64(1), select(logical_and(k > int64(0), k < v), k, v))
            line = _Row(ib, given[0], given[1], row, v)
            line.draw(cast("float64", u), k, cast("float64", p))
            out[row, int64(0)] = cast(dtype, line.token[0])

    given = [scores, weights, uniform, temperature, top_k, top_p]
    return written([(logits.shape[0], int64(1))], given, body, name="T_sample_token", dtype=dtype)


def _heat(temperature: Any) -> Any:
    """What scores are divided by; what is no temperature makes them NaN."""
    wrong, given = tir.Not(temperature >= const(0.0, temperature.dtype)), cast("float32", temperature)
    nan, zero, one = (const(v, "float32") for v in (float("nan"), 0.0, 1.0))
    return select(wrong, nan, select(given > zero, given, one))


def _penalised(logits: Any, penalty: Any, history: Any) -> Any:
    """Scores (n, vocabulary) float32 in which each token of the history is marked down once."""
    if history is None:
        return te.compute(logits.shape, lambda *i: cast("float32", logits(*i)), name="scores")

    def body(ib: IRBuilder, ins: Buffers, outs: Buffers) -> None:
        given, factor, seen, out = (ib.buffer_ptr(b) for b in (*ins, *outs))
        n, v = (cast("int64", d) for d in logits.shape)
        with ib.for_range(int64(0), n, name="row", kind="parallel") as row:
            with ib.for_range(int64(0), v, name="token") as j:
                out[row, j] = cast("float32", given[row, j])
            with ib.for_range(int64(0), cast("int64", history.shape[1]), name="place") as at:
                token = cast("int64", seen[row, at])
                with ib.if_scope(logical_and(token >= int64(0), token < v)):
                    value, by = cast("float32", given[row, token]), cast("float32", factor[row, int64(0)])
                    out[row, token] = select(value > const(0.0, "float32"), value / by, value * by)

    return written([logits.shape], [logits, penalty, history], body, name="scores", dtype="float32")


class _Row:
    """One row: which scores are kept, and the draw among them."""

    def __init__(self, ib: IRBuilder, scores: Any, weights: Any, row: PrimExpr, n: Any) -> None:
        self.ib, self.scores, self.weights, self.row, self.n = ib, scores, weights, row, n
        self.token, self.ties, self.left, self.above = (
            self._register(n, "int64") for n in ("token", "ties", "left", "above")
        )
        self.mass, self.total = (self._register(n, "float64") for n in ("mass", "total"))
        self.cut, self.found = (self._register(n, "uint32") for n in ("cut", "found"))
        most = 1 << max(bits for _, bits in _DIGITS)
        self.counts = ib.allocate("int64", (most,), name="counts", scope="local")
        self.masses = ib.allocate("float64", (most,), name="masses", scope="local")

    def draw(self, u: Any, k: PrimExpr, p: Any) -> None:
        """Set `token`."""
        ib, zero = self.ib, const(0.0, "float64")
        self.token[0], self.cut[0], self.ties[0], self.total[0] = int64(-1), const(0, "uint32"), int64(0), zero
        with ib.for_range(int64(0), self.n, name="j") as j:
            self.total[0] += self._weight(j)
        with ib.if_scope(tir.all(self.total[0] > zero, p.equal(p), u >= zero, u < const(1.0, "float64"))):
            with ib.if_scope(k < self.n):
                self._keep(k, const(float("-inf"), "float64"))
            with ib.if_scope(p < const(1.0, "float64")):
                self._keep(int64(1), p * self.total[0])
            self.total[0], self.mass[0] = zero, zero
            self._each_kept(lambda j: self._add(j))
            target = self.ib.let("target", u * self.total[0])
            self._each_kept(lambda j: self._pass(j, target))

    def _add(self, j: PrimExpr) -> None:
        self.total[0] += self._weight(j)

    def _pass(self, j: PrimExpr, target: Any) -> None:
        """Take a token, unless one before reached the target."""
        with self.ib.if_scope(logical_and(self.mass[0] <= target, self._weight(j) > const(0.0, "float64"))):
            self.token[0] = j
            self.mass[0] += self._weight(j)

    def _each_kept(self, body: Callable[[Any], None]) -> None:
        ib = self.ib
        self.left[0] = self.ties[0]
        with ib.for_range(int64(0), self.n, name="j") as j:
            key = self.ib.let("key", self._key(j))
            tie = key.equal(self.cut[0])
            with ib.if_scope(logical_or(key > self.cut[0], logical_and(tie, self.left[0] > int64(0)))):
                with ib.if_scope(tie):
                    self.left[0] -= int64(1)
                body(j)

    def _keep(self, count: Any, limit: Any) -> None:
        """Keep the fewest of the greatest that are at least `count` and weigh at least `limit`, if that is less."""
        ib, zero = self.ib, const(0.0, "float64")
        digit = self._register("digit", "int64")
        self.found[0], self.above[0], self.mass[0] = const(0, "uint32"), int64(0), zero
        for shift, bits in _DIGITS:
            self._histogram(shift, bits)
            digit[0] = int64((1 << bits) - 1)
            counted, weighed = self.above[0] + self.counts[digit[0]], self.mass[0] + self.masses[digit[0]]
            with ib.while_loop(logical_and(digit[0] > int64(0), logical_or(counted < count, weighed < limit))):
                self.above[0] += self.counts[digit[0]]
                self.mass[0] += self.masses[digit[0]]
                digit[0] -= int64(1)
            self.found[0] = tir.bitwise_or(
                tir.shift_left(self.found[0], const(bits, "uint32")), cast("uint32", digit[0])
            )
        self._finish(count, limit, digit[0])

    def _finish(self, count: Any, limit: Any, last: Any) -> None:
        """Find how many of the equal ones are kept."""
        ib, zero = self.ib, const(0.0, "float64")
        equal = self.ib.let("equal", cast("float64", self.counts[last]))
        weight = self.ib.let("weight", self.masses[last] / tir.max(equal, const(1.0, "float64")))
        missing = self.ib.let("missing", limit - self.mass[0])
        more = select(
            weight > zero,
            tir.ceil(missing / tir.max(weight, const(5e-324, "float64"))),
            select(missing > zero, equal, zero),
        )
        wanted = tir.max(more, cast("float64", count - self.above[0]))
        kept = self.ib.let("kept", tir.max(tir.min(wanted, equal), zero))
        found, ties = self.ib.let("cutoff", self.found[0]), cast("int64", kept)
        fewer = logical_and(found.equal(self.cut[0]), ties < self.ties[0])
        with ib.if_scope(logical_or(found > self.cut[0], fewer)):
            self.cut[0], self.ties[0] = found, ties
            self.total[0] = self.mass[0] + kept * weight

    def _histogram(self, shift: int, bits: int) -> None:
        """Count and weigh the scores whose higher bits have been found, by their next ones."""
        ib = self.ib
        with ib.for_range(int64(0), int64(1 << bits), name="digit") as digit:
            self.counts[digit], self.masses[digit] = int64(0), const(0.0, "float64")
        with ib.for_range(int64(0), self.n, name="j") as j:
            key = self.ib.let("key", self._key(j))
            same: Any = const(True, "bool")
            if shift + bits < 32:
                same = tir.shift_right(key, const(shift + bits, "uint32")).equal(self.found[0])
            with ib.if_scope(same):
                low = tir.bitwise_and(tir.shift_right(key, const(shift, "uint32")), const((1 << bits) - 1, "uint32"))
                digit = self.ib.let("digit", cast("int64", low))
                self.counts[digit] += int64(1)
                self.masses[digit] += self._weight(j)

    def _weight(self, j: PrimExpr) -> Any:
        return cast("float64", self.weights[self.row, j])

    def _key(self, j: PrimExpr) -> Any:
        """The bits of a score as a number without sign, greater for greater scores."""
        value = self.scores[self.row, j]
        value = select(value.equal(const(0.0, "float32")), const(0.0, "float32"), value)
        bits, sign = tir.reinterpret("uint32", value), const(1 << 31, "uint32")
        return select(bits >= sign, tir.bitwise_not(bits), tir.bitwise_or(bits, sign))

    def _register(self, name: str, dtype: str) -> Any:
        return self.ib.allocate(dtype, (1,), name=name, scope="local")
