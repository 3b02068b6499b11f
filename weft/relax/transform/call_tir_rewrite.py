"""CallTIRRewrite: destination-passing calls get their destination: allocate the outputs, call, use the outputs."""

from __future__ import annotations

import operator
from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import alloc_tensor, is_op
from weft.relax.expr import Binding
from weft.relax.rewriter import rewrite_bindings


@ir.function_pass(kind=ir.Function, opt_level=0)
def call_tir_rewrite(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Expand ``call_tir``, ``call_dps_packed`` and ``call_tir_inplace`` into allocations and plain calls.

    Requires: ``relax.legalized`` in plain blocks.
    Ensures: Calls of TIR functions take inputs, outputs, then the scalars of ``call_tir``.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.call_dps_packed("my.exp", (x,), R.Tensor((2, 3), "float32"))
            return y

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            y = R.builtin.alloc_tensor(R.shape([2, 3]), R.dtype("float32"), R.prim_value(0), R.str("global"))
            _ = R.call_packed("my.exp", x, y, ty_args=(R.Tuple(),))
            return y
    Cost: Linear.
    Source: TVM's ``CallTIRRewrite``.
    """
    devices = mod.global_infos.get("vdevice", ())

    def rule(binding: Binding, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        if any(is_op(value, n) for n in ("call_tir", "call_tir_with_grad", "call_dps_packed")):
            return _expand(value, bb, binding.var.name_hint, devices=devices)
        if is_op(value, "call_tir_inplace"):
            return _expand(value, bb, binding.var.name_hint, value.attrs["inplace_indices"], devices)  # type: ignore[attr-defined]
        return None

    return rewrite_bindings(func, mod, rule)


def _expand(
    call: Any, bb: BlockBuilder, hint: str, inplace: tuple[int, ...] = (), devices: tuple[Any, ...] = ()
) -> ir.Expr:
    callee, args = call.args[0], _arguments(call.args[1], bb)
    fresh: list[ir.Expr] = []
    places = iter(inplace)

    def result(ty: ir.Type) -> ir.Expr:
        """Make what a result of a type is: an operand, a new tensor, or a tuple of such."""
        if isinstance(ty, ir.TupleType):
            return ir.Tuple(tuple(map(result, ty.fields)))
        if (reuse := next(places, -1)) >= 0:
            return args[reuse]
        assert isinstance(ty, ir.TensorType) and ty.shape is not None
        fresh.append(bb.emit(alloc_tensor(ty.shape, ty.dtype, device_index(ty.vdevice, devices)), hint))
        return fresh[-1]

    whole = result(call.ty)
    callee_args = (*args, *fresh)
    types = () if isinstance(callee, ir.GlobalVar) else (ir.TupleType(()),)
    if len(call.args) > 2 and not isinstance(call.args[2], ir.ShapeExpr):
        operands = callee, ir.Tuple((*callee_args, call.args[2]))
        bb.emit(ir.Call(ir.Op.get("relax.vm.call_tir_dyn"), operands, ir.Attrs.of(), span=call.span), "_")
    else:
        scalars = call.args[2].values if len(call.args) > 2 else ()
        callee_args += tuple(ir.prim_value(v) for v in scalars)
        bb.emit(ir.Call(callee, callee_args, span=call.span, ty_args=types), "_")
    return bb.emit(whole, hint) if any(whole is a for a in args) else whole


def device_index(where: ir.VDevice | None, devices: tuple[Any, ...]) -> int:
    """Return a virtual device's place among the module's and the machine's; a LoweringError where it is not listed."""
    if where is None:
        return 0
    same = operator.is_, ir.structural_equal  # of devices that are described alike the one that is meant
    place = next((i for alike in same for i, d in enumerate(devices) if alike(d, where)), None)
    if place is None:
        raise LoweringError(
            "a result lives on a virtual device that the module does not list",
            expected=f"one of {list(map(str, devices))}",
            found=str(where),
            help="list it: mod.update_global_info('vdevice', [...]), in the order of the machine's devices",
        )
    return place


def _arguments(args: ir.Expr, bb: Any) -> list[ir.Expr]:
    if isinstance(args, ir.Tuple):
        return list(bb.atom(args).fields)
    return [bb.emit(ir.TupleGetItem(args, i)) for i in range(len(args.ty.fields))]  # type: ignore[attr-defined]
