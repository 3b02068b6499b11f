"""AnnotateUsedMemory: how many bytes live while each group of operators runs."""

from __future__ import annotations

import math
from typing import Any

from weft import error, ir
from weft.relay.expr import Call, Function, Let, Tuple, TupleGetItem, Var
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import rewrite, subexpressions


@ir.module_pass
def annotate_used_memory(mod: ir.IRModule) -> ir.IRModule:
    """Note at functions with the attribute ``Primitive`` the bytes that live while each of their calls runs.

    These are the call's arguments, its result, and what later calls use. The attribute ``used_memory`` has one number
    a call; ``io_used_memory`` of ``main`` are the bytes of its parameters and its result.

    Requires: Types are inferred; A-normal form; shapes are known.
    Ensures: The same form and values.
    Before::

        def @main(%x: Tensor[(4), int8]) -> Tensor[(4), int8] {
          let %y = fn (%p: Tensor[(4), int8], Primitive=1) -> Tensor[(4), int8] { nn.relu(%p) }(%x);
          %y
        }

    After::

        def @main(%x: Tensor[(4), int8], io_used_memory=8) -> Tensor[(4), int8] {
          let %y = fn (%p: Tensor[(4), int8], Primitive=1, used_memory=[8]) -> Tensor[(4), int8] { nn.relu(%p) }(%x);
          %y
        }
    Cost: Linear in bindings times those that live.
    Source: TVM's ``AnnotateUsedMemory``.
    """
    func: Any = mod["main"]
    chain, body, parts, functions = [], func.body, {}, {}
    while type(body) is Let:
        chain.append((body.var, body.value))
        if type(body.value) is Function:
            functions[body.var] = body.value
        parts[body.var] = _parts(body.value, parts) or (body.var,)
        body = body.body
    live, notes = set(_tensors(body, parts)), []
    for var, value in reversed(chain):
        callee = functions.get(value.op, value.op) if type(value) is Call else None
        if type(callee) is Function and is_primitive(callee):
            notes.append((callee, sum(_bytes(v.ty) for v in {*live, var, *_tensors(value, parts)})))
        live.discard(var)
        if type(value) is not Function:
            live.update(_tensors(value, parts))
    used: dict[Any, list[int]] = {}
    for callee, size in reversed(notes):
        used.setdefault(callee, []).append(size)

    def rule(e: Any) -> Any:
        return e.with_attr("used_memory", used[e]) if e in used else e

    total = sum(_bytes(p.ty) for p in func.params) + _bytes(func.ret_type or body.ty)
    made = rewrite(func, rule, pre=lambda e: rule(e) if type(e) is Function and e in used else None)
    return mod.with_functions(
        {**dict(mod.items()), mod.get_global_var("main"): made.with_attr("io_used_memory", total)}
    )


def _parts(value: Any, known: dict[Any, Any]) -> tuple[Any, ...]:
    """The variables whose memory a tuple, or a part of one, is."""
    if type(value) is Tuple:
        return tuple(v for f in value.fields for v in known.get(f, (f,)) if type(v) is Var)
    if type(value) is TupleGetItem and type(value.tuple_value) is Var:
        fields = known.get(value.tuple_value, ())
        return fields if value.tuple_value in fields else fields[value.index : value.index + 1]
    return known.get(value, (value,)) if type(value) is Var else ()


def _tensors(e: ir.Expr, parts: dict[Any, Any]) -> list[Any]:
    """The variables of values that an expression uses."""
    used = (v for v in subexpressions(e, lambda p: type(p) is not Function) if type(v) is Var)
    return [p for v in used for p in parts.get(v, (v,)) if isinstance(p.ty, (ir.TensorType, ir.TupleType))]


def _bytes(ty: ir.Type) -> int:
    if isinstance(ty, ir.TupleType):
        return sum(map(_bytes, ty.fields))
    sizes = [ir.as_int(d) for d in ty.shape] if isinstance(ty, ir.TensorType) and ty.shape is not None else [None]
    if None in sizes:
        raise error.InvalidArgument("AnnotateUsedMemory does not support dynamic shapes", found=str(ty))
    return math.prod(sizes) * ir.DataType(ty.dtype).itemsize  # type: ignore[arg-type]
