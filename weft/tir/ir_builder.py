"""Building TIR statement by statement in Python: ``ib = create()``, ``with ib.for_range(...)``, ``ib.get()``."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

from weft.error import InvalidArgument
from weft.ir import DataType, IterVar, Node, PrimExpr, Range, StringImm, Var, as_expr, const, is_const_int
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer, BufferLoad, decl_buffer
from weft.tir.intrin import likely

_KINDS = {
    "serial": stmts.ForKind.SERIAL,
    "for": stmts.ForKind.SERIAL,
    "parallel": stmts.ForKind.PARALLEL,
    "vectorize": stmts.ForKind.VECTORIZED,
    "vectorized": stmts.ForKind.VECTORIZED,
    "unroll": stmts.ForKind.UNROLLED,
    "unrolled": stmts.ForKind.UNROLLED,
}


class BufferVar:
    """A buffer that is indexed like an array: ``x[i, j]`` loads, ``x[i, j] = value`` stores."""

    def __init__(self, builder: IRBuilder, buffer: Buffer) -> None:
        self._builder, self.buffer = builder, buffer

    @property
    def dtype(self) -> str:
        """The data type of the elements."""
        return self.buffer.dtype

    def asobject(self) -> Buffer:
        """Return the buffer."""
        return self.buffer

    def _indices(self, index: Any) -> tuple[PrimExpr, ...]:
        given = [as_expr(i) for i in (index if isinstance(index, tuple) else (index,))]
        shape = self.buffer.shape
        if len(given) == len(shape):
            return tuple(given)
        if len(given) != 1:
            what = f"buffer '{self.buffer.name}' is indexed by {len(given)} values"
            raise InvalidArgument(what, expected=f"{len(shape)}, or one for the flat position")
        out: list[PrimExpr] = []  # the flat position, row-major, taken apart
        rest = given[0]
        for extent in (1 if is_const_int(d, 0) else d for d in reversed(shape[1:])):  # nothing runs where it is 0
            out.append(rest % extent)
            rest = rest // extent
        return (rest, *reversed(out))

    def __getitem__(self, index: Any) -> PrimExpr:
        return BufferLoad(self.buffer, self._indices(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        store = stmts.BufferStore(self.buffer, as_expr(value, self.buffer.dtype), self._indices(index))
        self._builder.emit(store)


class IRBuilder:
    """Collects statements. What wraps the rest of a scope (allocations, attributes) closes with the scope."""

    def __init__(self) -> None:
        self._scopes: list[list[stmts.Stmt | Callable[[stmts.Stmt], stmts.Stmt]]] = [[]]

    # --- scopes ---

    def _close(self) -> stmts.Stmt:
        items = self._scopes.pop()
        body: list[stmts.Stmt] = []
        for item in reversed(items):
            body = [item, *body] if isinstance(item, stmts.Stmt) else [item(stmts.seq(*body))]
        return stmts.seq(*body)

    @contextmanager
    def _scope(self, wrap: Callable[[stmts.Stmt], stmts.Stmt]) -> Generator[Any]:
        self._scopes.append([])
        yield None
        self.emit(wrap(self._close()))

    def emit(self, stmt: Any) -> None:
        """Add a statement, an expression to evaluate, or a function from the rest of the scope to a statement."""
        self._scopes[-1].append(stmts.Evaluate(stmt) if isinstance(stmt, PrimExpr) else stmt)

    @contextmanager
    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> Generator[Var]:
        """Loop over ``begin <= i < end``; the scope's value is the loop variable."""
        low, high = as_expr(begin), as_expr(end)
        if kind not in _KINDS:
            raise InvalidArgument(f"unknown kind of loop '{kind}'", expected=", ".join(_KINDS))
        wide = "int64" if "int64" in (low.dtype, high.dtype) else "int32"
        var = Var(name, DataType(dtype or wide))
        self._scopes.append([])
        yield var
        extent = high if is_const_int(low, 0) else high - low
        body = self._close()
        self.emit(stmts.For(var, low.astype(var.dtype), extent.astype(var.dtype), _KINDS[kind], body))

    def while_loop(self, condition: PrimExpr) -> Any:
        """Loop as long as a condition holds."""
        test = as_expr(condition)
        return self._scope(lambda body: stmts.While(test, body))

    def if_scope(self, cond: PrimExpr | bool) -> Any:
        """Run the scope where a condition holds."""
        test = as_expr(cond)
        return self._scope(lambda body: stmts.IfThenElse(test, body))

    def else_scope(self) -> Any:
        """Run the scope where the condition of the ``if_scope`` right before does not hold."""
        before = self._scopes[-1]
        if not before or not isinstance(before[-1], stmts.IfThenElse) or before[-1].else_case is not None:
            raise InvalidArgument("else_scope has no if_scope", help="open it right after the scope of an if_scope")
        branch = before.pop()
        assert isinstance(branch, stmts.IfThenElse)
        return self._scope(lambda body: stmts.IfThenElse(branch.condition, branch.then_case, body))

    def new_scope(self) -> Any:
        """Open a scope that ends allocations and attributes made in it."""
        return self._scope(lambda body: body)

    def scope_attr(self, node: Node, attr_key: str, value: Any) -> None:
        """Put an attribute around the rest of the scope; ``thread_extent`` of a thread axis binds the axis."""
        if attr_key == "thread_extent" and isinstance(node, IterVar):
            var, extent = node.var, as_expr(value).astype(node.var.dtype)
            zero = const(0, var.dtype)
            bound = IterVar(Range.from_min_extent(zero, extent), var, "thread", node.thread_tag)
            self.emit(lambda body: stmts.For(var, zero, extent, stmts.ForKind.THREAD_BINDING, body, bound))
            return
        data = as_expr(value)
        self.emit(lambda body: stmts.AttrStmt(node, attr_key, data, body))

    # --- buffers ---

    def allocate(self, dtype: str, shape: Any, name: str = "buf", scope: str = "global") -> BufferVar:
        """Allocate a buffer that lives until the scope ends."""
        extents = shape if isinstance(shape, (list, tuple)) else (shape,)
        buffer = decl_buffer(tuple(as_expr(e) for e in extents), dtype, name, scope=scope)
        self.emit(lambda body: stmts.AllocBuffer(buffer, body))
        return BufferVar(self, buffer)

    def pointer(self, content_type: str, name: str = "ptr", scope: str = "global") -> BufferVar:
        """Make a parameter that points to memory of a data type; its elements are read and written by index."""
        return BufferVar(self, decl_buffer((1,), content_type, name, scope=scope))

    def buffer_ptr(self, buf: Buffer) -> BufferVar:
        """Index a buffer that is there, such as a parameter."""
        return BufferVar(self, buf)

    # --- the rest ---

    def let(self, var_name: str, value: PrimExpr) -> Var:
        """Name a value for the rest of the scope."""
        data = as_expr(value)
        var = Var(var_name, data.dtype)
        self.emit(lambda body: stmts.LetStmt(var, data, body))
        return var

    def assert_stmt(self, condition: Any, message: str) -> None:
        """Check a condition before the rest of the scope."""
        test = as_expr(condition)
        self.emit(lambda body: stmts.AssertStmt(test, StringImm(message), body))

    def likely(self, expr: PrimExpr) -> PrimExpr:
        """Mark a condition as nearly always true."""
        return likely(expr)

    def get(self) -> stmts.Stmt:
        """Return what was built; every scope has to be closed."""
        if len(self._scopes) != 1:
            raise InvalidArgument("a scope is open", help="call get() outside of all with blocks")
        statement = self._close()
        self._scopes = [[]]
        return statement


def create() -> IRBuilder:
    """Start building."""
    return IRBuilder()
