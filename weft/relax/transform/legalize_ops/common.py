"""What an operator becomes: ``FLegalize`` of each operator, and how others register their own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from weft import ir, te
from weft.op import OpDef, get_op_def, list_ops, make_call
from weft.relax.block_builder import BlockBuilder
from weft.topi.staged import stages_of

TEFunc = Callable[..., te.Tensor]
"""A function of te tensors."""
LegalizeFunc = Callable[[BlockBuilder, ir.Call], ir.Expr]
"""What an operator's attribute ``FLegalize`` is."""

_NAMES = {
    "astype": "cast",
    "collapse_sum_like": "collapse_sum",
    "collapse_sum_to": "collapse_sum",
    "concat": "concatenate",
    "flatten": "reshape",
    "full_like": "full",
    "gather_elements": "gather",
    "nn.batch_flatten": "reshape",
    "nn.leakyrelu": "leaky_relu",
    "ones_like": "ones",
    "clip": "tir_clip",
    "permute_dims": "transpose",
    "zeros_like": "zeros",
}
"""What kernels are called where that is not the operator's own name."""


def register_legalize(op_name: str, legal_func: LegalizeFunc | None = None) -> Any:
    """Say what ``LegalizeOps`` makes of an operator; without `legal_func`, a decorator."""
    return ir.register_op_attr(op_name, "FLegalize", legal_func)


@ir.default_op_attr("FLegalize")
def _default(op: ir.Op) -> LegalizeFunc | None:
    if op.name.removeprefix("relax.") not in list_ops() or not op.name.startswith("relax."):
        return None
    definition = get_op_def(op)
    return legalized if definition.lower or definition.decompose else None


def legalized(bb: BlockBuilder, call: ir.Call) -> ir.Expr:
    """Make the call of a kernel of an operator's call; what it consists of where no kernel computes it."""
    assert isinstance(call.op, ir.Op)
    definition = get_op_def(call.op)
    if definition.lower is None:
        assert definition.decompose is not None
        parts = definition.decompose(*call.args, **dict(call.attrs.items))
        return call if parts is None else _bound(parts, bb)
    call = _without_likeness(call, definition)
    definition = get_op_def(call.op)  # type: ignore[arg-type]
    assert definition.lower is not None
    stages = stages_of(definition.name, getattr(call.args[0].ty, "dtype", "")) if call.args else None
    lower = functools.partial(stages or definition.lower, **dict(call.attrs.items))
    args = scalar_operands(call.args) if "binary" in definition.tags else list(call.args)
    if definition.name in _SCALARS:
        args = [args[0], *map(try_convert_to_scalar_const, args[1:])]
    return bb.call_te(lower, *args, primfunc_name_hint=kernel_name(definition))


_LIKE = {"full_like": "full", "ones_like": "ones", "zeros_like": "zeros", "collapse_sum_like": "collapse_sum_to"}
_SCALARS = {"full", "quantize", "dequantize"}
"""Operators whose operands behind the first are immediates where they are constants."""


def _without_likeness(call: ir.Call, definition: OpDef) -> ir.Call:
    """Take the shape of an operand of which nothing else counts."""
    other = _LIKE.get(definition.name)
    if other is None:
        return call
    args, attrs = list(call.args), dict(call.attrs.items)
    like: Any = args.pop(1 if other == "collapse_sum_to" else 0)
    args.insert(len(args) if other == "collapse_sum_to" else 0, ir.ShapeExpr(like.ty.shape))
    if "dtype" in get_op_def(other).attrs:
        attrs["dtype"] = call.ty.dtype  # type: ignore[attr-defined]
    return make_call(other)(*args, **attrs)


def _bound(expr: ir.Expr, bb: BlockBuilder) -> ir.Expr:
    """Bind the operations inside of an expression, each once."""
    done: dict[ir.Expr, ir.Expr] = {}

    def bind(e: ir.Expr) -> Any:
        if not isinstance(e, (ir.Call, ir.Tuple, ir.TupleGetItem)):
            return e
        if e not in done:
            done[e] = bb.emit(ir.rebuild(e, bind))
        return done[e]

    return ir.rebuild(expr, bind)


def kernel_name(definition: OpDef) -> str:
    """Return what the kernels of an operator are called."""
    own = definition.name.rpartition(".")[2]
    plain = "unary" in definition.tags and "." not in definition.name and own != "erf"
    return _NAMES.get(definition.name, f"tir_{own}" if plain else own)


def scalar_operands(args: tuple[ir.Expr, ...]) -> list[Any]:
    """Take the value of a constant scalar operand, the second if it is one, else the first."""
    lhs, rhs = args[0], try_convert_to_scalar_const(args[1])
    return [try_convert_to_scalar_const(lhs) if rhs is args[1] else lhs, rhs]


def try_convert_to_scalar_const(expr: ir.Expr, python_native: bool = False) -> Any:
    """Return the value of a constant without dimensions, as an immediate or a Python number; else `expr`."""
    if not isinstance(expr, ir.Constant) or expr.data.shape:
        return expr
    value = expr.data.numpy().item()
    return value if python_native else ir.const(value, str(expr.data.dtype))
