"""LowerAllocTensor, KillAfterLastUse and LowerRuntimeBuiltin.

From Relax's operators to functions of the VM's runtime.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import LoweringError
from weft.registry import Registry
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import alloc_storage, as_vdevice, call_builtin, is_op, storage_tensor
from weft.relax.expr import Binding, BindingBlock, SeqExpr, Var, VarBinding
from weft.relax.memory_ops import kill_object
from weft.relax.rename import variables
from weft.relax.rewriter import rewrite_bindings
from weft.relax.transform.plan_memory import device_of, size_in_bytes
from weft.relax.transform.to_non_dataflow import map_values
from weft.runtime import Device, device
from weft.target import Target


@ir.function_pass(kind=ir.Function, opt_level=0)
def lower_alloc_tensor(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Give each tensor that memory planning left alone a storage block of its own.

    Requires: ``relax.planned``.
    Ensures: No ``builtin.alloc_tensor``.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.builtin.alloc_tensor(R.shape([2, 3]), dtype="float32", runtime_device_index=0)
            R.call_packed("my.exp", x, a, ty_args=R.Tuple())
            return a

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            storage = R.memory.alloc_storage(R.shape([64]), R.prim_value(0), R.str("global"), R.dtype("uint8"))
            a = R.memory.alloc_tensor(storage, R.prim_value(0), R.shape([2, 3]), R.dtype("float32"))
            _ = R.call_packed("my.exp", x, a, ty_args=(R.Tuple(),))
            return a
    Cost: Linear.
    Source: TVM's ``LowerAllocTensor``.
    """

    def rule(binding: Binding, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        if not is_op(value, "builtin.alloc_tensor"):
            return None
        shape, dtype = value.args[0], value.args[1].value  # type: ignore[attr-defined]
        assert isinstance(shape, ir.ShapeExpr)
        storage = bb.emit(alloc_storage(ir.shape_expr((size_in_bytes(shape, dtype),)), device_of(value)), "storage")
        return storage_tensor(storage, 0, shape, dtype)

    return rewrite_bindings(func, mod, rule)


@ir.function_pass(kind=ir.Function, opt_level=0)
def kill_after_last_use(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Release objects after their last use, so that memory that was not planned returns to the allocator early.

    Requires: Plain blocks after LowerAllocTensor.
    Ensures: The same form, with ``vm.kill_object`` calls.
    Before::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")):
            a = R.call_packed("my.exp", x, ty_args=R.Tensor((2, 3), "float32"))
            b = R.call_packed("my.exp", a, ty_args=R.Tensor((2, 3), "float32"))
            return b

    After::

        @R.function(pure=False)
        def main(x: R.Tensor((2, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            a: R.Tensor((2, 3), "float32") = R.call_packed("my.exp", x, ty_args=(R.Tensor((2, 3), "float32"),))
            b: R.Tensor((2, 3), "float32") = R.call_packed("my.exp", a, ty_args=(R.Tensor((2, 3), "float32"),))
            _ = R.vm.kill_object(a)
            return b
    Cost: Linear.
    Source: TVM's ``KillAfterLastUse``.
    """
    if not isinstance(func.body, SeqExpr) or len(func.body.blocks) != 1:
        return func
    bindings = func.body.blocks[0].bindings
    last: dict[ir.Expr, int] = {}
    for i, b in enumerate(bindings):
        for v in variables(b.value):
            last[v] = i
    keep = set(variables(func.body.body))
    keep.update(b.value.args[0] for b in bindings if is_op(b.value, "vm.kill_object"))  # those that end already
    ends: dict[int, list[Any]] = {}
    for b in bindings:
        holds = is_op(b.value, "memory.alloc_tensor") or is_op(b.value, "memory.alloc_storage")
        if (holds or _opaque_result(b)) and b.var in last and b.var not in keep:
            ends.setdefault(last[b.var], []).append(b.var)
    if not ends:
        return func
    out: list[Any] = []
    for i, b in enumerate(bindings):
        out.append(b)
        out.extend(_kill(v) for v in ends.get(i, ()))
    return func.replace(body=SeqExpr((BindingBlock(tuple(out)),), func.body.body, span=func.body.span, ty=func.body.ty))


def _opaque_result(binding: Binding) -> bool:
    value = binding.value
    return (
        isinstance(value, ir.Call)
        and isinstance(value.op, ir.ExternFunc)
        and isinstance(value.ty, (ir.TensorType, ir.TupleType, ir.AnyType))
    )


def _kill(var: Var) -> VarBinding:
    nothing = ir.TupleType(())
    return VarBinding(Var("_", nothing), ir.with_fields(kill_object(var), ty=nothing))


_LOWER: Registry[Callable[[ir.Call], ir.Expr]] = Registry("relax.")


@ir.function_pass(kind=ir.Function, opt_level=0, ensures="relax.runtime_calls")
def lower_runtime_builtin(func: ir.Function, mod: ir.IRModule, *, target: Target | None = None) -> ir.Function:
    """Turn the remaining operators into calls of ``vm.builtin.*`` functions.

    Copies that are known to lie on a CPU, as all do with such a `target`, are made by ``to_device``, as Apache TVM's
    machine has no ``fresh_tensor``.

    Requires: ``relax.planned`` after LowerAllocTensor.
    Ensures: Calls of functions only, but for those that the code generator knows (``vm.kill_object``).
    Before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32")):
            y = R.shape_of(x)
            return y

    After::

        @R.function
        def main(x: R.Tensor((2, 3), dtype="float32")) -> R.Shape([2, 3]):
            y: R.Shape([2, 3]) = R.call_builtin("vm.builtin.shape_of", (x,))
            return y
    Cost: Linear.
    Source: TVM's ``LowerRuntimeBuiltin``.
    """
    on_cpu = target is not None and target.kind.device == "cpu"

    def lower(value: Any) -> Any:
        if is_op(value, "call_builtin") and getattr(value.args[0], "global_symbol", "") == "vm.builtin.fresh_tensor":
            return _copy(value, on_cpu)
        if isinstance(value, ir.Call) and isinstance(value.op, ir.Op):
            return lower_call(value)
        if isinstance(value, ir.Call) and isinstance(value.op, ir.ExprVar):
            closure = [value.op, *value.args]
            return _typed(call_builtin("vm.builtin.invoke_closure", closure, value.ty, with_ctx=True), value)
        if isinstance(value, ir.Tuple):
            return _typed(call_builtin("vm.builtin.make_tuple", value.fields, value.ty), value)
        if isinstance(value, ir.TupleGetItem):
            return _typed(call_builtin("vm.builtin.tuple_getitem", [value.tuple_value, value.index], value.ty), value)
        return value

    return func.replace(body=map_values(func.body, lower))


def lower_call(call: ir.Call) -> ir.Call:
    """Turn a call of an operator into one of the machine's function for it; the call itself where there is none."""
    rule = _LOWER.get(call.op.name)  # type: ignore[attr-defined]
    return call if rule is None else _typed(rule(call), call)


def _typed(call: Any, origin: ir.Expr) -> ir.Call:
    return ir.Call(call.op, call.args, call.attrs, call.ty_args, span=origin.span, ty=origin.ty)  # type: ignore[attr-defined]


def _device_of(where: ir.VDevice) -> Device:
    return device(Target(where.target).kind.device, where.vdevice_id)


def _copy(call: Any, on_cpu: bool) -> ir.Call:
    where = getattr(call.ty, "vdevice", None)
    if not (on_cpu if where is None else _device_of(where).device_type == Device.kDLCPU):
        return call
    place = (*call.args[1].fields, Device.kDLCPU, 0 if where is None else where.vdevice_id)
    return _typed(call_builtin("vm.builtin.to_device", place, call.ty), call)


_SAME_ARGUMENTS = {
    "memory.alloc_tensor": "vm.builtin.alloc_tensor",
    "memory.ensure_zero_offset": "vm.builtin.ensure_zero_offset",
    "builtin.stop_lift_params": "vm.builtin.copy",
    "shape_of": "vm.builtin.shape_of",
    "tensor_to_shape": "vm.builtin.tensor_to_shape",
    "index_bounds": "vm.builtin.index_bounds",
    "null_value": "vm.builtin.null_value",
    "nonzero": "weft.run.nonzero",
    "shape_to_tensor": "weft.run.shape_to_tensor",
}
for _op, _function in _SAME_ARGUMENTS.items():
    _LOWER.on(_op)(lambda call, function=_function: call_builtin(function, call.args))
_LOWER.on("memory.kill_storage", "memory.kill_tensor")(lambda call: kill_object(call.args[0]))


@_LOWER.on("vm.alloc_storage")
def _vm_alloc_storage(call: ir.Call) -> ir.Expr:
    return call_builtin("vm.builtin.alloc_storage", call.args, with_ctx=True)


@_LOWER.on("memory.alloc_storage")
def _alloc_storage(call: ir.Call) -> ir.Expr:
    size, device, scope, dtype = call.args
    return call_builtin("vm.builtin.alloc_storage", [size, device, dtype, scope], with_ctx=True)


@_LOWER.on("vm.alloc_tensor")
def _vm_alloc_tensor(call: ir.Call) -> ir.Expr:
    return call_builtin("vm.builtin.alloc_tensor", call.args[:4])


@_LOWER.on("memory.view")
def _view(call: ir.Call) -> ir.Expr:
    nothing = ir.ExprStringImm("", ty=ir.AnyType())
    return call_builtin("weft.run.view", [nothing if isinstance(a, ir.Tuple) else a for a in call.args])


@_LOWER.on("unique")
def _unique(call: ir.Call) -> ir.Expr:
    """The machine sorts what its own numbers can stand for, NumPy the rest."""
    ty = call.args[0].ty
    dtype = str(ty.dtype) if isinstance(ty, ir.TensorType) else ""
    sorted_here = re.fullmatch(r"u?int(8|16|32|64)|bool|b?float(16|32|64)", dtype) is not None
    return call_builtin("vm.builtin.unique" if sorted_here else "weft.run.unique", call.args)


@_LOWER.on("reshape")
def _reshape(call: ir.Call) -> ir.Expr:
    """The builtin takes sizes only; a -1 or 0 of the operator stands resolved in its type."""
    dims = call.ty.shape if isinstance(call.ty, ir.TensorType) else None
    return call_builtin("vm.builtin.reshape", call.args if dims is None else (call.args[0], ir.shape_expr(dims)))


@_LOWER.on("vm.call_tir_dyn")
def _call_tir_dyn(call: ir.Call) -> ir.Expr:
    return call_builtin("vm.builtin.call_tir_dyn", [call.args[0], *call.args[1].fields])  # type: ignore[attr-defined]


@_LOWER.on("make_closure")
def _make_closure(call: ir.Call) -> ir.Expr:
    return call_builtin("vm.builtin.make_closure", [call.args[0], *_spread(call.args[1])])


@_LOWER.on("invoke_closure", "invoke_pure_closure")
def _invoke_closure(call: ir.Call) -> ir.Expr:
    return call_builtin("vm.builtin.invoke_closure", [call.args[0], *_spread(call.args[1])], call.ty, with_ctx=True)


def _spread(packed: ir.Expr) -> tuple[ir.Expr, ...]:
    if not isinstance(packed, ir.Tuple):
        raise LoweringError("the arguments of a closure must be written out", where=packed.span, found=str(packed))
    return packed.fields


@_LOWER.on("to_vdevice", "hint_on_device")
def _to_vdevice(call: ir.Call) -> ir.Expr:
    where = as_vdevice(call.attrs["dst_vdevice"])
    place = _device_of(where)
    return call_builtin("vm.builtin.to_device", [call.args[0], place.device_type, place.device_id])


@_LOWER.on("print")
def _print(call: ir.Call) -> ir.Expr:
    return call_builtin("weft.run.print", [call.attrs.get("format", ""), *call.args])


@_LOWER.on("assert_op")
def _assert_op(call: ir.Call) -> ir.Expr:
    return call_builtin("weft.run.assert_op", [call.args[0], call.attrs.get("format", ""), *call.args[1:]])
