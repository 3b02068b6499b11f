"""What a function allocates, and accesses that leave their buffers."""

from __future__ import annotations

from collections import defaultdict
from math import prod
from typing import Any

from weft import arith, error
from weft.ir import DataType, IRModule, Pass, Range, Var, as_int, children
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BlockRealize, BufferStore, For, IfThenElse, LetStmt


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


def OOBChecker() -> Pass:
    """Make a pass that refuses accesses which provably may leave their buffers, and changes nothing.

    An index whose bounds cannot be found passes.
    """

    def run(mod: IRModule) -> IRModule:
        found = [x for _, f in mod.items() if isinstance(f, PrimFunc) for x in _outside(f.body, arith.Analyzer(), {})]
        if found:
            raise error.ScheduleError("\n".join(found), help="bound the loop, or test the index before the access")
        return mod

    return Pass("tir.analysis.OOBChecker", run, 0, OOBChecker.__doc__)


def _outside(node: Any, analyzer: arith.Analyzer, domain: dict[Var, Any]) -> list[str]:
    """List the accesses below a node that leave their buffers."""
    found: list[str] = []
    if isinstance(node, For):
        domain = {**domain, node.loop_var: Range.from_min_extent(node.min, node.extent)}
        analyzer.bind(node.loop_var, domain[node.loop_var])
    elif isinstance(node, LetStmt):
        domain = {**domain, node.var: analyzer.int_set(node.value, domain)}
        analyzer.bind(node.var, node.value)
    elif isinstance(node, BlockRealize):
        axes = list(zip(node.block.iter_vars, node.iter_values, strict=True))
        domain = {**domain, **{iv.var: analyzer.int_set(value, domain) for iv, value in axes}}
        for iv, value in axes:
            analyzer.bind(iv.var, value)
    elif isinstance(node, (BufferStore, BufferLoad)):
        found = [x for i in range(len(node.indices)) for x in _outside_dimension(node, i, analyzer, domain)]
    if isinstance(node, IfThenElse):
        found += _outside(node.condition, analyzer, domain)
        with analyzer.constraint_scope(node.condition):
            found += _outside(node.then_case, analyzer, domain)
        return found + (_outside(node.else_case, analyzer, domain) if node.else_case is not None else [])
    return found + [x for child in children(node) for x in _outside(child, analyzer, domain)]


def _outside_dimension(node: Any, i: int, analyzer: arith.Analyzer, domain: dict[Var, Any]) -> list[str]:
    """Say how an index of an access leaves its dimension, if its interval does and no condition around it forbids."""
    index, extent = node.indices[i], node.buffer.shape[i]
    if DataType(index.dtype).lanes != 1:  # a vector of indices has no interval
        return []
    bounds = analyzer.int_set(index, domain)
    low, high = bounds.min_value, bounds.max_value
    above = bounds.has_upper_bound and analyzer.can_prove_greater_equal(high, extent)
    below = bounds.has_lower_bound and analyzer.can_prove_less(low, 0)
    above = above and analyzer.const_int_bound(index - extent).max_value >= 0
    below = below and analyzer.const_int_bound(index).min_value < 0
    return [
        f"Out of bounds memory access on buffer {node.buffer.name} dimension {i}. index {index} with bounds "
        f"[{low}, {high}] is outside the range [0, {extent}]."
    ] if above or below else []  # fmt: skip
