"""LowerIntrin: a target's own way to write an intrinsic."""

from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc

_ROUNDS = 16


@ir.register_intrin_lowering("tir.tvm_access_ptr", level=0)
def _access_ptr(call: ir.CallIntrin) -> ir.PrimExpr:
    """``tvm_access_ptr(type, data, offset, extent, rw)`` is the address of an element."""
    kind, data, offset = call.args[:3]
    if not isinstance(data, ir.Var):
        raise LoweringError("tvm_access_ptr needs the data of a buffer", found=str(data), where=call.span)
    flat = Buffer(data, kind.dtype, (ir.const(1, "int32"),), name=data.name)
    return ir.CallIntrin("handle", ir.Op.get("tir.address_of"), (BufferLoad(flat, (offset,)),))


@ir.function_pass(kind=PrimFunc)
def lower_intrin(func: PrimFunc, mod: ir.IRModule, *, target: str = "") -> PrimFunc:
    """Apply the rules that were registered for a kind of target (``weft.ir.register_intrin_lowering``).

    Options:
        ``target``: the kind; by default that of the function's attribute ``target``, else ``"llvm"``.

    Requires: No blocks.
    Ensures: The same form. What a rule makes is looked at again; one that never ends is an error.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            T.evaluate(T.call_extern("int32", "g", T.call_intrin(
                "handle", "tir.tvm_access_ptr", T.call_intrin("float32", "tir.type_annotation"), A.data, 4, 8, 1)))

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32")):
            A_1 = T.Buffer((1,), "float32", data=A.data)
            T.evaluate(T.call_extern("int32", "g", T.address_of(A_1[4])))
    Cost: Linear in expressions.
    Source: TVM's ``LowerIntrin``.
    """
    of = getattr(func.attrs.get("target"), "kind", None)
    kind = target or str(getattr(of, "name", of) or "llvm")
    if not any(isinstance(c.op, ir.Op) and ir.intrin_rule(c.op.name, kind) for c in ir.find(func.body, ir.CallIntrin)):
        return func
    return func.replace(body=ir.rewrite(func.body, lambda call: _apply(call, kind, 0), only=(ir.CallIntrin,)))


def _apply(call: ir.CallIntrin, kind: str, depth: int) -> ir.PrimExpr:
    rule = ir.intrin_rule(call.op.name, kind) if isinstance(call.op, ir.Op) else None
    made: Any = rule(call) if rule is not None else None
    if made is None or made is call:
        return call
    if made.dtype != call.dtype:
        raise LoweringError(
            f"the rule for '{call.op.name}' on '{kind}' changes the type",
            expected=call.dtype,
            found=made.dtype,
            where=call.span,
        )
    if depth == _ROUNDS:
        raise LoweringError(f"the rules for '{call.op.name}' on '{kind}' do not end", found=str(made), where=call.span)
    return ir.rewrite(made, lambda n: _apply(n, kind, depth + 1) if n is not call else n, only=(ir.CallIntrin,))
