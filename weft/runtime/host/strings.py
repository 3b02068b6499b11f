"""Operators on tensors of strings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np

from weft.error import InvalidArgument, ShapeMismatch
from weft.runtime.host.registry import host_operator


def _padded(rows: Sequence[Sequence[str]], shape: tuple[int, ...], pad: str = "") -> tuple[np.ndarray, np.ndarray]:
    """Return lists of texts as rows of one array, filled up with `pad`, and their lengths."""
    counts = [*map(len, rows)]
    width = max(counts, default=0)
    full = (row if n == width else [*row, *[pad] * (width - n)] for row, n in zip(rows, counts, strict=True))
    out = np.array([*chain.from_iterable(full)], object)
    return out.reshape(*shape, width), np.array(counts, np.int64).reshape(shape)


@host_operator("StringConcat")
def _concat(a: Any, b: Any) -> Any:
    return np.asarray(a + b, object)


@host_operator("EqualTexts")
def _equal(a: Any, b: Any) -> Any:
    return np.asarray(a == b, bool)


@lru_cache(maxsize=256)
def _expression(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern, re.ASCII)  # as RE2, whose classes are those of ASCII
    except re.error as e:
        raise InvalidArgument("a pattern is no regular expression", found=f"{pattern!r}: {e}") from e


@host_operator("RegexFullMatch")
def _full_match(x: Any, *, pattern: str) -> Any:
    matches = map(_expression(pattern).fullmatch, x.reshape(-1).tolist())
    return np.fromiter(map(bool, matches), bool, x.size).reshape(x.shape)


@host_operator("StringSplit")
def _split(x: Any, *, delimiter: str, maxsplit: int) -> tuple[Any, Any]:
    """Parts of each text, filled up with empty ones, and how many there are; no delimiter is any whitespace."""
    return _padded([t and t.split(delimiter or None, maxsplit) for t in x.reshape(-1).tolist()], x.shape)


@host_operator("StringNormalizer")
def _normalize(x: Any, *, case: str, sensitive: int, stopwords: list[str]) -> Any:
    """Drop stop words and change case; what is left of nothing is one empty text."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ShapeMismatch("StringNormalizer: a wrong shape", expected="(n,) or (1, n)", found=str(x.shape))
    kept, stop = x.reshape(-1).tolist(), set(stopwords if sensitive else map(str.lower, stopwords))
    if stop:
        kept = [t for t in kept if (t if sensitive else t.lower()) not in stop]
    change = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}[case]
    out = np.array([*map(change, kept)] or [""], object)
    return out if x.ndim == 1 else out.reshape(1, -1)


@host_operator("CountGrams")
def _tfidf(
    items: Any, edges: Any, places: Any, weights: Any, *, count: int, lengths: list[int], skipped: int, mode: str
) -> Any:
    """Count the n-grams of a pool, whose items lie up to some places apart, in each row.

    Parameters
    ----------
    items : (..., length) int64
        The numbers of a row's items, less than `count`; -1 for those that no n-gram has.
    edges, places : int64
        The tree of n-grams. Node 0 is its root, node ``i + 1`` the item `i` alone; edge `e`, one of the numbers
        ``node * count + item`` in order, leads to the node ``count + 1 + e``. Of each node its column, or -1.
    weights : (columns,) float32
        Of each column; `mode` says whether ones, counts, or products of both are the result.
    """
    rows, width = np.atleast_2d(items), len(weights)
    out, touched = np.zeros(len(rows) * width, np.float32), [np.empty(0, np.int64)]
    starts = np.arange(len(rows))[:, None] * width
    for step in range(1, skipped + 2):
        node = rows + 1
        for n in range(1, lengths[1] + 1):
            if n > 1:
                behind = rows[:, (n - 1) * step :]
                node = _next(node[:, : behind.shape[1]], behind, edges, count)
            if n >= lengths[0] and (n > 1 or step == 1):
                column = places[node]
                touched.append((starts + column)[column >= 0])
                np.add.at(out, touched[-1], np.float32(1))
    if mode != "TF":
        found = np.concatenate(touched)
        out[found] = (out[found] if mode == "TFIDF" else np.float32(1)) * weights[found % max(width, 1)]
    return out.reshape(*items.shape[:-1], width)


def _next(node: np.ndarray, item: np.ndarray, edges: np.ndarray, count: int) -> np.ndarray:
    """The nodes to which items lead from nodes; the root where none does."""
    wanted = np.where((node > 0) & (item >= 0), node * count + item, -1)
    edge = np.searchsorted(edges, wanted)
    return np.where(np.append(edges, -2)[edge] == wanted, edge + count + 1, 0)


@host_operator("ParseNumbers")
@np.errstate(all="ignore")
def _parse(x: Any, *, dtype: str) -> Any:
    kind = np.dtype(dtype)
    read = {"b": lambda t: bool(int(float(t))), "f": float}.get(kind.kind, _whole)
    wide = np.float64 if kind.kind == "f" else object
    try:
        return np.fromiter(map(read, x.reshape(-1).tolist()), wide, x.size).reshape(x.shape).astype(kind)
    except (ValueError, OverflowError) as e:
        raise InvalidArgument("Cast: a text is no number", expected=dtype, found=str(e)) from None


def _whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))


@host_operator("FormatNumbers")
@np.errstate(all="ignore")
def _format(x: Any) -> Any:
    if x.dtype.kind in "biu":
        written = map(str, (x.astype(np.uint8) if x.dtype == bool else x).reshape(-1).tolist())
    else:
        written = map(_shortest, (x if x.dtype.kind == "f" else x.astype(np.float32)).reshape(-1))
    return np.fromiter(written, object, x.size).reshape(x.shape)


def _shortest(value: Any) -> str:
    """Write a number with the fewest digits that give it back."""
    text = str(value).removesuffix(".0")
    text = np.format_float_positional(value, trim="-") if "e" in text and 1e-5 <= abs(value) < 1e16 else text
    return {"inf": "INF", "-inf": "-INF", "nan": "NaN"}.get(text, text)


@host_operator("Tokenizer")
def _tokenize(x: Any, *, separators: list[str], expression: str, mark: int, pad: str, least: int) -> Any:
    """Take each text apart at separators or into matches, each as long as it can be; rows are filled up with `pad`."""
    rows: list[list[str]] = [[t] for t in x.reshape(-1).tolist()]
    if expression == "." or separators == [""]:
        rows = [list(text) for (text,) in rows]
    else:
        cut = _between if separators else _tokens
        for pattern in map(_expression, separators or [expression]):
            rows = [[p for part in row for p in cut(part, pattern) if len(p) >= least] for row in rows]
    rows = [["\x02", *row, "\x03"] for row in rows] if mark and any(rows) else rows
    return _padded(rows, x.shape, pad)[0]


_GREEDY = re.compile(r"(\[[^][\\]+\]|\\[dswDSW]|\\\W|[^\\.^$*+?{}()|[\]])+[+]?")
"""Expressions of single characters, the last one perhaps repeated: the first match that is found is the longest."""


def _matches(text: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Find where matches begin and end, the longest at each place, one after the other."""
    at, anchored = 0, re.search(r"\$|\\[bBzZ]", pattern.pattern)  # these look at the text's end
    while found := pattern.search(text, at):
        start, end = found.span()
        if not anchored:
            end = next((e for e in range(len(text), end, -1) if pattern.fullmatch(text, start, e)), end)
        yield start, end
        at = max(end, start + 1)
        if at > len(text):
            return


def _tokens(text: str, pattern: re.Pattern[str]) -> list[str]:
    """Return the matches."""
    if _GREEDY.fullmatch(pattern.pattern):
        return pattern.findall(text)
    return [text[start:end] for start, end in _matches(text, pattern)]


def _between(text: str, pattern: re.Pattern[str]) -> list[str]:
    """Return what lies between matches."""
    if _GREEDY.fullmatch(pattern.pattern):
        return pattern.split(text)
    cut, at = list[str](), 0
    for start, end in _matches(text, pattern):
        cut.append(text[at:start])
        at = max(end, start + 1)
    return [*cut, text[at:]]
