"""The names of ``T``: what TIR scripts are written in.

Expressions build nodes at once; statements and scopes return the commands of ``commands``, which the parser acts on.
Names that are not defined here are data types (``T.float32``), intrinsics (``T.exp``) and node classes.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType
from typing import Any

from weft import ir, tir
from weft.arith import Analyzer
from weft.error import InvalidArgument
from weft.ir import Attrs, DataType, Op, PrimExpr, Range, StringImm, Var, as_expr, as_int, const
from weft.ir import CallIntrin as CallNode
from weft.ir.text.parser import MacroDecorator, meta_var  # noqa: F401 - a name of T
from weft.ir.text.scalar import slice_of
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer as BufferNode
from weft.tir.buffer import BufferLoad as BufferLoadNode
from weft.tir.buffer import BufferRegion
from weft.tir.reduce import reducer_of
from weft.tir.script import commands, flat_access
from weft.tir.script.buffers import (  # noqa: F401
    Buffer,
    alloc_buffer,
    allocate,
    decl_buffer,
    match_buffer,
    preflattened_buffer,
    sblock_alloc_buffer,
)
from weft.tir.script.dtypes import DTypeLike, DTypeMaker, HandleMaker
from weft.tir.script.low_level import CALLS, typed
from weft.tir.typing import Value

macro = inline = MacroDecorator()
abs = ir.abs_
all = ir.all_of
any = ir.any_of
min = ir.min_
max = ir.max_


# --- data types, variables, constants ---------------------------------------------------------------------------------


handle = HandleMaker("handle")


def Var_(name: str = "", dtype: DTypeLike = "int32", is_size_var: bool = False, *, ty: DTypeLike | None = None) -> Var:
    """Make a variable; an empty name is given by the assignment."""
    dtype = dtype if ty is None else ty
    return (ir.SizeVar if is_size_var else Var)(name, DataType(getattr(dtype, "dtype", dtype)))


class _LetMaker:
    """``T.let[T.int32]`` as an annotation, ``T.let(var, value)`` as a scope."""

    def __getitem__(self, item: Any) -> commands.LetAnnotation:
        return commands.LetAnnotation(item.dtype)

    def __call__(self, var: Any, value: Any) -> commands.Scope:
        return LetStmt(value, var=var)


let = _LetMaker()


def Let(expr: Value, where: dict[Var, Any]) -> PrimExpr:
    """Build `expr` with variables bound to values."""
    body = as_expr(expr)
    for var, value in reversed(where.items()):
        body = ir.Let(var, as_expr(value, var.dtype), body)
    return body


def StringImm_(value: str) -> StringImm:
    """Make a string constant."""
    return StringImm(value)


# --- expressions that never fold --------------------------------------------------------------------------------------


def _raw(cls: type) -> Any:
    def build(a: PrimExpr, b: Any) -> PrimExpr:
        return cls(*ir.unify_dtypes(a, b))

    build.__doc__ = f"Build ``{cls.__name__}`` without folding."
    return build


def Not(a: Value) -> PrimExpr:
    """Build a negation without folding."""
    return ir.Not(as_expr(a))


def Cast(dtype: str, value: Value) -> PrimExpr:
    """Build a conversion without folding."""
    return ir.Cast(DataType(dtype), as_expr(value))


def cast(value: Value, dtype: str) -> PrimExpr:
    """Convert to a data type (TVM's order of parameters)."""
    return ir.cast(dtype, value)


def Select(condition: Value, true_value: Value, false_value: Value) -> PrimExpr:
    """Build a choice that evaluates both sides."""
    a, b = ir.unify_dtypes(true_value, false_value)
    return ir.Select(as_expr(condition), a, b)


def Ramp(base: Value, stride: Value, lanes: Value) -> PrimExpr:
    """Build the vector ``base, base + stride, ...``."""
    b, step = ir.unify_dtypes(base, stride)
    return ir.Ramp(b, step, ir.lanes_from(lanes))


def Broadcast(value: Value, lanes: Value) -> PrimExpr:
    """Build a vector of equal lanes."""
    return ir.Broadcast(as_expr(value), ir.lanes_from(lanes))


def Shuffle(vectors: Sequence[Value], indices: Sequence[Value]) -> PrimExpr:
    """Build a vector of chosen lanes."""
    return ir.Shuffle(tuple(as_expr(v) for v in vectors), tuple(as_expr(i) for i in indices))


def Call(
    *given: Any, attrs: Mapping[str, Any] | None = None, ret_ty: DTypeLike | None = None, dtype: DTypeLike | None = None
) -> PrimExpr:
    """Build a call by operator, ``(dtype, op, args)`` or ``(op, args, ret_ty=...)``; strings and numbers are constants.

    Parameters
    ----------
    *given
        The data type, unless it is named, the operator or its name, and the arguments.
    attrs : mapping, optional
        Attributes of the call.
    ret_ty, dtype : str or PrimType, optional
        The data type of the result.
    """
    named = ret_ty if ret_ty is not None else dtype
    result, op, args = (named, *given) if named is not None else given
    target = Op.get(op) if isinstance(op, str) else op
    values = tuple(as_expr(a) if isinstance(a, (str, int, float)) else a for a in args)
    return CallNode(DataType(getattr(result, "dtype", result) or "void"), target, values, Attrs.of(attrs))


def BufferLoad(buffer: BufferNode, indices: Sequence[Value], predicate: PrimExpr | None = None) -> PrimExpr:
    """Load with a mask."""
    return BufferLoadNode(buffer, tuple(as_expr(i) for i in indices), predicate)


def iter_var(var: Var, dom: Range, iter_type: str, thread_tag: str = "") -> ir.IterVar:
    """Make an iteration variable."""
    return ir.IterVar(dom, var, iter_type, thread_tag)


def env_thread(thread_tag: str, dtype: str = "int32") -> ir.IterVar:
    """Name a thread axis, to be given to :func:`launch_thread`."""
    return ir.IterVar(None, Var("", DataType(dtype)), "thread", thread_tag)


class _RangeMaker:
    from_min_extent = staticmethod(Range.from_min_extent)

    def __call__(self, begin: Any, end: Any) -> Range:
        return slice_of(begin, end)


Range_ = _RangeMaker()


# --- functions and blocks ---------------------------------------------------------------------------------------------


def func_attr(attrs: dict[str, Any]) -> commands.BlockFact:
    """Set attributes of the function."""
    return commands.BlockFact("func_attr", ir.said(attrs))


def sblock(name: str = "", no_realize: bool = False) -> commands.BlockScope:
    """Open a block."""
    return commands.BlockScope(name)


block = sblock


def init() -> commands.InitScope:
    """Open the part of a block that runs at the first step of its reduction."""
    return commands.InitScope()


def where(predicate: Value) -> commands.BlockFact:
    """Run the block only where a condition holds."""
    return commands.BlockFact("where", as_expr(predicate))


def _regions(slices: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(slices[0]) if len(slices) == 1 and isinstance(slices[0], (list, tuple)) else slices


def reads(*slices: ir.Node) -> commands.BlockFact:
    """State what the block reads."""
    return commands.BlockFact("reads", _regions(slices))


def writes(*slices: ir.Node) -> commands.BlockFact:
    """State what the block writes."""
    return commands.BlockFact("writes", _regions(slices))


def sblock_attr(attrs: dict[str, Any]) -> commands.BlockFact:
    """Annotate the block."""
    return commands.BlockFact("annotations", attrs)


block_attr = sblock_attr


def _axis(iter_type: str, name: str, doc: str) -> Any:
    def make(dom: Any, binding: Any = None, dtype: str | None = None, thread_tag: str = "") -> commands.Axis:
        return commands.Axis(iter_type, dom, as_expr(binding), dtype, thread_tag)

    make.__name__, make.__qualname__, make.__doc__ = name, f"axis.{name}", doc
    return staticmethod(make)


class axis:
    """Iteration variables of a block."""

    spatial = S = _axis("data_par", "spatial", "Make an axis whose iterations are independent.")
    reduce = R = _axis("reduce", "reduce", "Make an axis that is reduced over.")
    scan = _axis("ordered", "scan", "Make an axis whose iterations run in order.")
    opaque = _axis("opaque", "opaque", "Make an axis of which nothing is known.")

    @staticmethod
    def of_kind(
        kind: str, dom: Any, binding: Any = None, dtype: str | None = None, thread_tag: str = ""
    ) -> commands.Axis:
        """Make an axis of any kind."""
        return commands.Axis(kind, dom, as_expr(binding), dtype, thread_tag)

    @staticmethod
    def remap(kinds: str, bindings: Any) -> commands.Remap:
        """Make one axis for each loop variable: ``S`` spatial, ``R`` reduced."""
        return commands.Remap(kinds, tuple(bindings))


def index_map(
    mapping: Callable[..., Any], *, inverse_index_map: Callable[..., Any] | None = None, index_dtype: str = "int64"
) -> ir.Node:
    """Make an index map of a lambda."""
    made: Any = tir.IndexMap
    return made.from_func(mapping, inverse_index_map=inverse_index_map, index_dtype=index_dtype)


# --- loops ------------------------------------------------------------------------------------------------------------


def _loop_range(start: Any, stop: Any) -> Range:
    if isinstance(start, Range):
        return start
    if stop is None:
        extent = as_expr(start)
        return Range(extent)
    r = slice_of(start, stop)
    if not DataType(r.extent.dtype).is_integer:
        raise InvalidArgument("a loop counts integers", found=f"{start} to {stop}")
    return r if isinstance(r.extent, ir.IntImm) else Range.from_min_extent(r.min, Analyzer().simplify(r.extent))


def _loop(kind: stmts.ForKind) -> Any:
    def loop(
        start: Any, stop: Any = None, *, annotations: Any = None, var: Any = None, binding: Any = None, step: Any = None
    ) -> commands.Loops:
        r, stride = _loop_range(start, stop), 1 if step is None else as_int(step)
        if stride is None or stride < 1:
            raise InvalidArgument("loops count up in constant steps", found=f"step={step}")
        return commands.Loops(kind, (r,), annotations, None, binding, var, stride)

    loop.__doc__ = f"Make a {kind.name.lower()} loop over ``start .. stop``, or ``0 .. start``."
    return loop


serial = _loop(stmts.ForKind.SERIAL)
parallel = _loop(stmts.ForKind.PARALLEL)
vectorized = _loop(stmts.ForKind.VECTORIZED)
unroll = _loop(stmts.ForKind.UNROLLED)


def thread_binding(
    start: Value,
    stop: Value | None = None,
    thread: str | None = None,
    *,
    annotations: Mapping[str, Any] | None = None,
    var: Var | None = None,
    binding: ir.IterVar | None = None,
) -> commands.Loops:
    """Make a loop each of whose iterations runs on a thread."""
    if isinstance(stop, str):
        stop, thread = None, stop
    if thread is None and binding is None:
        raise InvalidArgument("T.thread_binding needs a thread", expected='such as thread="threadIdx.x"')
    return commands.Loops(stmts.ForKind.THREAD_BINDING, (_loop_range(start, stop),), annotations, thread, binding, var)


def grid(*extents: Any) -> commands.Loops:
    """Make nested loops from zero."""
    return commands.Loops(
        stmts.ForKind.SERIAL, tuple(_loop_range(*(e if isinstance(e, tuple) else (e, None))) for e in extents)
    )


# --- other statements -------------------------------------------------------------------------------------------------


def evaluate(value: Value) -> stmts.Stmt:
    """Evaluate an expression for its effect."""
    return stmts.Evaluate(as_expr(value))


def LetStmt(value: Value, dtype: str | None = None, var: Var | None = None) -> commands.Scope:
    """Bind a variable within a scope."""
    v = as_expr(value)
    target = var if var is not None else Var("", DataType(dtype or v.dtype))
    return commands.Scope(target, lambda x, body, _: stmts.LetStmt(x, v, body))


def Assert(condition: Value, message: Value, kind: str = "RuntimeError") -> commands.Scope:
    """Check a condition when the program runs."""
    return commands.Scope(None, lambda _, body, __: stmts.AssertStmt(as_expr(condition), as_expr(message), body, kind))


def attr(node: object, attr_key: str, value: object) -> commands.Scope:
    """Leave a note for later passes on the statements that follow."""
    return commands.Scope(None, lambda _, body, __: stmts.AttrStmt(node, attr_key, value, body))


def launch_thread(thread: Var | str, extent: Value) -> commands.Scope:
    """Bind a thread axis for the statements that follow."""
    e = as_expr(extent)
    var = thread if isinstance(thread, Var) else Var("", e.dtype)

    def make(value: Any, body: stmts.Stmt, p: Any) -> stmts.Stmt:
        tag = thread if isinstance(thread, str) else p.state.threads[thread]
        key = "virtual_thread" if tag.split(".")[0] == "vthread" else "thread_extent"
        return stmts.AttrStmt(ir.IterVar(Range(e), value, "thread", tag), key, e, body)

    return commands.Scope(var, make, "thread", thread)


def If(condition: Value) -> commands.IfScope:
    """Open ``with T.Then():`` and ``with T.Else():`` under a condition."""
    return commands.IfScope(as_expr(condition))


def Then() -> commands.Branch:
    """Open what runs where the condition around holds."""
    return commands.Branch(True)


def Else() -> commands.Branch:
    """Open what runs where the condition around does not hold."""
    return commands.Branch(False)


def While(condition: Value) -> commands.WhileScope:
    """Repeat what follows while a condition holds."""
    return commands.WhileScope(as_expr(condition))


def realize(
    region: BufferRegion | BufferLoadNode, storage_scope: str | Value = "", condition: Value = True
) -> commands.Scope:
    """Let a region of a buffer exist for the statements that follow."""
    if not isinstance(storage_scope, str):
        storage_scope, condition = "", storage_scope
    if storage_scope and storage_scope != region.buffer.scope:
        raise InvalidArgument(
            "realize: the buffer lives in another scope", expected=region.buffer.scope, found=storage_scope
        )
    r = (
        region
        if isinstance(region, BufferRegion)
        else BufferRegion(region.buffer, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in region.indices))
    )
    return commands.Scope(None, lambda _, body, __: stmts.BufferRealize(r.buffer, r.region, as_expr(condition), body))


def prefetch(region: BufferRegion) -> stmts.Stmt:
    """Hint that a region will be read soon."""
    return stmts.Prefetch(region.buffer, region.region)


def BufferStore(
    buffer: BufferNode, value: Value, indices: Sequence[Value], predicate: PrimExpr | None = None
) -> stmts.Stmt:
    """Store with a mask, or a value of another type."""
    return stmts.BufferStore(buffer, as_expr(value), tuple(as_expr(i) for i in indices), predicate)


def buffer_store(
    buffer: BufferNode, value: Value, indices: Value | Sequence[Value], predicate: PrimExpr | None = None
) -> stmts.Stmt:
    """Store a value, converted to what the buffer holds."""
    v = value if isinstance(value, PrimExpr) else const(value, buffer.dtype)
    places = indices if isinstance(indices, (list, tuple)) else (indices,)
    return stmts.BufferStore(buffer, v, tuple(as_expr(i) for i in places), predicate)


_RENAMED: dict[str, Any] = {
    **CALLS,
    "broadcast": Broadcast,
    "comm_reducer": reducer_of,
    "ramp": Ramp,
    "shuffle": Shuffle,
    "buffer_load": BufferLoad,
    "bind": LetStmt,
    "boolean": DTypeMaker("bool"),
    "buffer_decl": Buffer,
    "load": flat_access.load,
    "store": flat_access.store,
    "var": lambda dtype="int32": Var("", DataType(dtype)),
    "Range": Range_,
    "buffer": Buffer,
    "tvm_call_packed": typed(tir.call_packed),
    "StringImm": StringImm_,
    "Var": Var_,
    **{c.__name__: _raw(c) for c in (ir.Add, ir.Sub, ir.Mul, ir.Div, ir.Mod, ir.FloorDiv, ir.FloorMod, ir.Min, ir.Max)},
    **{c.__name__: _raw(c) for c in (ir.EQ, ir.NE, ir.LT, ir.LE, ir.GT, ir.GE, ir.And, ir.Or)},
}
_MAKERS: dict[str, DTypeMaker] = {}


def named(name: str) -> Any:
    """Return what ``T.<name>`` is."""
    if name.startswith("__"):
        raise AttributeError(name)
    return _RENAMED[name] if name in _RENAMED else globals()[name] if name in globals() else _other(name)


def _other(name: str) -> Any:
    if name in _MAKERS:
        return _MAKERS[name]
    try:
        maker = _MAKERS[name] = DTypeMaker(name)
    except InvalidArgument:
        pass
    else:
        return maker
    if hasattr(tir, name):
        found = getattr(tir, name)
        return typed(found) if isinstance(found, FunctionType) else found
    near = difflib.get_close_matches(name, sorted({*globals(), *_RENAMED, *dir(tir)}), 3)
    raise AttributeError(
        f"T has no '{name}'" + (f"; did you mean {' or '.join('T.' + n for n in near)}?" if near else "")
    )
