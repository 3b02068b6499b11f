"""StorageRewrite: buffers whose lives do not overlap share memory."""

from __future__ import annotations

from typing import Any

from weft.ir import DataType, IntImm, IRModule, Var, const, function_pass, rebuild, substitute, walk
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, DeclBuffer, For, ForKind, LetStmt, Stmt, While

__all__ = ["storage_rewrite"]

_TEAM = (ForKind.PARALLEL, ForKind.THREAD_BINDING)


@function_pass(kind=PrimFunc)
def storage_rewrite(func: PrimFunc, mod: IRModule, *, scopes: tuple[str, ...] = ("global",)) -> PrimFunc:
    """Let an allocation take the place of one around it that is dead, or not yet alive, while it is used.

    Requires
        No blocks.
    Ensures
        The same form. Allocations of `scopes` that share memory have one scope, one type of elements and known sizes,
        and no parallel loop stands between them; one allocation of the larger size stands where the outer one stood.
    Example
        Before::

            @T.prim_func
            def f(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
                B = T.alloc_buffer((8,))
                C = T.alloc_buffer((8,))
                E = T.alloc_buffer((8,))
                for i in range(8):
                    B[i] = A[i] + 1.0
                for i in range(8):
                    C[i] = B[i] + 1.0
                for i in range(8):
                    E[i] = C[i] + 1.0
                for i in range(8):
                    D[i] = E[i] + 1.0

        After::

            @T.prim_func
            def f(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
                B = T.alloc_buffer((8,))
                C = T.alloc_buffer((8,))
                E = T.decl_buffer((8,), data=B.data)
                for i in range(8):
                    B[i] = A[i] + 1.0
                for i in range(8):
                    C[i] = B[i] + 1.0
                for i in range(8):
                    E[i] = C[i] + 1.0
                for i in range(8):
                    D[i] = E[i] + 1.0
    Cost
        Quadratic in nested allocations, linear in statements for each.
    Source
        TVM's ``StorageRewrite``, without its sharing in place.
    """
    body = _Rewriter(scopes).visit(func.body, [])
    return func if body is func.body else func.replace(body=body)


class _Slot:
    """An allocation that others may share, and those that do."""

    def __init__(self, node: AllocBuffer) -> None:
        self.node = node
        self.users: list[Buffer] = [node.buffer]
        self.size = _size(node.buffer)


class _Rewriter:
    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.scopes = scopes

    def visit(self, node: Any, slots: list[_Slot]) -> Any:
        """Rewrite a statement; `slots` are the allocations around it that it may share."""
        if isinstance(node, For) and node.kind in _TEAM:
            return rebuild(node, lambda n: self.visit(n, []) if isinstance(n, Stmt) else n)
        if not isinstance(node, AllocBuffer):
            return rebuild(node, lambda n: self.visit(n, slots) if isinstance(n, Stmt) else n)
        buffer = node.buffer
        size = _size(buffer)
        if size is None or buffer.scope not in self.scopes or buffer.strides:
            return rebuild(node, lambda n: self.visit(n, slots) if isinstance(n, Stmt) else n)
        for slot in slots:
            if _alike(slot.node.buffer, buffer) and _apart(slot, node):
                slot.users.append(buffer)
                slot.size = max(slot.size or 0, size)
                return DeclBuffer(buffer, self.visit(node.body, slots))
        own = _Slot(node)
        body = self.visit(node.body, [*slots, own])
        if len(own.users) == 1:
            return node if body is node.body else replace_node(node, body=body)
        return _share(own, body)


def _size(buffer: Buffer) -> int | None:
    size = 1
    for d in buffer.shape:
        if not isinstance(d, IntImm):
            return None
        size *= d.value
    return size if DataType(buffer.dtype).lanes == 1 else None


def _alike(outer: Buffer, inner: Buffer) -> bool:
    """Whether memory for one buffer can hold the other."""
    same = outer.dtype == inner.dtype and outer.scope == inner.scope
    return same and outer.data_alignment >= inner.data_alignment


def _share(slot: _Slot, body: Stmt) -> Stmt:
    """Allocate one memory for all users of a slot."""
    old = slot.node.buffer
    data, shape = old.data, old.shape
    if slot.size != _size(old):
        data, shape = Var(old.data.name, old.data.dtype), (const(slot.size, "int32"),)
    views = {b: replace_node(b, data=data) for b in slot.users if b is not old or data is not old.data}
    body = substitute(body, {**views, **{b.data: data for b in slot.users if b.data is not data}})
    if data is not old.data:
        body = DeclBuffer(views[old], body)
    memory = old if data is old.data else replace_node(old, data=data, shape=shape)
    return AllocBuffer(memory, body, slot.node.annotations, span=slot.node.span)


def _apart(slot: _Slot, inner: AllocBuffer) -> bool:
    """Whether the users of a slot are never alive while `inner`'s buffer is."""
    span = _life(slot.node.body, inner.buffer)
    return all(a[1] < span[0] or span[1] < a[0] for b in slot.users if (a := _life(slot.node.body, b)))


def _life(scope: Stmt, buffer: Buffer) -> tuple[int, int]:
    """Return the first and last of the statements of a scope that use a buffer's memory; a loop counts as a whole.

    A buffer whose pointer got a name may be used through it until the end.
    """

    def uses(node: Any) -> bool:
        return any(n is buffer.data for n in walk(node))

    first, last, place = 1 << 60, -1, 0

    def visit(node: Stmt) -> None:
        nonlocal first, last, place
        if isinstance(node, (For, While)):
            start, inside = place, uses(node)
            for child in _children(node):
                visit(child)
            place += 1
            if inside:
                first, last = min(first, start), max(last, place)
            place += 1
            return
        own = [getattr(node, f) for f in node.__struct_fields__ if not isinstance(getattr(node, f), Stmt)]
        own = [v for v in own if not (isinstance(v, tuple) and v and isinstance(v[0], Stmt))]
        if not isinstance(node, (AllocBuffer, DeclBuffer)) and any(map(uses, own)):
            named = isinstance(node, LetStmt) and node.var.dtype == "handle"
            first, last = min(first, place), 1 << 60 if named else max(last, place)
        place += 1
        for child in _children(node):
            visit(child)

    visit(scope)
    return first, last


def _children(node: Stmt) -> list[Stmt]:
    values = (getattr(node, f) for f in node.__struct_fields__)
    return [s for v in values for s in (v if isinstance(v, tuple) else (v,)) if isinstance(s, Stmt)]
