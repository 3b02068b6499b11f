"""Scalarize: vectors become loops over their lanes, for code generators without vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.error import LoweringError
from weft.ir import (
    BinaryOp,
    Broadcast,
    CallIntrin,
    Cast,
    CmpOp,
    DataType,
    Dispatch,
    IntImm,
    IRModule,
    Let,
    Not,
    PrimExpr,
    Ramp,
    Select,
    Shuffle,
    Var,
    as_int,
    cast,
    const,
    function_pass,
    if_then_else,
    rebuild,
    walk,
)
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.intrin import INTRINSICS
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq

__all__ = ["scalarize"]

_ELEMENTWISE = frozenset(("tir.if_then_else", "tir.likely")) | {f"tir.{name}" for name in INTRINSICS}


@function_pass(kind=PrimFunc)
def scalarize(func: PrimFunc, mod: IRModule) -> PrimFunc:
    """Write out operations on vectors lane by lane.

    Requires
        Flat buffers.
    Ensures
        Flat buffers; no vectors. All lanes of a value are read before the first of them is stored.
    Example
        Before::

            @T.prim_func
            def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
                B[T.Ramp(4, 1, 8)] = A[T.Ramp(0, 2, 8)] + T.Broadcast(T.float32(1.0), 8)

        After::

            @T.prim_func
            def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
                for lane in range(8):
                    B[4 + lane] = A[lane * 2] + T.float32(1.0)
    Cost
        Linear; statements with a Shuffle are copied for each lane.
    Source
        The inverse of VectorizeLoop.
    """
    body = _stmt(func.body, {})
    return func if body is func.body else func.replace(body=body)


Env = Mapping[int, Any]  # by id of a vector variable: its lanes, as a buffer


def _stmt(node: Any, env: Env) -> Any:
    if isinstance(node, LetStmt) and _lanes(node.var) > 1:
        memory = decl_buffer((_lanes(node.var),), DataType(node.var.dtype).element, node.var.name, scope="local")
        fill = _each(_lanes(node.var), node.value, lambda i: BufferStore(memory, _lane(node.value, i, env), (i,)))
        return AllocBuffer(memory, seq(fill, _stmt(node.body, {**env, id(node.var): memory})))
    if isinstance(node, BufferStore) and any(_lanes(i) > 1 for i in node.indices):
        return _store(node, env)
    if isinstance(node, Stmt):
        return rebuild(node, lambda n: _stmt(n, env))
    return _scalar(node, env) if isinstance(node, PrimExpr) else node


def _store(node: BufferStore, env: Env) -> Stmt:
    lanes = max(_lanes(i) for i in node.indices)
    parts = (node.value, node.indices, node.predicate)

    def put(i: PrimExpr, value: PrimExpr) -> Stmt:
        store = BufferStore(node.buffer, value, tuple(_lane(x, i, env) for x in node.indices), span=node.span)
        return store if node.predicate is None else IfThenElse(_lane(node.predicate, i, env), store)

    if not any(isinstance(n, BufferLoad) and n.buffer.data is node.buffer.data for n in walk(parts)):
        return _each(lanes, parts, lambda i: put(i, _lane(node.value, i, env)))
    held = decl_buffer((lanes,), node.buffer.dtype, f"{node.buffer.name}_lanes", scope="local")
    fill = _each(lanes, node.value, lambda i: BufferStore(held, _lane(node.value, i, env), (i,)))
    return AllocBuffer(held, seq(fill, _each(lanes, parts, lambda i: put(i, BufferLoad(held, (i,))))))


def _each(lanes: int, using: Any, body: Any) -> Stmt:
    """Run a statement for each lane: in a loop, or written out where lanes are picked by number."""
    if any(isinstance(n, Shuffle) for n in walk(using)):
        return seq(*[body(const(i, "int32")) for i in range(lanes)])
    lane = Var("lane", "int32")
    return For(lane, const(0, "int32"), const(lanes, "int32"), ForKind.SERIAL, body(lane))


def _lanes(e: PrimExpr) -> int:
    return DataType(e.dtype).lanes


def _scalar(e: Any, env: Env) -> Any:
    """Write the vectors inside of a scalar without vectors."""
    if isinstance(e, Shuffle):
        return _lane(e, const(0, "int32"), env)
    return rebuild(e, lambda n: _scalar(n, env) if isinstance(n, PrimExpr) else n)


def _lane(e: PrimExpr, i: PrimExpr, env: Env) -> PrimExpr:
    """Return one lane of a vector; a scalar is the same in all lanes."""
    return _LANE(e, i, env) if _lanes(e) > 1 or isinstance(e, Shuffle) else _scalar(e, env)


def _refuse(e: PrimExpr, i: PrimExpr, env: Env) -> PrimExpr:
    raise LoweringError("this vector has no scalar form", found=str(e), where=e.span,
                        help="build for a target with vectors, or with tir.disable_vectorize")  # fmt: skip


_LANE = Dispatch("lane of a vector", (PrimExpr,), default=_refuse)


@_LANE.on(BinaryOp, CmpOp)
def _binary(e: Any, i: PrimExpr, env: Env) -> PrimExpr:
    return type(e)(_lane(e.a, i, env), _lane(e.b, i, env))


@_LANE.on(Not)
def _not(e: Not, i: PrimExpr, env: Env) -> PrimExpr:
    return Not(_lane(e.a, i, env))


@_LANE.on(Select)
def _select(e: Select, i: PrimExpr, env: Env) -> PrimExpr:
    return Select(*(_lane(x, i, env) for x in (e.condition, e.true_value, e.false_value)))


@_LANE.on(Cast)
def _cast(e: Cast, i: PrimExpr, env: Env) -> PrimExpr:
    return Cast(DataType(e.dtype).element, _lane(e.value, i, env))


@_LANE.on(Ramp)
def _ramp(e: Ramp, i: PrimExpr, env: Env) -> PrimExpr:
    return e.base + cast(e.stride.dtype, i) * e.stride


@_LANE.on(Broadcast)
def _broadcast(e: Broadcast, i: PrimExpr, env: Env) -> PrimExpr:
    return _scalar(e.value, env)


@_LANE.on(Var)
def _var(e: Var, i: PrimExpr, env: Env) -> PrimExpr:
    if id(e) not in env:
        return _refuse(e, i, env)
    held = env[id(e)]
    return held if isinstance(held, PrimExpr) else BufferLoad(held, (i,))


@_LANE.on(Let)
def _let(e: Let, i: PrimExpr, env: Env) -> PrimExpr:
    if _lanes(e.value) > 1 and any(isinstance(n, Shuffle) for n in walk(e.body)):
        return _refuse(e, i, env)  # other lanes of the variable may be picked
    var = Var(e.var.name, DataType(e.var.dtype).element)
    return Let(var, _lane(e.value, i, env), _lane(e.body, i, {**env, id(e.var): var}))


@_LANE.on(BufferLoad)
def _load(e: BufferLoad, i: PrimExpr, env: Env) -> PrimExpr:
    load = BufferLoad(e.buffer, tuple(_lane(x, i, env) for x in e.indices), span=e.span)
    return load if e.predicate is None else if_then_else(_lane(e.predicate, i, env), load, const(0, load.dtype))


@_LANE.on(Shuffle)
def _shuffle(e: Shuffle, i: PrimExpr, env: Env) -> PrimExpr:
    place = as_int(i)
    index = e.indices[place] if place is not None else None
    if not isinstance(index, IntImm):
        return _refuse(e, i, env)
    rest = index.value
    for v in e.vectors:
        if rest < _lanes(v):
            return _lane(v, const(rest, "int32"), env)
        rest -= _lanes(v)
    return _refuse(e, i, env)


@_LANE.on(CallIntrin)
def _call(e: CallIntrin, i: PrimExpr, env: Env) -> PrimExpr:
    if e.op.name not in _ELEMENTWISE:
        return _refuse(e, i, env)
    args = tuple(_lane(a, i, env) if isinstance(a, PrimExpr) else a for a in e.args)
    return replace_node(e, dtype=DataType(e.dtype).element, args=args)
