"""The compiler's operators that are instructions: memory, shapes, kernels, copies between devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft import error, ir, registry
from weft.relay.expr import Call, Constant, GlobalVar, Tuple
from weft.relay.vm.function_code import FunctionCode, I

Rule = Callable[[Call, FunctionCode, int | None], int | None]

OPERATORS: registry.Registry[Rule] = registry.Registry()
"""By the operator's name; a rule that returns None has no result but the empty tuple."""


@OPERATORS.on("vm.invoke_tvm_op")
def _invoke_packed(call: Call, code: FunctionCode, dst: int | None) -> None:
    kernel, inputs, outputs = call.args
    if not isinstance(kernel, GlobalVar):
        raise error.LoweringError("vm.invoke_tvm_op calls a TIR function of the module", found=type(kernel).__name__)
    outs = _fields(outputs, code)
    args = [*_fields(inputs, code), *outs]
    code.emit(I.invoke_packed(code.unit.primitive(kernel), len(args), len(outs), args))


def _fields(arg: ir.Expr, code: FunctionCode) -> list[int]:
    """The values of a tuple's fields; a tuple from elsewhere is one value, whose fields the machine passes."""
    if isinstance(arg, Tuple):
        return code.values(arg.fields)
    value = code.value(arg)
    return code.tuples.get(value, [value])


@OPERATORS.on("vm.shape_of")
def _shape_of(call: Call, code: FunctionCode, dst: int | None) -> int:
    tensor = code.value(call.args[0])
    value = code.new() if dst is None else dst
    code.emit(I.shape_of(tensor, value))
    return value


@OPERATORS.on("vm.reshape_tensor")
def _reshape_tensor(call: Call, code: FunctionCode, dst: int | None) -> int:
    tensor, shape = code.values(call.args)
    value = code.new() if dst is None else dst
    code.emit(I.reshape_tensor(tensor, shape, value))
    return value


@OPERATORS.on("memory.alloc_storage")
def _alloc_storage(call: Call, code: FunctionCode, dst: int | None) -> int:
    size = code.value(call.args[0])
    value, attrs = code.new() if dst is None else dst, call.attrs
    code.emit(I.alloc_storage(size, attrs["alignment"], attrs["dtype"], attrs["device_index"], value))
    return value


@OPERATORS.on("memory.alloc_tensor")
def _alloc_tensor(call: Call, code: FunctionCode, dst: int | None) -> int:
    attrs: Any = call.attrs
    storage, shape = call.args
    held = code.value(storage)
    known = attrs["const_shape"]
    if known is None and isinstance(shape, Constant):
        known = tuple(int(d) for d in shape.data.numpy())
    at = None if known is not None else code.value(shape)
    value = code.new() if dst is None else dst
    if at is not None:
        code.emit(I.alloc_tensor_reg(held, attrs["offset"], at, attrs["dtype"], value))
    else:
        code.emit(I.alloc_tensor(held, attrs["offset"], known or (), attrs["dtype"], value))
    return value


@OPERATORS.on("memory.kill")
def _kill(call: Call, code: FunctionCode, dst: int | None) -> None:
    """No code: registers are let go where their last use is."""


@OPERATORS.on("on_device")
def _on_device(call: Call, code: FunctionCode, dst: int | None) -> int:
    data = call.args[0]
    if not isinstance(data, Constant):
        return code.value(data, dst)
    value = code.new() if dst is None else dst
    code.emit(I.load_const(code.unit.constants.add(data.data, int(call.attrs["device"])), value))
    return value


@OPERATORS.on("annotation.stop_fusion")
def _stop_fusion(call: Call, code: FunctionCode, dst: int | None) -> int:
    return code.value(call.args[0], dst)


@OPERATORS.on("device_copy")
def _device_copy(call: Call, code: FunctionCode, dst: int | None) -> int:
    source = code.value(call.args[0])
    value, attrs = code.new() if dst is None else dst, call.attrs
    code.emit(I.device_copy(source, int(attrs["src_device"]), int(attrs["dst_device"]), value))
    return value
