"""Sequences of different length that grow together: one call of the compiled decoder gives each its next tokens."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from tvm_ffi import Shape

import weft
from examples.chat.model import COLUMNS
from weft.error import InvalidArgument

__all__ = ["Generator", "Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are drawn; `penalty` is for tokens among the last `memory`. A seed's tokens are always the same."""

    temperature: float = 0.8
    top_k: int = 0
    top_p: float = 0.95
    penalty: float = 1.0
    memory: int = 32
    seed: int = 0


@dataclass
class _Sequence:
    """Tokens so far, how many of them the cache has, and what was guessed to follow them."""

    tokens: list[int]
    sampling: Sampling
    cached: int = 0
    guess: list[int] = field(default_factory=list)


class Generator:
    """Sequences over one paged cache.

    Parameters
    ----------
    machine : VirtualMachine
        Of ``model.compile_decoder``.
    sequences, tokens, page : int
        The most sequences and tokens of all of them, and the tokens of a page.
    chunk : int
        The most tokens of a prompt that one call reads of a sequence.
    window : int
        How many of its last tokens a sequence keeps; 0 for all.
    ahead : int
        How many tokens are guessed and checked in one call; a guess continues what followed the last three tokens
        before. Tokens are the same with and without.
    """

    def __init__(
        self,
        machine: Any,
        sequences: int = 8,
        tokens: int = 4096,
        page: int = 16,
        chunk: int = 256,
        window: int = 0,
        ahead: int = 0,
    ) -> None:
        if ahead and window:
            raise InvalidArgument(
                "what slid out of a window cannot come back", expected="ahead=0 with a window", found=f"ahead={ahead}"
            )
        self._step = machine["step"]
        self._cache = machine["create_cache"](*(Shape((n,)) for n in (sequences, tokens, chunk, page)))
        self._chunk, self._window, self._ahead = chunk, window, ahead
        self._sequences: dict[int, _Sequence] = {}
        self._next = 0
        self.calls = 0

    def add(self, prompt: list[int], sampling: Sampling | None = None) -> int:
        """Begin a sequence with some tokens; return its number."""
        if not prompt:
            raise InvalidArgument("a prompt has a token or more", found="none")
        self._call("kv_state_add_sequence", self._next)
        if self._window:
            self._call("attention_kv_cache_enable_sliding_window_for_seq", self._next, self._window, 0)
        return self._enter(_Sequence(list(prompt), sampling or Sampling()))

    def fork(self, number: int, sampling: Sampling) -> int:
        """Begin a sequence with the tokens of another one, whose pages they share; return its number."""
        parent = self._sequences[number]
        self._call("kv_state_fork_sequence", number, self._next, -1)
        return self._enter(_Sequence(list(parent.tokens), sampling, parent.cached))

    def _enter(self, sequence: _Sequence) -> int:
        self._sequences[self._next], self._next = sequence, self._next + 1
        return self._next - 1

    def remove(self, number: int) -> None:
        """End a sequence."""
        self._call("kv_state_remove_sequence", number)
        del self._sequences[number]

    def truncate(self, number: int, length: int) -> None:
        """Forget the tokens of a sequence from the `length`-th on."""
        s = self._sequences[number]
        if not 1 <= length <= len(s.tokens):
            raise InvalidArgument(
                "a sequence keeps a token or more of those it has", found=str(length), expected=f"1 to {len(s.tokens)}"
            )
        del s.tokens[length:]
        self._forget(number, min(s.cached, length - 1))

    def tokens(self, number: int) -> list[int]:
        """Return the tokens of a sequence so far."""
        return list(self._sequences[number].tokens)

    def step(self) -> dict[int, list[int]]:
        """Run the decoder once for all sequences; return the new tokens of each whose prompt has been read."""
        fed = {n: self._fed(s) for n, s in self._sequences.items()}
        if not fed:
            return {}
        self._call("kv_state_begin_forward", Shape(tuple(fed)), Shape(tuple(map(len, fed.values()))))
        drawn = self._drawn(fed)
        self._call("kv_state_end_forward")
        found: dict[int, list[int]] = {}
        for n, s in self._sequences.items():
            s.cached += len(fed[n])
            if n in drawn:
                found[n] = self._accept(n, s, drawn[n])
        return found

    def _fed(self, s: _Sequence) -> list[int]:
        """Return what a sequence gives to the next call: what the cache lacks, and a guess of what follows."""
        pending = s.tokens[s.cached : s.cached + self._chunk]
        whole = s.cached + len(pending) == len(s.tokens)
        s.guess = _continued(s.tokens, self._ahead) if whole and self._ahead else []
        return pending + s.guess

    def _drawn(self, fed: dict[int, list[int]]) -> dict[int, list[int]]:
        rows: list[tuple[int, int, int, int]] = []  # sequence, row of the call, tokens before the drawn one, of guesses
        first = 0
        for n, f in fed.items():
            s = self._sequences[n]
            if s.cached + len(f) == len(s.tokens) + len(s.guess):
                last = first + len(f) - 1 - len(s.guess)
                rows += [(n, last + g, len(s.tokens) + g, g) for g in range(len(s.guess) + 1)]
            first += len(f)
        ids = np.array([[t for f in fed.values() for t in f]], np.int32)
        ways = [self._sequences[n].sampling for n, *_ in rows]
        seen = np.full((len(rows), max((w.memory for w in ways), default=0)), -1, np.int64)
        for i, (n, _, _, g) in enumerate(rows):
            s = self._sequences[n]
            last = (s.tokens + s.guess[:g])[-s.sampling.memory :] if s.sampling.memory else []
            seen[i, : len(last)] = last
        drawn_by = [{"position": r[2], **vars(w)} for w, r in zip(ways, rows, strict=True)]
        columns = [np.array([d[c] for d in drawn_by], dtype).reshape(-1, 1) for c, dtype in COLUMNS.items()]
        given = [ids, np.array([r[1] for r in rows], np.int64), *columns]
        tokens, _ = self._step(*map(weft.runtime.tensor, [*given, seen]), self._cache)
        self.calls += 1
        out: dict[int, list[int]] = {}
        for (n, *_), token in zip(rows, tokens.numpy()[:, 0].tolist(), strict=True):
            out.setdefault(n, []).append(token)
        return out

    def _accept(self, n: int, s: _Sequence, drawn: list[int]) -> list[int]:
        """Take drawn tokens up to the first that was guessed wrong; take what was guessed after it off the cache."""
        if -1 in drawn:
            raise InvalidArgument(
                f"sequence {n}: the logits, or what it is sampled by, are no distribution", found=str(s.sampling)
            )
        right = next((i for i, (g, d) in enumerate(zip(s.guess, drawn, strict=False)) if g != d), len(s.guess))
        s.tokens += drawn[: right + 1]
        self._forget(n, len(s.tokens) - 1)
        return drawn[: right + 1]

    def _forget(self, n: int, length: int) -> None:
        s = self._sequences[n]
        if s.cached > length:
            self._call("kv_state_popn", n, s.cached - length)
            s.cached = length

    def _call(self, name: str, *args: Any) -> None:
        weft.get_global_func("vm.builtin." + name)(self._cache, *args)


def _continued(tokens: list[int], ahead: int, context: int = 3) -> list[int]:
    """Return what followed the last tokens when they stood there before, at most `ahead` tokens."""
    last = tokens[-context:]
    for i in range(len(tokens) - context - 1, -1, -1):
        if tokens[i : i + context] == last:
            return tokens[i + context : i + context + ahead]
    return []
