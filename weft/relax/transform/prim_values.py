"""ComputePrimValue: scalars that a program computes of its sizes are results of functions of the host."""

from typing import Any

from weft import ir, tir
from weft.relax.block_builder import BlockBuilder
from weft.relax.transform.block_pass import over_bindings


def ComputePrimValue() -> ir.Pass:
    """Make the pass that computes scalars, which are more than a variable or number, by functions of their variables.

    Those in the arguments of calls and in the conditions of branches; the sizes in shapes stay.
    """
    return over_bindings(ComputePrimValue, lambda func, mod: _rule)


def _rule(_binding: object, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
    if isinstance(value, ir.If):
        return ir.with_fields(value, cond=_computed(value.cond, bb))
    return _computed(value, bb) if isinstance(value, (ir.Call, ir.PrimValue, ir.Tuple)) else None


def _computed(e: ir.Expr, bb: BlockBuilder) -> Any:
    if isinstance(e, ir.Call):
        return ir.with_fields(e, args=tuple(_computed(a, bb) for a in e.args))
    if isinstance(e, ir.Tuple):
        return ir.with_fields(e, fields=tuple(_computed(f, bb) for f in e.fields))
    if not isinstance(e, ir.PrimValue) or isinstance(e.value, (ir.Var, ir.IntImm, ir.FloatImm)):
        return e
    own = list(dict.fromkeys(ir.find(e.value, ir.Var)))
    params = {v: ir.Var(v.name, v.dtype) for v in own}
    body = tir.Evaluate(tir.ret(ir.substitute(e.value, params)))
    attrs = ir.Attrs.of({"tir.is_host_func": True})
    func = tir.PrimFunc(tuple(params.values()), body, ir.PrimType(e.value.dtype), attrs=attrs)
    return bb.emit(ir.Call(bb.add_func(func, "compute_symbolic_expr"), tuple(map(ir.prim_value, own))))
