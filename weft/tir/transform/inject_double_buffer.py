"""InjectDoubleBuffer: a buffer filled in each iteration gets two halves, and is filled one iteration ahead."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.tir.analysis.access import is_pure
from weft.tir.analysis.structure import around, fresh_definitions, replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, SeqStmt, Stmt, seq
from weft.tir.transform.dim_align import behind_new_axis

_MARK = "double_buffer_scope"


@ir.function_pass(kind=PrimFunc)
def inject_double_buffer(func: PrimFunc, mod: ir.IRModule, *, split_loop: int | None = None) -> PrimFunc:
    """Let the statements that fill a buffer marked ``double_buffer_scope`` run for the next iteration.

    Requires: No blocks; a marked allocation stands in the body of a serial loop, behind statements that do not use it.
    Ensures: The same form without the mark. Where the buffer is not filled by statements of its own, or they read what
        the rest of the loop writes, or a call gets its pointer, only the mark goes.
    Before::

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
            for i in range(8):
                C = T.alloc_buffer((4,), annotations={"double_buffer_scope": 1})
                for j in range(4):
                    C[j] = A[i, j]
                B[i] = C[0] + C[3]

    After::

        @T.prim_func
        def f(A: T.Buffer((8, 4), "float32"), B: T.Buffer((8,), "float32")):
            C = T.alloc_buffer((2, 4))
            for j in range(4):
                C[0, j] = A[0, j]
            for i in range(8):
                if i < 7:
                    for j in range(4):
                        C[(i + 1) % 2, j] = A[i + 1, j]
                B[i] = C[i % 2, 0] + C[i % 2, 3]

    Options:
        ``split_loop``: how many iterations an unrolled inner loop takes, so that the halves have constant places (an
        even number); 1 keeps the loop. By default from ``PassContext(config={"tir.InjectDoubleBuffer": {...}})``.
    Cost: Linear in statements, for each marked buffer.
    Source: TVM's ``InjectDoubleBuffer``.
    """
    config = ir.PassContext.current().config.get("tir.InjectDoubleBuffer", {})
    return func.replace(body=_visit(func.body, config.get("split_loop", 1) if split_loop is None else split_loop))


def _visit(node: ir.Node, split: int) -> Any:
    if not isinstance(node, Stmt):
        return node
    node = ir.rebuild(node, lambda n: _visit(n, split))
    if not isinstance(node, For):
        return node
    allocs, parts = _opened(node.body)
    marked = [a for a in allocs if _MARK in a.annotations]
    return _ahead(node, allocs, parts, split) if marked else node


def _opened(body: Stmt) -> tuple[list[AllocBuffer], list[Stmt]]:
    """Return the allocations that the end of a loop's body stands in, and its statements."""
    allocs: list[AllocBuffer] = []
    parts: list[Stmt] = [body]
    while parts and isinstance(last := parts[-1], (AllocBuffer, SeqStmt)):
        parts.pop()
        if isinstance(last, AllocBuffer):
            allocs.append(last)
            parts.append(last.body)
        else:
            parts.extend(last.seq)
    return allocs, parts


def _ahead(loop: For, allocs: list[AllocBuffer], parts: list[Stmt], split: int) -> Stmt:
    """Let the fills of marked allocations run for the next iteration, those that can."""
    doubled: list[AllocBuffer] = []
    kept: list[AllocBuffer] = []
    starts: list[Stmt] = []
    for alloc in allocs:
        plain = replace_node(alloc, annotations=alloc.annotations.without(_MARK))
        made = _doubled(loop, plain.buffer, parts, allocs) if _MARK in alloc.annotations else None
        if made is None or loop.kind != ForKind.SERIAL:
            kept.append(plain)
            continue
        buffer, start, parts = made
        doubled.append(replace_node(plain, buffer=buffer, annotations=behind_new_axis(plain.annotations)))
        starts += start
    body = around(kept, seq(*parts))
    if not doubled:
        return replace_node(loop, body=body)
    guard: Stmt = seq(*starts)
    if not hasattr(loop.extent, "value"):
        guard = IfThenElse(loop.extent > ir.const(0, loop.loop_var.dtype), guard)
    return around(doubled, seq(guard, _split(replace_node(loop, body=body), split)))


def _doubled(
    loop: For, buffer: Buffer, parts: list[Stmt], allocs: list[AllocBuffer]
) -> tuple[Buffer, list[Stmt], list[Stmt]] | None:
    """Return a buffer of two halves, the statements that fill the first, and those of each iteration; or None."""
    fills = [p for p in parts if _writes(p, buffer)]
    rest = [p for p in parts if not _writes(p, buffer)]
    read = {n.buffer.data for p in fills for n in ir.find(p, BufferLoad)} - {buffer.data}
    written = {n.buffer.data for p in parts for n in ir.find(p, BufferStore)} - {buffer.data}
    written |= {v for p in rest for v in _handed(p)} | {a.buffer.data for a in allocs} - {buffer.data}
    last = max((i for i, p in enumerate(parts) if _writes(p, buffer)), default=-1)
    before = [p for p in parts[: last + 1] if not _writes(p, buffer)]
    first = not any(n is buffer.data for n in ir.walk(tuple(before)))
    alone = all(s.buffer is buffer for p in fills for s in ir.find(p, BufferStore)) and not any(map(_handed, fills))
    if not fills or not rest or not first or read & written or buffer.data in written or not alone:
        return None
    double = replace_node(
        buffer,
        data=ir.Var(buffer.data.name, buffer.data.dtype),
        shape=(ir.const(2, "int32"), *buffer.shape),
        strides=(),
    )
    here, zero = loop.loop_var, ir.const(0, loop.loop_var.dtype)
    following = here + 1
    half: ir.PrimExpr = ir.floormod(here - loop.min, 2)
    start = [_at(p, buffer, double, zero, {here: loop.min}) for p in fills]
    fetch = seq(*[_at(p, buffer, double, ir.floormod(following - loop.min, 2), {here: following}) for p in fills])
    more = IfThenElse(here < loop.min + loop.extent - 1, fetch)
    turn = [*before, more, *[_at(p, buffer, double, half, {}) for p in parts[last + 1 :]]]
    if any(n is buffer.data for n in ir.walk((*start, *turn))):  # used by its pointer, or by another name
        return None
    return double, start, turn


def _split(loop: For, factor: int) -> For:
    """Let an unrolled loop of `factor` iterations run inside; past the end it does nothing."""
    if factor <= 1:
        return loop
    old = loop.loop_var
    outer, inner = ir.Var(f"{old.name}_outer", old.dtype), ir.Var(f"{old.name}_inner", old.dtype)
    zero, place = ir.const(0, old.dtype), outer * factor + inner
    body: Stmt = IfThenElse(place < loop.extent, ir.substitute(loop.body, {old: loop.min + place}))
    unrolled = For(inner, zero, ir.const(factor, old.dtype), ForKind.UNROLLED, body)
    return replace_node(loop, loop_var=outer, min=zero, extent=ir.ceildiv(loop.extent, factor), body=unrolled)


def _writes(node: ir.Node, buffer: Buffer) -> bool:
    return any(isinstance(n, BufferStore) and n.buffer is buffer for n in ir.walk(node))


def _handed(node: ir.Node) -> list[ir.Var]:
    """List the pointers that calls with effects get, which may read and write behind them."""
    calls = [n for n in ir.find(node, ir.CallIntrin) if n.op.name != "tir.prefetch"]
    return [v for n in calls if not is_pure(n) for v in ir.find(n, ir.Var) if v.dtype == "handle"]


def _at(node: Stmt, old: Buffer, new: Buffer, half: ir.PrimExpr, values: dict[Any, ir.PrimExpr]) -> Stmt:
    """Copy a statement for other values of variables and one half of the new buffer, renewing loops and allocations."""

    def rule(n: ir.Node) -> Any:
        if isinstance(n, (BufferLoad, BufferStore)) and n.buffer is old:
            return replace_node(n, buffer=new, indices=(half, *n.indices))
        return n

    return ir.rewrite(ir.substitute(node, {**fresh_definitions(node), **values}), rule)
