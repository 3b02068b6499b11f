"""FoldConstant: operations on constants are done at compile time, by each operator's NumPy reference."""

from typing import Any

import numpy as np

from weft import ir, op, runtime
from weft.relax.core_ops import CORE_OPS
from weft.relax.rewriter import all_bindings, rewrite_bindings
from weft.relax.unused import remove_all_unused


@ir.function_pass(kind=ir.Function, opt_level=1)
def fold_constant(func: ir.Function, mod: ir.IRModule, *, max_bytes: int = 1 << 30) -> ir.Function:
    """Evaluate calls whose arguments are all constants, and whose results somebody uses.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``.
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            with R.dataflow():
                a = R.add(R.const(1.0, "float32"), R.const(2.0, "float32"))
                b = R.multiply(x, a)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            with R.dataflow():
                b: R.Tensor((2, 3), "float32") = R.multiply(x, R.const(3.0, "float32"))
                R.output(b)
            return b

    Options:
        ``max_bytes``: results larger than this are computed at run time.
    Cost: Linear, plus the evaluations.
    Source: TVM's ``FoldConstant``.
    """
    used = {b.var for b in all_bindings(remove_all_unused(func, mod))}

    def rule(binding: Any, value: ir.Expr, _bb: object) -> ir.Expr | None:
        if binding.var not in used:
            return None  # what another pass left behind may be large: weights that are read as bits now
        made = isinstance(value, ir.Call) and not any(isinstance(a, (ir.Constant, ir.Tuple)) for a in value.args)
        if not isinstance(value, ir.Call) or made or _result_bytes(value.ty) > max_bytes:
            return None
        return evaluate(value)

    return rewrite_bindings(func, mod, rule)


def evaluate(call: ir.Call) -> ir.Expr | None:
    """Evaluate a call of a tensor operator on constants.

    None where an argument or a number among the attributes is not constant.
    """
    if not isinstance(call.op, ir.Op) or call.op.name.removeprefix("relax.") in CORE_OPS:
        return None
    args = [constant_value(a) for a in call.args]
    attrs = dict(call.attrs.items)
    if any(a is None for a in args) or any(ir.find(v, ir.Var, ir.SizeVar) for v in attrs.values()):
        return None
    definition = op.get_op_def(call.op)
    if definition.reference is None or not definition.pure or str(attrs.get("dtype")).startswith("custom["):
        return None
    return _to_expr(definition.reference(*args, **attrs), call.ty)


def _result_bytes(ty: Any) -> float:
    """Return the size of a static type, or infinity."""
    if isinstance(ty, ir.TupleType):
        return sum(_result_bytes(f) for f in ty.fields)
    dims = ty.shape if isinstance(ty, ir.TensorType) else None
    sizes = [d.value for d in dims or () if isinstance(d, ir.IntImm)]
    if dims is None or len(sizes) != len(dims):
        return float("inf")
    return float(np.prod(sizes, dtype=np.float64)) * 8


def constant_value(arg: ir.Expr) -> Any:
    """Return what a constant, a static shape or a tuple of them holds; None where it is not known."""
    if isinstance(arg, ir.Constant):
        return arg.data.numpy() if hasattr(arg.data, "numpy") else np.asarray(arg.data)
    if isinstance(arg, ir.ShapeExpr):
        values = tuple(v.value for v in arg.values if isinstance(v, ir.IntImm))
        return values if len(values) == len(arg.values) else None
    if isinstance(arg, ir.PrimValue):
        return getattr(arg.value, "value", None)
    if isinstance(arg, ir.Tuple):
        fields = [constant_value(f) for f in arg.fields]
        return None if any(f is None for f in fields) else tuple(fields)
    return None


def _to_expr(result: Any, ty: Any) -> ir.Expr | None:
    if isinstance(ty, ir.TupleType):
        fields = tuple(_to_expr(r, t) for r, t in zip(result, ty.fields, strict=True))
        return None if any(f is None for f in fields) else ir.Tuple(fields, ty=ty)  # type: ignore[arg-type]
    return ir.constant(runtime.aligned(np.asarray(result, ir.numpy_dtype(ty.dtype))))
