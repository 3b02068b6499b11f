"""Sequences and optionals: both are lists of tensors, an optional of one at most."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft.error import IndexOutOfRange, ShapeMismatch
from weft.runtime.host.registry import host_operator


def _copy(x: Any) -> Any:
    return list(x) if isinstance(x, list) else x if isinstance(x, dict) else np.array(x)


@host_operator("SequenceConstruct")
def _construct(*items: Any) -> list[Any]:
    return [_copy(x) for x in items]


@host_operator("SequenceLength")
def _length(sequence: list[Any]) -> Any:
    return np.array(len(sequence), np.int64)


@host_operator("OptionalHasElement")
def _has_element(optional: list[Any]) -> Any:
    return np.array(len(optional) == 1)


def _place(what: str, position: Any, low: int, high: int) -> int:
    at = int(np.asarray(position).reshape(()))
    if not low <= at <= high:
        raise IndexOutOfRange(f"{what}: there is no such position", expected=f"{low} to {high}", found=str(at))
    return at


@host_operator("SequenceAt")
def _at(sequence: list[Any], position: Any) -> Any:
    return _copy(sequence[_place("SequenceAt", position, -len(sequence), len(sequence) - 1)])


@host_operator("OptionalGetElement")
def _get_element(optional: list[Any]) -> Any:
    if not optional:
        raise IndexOutOfRange("OptionalGetElement: the optional is empty", expected="one value", found="none")
    return _copy(optional[0])


@host_operator("SequenceInsert")
def _insert(sequence: list[Any], item: Any, position: Any = None) -> list[Any]:
    n = len(sequence)
    at = n if position is None else _place("SequenceInsert", position, -n, n)
    at += n if at < 0 else 0
    return [*sequence[:at], _copy(item), *sequence[at:]]


@host_operator("SequenceErase")
def _erase(sequence: list[Any], position: Any = None) -> list[Any]:
    n = len(sequence)
    at = _place("SequenceErase", -1 if position is None else position, -n, n - 1) % n
    return [*sequence[:at], *sequence[at + 1 :]]


@host_operator("SplitToSequence")
def _split(x: Any, split: Any = None, *, axis: int, keepdims: int) -> list[Any]:
    n = x.shape[axis]
    if split is None:
        parts = [np.take(x, i, axis) if not keepdims else np.take(x, [i], axis) for i in range(n)]
        return [np.array(p) for p in parts]
    sizes = np.asarray(split)
    if sizes.ndim == 0:
        if sizes <= 0:
            raise ShapeMismatch("SplitToSequence: a part has no length", expected="at least 1", found=str(sizes))
        ends = list(range(int(sizes), n, int(sizes)))
    else:
        if sizes.sum() != n or (sizes < 0).any():
            raise ShapeMismatch("SplitToSequence: the parts do not make up the axis", expected=str(n),
                                found=str(sizes.tolist()))  # fmt: skip
        ends = np.cumsum(sizes)[:-1].tolist()
    return [np.array(p) for p in np.split(x, ends, axis)]


@host_operator("ConcatFromSequence")
def _concat(sequence: list[Any], *, axis: int, new_axis: int) -> Any:
    if not sequence:
        raise ShapeMismatch("ConcatFromSequence: the sequence is empty", expected="at least one tensor", found="none")
    try:
        return np.stack(sequence, axis) if new_axis else np.concatenate(sequence, axis)
    except ValueError as e:
        shapes = ", ".join(str(np.shape(x)) for x in sequence[:8])
        raise ShapeMismatch(f"ConcatFromSequence: {e}", expected="shapes that agree", found=shapes) from None
