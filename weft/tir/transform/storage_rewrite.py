"""StorageRewrite: buffers whose lives do not overlap share memory."""

from __future__ import annotations

from typing import Any

from weft.ir import DataType, IntImm, IRModule, Node, Var, const, function_pass, rebuild, substitute, walk
from weft.tir.analysis.structure import replace_node, stmt_children
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, DeclBuffer, For, ForKind, LetStmt, SeqStmt, Stmt, While
from weft.tir.transform.in_place import in_place

_TEAM = (ForKind.PARALLEL, ForKind.THREAD_BINDING)


@function_pass(kind=PrimFunc)
def storage_rewrite(func: PrimFunc, mod: IRModule, *, scopes: tuple[str, ...] = ("global",)) -> PrimFunc:
    """Let an allocation take the place of one around it that is dead, or not yet alive, while it is used.

    Requires: No blocks.
    Ensures: The same form. Allocations of `scopes` that share memory have one scope, one type of elements and known
        sizes, and no parallel loop stands between them; one allocation of the larger size stands where the outer one
        stood. A result takes the place of what it is made of where each of its elements is made of the element at the
        same place only, in loops that do nothing else with the two, and what it is made of is dead then.
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
                E[i] = C[7 - i] + 1.0
            for i in range(8):
                D[i] = E[7 - i] + 1.0

    After::

        @T.prim_func
        def f(A: T.Buffer((8,), "float32"), D: T.Buffer((8,), "float32")):
            B = T.alloc_buffer((8,))
            C = T.decl_buffer((8,), data=B.data)
            E = T.alloc_buffer((8,))
            for i in range(8):
                B[i] = A[i] + 1.0
            for i in range(8):
                C[i] = B[i] + 1.0
            for i in range(8):
                E[i] = C[7 - i] + 1.0
            for i in range(8):
                D[i] = E[7 - i] + 1.0
    Cost: Quadratic in nested allocations, linear in statements for each.
    Source: TVM's ``StorageRewrite``.
    """
    return func.replace(body=_Rewriter(scopes).visit(func.body, []))


class _Slot:
    """An allocation that others may share, and those that do."""

    def __init__(self, node: AllocBuffer) -> None:
        self.node = node
        self.users: list[Buffer] = [node.buffer]
        self.size = _size(node.buffer)
        self.units = _units(node.body)


class _Rewriter:
    def __init__(self, scopes: tuple[str, ...]) -> None:
        self.scopes = scopes

    def visit(self, node: Node, slots: list[_Slot]) -> Any:
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
            if _alike(slot.node.buffer, buffer) and _fits(slot, node):
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


def _fits(slot: _Slot, inner: AllocBuffer) -> bool:
    """Whether the users of a slot are dead while `inner`'s buffer lives, but for one that it replaces in place."""
    first, last = _life(slot.units, inner.buffer)
    meeting = [b for b in slot.users if (a := _life(slot.units, b))[1] >= first and a[0] <= last]
    if not meeting:
        return True
    if len(meeting) > 1 or _life(slot.units, meeting[0])[1] != first:
        return False
    return in_place(slot.units[first], meeting[0], inner.buffer)


def _life(units: list[Stmt], buffer: Buffer) -> tuple[int, int]:
    """Return the first and the last of the statements that use a buffer's memory.

    A buffer whose pointer got a name may be used through it until the end.
    """
    using = [i for i, u in enumerate(units) if any(n is buffer.data for n in walk(_own(u)))]
    if not using:
        return 1 << 60, -1
    named = any(isinstance(u, LetStmt) and u.var.dtype == "handle" for u in (units[i] for i in using))
    return using[0], len(units) if named else using[-1]


def _units(scope: Stmt) -> list[Stmt]:
    """List the statements of a scope in order; a loop counts as a whole, others come before those inside them."""
    if isinstance(scope, (AllocBuffer, DeclBuffer, SeqStmt)):
        return [u for s in stmt_children(scope) for u in _units(s)]
    return (
        [scope] if isinstance(scope, (For, While)) else [scope, *(u for s in stmt_children(scope) for u in _units(s))]
    )


def _own(unit: Stmt) -> tuple[Any, ...]:
    """Return what a unit holds besides units of their own."""
    if isinstance(unit, (For, While)):
        return (unit,)
    values = (getattr(unit, f) for f in unit.__struct_fields__)
    return tuple(v for v in values if not isinstance(v, Stmt))
