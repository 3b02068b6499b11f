"""What a function allocates at one time."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

from weft.ir import DataType, IRModule, as_int, children
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer


def calculate_allocated_bytes(func_or_mod: PrimFunc | IRModule) -> dict[str, dict[str, int]]:
    """Return the most bytes that a function's allocations take at one time, by function and storage scope.

    Parameters
    ----------
    func_or_mod : PrimFunc or IRModule
        Without blocks; a lone function is called ``"main"``. Allocations of symbolic size do not count.
    """
    if isinstance(func_or_mod, PrimFunc):
        return {"main": _allocated(func_or_mod)}
    return {v.name_hint: _allocated(f) for v, f in func_or_mod.items() if isinstance(f, PrimFunc)}


def verify_vtcm_limit(func_or_mod: PrimFunc | IRModule, limit: int) -> bool:
    """Whether no function takes more than `limit` bytes of ``global.vtcm``; a limit of 0 is none."""
    sizes = calculate_allocated_bytes(func_or_mod).values()
    return limit <= 0 or all(of.get("global.vtcm", 0) <= limit for of in sizes)


def _allocated(func: PrimFunc) -> dict[str, int]:
    most: dict[str, int] = {}
    now: dict[str, int] = defaultdict(int)
    stack: list[Any] = [func.body]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):  # the end of an allocation
            now[node[0]] -= node[1]
            continue
        if isinstance(node, AllocBuffer):
            sizes = [as_int(d) for d in node.buffer.shape]
            each = DataType(node.buffer.dtype)
            volume = 0 if None in sizes else prod(n for n in sizes if n is not None)
            scope, size = node.buffer.scope or "global", volume * each.itemsize * each.lanes
            now[scope] += size
            most[scope] = max(most.get(scope, 0), now[scope])
            stack.append((scope, size))
        stack.extend(reversed(list(children(node))))
    return most
