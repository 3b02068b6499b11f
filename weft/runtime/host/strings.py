"""Operators on tensors of strings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Any

import numpy as np

from weft.error import InvalidArgument, ShapeMismatch
from weft.runtime.host.registry import host_operator


def _each(fn: Any, *arrays: Any, dtype: Any = object) -> np.ndarray:
    operands = np.broadcast_arrays(*arrays)
    out = np.empty(operands[0].shape, dtype)
    flat = out.reshape(-1)
    for i, items in enumerate(zip(*(o.reshape(-1) for o in operands), strict=True)):
        flat[i] = fn(*items)
    return out


@host_operator("StringConcat")
def _concat(a: Any, b: Any) -> Any:
    return _each(lambda x, y: x + y, a, b)


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)  # as RE2, whose classes are those of ASCII
    except re.error as e:
        raise InvalidArgument("a pattern is no regular expression", found=f"{pattern!r}: {e}") from e


@host_operator("RegexFullMatch")
def _full_match(x: Any, *, pattern: str) -> Any:
    return _each(lambda t: _expression(pattern).fullmatch(t) is not None, x, dtype=bool)


@host_operator("StringSplit")
def _split(x: Any, *, delimiter: str, maxsplit: int) -> tuple[Any, Any]:
    """Parts of each text, filled up with empty ones, and how many there are; no delimiter is any whitespace."""
    rows = [t.split(delimiter or None, maxsplit) if t else [] for t in x.reshape(-1)]
    width = max(map(len, rows), default=0)
    parts = np.full((len(rows), width), "", object)
    for i, row in enumerate(rows):
        parts[i, : len(row)] = row
    counts = np.array([len(r) for r in rows], np.int64)
    return parts.reshape(*x.shape, width), counts.reshape(x.shape)


@host_operator("StringNormalizer")
def _normalize(x: Any, *, case: str, sensitive: int, stopwords: list[str]) -> Any:
    """Drop stop words and change case; what is left of nothing is one empty text."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ShapeMismatch("StringNormalizer: a wrong shape", expected="(n,) or (1, n)", found=str(x.shape))
    stop = set(stopwords) if sensitive else {w.lower() for w in stopwords}
    kept = [t for t in x.reshape(-1) if (t if sensitive else t.lower()) not in stop]
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case]
    out = np.empty(max(len(kept), 1), object)
    out[:] = [change(t) for t in kept] or [""]
    return out if x.ndim == 1 else out.reshape(1, -1)


@host_operator("TfIdfVectorizer")
@np.errstate(all="ignore")
def _tfidf(x: Any, **attrs: Any) -> Any:
    """Count the n-grams of a pool, their items up to some places apart, in each row."""
    rows = x.reshape(1, -1) if x.ndim < 2 else x
    items, tables, targets = _pool(tuple(attrs["pool"]), tuple(attrs["ngram_counts"]), tuple(attrs["ngram_indexes"]))
    width = max(attrs["ngram_indexes"], default=-1) + 1
    counts = np.zeros((len(rows), width), np.float32)
    held = np.array([items.get(v, -1) for v in rows.reshape(-1).tolist()], np.int64).reshape(rows.shape)
    for n in range(attrs["min_gram_length"], attrs["max_gram_length"] + 1):
        widest = (held.shape[1] - 1) // (n - 1) if n > 1 else 1  # further apart they do not fit into a row
        for step in range(1, min(attrs["max_skip_count"] + 1, widest) + 1):
            found = np.zeros((len(rows), held.shape[1] - (n - 1) * step), np.int64)
            for k, table in enumerate(tables[n - 1]):
                pairs = _paired(found, held[:, k * step :][:, : found.shape[1]], len(items))
                found = np.minimum(np.searchsorted(table, pairs), len(table) - 1)
                found = np.where(table[found] == pairs, found, -1) if len(table) else np.full_like(pairs, -1)
            row, column = (found >= 0).nonzero()
            np.add.at(counts, (row, targets[n - 1][found[row, column]]), 1)
    weights = np.ones(width, np.float32)
    if attrs["weights"]:
        weights[list(attrs["ngram_indexes"])] = attrs["weights"]
    mode = attrs["mode"]
    counts = counts if mode == "TF" else (counts > 0) * weights if mode == "IDF" else counts * weights
    return counts.astype(np.float32).reshape(*x.shape[:-1], width)


@lru_cache(maxsize=64)
def _pool(pool: tuple[Any, ...], starts: tuple[int, ...], places: tuple[int, ...]) -> tuple[Any, ...]:
    """Number the items of a pool, and the beginnings of its n-grams; part n of it begins at ``starts[n - 1]``.

    Returns the items' numbers; of each length the beginnings of one, two and more items, in order, each as
    :func:`_paired` makes it of the one before; and of each length the places in the result.
    """
    items = {v: i for i, v in enumerate(dict.fromkeys(pool))}
    numbers = np.array([items[v] for v in pool], np.int64)
    tables, targets, rest = [], [], np.array(places, np.int64)
    for n, (begin, end) in enumerate(pairwise([*starts, len(pool)]), 1):
        grams, levels = numbers[begin:end].reshape(-1, n), []
        found = np.zeros(len(grams), np.int64)
        for k in range(n):
            table, found = np.unique(_paired(found, grams[:, k], len(items)), return_inverse=True)
            levels.append(table)
        order = np.zeros(len(levels[-1]), np.int64)
        order[found] = rest[: len(grams)]
        tables.append(levels)
        targets.append(order)
        rest = rest[len(grams) :]
    return items, tables, targets


def _paired(found: np.ndarray, item: np.ndarray, count: int) -> np.ndarray:
    """One number for a beginning's and an item's; less than 0 where one of them is."""
    return np.where((found < 0) | (item < 0), -1, found * count + item)


@host_operator("ParseNumbers")
@np.errstate(all="ignore")
def _parse(x: Any, *, dtype: str) -> Any:
    kind = np.dtype(dtype)
    read = {"b": lambda t: bool(int(float(t))), "f": float}.get(
        kind.kind, lambda t: int(t) if _is_int(t) else int(float(t))
    )
    try:
        return _each(read, x, dtype=np.float64 if kind.kind == "f" else object).astype(kind)
    except (ValueError, OverflowError) as e:
        raise InvalidArgument("Cast: a text is no number", expected=dtype, found=str(e)) from None


def _is_int(text: str) -> bool:
    return re.fullmatch(r"\s*[+-]?\d+\s*", text) is not None


@host_operator("FormatNumbers")
@np.errstate(all="ignore")
def _format(x: Any) -> Any:
    if x.dtype.kind in "biu":
        return _each(lambda v: str(int(v)), x)
    return _each(_shortest, x)


def _shortest(value: Any) -> str:
    """Write a number with the fewest digits that give it back."""
    text = np.format_float_positional(value, trim="-") if 1e-5 <= abs(value) < 1e16 or value == 0 else str(value)
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text, text)


@host_operator("Tokenizer")
def _tokenize(x: Any, *, separators: list[str], expression: str, mark: int, pad: str, least: int) -> Any:
    """Take each text apart at separators or into matches, each as long as it can be; rows are filled up with `pad`."""
    if expression == "." or separators == [""]:
        rows = [list(t) for t in x.reshape(-1)]
    elif separators:
        rows = [_between(t, [_expression(p) for p in separators], least) for t in x.reshape(-1)]
    else:
        spans = ((t, _matches(t, _expression(expression))) for t in x.reshape(-1))
        rows = [[t[a:b] for a, b in found if b - a >= max(least, 1)] for t, found in spans]
    rows = [["\x02", *row, "\x03"] for row in rows] if mark and any(rows) else rows
    width = max(map(len, rows), default=0)
    out = np.full((len(rows), width), pad, object)
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
    return out.reshape(*x.shape, width)


_GREEDY = re.compile(r"(\[[^][\\]+\]|\\[dsw]|\w)+[+]?")
"""Expressions of single characters, the last one perhaps repeated: the first match that is found is the longest."""


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Find where matches begin and end, the longest at each place, one after the other."""
    if _GREEDY.fullmatch(pattern.pattern):
        yield from (found.span() for found in pattern.finditer(text))
        return
    at, anchored = 0, re.search(r"\$|\\[bBzZ]", pattern.pattern)  # these look at the text's end
    while found := pattern.search(text, at):
        start, end = found.span()
        if not anchored:
            end = next((e for e in range(len(text), end, -1) if pattern.fullmatch(text, start, e)), end)
        yield start, end
        at = max(end, start + 1)
        if at > len(text):
            return


def _between(text: str, separators: list[re.Pattern[str]], least: int) -> list[str]:
    """Return what lies between matches of separators, each in its turn."""
    parts = [text]
    for pattern in separators:
        cut: list[str] = []
        for part in parts:
            at = 0
            for start, end in _matches(part, pattern):
                cut.append(part[at:start])
                at = max(end, start + 1)
            cut.append(part[at:])
        parts = [p for p in cut if len(p) >= max(least, 1)]
    return parts
