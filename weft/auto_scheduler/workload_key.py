"""Keys of workloads taken apart, and how far one workload is from another."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from weft import topi
from weft.topi import get_const_tuple
from weft.topi.typing import Extent
from weft.tune.front_end import deserialize_args, serialize_args

__all__ = [
    "calc_workload_dis_factor",
    "decode_workload_key",
    "deserialize_args",
    "get_const_int",
    "get_const_tuple",
    "get_func_name",
    "list_to_tuple",
    "serialize_args",
]


def decode_workload_key(workload_key: str) -> tuple[str, tuple[Any, ...] | None]:
    """Return a key's name and its arguments, lists flattened; None for these where the key is a name alone.

    Examples
    --------
    >>> decode_workload_key('["conv", [8, 3], "float32"]')
    ('conv', (8, 3, 'float32'))
    """
    try:
        parts = json.loads(workload_key)
    except ValueError:
        return workload_key, None
    return (parts[0], tuple(_flat(parts[1:]))) if isinstance(parts, list) and parts else (workload_key, None)


def _flat(values: Sequence[Any]) -> list[Any]:
    return [f for v in values for f in (_flat(v) if isinstance(v, list) else [v])]


def calc_workload_dis_factor(
    target_workload_pair: tuple[str, Sequence[Any] | None], workload_pair: tuple[str, Sequence[Any] | None]
) -> float:
    """Say how much larger a workload is than another of the same function; infinity where they do not compare.

    Sizes have to be multiples of the other's, everything else the same.
    """
    (name, args), (other, others) = target_workload_pair, workload_pair
    if name != other:
        return float("inf")
    if args is None or others is None:
        return 1.0 if args is others else float("inf")
    if len(args) != len(others):
        return float("inf")
    factor = 1.0
    for a, b in zip(args, others, strict=True):
        if a == b:
            continue
        if type(a) is not int or type(b) is not int or not a or not b or a % b:
            return float("inf")
        factor *= a // b
    return factor


def get_const_int(exp: Extent) -> int:
    """Return the value of a constant."""
    return topi.get_const_int(exp)


def get_func_name(func: Callable[..., object]) -> str:
    """Return the name of a function, with those of what it lies in."""
    return getattr(func, "func_name", func.__qualname__)


def list_to_tuple(x: Sequence[Any]) -> tuple[Any, ...]:
    """Make tuples of lists, those inside, too."""
    return tuple(list_to_tuple(v) if isinstance(v, (list, tuple)) else v for v in x)
