"""Statements of TIR.

Two forms share these nodes. *Scheduled* functions are loop nests over blocks (:class:`BlockRealize`) whose buffers keep
their dimensions. *Lowered* functions have no blocks: loops, conditions, allocations and stores into flat buffers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, ClassVar

from msgspec.structs import force_setattr, replace

from weft import ir
from weft.ir.scalar import make_bound
from weft.tir.buffer import Buffer, BufferRegion, MatchBufferRegion, check_predicate, index_exprs


class ForKind(IntEnum):
    """How a loop runs."""

    SERIAL = 0
    PARALLEL = 1
    VECTORIZED = 2
    UNROLLED = 3
    THREAD_BINDING = 4


class Stmt(ir.Node, abstract=True):
    """A statement."""

    _is_statement: ClassVar[bool] = True


class BufferStore(Stmt):
    """``buffer[indices] = value``; a Ramp as last index stores a vector, `predicate` masks its lanes."""

    _holds_no_statement: ClassVar[bool] = True
    buffer: Buffer
    value: ir.PrimExpr
    indices: tuple[ir.PrimExpr, ...]
    predicate: ir.PrimExpr | None = None

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        if not isinstance(self.value, ir.PrimExpr):  # pyright: ignore[reportUnnecessaryIsInstance]
            ir.make_exprs(self, self.buffer.dtype, "value")
        index_exprs(self)
        if self.predicate is not None:
            check_predicate(self.predicate, self.value.dtype)


def _vstore(self: Buffer, begin: Any, value: Any, predicate: ir.PrimExpr | None = None) -> BufferStore:
    """Make the statement that stores a value, or the lanes of a vector, from `begin` on."""
    stored = value if isinstance(value, ir.PrimExpr) else ir.const(value, self.dtype)
    lanes = ir.DataType(stored.dtype).lanes // ir.DataType(self.dtype).lanes
    given = tuple(ir.as_expr(i) for i in (begin if isinstance(begin, (list, tuple)) else (begin,)))
    if lanes != 1 and ir.DataType(given[-1].dtype).lanes == 1:
        given = (*given[:-1], ir.Ramp(given[-1], ir.const(1, given[-1].dtype), lanes))
    return BufferStore(self, stored, given, predicate)


Buffer.vstore = _vstore  # type: ignore[attr-defined] - statements are made of buffers


class Evaluate(Stmt):
    """An expression for its effect."""

    value: ir.PrimExpr

    def __post_init__(self) -> None:
        """Make an expression of a number."""
        if not isinstance(self.value, ir.PrimExpr):  # pyright: ignore[reportUnnecessaryIsInstance]
            ir.make_exprs(self, None, "value")


NO_BODY = Evaluate(ir.const(0))  # of a scope whose body is what follows it in the sequence that it is put into


class LetStmt(Stmt):
    """``var = value`` in `body`."""

    var: ir.Var
    value: ir.PrimExpr
    body: Stmt = NO_BODY

    def __post_init__(self) -> None:
        """Make an expression of a number."""
        make_bound(self)


class AttrStmt(Stmt):
    """A note on `body` for later passes: `attr_key` of `node` is `value`."""

    node: Any
    attr_key: str
    value: Any
    body: Stmt

    def __post_init__(self) -> None:
        """Make an expression of a number; ``reduce_scope`` has no value, for which older programs have a null."""
        if type(self.value) in (int, float, bool):
            dtype = self.node.var.dtype if isinstance(self.node, ir.IterVar) else None
            force_setattr(self, "value", ir.const(self.value, dtype))
        elif self.attr_key == "reduce_scope" and not isinstance(self.value, ir.IntImm):
            force_setattr(self, "value", ir.const(0))


class AssertStmt(Stmt):
    """Raise an error of kind ``error_kind`` with `message` unless `condition` holds, then run `body`."""

    condition: ir.PrimExpr
    message: ir.PrimExpr
    body: Stmt
    error_kind: str = "RuntimeError"


class AllocBuffer(Stmt):
    """Allocate `buffer` (with undefined content) for the time of `body`."""

    buffer: Buffer
    body: Stmt = NO_BODY
    annotations: ir.Attrs = ir.NO_ATTRS

    @property
    def buffer_var(self) -> ir.Var:
        """The pointer to the memory."""
        return self.buffer.data

    @property
    def dtype(self) -> str:
        """The data type of the elements."""
        return self.buffer.dtype

    @property
    def extents(self) -> tuple[ir.PrimExpr, ...]:
        """How many elements each dimension has."""
        return self.buffer.shape

    @property
    def condition(self) -> ir.PrimExpr:
        """Where memory is allocated: always."""
        return ir.TRUE


class DeclBuffer(Stmt):
    """Declare `buffer` as a view of memory that its ``data`` points to."""

    buffer: Buffer
    body: Stmt = NO_BODY


_SCOPES = frozenset[type[Stmt]]({LetStmt, AllocBuffer, DeclBuffer})


class SeqStmt(Stmt):
    """Statements one after another. Build it with :func:`seq`, which flattens."""

    seq: tuple[Stmt, ...]

    def __post_init__(self) -> None:
        """Put what follows a scope that was made without a body into it."""
        stmts = tuple(self.seq)
        if not _SCOPES.isdisjoint(map(type, stmts)):
            for at in reversed(range(len(stmts) - 1)):
                scope: Any = stmts[at]
                if type(scope) in _SCOPES and scope.body is NO_BODY:
                    stmts = (*stmts[:at], replace(scope, body=seq(*stmts[at + 1 :])))
        if stmts is not self.seq:
            force_setattr(self, "seq", stmts)

    def __getitem__(self, position: int) -> Stmt:
        """The statement at a position."""
        return self.seq[position]

    def __len__(self) -> int:
        """The number of statements."""
        return len(self.seq)

    def __bool__(self) -> bool:
        """A statement is there, also without any in it."""
        return True


class IfThenElse(Stmt):
    """A condition."""

    condition: ir.PrimExpr
    then_case: Stmt
    else_case: Stmt | None = None


class For(Stmt):
    """A loop of `loop_var` from `min` over `extent` values."""

    loop_var: ir.Var
    min: ir.PrimExpr
    extent: ir.PrimExpr
    kind: ForKind
    body: Stmt
    thread_binding: ir.IterVar | None = None
    annotations: ir.Attrs = ir.NO_ATTRS

    def __post_init__(self) -> None:
        """Make expressions of numbers, and of what TVM's For takes as kind and annotations."""
        given: Any = self
        if not (isinstance(given.min, ir.PrimExpr) and isinstance(given.extent, ir.PrimExpr)):
            like = getattr(given.extent, "dtype", None) or getattr(given.min, "dtype", None) or given.loop_var.dtype
            ir.make_exprs(self, like, "min", "extent")
        if type(given.kind) is not ForKind:
            force_setattr(self, "kind", ForKind(given.kind))
        if type(given.annotations) is not ir.Attrs:
            force_setattr(self, "annotations", ir.Attrs.of(given.annotations))
        if given.thread_binding is not None and given.thread_binding.dom is None:
            dom = ir.Range(given.extent)
            thread = given.thread_binding
            force_setattr(self, "thread_binding", ir.IterVar(dom, thread.var, thread.iter_type, thread.thread_tag))


class While(Stmt):
    """Run `body` while `condition` holds."""

    condition: ir.PrimExpr
    body: Stmt


class Prefetch(Stmt):
    """Hint that a region will be read soon."""

    buffer: Buffer
    bounds: tuple[ir.Range, ...]


class BufferRealize(Stmt):
    """Within `body`, the `bounds` of `buffer` exist (the te schedule's allocation)."""

    buffer: Buffer
    bounds: tuple[ir.Range, ...]
    condition: ir.PrimExpr
    body: Stmt


class Block(Stmt):
    """A unit of computation that schedules move as a whole.

    ``iter_vars`` are its own iteration variables; ``reads`` and ``writes`` the regions that one instance touches, in
    terms of them; ``init`` runs at the first iteration of the reduction.
    """

    iter_vars: tuple[ir.IterVar, ...]
    reads: tuple[BufferRegion, ...]
    writes: tuple[BufferRegion, ...]
    name_hint: str
    body: Stmt
    init: Stmt | None = None
    alloc_buffers: tuple[Buffer, ...] = ()
    match_buffers: tuple[MatchBufferRegion, ...] = ()
    annotations: ir.Attrs = ir.NO_ATTRS

    def __post_init__(self) -> None:
        """Take lists, None for no buffers, and annotations in a mapping."""
        given: Any = self
        for name in ("iter_vars", "reads", "writes", "alloc_buffers", "match_buffers"):
            if type(getattr(given, name)) is not tuple:
                force_setattr(self, name, tuple(getattr(given, name) or ()))
        if type(given.annotations) is not ir.Attrs:
            force_setattr(self, "annotations", ir.Attrs.of(given.annotations))


class BlockRealize(Stmt):
    """Run a block with values for its iteration variables, where `predicate` holds."""

    iter_values: tuple[ir.PrimExpr, ...]
    predicate: ir.PrimExpr
    block: Block

    def __post_init__(self) -> None:
        """Make expressions of numbers."""
        if not isinstance(self.predicate, ir.PrimExpr):  # pyright: ignore[reportUnnecessaryIsInstance]
            force_setattr(self, "predicate", ir.const(bool(self.predicate), "bool"))
        values: Any = self.iter_values
        if type(values) is not tuple or any(not isinstance(v, ir.PrimExpr) for v in values):
            ir.make_exprs(self, None, "iter_values")


SBlock, SBlockRealize = Block, BlockRealize


def seq(*stmts: Any) -> Stmt:
    """Put statements one after another, flattening nested sequences and dropping None."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, (list, tuple)):
            s = seq(*s)
        if isinstance(s, SeqStmt):
            flat.extend(s.seq)
        elif s is not None:
            flat.append(s)
    made = SeqStmt(tuple(flat))
    return made.seq[0] if len(made) == 1 else made
