"""Scalarize: vectors become loops over their lanes, for code generators without vectors."""

from collections.abc import Mapping
from typing import Any

from weft import error, ir
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import BufferLoad, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.intrin import INTRINSICS
from weft.tir.stmt import AllocBuffer, BufferStore, For, ForKind, IfThenElse, LetStmt, Stmt, seq

_ELEMENTWISE = frozenset(("tir.if_then_else", "tir.likely")) | {f"tir.{name}" for name in INTRINSICS}


@ir.function_pass(kind=PrimFunc)
def scalarize(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Write out operations on vectors lane by lane.

    Requires: Flat buffers.
    Ensures: Flat buffers; no vectors. All lanes of a value are read before the first of them is stored.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[T.Ramp(4, 1, 8)] = A[T.Ramp(0, 2, 8)] + T.Broadcast(T.float32(1.0), 8)

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for lane in range(8):
                B[4 + lane] = A[lane * 2] + T.float32(1.0)
    Cost: Linear; statements with a Shuffle are copied for each lane.
    Source: The inverse of VectorizeLoop.
    """
    return func.replace(body=_stmt(func.body, {}))


Env = Mapping[ir.Var, Any]  # by vector variable: its lanes, as a buffer


def _stmt(node: ir.Node, env: Env) -> Any:
    if isinstance(node, LetStmt) and lane_count(node.var) > 1:
        memory = decl_buffer((lane_count(node.var),), ir.DataType(node.var.dtype).element, node.var.name, scope="local")
        fill = _each(lane_count(node.var), node.value, lambda i: BufferStore(memory, _lane(node.value, i, env), (i,)))
        return AllocBuffer(memory, seq(fill, _stmt(node.body, {**env, node.var: memory})))
    if isinstance(node, BufferStore) and any(lane_count(i) > 1 for i in node.indices):
        return _store(node, env)
    if isinstance(node, Stmt):
        return ir.rebuild(node, lambda n: _stmt(n, env))
    return _scalar(node, env) if isinstance(node, ir.PrimExpr) else node


def _store(node: BufferStore, env: Env) -> Stmt:
    lanes = max(lane_count(i) for i in node.indices)
    parts = (node.value, node.indices, node.predicate)

    def put(i: ir.PrimExpr, value: ir.PrimExpr) -> Stmt:
        store = BufferStore(node.buffer, value, tuple(_lane(x, i, env) for x in node.indices), span=node.span)
        return store if node.predicate is None else IfThenElse(_lane(node.predicate, i, env), store)

    if not any(isinstance(n, BufferLoad) and n.buffer.data is node.buffer.data for n in ir.walk(parts)):
        return _each(lanes, parts, lambda i: put(i, _lane(node.value, i, env)))
    held = decl_buffer((lanes,), node.buffer.dtype, f"{node.buffer.name}_lanes", scope="local")
    fill = _each(lanes, node.value, lambda i: BufferStore(held, _lane(node.value, i, env), (i,)))
    return AllocBuffer(held, seq(fill, _each(lanes, parts, lambda i: put(i, BufferLoad(held, (i,))))))


def _each(lanes: int, using: Any, body: Any) -> Stmt:
    """Run a statement for each lane: in a loop, or written out where lanes are picked by number."""
    if ir.find(using, ir.Shuffle):
        return seq(*[body(ir.const(i, "int32")) for i in range(lanes)])
    lane = ir.Var("lane", "int32")
    return For(lane, ir.const(0, "int32"), ir.const(lanes, "int32"), ForKind.SERIAL, body(lane))


def lane_count(e: ir.PrimExpr) -> int:
    """Return how many lanes an expression has."""
    return ir.DataType(e.dtype).lanes


def _scalar(e: ir.PrimExpr, env: Env) -> Any:
    """Write the vectors inside of a scalar without vectors."""
    if isinstance(e, ir.Shuffle):
        return _lane(e, ir.const(0, "int32"), env)
    return ir.rebuild(e, lambda n: _scalar(n, env) if isinstance(n, ir.PrimExpr) else n)


def _lane(e: ir.PrimExpr, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    """Return one lane of a vector; a scalar is the same in all lanes."""
    return _LANE(e, i, env) if lane_count(e) > 1 or isinstance(e, ir.Shuffle) else _scalar(e, env)


def _refuse(e: ir.PrimExpr, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    raise error.LoweringError(
        "this vector has no scalar form",
        found=str(e),
        where=e.span,
        help="build for a target with vectors, or with tir.disable_vectorize",
    )


_LANE = ir.Dispatch("lane of a vector", (ir.PrimExpr,), default=_refuse)


@_LANE.on(ir.BinaryOp, ir.CmpOp)
def _binary(e: Any, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return type(e)(_lane(e.a, i, env), _lane(e.b, i, env))


@_LANE.on(ir.Not)
def _not(e: ir.Not, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return ir.Not(_lane(e.a, i, env))


@_LANE.on(ir.Select)
def _select(e: ir.Select, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return ir.Select(*(_lane(x, i, env) for x in (e.condition, e.true_value, e.false_value)))


@_LANE.on(ir.Cast)
def _cast(e: ir.Cast, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return ir.Cast(ir.DataType(e.dtype).element, _lane(e.value, i, env))


@_LANE.on(ir.Ramp)
def _ramp(e: ir.Ramp, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return e.base + ir.cast(e.stride.dtype, i) * e.stride


@_LANE.on(ir.Broadcast)
def _broadcast(e: ir.Broadcast, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    return _scalar(e.value, env)


@_LANE.on(ir.Var)
def _var(e: ir.Var, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    if e not in env:
        return _refuse(e, i, env)
    held = env[e]
    return held if isinstance(held, ir.PrimExpr) else BufferLoad(held, (i,))


@_LANE.on(ir.Let)
def _let(e: ir.Let, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    if lane_count(e.value) > 1 and ir.find(e.body, ir.Shuffle):
        return _refuse(e, i, env)  # other lanes of the variable may be picked
    var = ir.Var(e.var.name, ir.DataType(e.var.dtype).element)
    return ir.Let(var, _lane(e.value, i, env), _lane(e.body, i, {**env, e.var: var}))


@_LANE.on(BufferLoad)
def _load(e: BufferLoad, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    load = BufferLoad(e.buffer, tuple(_lane(x, i, env) for x in e.indices), span=e.span)
    return load if e.predicate is None else ir.if_then_else(_lane(e.predicate, i, env), load, ir.const(0, load.dtype))


@_LANE.on(ir.Shuffle)
def _shuffle(e: ir.Shuffle, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    place = ir.as_int(i)
    index = e.indices[place] if place is not None else None
    if not isinstance(index, ir.IntImm):
        return _refuse(e, i, env)
    rest = index.value
    for v in e.vectors:
        if rest < lane_count(v):
            return _lane(v, ir.const(rest, "int32"), env)
        rest -= lane_count(v)
    return _refuse(e, i, env)


@_LANE.on(ir.CallIntrin)
def _call(e: ir.CallIntrin, i: ir.PrimExpr, env: Env) -> ir.PrimExpr:
    if e.op.name not in _ELEMENTWISE:
        return _refuse(e, i, env)
    args = tuple(_lane(a, i, env) if isinstance(a, ir.PrimExpr) else a for a in e.args)
    return replace_node(e, dtype=ir.DataType(e.dtype).element, args=args)
