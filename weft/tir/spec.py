"""Forms of TIR: what holds of scheduled, lowered, host and device functions.

``tir.well_formed`` holds at every stage: each variable and buffer is introduced around its uses, data types agree.
*Scheduled* functions are loop nests over blocks; *lowered* functions are loops over flat buffers, from which code is
generated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from functools import cache
from typing import Any

from weft import ir
from weft.ir import CHILD_FIELDS, BinaryOp, CallIntrin, CmpOp, DataType, IRModule, IterVar, Let, Ramp, Var, find
from weft.ir.spec import Spec
from weft.tir import stmt as stmts
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.function import PrimFunc
from weft.tir.reduce import CommReducer, ProducerLoad, Reduce


def _form(name: str, includes: Iterable[Spec], doc: str) -> Spec:
    return Spec(f"tir.{name}", PrimFunc, includes, doc, alone=True)


WELL_FORMED = _form("well_formed", (), "every name is introduced around its uses, and data types agree")
SCHEDULED = _form("scheduled", [WELL_FORMED], "loops over blocks, inside a root block")
LOWERED = _form("lowered", [WELL_FORMED], "no blocks; flat buffers; no loops left to vectorize or unroll")
HOST = _form("host", [LOWERED], "runs on the CPU: no thread axes")
DEVICE = _form("device", [LOWERED], "runs on a GPU: no parallel loops and no packed calls")


# --- names ------------------------------------------------------------------------------------------------------------

_NONE = frozenset[Any]()


class _Learn:
    """From here on, these names are known."""

    __slots__ = ("names",)

    def __init__(self, names: Set[int]) -> None:
        self.names = names


class _Forget(_Learn):
    """The names' scope ends, and with it a statement."""

    __slots__ = ("statement",)

    def __init__(self, names: Set[int], statement: ir.Node) -> None:
        super().__init__(names)
        self.statement = statement


class _Names:
    """Walks a function with what is introduced where."""

    def __init__(self, func: PrimFunc) -> None:
        self.known: set[Any] = set(func.params)
        self.found: list[tuple[Any, str]] = []
        self.statement: Any = func
        self.done: set[Any] = set()
        for _, b in func.buffer_map:
            self.known |= {b, b.data, *_free_of(b)}

    def walk(self, root: stmts.Stmt) -> None:
        """Visit a tree."""
        stack: list[Any] = [root]
        while stack:
            value = stack.pop()
            if isinstance(value, tuple):
                stack.extend(reversed(value))
            elif type(value) is _Learn:
                self.known |= value.names
            elif type(value) is _Forget:
                self.statement = value.statement
                if value.names:  # what was well-formed with them may not be without
                    self.known -= value.names
                    self.done.clear()
            elif (fields := _operands_of(type(value))) is None:
                if CHILD_FIELDS[type(value)] is not None:
                    self._visit(value, stack)
            elif value not in self.done:
                self.done.add(value)
                stack += [getattr(value, f) for f in fields]

    def _visit(self, node: ir.Node, stack: list[Any]) -> None:
        if isinstance(node, Var):
            if node not in self.known:
                self._missing(node, f"variable '{node.name}' is not introduced here")
            return
        if isinstance(node, Buffer):
            self._buffer(node, stack)
            return
        outer = self.statement
        if isinstance(node, stmts.Stmt):
            self.statement = node
        elif node in self.done:
            return
        else:
            self.done.add(node)
        rule = _INTRODUCES.get(type(node))
        if rule is None:
            if self.statement is not outer:
                stack.append(_Forget(_NONE, outer))
            stack += [getattr(node, f) for f in (CHILD_FIELDS[type(node)] or ())[::-1]]
            return
        before, new, after = rule(node)
        names = new - self.known
        if names or self.statement is not outer:
            stack.append(_Forget(names, outer))
        stack += [after, _Learn(names), before] if names else [after, before]

    def _buffer(self, b: Buffer, stack: list[Any]) -> None:
        """Check a use: the buffer, or the memory that it is a view of, is introduced."""
        if b in self.known:
            return
        if b.data not in self.known:
            self._missing(b, f"buffer '{b.name}' is not allocated or declared here")
        stack.extend((b.shape, b.strides, b.elem_offset))

    def _missing(self, node: ir.Node, message: str) -> None:
        self.known.add(node)  # say it once
        self.found.append((self.statement, message))


@cache
def _operands_of(kind: type) -> tuple[str, ...] | None:
    """The fields, last first, of expressions that introduce no names and are none."""
    fields = CHILD_FIELDS[kind]
    return (
        None if fields is None or issubclass(kind, (Var, Buffer, stmts.Stmt)) or kind in _INTRODUCES else fields[::-1]
    )


def _free_of(b: Buffer) -> set[Var]:
    """Return the variables that a matched buffer takes from what it is matched with, solving expressions."""
    return set(find((b.shape, b.strides, b.elem_offset), Var))


def _layout(b: Buffer) -> tuple[Any, ...]:
    return (b.shape, b.strides, b.elem_offset)


def _block_names(node: stmts.Block) -> tuple[Any, set[Any], Any]:
    new = {iv.var for iv in node.iter_vars}
    for b in node.alloc_buffers:
        new |= {b, b.data}
    for m in node.match_buffers:
        new |= {m.buffer, m.buffer.data, *_free_of(m.buffer)}
    doms = tuple(iv.dom for iv in node.iter_vars)
    layouts = tuple(_layout(b) for b in (*node.alloc_buffers, *(m.buffer for m in node.match_buffers)))
    sources = tuple(m.source for m in node.match_buffers)
    return doms, new, (layouts, sources, node.reads, node.writes, node.init, node.body, node.annotations)


def _attr_names(node: stmts.AttrStmt) -> tuple[Any, set[Any], Any]:
    is_axis = isinstance(node.node, IterVar)
    new = {node.node.var} if is_axis and node.attr_key in ("thread_extent", "virtual_thread") else set[Any]()
    return (node.value, node.node if not is_axis else node.node.dom), new, node.body


# Node class → what is seen before its names are, the names, what is seen with them.
_INTRODUCES: dict[type, Any] = {
    stmts.For: lambda n: ((n.min, n.extent, n.annotations), {n.loop_var}, n.body),
    stmts.LetStmt: lambda n: (n.value, {n.var}, n.body),
    Let: lambda n: (n.value, {n.var}, n.body),
    stmts.AllocBuffer: lambda n: (_layout(n.buffer), {n.buffer, n.buffer.data}, n.body),
    stmts.DeclBuffer: lambda n: ((n.buffer.data, _layout(n.buffer)), {n.buffer}, n.body),
    stmts.BufferRealize: lambda n: ((n.bounds, n.condition), {n.buffer, n.buffer.data}, n.body),
    stmts.Block: _block_names,
    stmts.AttrStmt: _attr_names,
    CommReducer: lambda n: (n.identity_element, {*n.lhs, *n.rhs}, n.result),
}


@WELL_FORMED.on_function
def _names(func: PrimFunc, mod: IRModule) -> Iterator[tuple[Any, str]]:
    if len(set(func.params)) != len(func.params):
        yield func, "a parameter stands twice"
    params = set(func.params)
    for v, _ in func.buffer_map:
        if v not in params:
            yield func, f"the buffer of '{v.name}', which is no parameter"
    names = _Names(func)
    names.walk(func.body)
    yield from names.found


# --- types ------------------------------------------------------------------------------------------------------------


@WELL_FORMED.on(BinaryOp, CmpOp)
def _operands(node: Any, func: PrimFunc, mod: IRModule) -> str | None:
    kind = type(node).__name__
    if node.a.dtype != node.b.dtype:
        return f"operands of {kind} have different types: {node.a.dtype} and {node.b.dtype} in `{node}`"
    if kind in ("And", "Or"):
        return _condition_type(node.a)
    return (
        None if kind in ("EQ", "NE") or node.a.dtype != "handle" else f"operands of {kind} are no numbers in `{node}`"
    )


@WELL_FORMED.on(ir.Cast)
def _converted(node: ir.Cast, func: PrimFunc, mod: IRModule) -> str | None:
    if node.value.dtype != "handle" or not (isinstance(node.value, ir.StringImm) or DataType(node.dtype).is_float):
        return None
    return f"a string or pointer is no {node.dtype} in `{node}`"


@WELL_FORMED.on(ir.Not, ir.Select, stmts.IfThenElse, stmts.While, stmts.AssertStmt)
def _condition(node: Any, func: PrimFunc, mod: IRModule) -> str | None:
    return _condition_type(node.a if isinstance(node, ir.Not) else node.condition)


def _condition_type(value: ir.PrimExpr) -> str | None:
    return None if DataType(value.dtype).element == "bool" else f"the condition `{value}` is no bool but {value.dtype}"


@WELL_FORMED.on(BufferLoad)
def _load(node: BufferLoad, func: PrimFunc, mod: IRModule) -> str | None:
    return _access(node.buffer, node.indices)


@WELL_FORMED.on(stmts.BufferStore)
def _store(node: stmts.BufferStore, func: PrimFunc, mod: IRModule) -> str | None:
    wrong = _access(node.buffer, node.indices)
    if wrong is not None:
        return wrong
    lanes = DataType(node.indices[-1].dtype).lanes if node.indices else 1
    expected = node.buffer.dtype if lanes == 1 else f"{node.buffer.dtype}x{lanes}"
    if node.value.dtype == expected:
        return None
    return f"a value of type {node.value.dtype} is stored where '{node.buffer.name}' holds {expected}"


def _access(buffer: Buffer, indices: tuple[Any, ...]) -> str | None:
    if len(indices) != len(buffer.shape):
        return f"'{buffer.name}' has {len(buffer.shape)} dimensions and is accessed with {len(indices)} indices"
    bad = next((i for i in indices if not DataType(i.dtype).is_integer), None)
    if bad is not None:
        return f"the index `{bad}` of '{buffer.name}' is no integer but {bad.dtype}"
    wide = next((i for i in indices[:-1] if DataType(i.dtype).lanes > 1), None)
    return None if wide is None else f"the index `{wide}` of '{buffer.name}' is a vector: only the last one may be"


@WELL_FORMED.on(stmts.For)
def _loop(node: stmts.For, func: PrimFunc, mod: IRModule) -> str | None:
    types = {str(node.loop_var.dtype), str(node.min.dtype), str(node.extent.dtype)}
    if len(types) > 1:
        return f"loop variable, start and extent have different types: {', '.join(sorted(types))}"
    return None if DataType(*types).is_integer else f"the loop counts in {types.pop()}, and not in integers"


@WELL_FORMED.on(stmts.BlockRealize)
def _block_values(node: stmts.BlockRealize, func: PrimFunc, mod: IRModule) -> str | None:
    names, values = len(node.block.iter_vars), len(node.iter_values)
    if names != values:
        return f"block '{node.block.name_hint}' has {names} iteration variables and {values} values"
    return _condition_type(node.predicate)


@WELL_FORMED.on(BufferRegion)
def _region(node: BufferRegion, func: PrimFunc, mod: IRModule) -> str | None:
    if len(node.region) == len(node.buffer.shape):
        return None
    return f"a region of '{node.buffer.name}' has {len(node.region)} ranges for {len(node.buffer.shape)} dimensions"


@WELL_FORMED.on(Ramp)
def _ramp(node: Ramp, func: PrimFunc, mod: IRModule) -> str | None:
    return None if node.lanes > 1 else f"a vector of {node.lanes} lanes"


# --- scheduled --------------------------------------------------------------------------------------------------------


@SCHEDULED.on_function
def _root(func: PrimFunc, mod: IRModule) -> Iterator[tuple[Any, str]]:
    if not isinstance(func.body, stmts.BlockRealize):
        if find(func.body, stmts.BlockRealize):
            yield func, "the body is no root block"
    elif func.body.block.iter_vars:
        yield func, "the root block has iteration variables"


@SCHEDULED.on(stmts.AllocBuffer, stmts.DeclBuffer, stmts.BufferRealize, stmts.LetStmt)
def _around_blocks(node: Any, func: PrimFunc, mod: IRModule) -> str | None:
    if not find(node.body, stmts.BlockRealize):
        return None
    return f"{type(node).__name__} stands around blocks; buffers and variables belong inside them"


# --- lowered ----------------------------------------------------------------------------------------------------------


@LOWERED.on(stmts.Block, stmts.BlockRealize, stmts.BufferRealize, stmts.Prefetch, ProducerLoad, Reduce)
def _no_blocks(node: ir.Node, func: PrimFunc, mod: IRModule) -> str:
    return f"{type(node).__name__} is left in a lowered function"


@LOWERED.on(stmts.For)
def _kind(node: stmts.For, func: PrimFunc, mod: IRModule) -> str | None:
    left = {stmts.ForKind.VECTORIZED: "vectorize", stmts.ForKind.UNROLLED: "unroll"}.get(node.kind)
    return None if left is None else f"a loop to {left} is left"


@LOWERED.on(BufferLoad, stmts.BufferStore)
def _flat(node: Any, func: PrimFunc, mod: IRModule) -> str | None:
    n = len(node.indices)
    return None if n == 1 else f"'{node.buffer.name}' is not flat: {n} indices"


@HOST.on(stmts.For)
def _no_threads(node: stmts.For, func: PrimFunc, mod: IRModule) -> str | None:
    return "a thread axis on the CPU" if node.kind == stmts.ForKind.THREAD_BINDING else None


@DEVICE.on(stmts.For)
def _no_parallel(node: stmts.For, func: PrimFunc, mod: IRModule) -> str | None:
    return "a parallel loop on a device" if node.kind == stmts.ForKind.PARALLEL else None


@DEVICE.on(CallIntrin)
def _no_packed(node: CallIntrin, func: PrimFunc, mod: IRModule) -> str | None:
    return "a packed call on a device" if getattr(node.op, "name", "") == "tir.tvm_call_packed" else None
