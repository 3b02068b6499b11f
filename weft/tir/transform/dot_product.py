"""DotProduct: sums of groups of narrow products become the instruction that the machine has for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from weft import arith, ir
from weft.tir.buffer import BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import reinterpret
from weft.tir.stmt import BufferStore, For, ForKind, Stmt

DOT_GROUPS = {("uint8", "int8", "int32"): 4, ("int16", "int8", "int32"): 2, ("bfloat16", "bfloat16", "float32"): 2}
"""Types of two factors and of their sum, to the number of products that one lane adds up."""


class _Access(NamedTuple):
    """An index as ``base + by_lane * lane + by_step * step``."""

    base: ir.PrimExpr
    by_lane: int
    by_step: int


@ir.function_pass(kind=PrimFunc)
def dot_product(func: PrimFunc, mod: ir.IRModule, *, forms: Sequence[tuple[str, str, str, int]] = ()) -> PrimFunc:
    """Write vectorised sums of groups of narrow products as ``tir.dot_accumulate``.

    Requires: Flat buffers; before VectorizeLoop.
    Ensures: Flat buffers.
    With ``forms=[("uint8", "int8", "int32", 16)]``, before::

        @T.prim_func
        def f(A: T.Buffer((4,), "uint8"), B: T.Buffer((64,), "int8"), C: T.Buffer((16,), "int32")):
            for j in T.vectorized(16):
                for k in range(4):
                    C[j] = C[j] + T.Cast("int32", A[k]) * T.Cast("int32", B[j * 4 + k])

    After::

        @T.prim_func
        def f(A: T.Buffer((4,), "uint8"), B: T.Buffer((64,), "int8"), C: T.Buffer((16,), "int32")):
            C[T.Ramp(0, 1, 16)] = T.call_intrin(
                "int32x16",
                "tir.dot_accumulate",
                C[T.Ramp(0, 1, 16)],
                T.reinterpret("uint8x64", T.Broadcast(T.reinterpret("int32", A[T.Ramp(0, 1, 4)]), 16)),
                B[T.Ramp(0, 1, 64)],
            )

    Options:
        ``forms``: types of the factors and of the sum, and how many lanes the machine's instruction has.
    Cost: Linear.
    Source: The dot products of x86 (``VPDPBUSD``, ``VDPBF16PS``) and Arm (``UDOT``); TVM reaches them by tensor
        intrinsics.
    """
    if not forms:
        return func
    return func.replace(body=_visit(func.body, frozenset(forms)))


def _visit(node: ir.Node, forms: frozenset[tuple[str, str, str, int]]) -> Any:
    if not isinstance(node, Stmt):
        return node
    if isinstance(node, For) and node.kind is ForKind.VECTORIZED and isinstance(node.body, For):
        found = _dot(node, node.body, forms)
        if found is not None:
            return found
    return ir.rebuild(node, lambda n: _visit(n, forms))


def _dot(lanes: For, steps: For, forms: frozenset[tuple[str, str, str, int]]) -> Stmt | None:
    """Rewrite two loops around one sum, or return None."""
    store = steps.body
    width, group = ir.as_int(lanes.extent), ir.as_int(steps.extent)
    if not isinstance(store, BufferStore) or not isinstance(store.value, ir.Add) or store.predicate is not None:
        return None
    if width is None or ir.as_int(lanes.min) != 0 or ir.as_int(steps.min) != 0:
        return None
    own, product = store.value.a, store.value.b
    if isinstance(own, ir.Mul):
        own, product = product, own
    if not isinstance(own, BufferLoad) or own.buffer is not store.buffer or not isinstance(product, ir.Mul):
        return None
    factors = [_narrow(product.a), _narrow(product.b)]
    if factors[0] is None or factors[1] is None:
        return None
    analyzer = arith.Analyzer()
    total = _access(store.indices[0], lanes.loop_var, steps.loop_var, analyzer)
    same = _access(own.indices[0], lanes.loop_var, steps.loop_var, analyzer)
    if total is None or same is None or total[1:] != (1, 0) or same[1:] != (1, 0):
        return None
    if not analyzer.can_prove_equal(total.base, same.base):
        return None
    for a, b in (factors, factors[::-1]):
        assert a is not None and b is not None
        key = (str(a.dtype), str(b.dtype), str(store.value.dtype))
        at, bt = (_access(x.indices[0], lanes.loop_var, steps.loop_var, analyzer) for x in (a, b))
        if (
            group is not None
            and DOT_GROUPS.get(key) == group
            and (*key, width) in forms
            and at is not None
            and bt is not None
        ):
            if at[1:] == (0, 1) and bt[1:] == (group, 1):
                return _emit(store, total.base, (a, at.base), (b, bt.base), width, group)
    return None


def _narrow(e: ir.PrimExpr) -> BufferLoad | None:
    """Return the load under a conversion."""
    while isinstance(e, ir.Cast):
        e = e.value
    return e if isinstance(e, BufferLoad) and e.predicate is None else None


def _access(index: ir.PrimExpr, lane: ir.Var, step: ir.Var, analyzer: arith.Analyzer) -> _Access | None:
    base = analyzer.simplify(ir.substitute(index, {v: ir.const(0, v.dtype) for v in (lane, step)}))
    slopes = []
    for v in (lane, step):
        moved = analyzer.simplify(ir.substitute(index, {v: v + ir.const(1, v.dtype)}) - index)
        slope = ir.as_int(moved)
        if slope is None:
            return None
        slopes.append(slope)
    return _Access(base, slopes[0], slopes[1])


def _emit(
    store: BufferStore,
    base: ir.PrimExpr,
    a: tuple[BufferLoad, ir.PrimExpr],
    b: tuple[BufferLoad, ir.PrimExpr],
    width: int,
    group: int,
) -> Stmt:
    one = ir.const(1, base.dtype)
    at = ir.Ramp(base, one, width)
    bits = ir.DataType(a[0].dtype).bits * group
    word = reinterpret(f"int{bits}", BufferLoad(a[0].buffer, (ir.Ramp(a[1], ir.const(1, a[1].dtype), group),)))
    spread = reinterpret(f"{a[0].dtype}x{width * group}", ir.Broadcast(word, width))
    other = BufferLoad(b[0].buffer, (ir.Ramp(b[1], ir.const(1, b[1].dtype), width * group),))
    dtype = ir.DataType(f"{store.value.dtype}x{width}")
    total = ir.CallIntrin(dtype, ir.Op.get("tir.dot_accumulate"), (BufferLoad(store.buffer, (at,)), spread, other))
    return BufferStore(store.buffer, total, (at,), None, span=store.span)
