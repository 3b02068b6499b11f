"""Print rules of buffers, their elements, calls and reductions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.ir.text.doc import TERNARY, Doc, Group, Seq, call, index, tuple_doc
from weft.ir.text.printer import EXPR, Printer, any_literal, quote
from weft.ir.text.scalar import argument, is_unit, same, slice_docs
from weft.tir import intrin
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.function import dtype_of_call
from weft.tir.reduce import CommReducer, ProducerLoad, Reduce


def buffer_args(b: Buffer, p: Printer, *, typed: bool = False) -> tuple[list[Doc], list[tuple[str, Doc]]]:
    """Return shape, data type where it is not float32 or `typed`, and what differs from a plain buffer.

    The data pointer where something else introduced it.
    """
    args: list[Doc] = [tuple_doc([argument(d, p) for d in b.shape])]
    if typed or b.dtype != "float32":
        args.append(quote(b.dtype))
    kwargs: list[tuple[str, Doc]] = []
    if p.is_defined(b.data) or b.data.dtype != "handle" or type(b.data) is not ir.Var:
        kwargs.append(("data", p.expr(b.data)))
    if b.strides:
        kwargs.append(("strides", tuple_doc([argument(d, p) for d in b.strides])))
    own_offset = type(b.elem_offset) is ir.Var and not p.is_defined(b.elem_offset)  # which the buffer introduces
    if b.elem_offset is not None and not own_offset:
        kwargs.append(("elem_offset", argument(b.elem_offset, p)))
    if b.scope != "global":
        kwargs.append(("scope", quote(b.scope)))
    if b.data_alignment != 64:
        kwargs.append(("align", str(b.data_alignment)))
    if b.offset_factor or own_offset:
        kwargs.append(("offset_factor", str(b.offset_factor or 1)))
    if b.axis_separators:
        kwargs.append(("axis_separators", f"[{', '.join(map(str, b.axis_separators))}]"))
    return args, kwargs


def introduce(b: Buffer, p: Printer) -> str:
    """Name a buffer; its pointer becomes ``name.data`` where nothing has introduced it."""
    name = p.define(b, b.name)
    if not p.is_defined(b.data) and b.data.dtype == "handle" and type(b.data) is ir.Var:
        p.alias(b.data, name + ".data")
    if type(b.elem_offset) is ir.Var and not p.is_defined(b.elem_offset):
        p.alias(b.elem_offset, name + ".elem_offset")
    return name


def new_buffer(maker: str, b: Buffer, p: Printer, *before: Doc) -> tuple[str, Doc]:
    """Introduce a buffer; return its name and the call that makes it."""
    args, kwargs = buffer_args(b, p)
    return introduce(b, p), call(maker, [*before, *args], kwargs)


@EXPR.on(Buffer)
def _buffer(b: Buffer, p: Printer) -> Doc:
    if p.is_defined(b):
        return p.name_of(b, b.name)
    p.dialects.add("T")
    args, kwargs = buffer_args(b, p)
    name = p.declare(b, b.name, lambda: call("T.Buffer", args, kwargs), pointer=b.data)
    if not p.is_defined(b.data):
        p.alias(b.data, name + ".data")
    return name


@EXPR.on(BufferLoad)
def _load(node: BufferLoad, p: Printer) -> Doc:
    if node.predicate is not None:
        indices = [argument(i, p) for i in node.indices]
        return access(node.buffer, "vload", [indices], node.predicate, p)
    return element(node.buffer, node.indices, p)


def access(buffer: Buffer, method: str, args: list[Any], predicate: ir.PrimExpr, p: Printer) -> Doc:
    """Write an access with a mask; the indices are the first argument."""
    listed = Group("[", tuple(args[0]), "]")
    masked = call(f".{method}", [listed, *args[1:]], [("predicate", p.expr(predicate))])
    return Seq(TERNARY, (p.expr(buffer), masked))


def element(buffer: Buffer, indices: Sequence[ir.PrimExpr], p: Printer) -> Doc:
    """Write elements of a buffer; neighbours in its last dimension are a slice."""
    docs: list[Doc] = [argument(i, p) for i in indices]
    last = indices[-1] if indices else None
    plain = type(last) is ir.Ramp and ir.is_const_int(last.stride, 1) and last.stride.dtype == last.base.dtype
    if type(last) is ir.Ramp and plain and type(last.lanes) is int:
        r = ir.Range.from_min_extent(last.base, ir.const(last.lanes, last.base.dtype))
        docs[-1] = range_index(r, p) if slice_docs(r, p) else docs[-1]
    return index(p.expr(buffer), docs)


@EXPR.on(BufferRegion)
def _region(node: BufferRegion, p: Printer) -> Doc:
    return index(p.expr(node.buffer), [range_index(r, p) for r in node.region])


def range_index(r: ir.Range, p: Printer) -> Doc:
    """Write a range as an index or a slice."""
    if is_unit(r):
        return argument(r.min, p)
    docs = slice_docs(r, p)
    return p.expr(r) if docs is None else Seq(TERNARY, (docs[0], ":", docs[1]))


@EXPR.on(ir.CallIntrin)
def _call(node: ir.CallIntrin, p: Printer) -> Doc:
    op = node.op
    if isinstance(op, ir.GlobalVar) and p.in_module and node.dtype == dtype_of_call(op) and not node.attrs:
        args = [argument(a, p) if isinstance(a, ir.PrimExpr) else any_literal(a, p) for a in node.args]
        return call(p.expr(op), args)
    if not isinstance(op, ir.Op) or node.attrs:
        kwargs = [("attrs", any_literal(node.attrs, p))] if node.attrs else []
        return call(
            "T.Call", [quote(node.dtype), any_literal(op, p), tuple_doc([any_literal(a, p) for a in node.args])], kwargs
        )
    short = op.name.removeprefix("tir.")
    if short in _SPELLED and (doc := _SPELLED[short](node, p)) is not None:
        return doc
    args = [argument(a, p) for a in node.args]
    if _is_intrinsic(node, short):
        return call(f"T.{short}", args)
    return call("T.call_intrin", [quote(node.dtype), quote(op.name), *args])


def _is_intrinsic(node: ir.CallIntrin, short: str) -> bool:
    """Whether the intrinsic's constructor, given the arguments, makes this call."""
    rule = intrin.INTRINSICS.get(short)
    if rule is None or len(node.args) != rule.n_args or not all(isinstance(a, ir.PrimExpr) for a in node.args):
        return False
    try:
        made = _constructor(short)(*node.args)
    except Exception:  # arguments that the constructor refuses: written by operator name
        return False
    same_args = type(made) is ir.CallIntrin and all(same(a, b) for a, b in zip(made.args, node.args, strict=True))
    return same_args and made.dtype == node.dtype and made.op is node.op


def _constructor(short: str) -> Any:
    return ir.abs_ if short == "abs" else getattr(intrin, short)


def _spell_if(node: ir.CallIntrin, p: Printer) -> Doc | None:
    c, a, b = node.args
    if isinstance(c, ir.IntImm) or a.dtype != node.dtype or b.dtype != a.dtype:
        return None
    return call("T.if_then_else", [p.expr(c), p.expr(a), p.expr(b)])


def _spell_packed(node: ir.CallIntrin, p: Printer) -> Doc | None:
    if node.dtype != "int32" or not node.args or not isinstance(node.args[0], ir.StringImm):
        return None
    return call("T.call_packed", [argument(a, p) for a in node.args])


def _spell_typed(name: str) -> Any:
    def spell(node: ir.CallIntrin, p: Printer) -> Doc | None:
        if not node.args or not isinstance(node.args[0], ir.StringImm):
            return None
        return call(f"T.{name}", [quote(node.dtype), *[argument(a, p) for a in node.args]])

    return spell


def _spell_likely(node: ir.CallIntrin, p: Printer) -> Doc | None:
    return (
        call("T.likely", [p.expr(node.args[0])])
        if node.dtype == "bool" and not isinstance(node.args[0], ir.IntImm)
        else None
    )


def _spell_reinterpret(node: ir.CallIntrin, p: Printer) -> Doc | None:
    value = node.args[0]
    return call("T.reinterpret", [quote(node.dtype), p.expr(value)]) if value.dtype != node.dtype else None


_SPELLED: dict[str, Any] = {
    "if_then_else": _spell_if,
    "tvm_call_packed": _spell_packed,
    "call_extern": _spell_typed("call_extern"),
    "call_pure_extern": _spell_typed("call_pure_extern"),
    "call_llvm_intrin": _spell_typed("call_llvm_intrin"),
    "call_llvm_pure_intrin": _spell_typed("call_llvm_pure_intrin"),
    "likely": _spell_likely,
    "ret": lambda node, p: call("T.ret", [p.expr(node.args[0])]) if node.dtype == node.args[0].dtype else None,
    "vscale": lambda node, p: call("T.vscale", []) if node.dtype == "int32" and not node.args else None,
    "reinterpret": _spell_reinterpret,
}


@EXPR.on(ProducerLoad)
def _producer_load(node: ProducerLoad, p: Printer) -> Doc:
    name = getattr(node.producer, "name", None) or getattr(getattr(node.producer, "op", None), "name", "tensor")
    return index(name, [argument(i, p) for i in node.indices])


@EXPR.on(Reduce)
def _reduce(node: Reduce, p: Printer) -> Doc:
    axes = [
        Seq(TERNARY, (p.expr(iv.var), " in ", "?" if iv.dom is None else range_index(iv.dom, p))) for iv in node.axis
    ]
    kwargs = [("axis", tuple_doc(axes)), ("where", p.expr(node.condition)), ("value_index", str(node.value_index))]
    return call("T.Reduce", [p.expr(node.combiner), tuple_doc([p.expr(x) for x in node.source])], kwargs)


@EXPR.on(CommReducer)
def _comm_reducer(node: CommReducer, p: Printer) -> Doc:
    for v in (*node.lhs, *node.rhs):
        p.define(v, v.name)
    results = p.expr(node.result[0]) if len(node.result) == 1 else tuple_doc([p.expr(r) for r in node.result])
    params = [p.expr(v) for v in (*node.lhs, *node.rhs)]
    function = Seq(TERNARY, ("lambda ", *[x for d in params for x in (d, ", ")][:-1], ": ", results))
    return call("T.comm_reducer", [function, Group("[", tuple(p.expr(e) for e in node.identity_element), "]")])
