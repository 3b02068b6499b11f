"""Operators on memory: storages, tensors in them, views of tensors, and the machine's own forms of these."""

from __future__ import annotations

from math import prod
from typing import Any

from weft import arith, error, ir
from weft.relax.core_ops import as_dtype, as_relax, as_shape_value, core_op, tensor_operand
from weft.relax.vocabulary import Dims, Value


def _call(name: str, *args: ir.Expr) -> ir.Call:
    return ir.Call(ir.Op.get("relax." + name), args)


def vm_alloc_storage(
    shape: Dims, runtime_device_index: int | ir.Expr, dtype: str | ir.Expr, storage_scope: str | ir.Expr = "global"
) -> ir.Call:
    """Allocate a storage of a shape (``relax.vm.alloc_storage``), as the machine's function takes its arguments."""
    args = (as_shape_value(shape), as_relax(runtime_device_index), as_dtype(dtype), as_relax(storage_scope))
    return _call("vm.alloc_storage", *args)


def vm_alloc_tensor(
    storage: ir.Expr, offset: int | ir.Expr, shape: Dims, dtype: str | ir.Expr, runtime_device_ind: int | ir.Expr = 0
) -> ir.Call:
    """Make a tensor in a storage (``relax.vm.alloc_tensor``), as the machine's function takes its arguments."""
    args = (storage, as_relax(offset), as_shape_value(shape), as_dtype(dtype), as_relax(runtime_device_ind))
    return _call("vm.alloc_tensor", *args)


def kill_object(obj: ir.Expr) -> ir.Call:
    """Let a register forget its object."""
    return _call("vm.kill_object", obj)


def kill_storage(storage: ir.Expr) -> ir.Call:
    """Say that nobody uses a storage any more."""
    return _call("memory.kill_storage", storage)


def kill_tensor(tensor: ir.Expr) -> ir.Call:
    """Say that nobody uses a tensor any more."""
    return _call("memory.kill_tensor", tensor)


def vm_call_tir_dyn(func: ir.Expr | str, args: Value) -> ir.Call:
    """Call a kernel whose last argument is a shape value, the values of which it takes as scalars."""
    callee = ir.ExternFunc(func) if isinstance(func, str) else func
    return _call("vm.call_tir_dyn", callee, as_relax(args))


def view(
    data: ir.Expr,
    shape: Dims | None = None,
    dtype: str | ir.Expr | None = None,
    relative_byte_offset: int | ir.Expr | None = None,
) -> ir.Call:
    """See the memory of a tensor as another one, which may begin further behind.

    Parameters
    ----------
    shape, dtype : optional
        By default those of the tensor.
    relative_byte_offset : int or Expr, optional
        Where it begins, counted from the first element.
    """
    nothing = ir.Tuple((), ty=ir.TupleType(()))
    dims, kind = nothing if shape is None else as_shape_value(shape), nothing if dtype is None else as_dtype(dtype)
    offset = nothing if relative_byte_offset is None else as_relax(relative_byte_offset)
    return _call("memory.view", data, dims, kind, offset)


def ensure_zero_offset(data: ir.Expr) -> ir.Call:
    """Return the tensor itself where it begins at the start of its memory, else a copy."""
    return _call("memory.ensure_zero_offset", data)


def stop_lift_params(x: ir.Expr) -> ir.Call:
    """Return the value itself; what is computed of it is no part of a function that prepares parameters."""
    return _call("builtin.stop_lift_params", x)


# --- type rules -------------------------------------------------------------------------------------------------------


core_op("builtin.stop_lift_params", "memory.ensure_zero_offset")(tensor_operand)


def _is_nothing(value: ir.Expr) -> bool:
    return isinstance(value.ty, ir.TupleType) and not value.ty.fields


@core_op("memory.view")
def _view_type(call: ir.Call) -> ir.Type:
    _, shape, dtype, offset = call.args
    ty = tensor_operand(call, "view")
    if not (_is_nothing(shape) or isinstance(shape.ty, ir.ShapeType)):
        raise error.TypeInferenceError("view: the shape is no shape value", found=str(shape.ty), where=call.span)
    if not (_is_nothing(dtype) or isinstance(dtype, ir.DataTypeImm) or isinstance(dtype.ty, ir.AnyType)):
        raise error.TypeInferenceError("view: the data type is none", found=str(dtype.ty), where=call.span)
    if not (_is_nothing(offset) or (isinstance(offset.ty, ir.PrimType) and offset.ty.dtype == "int64")):
        raise error.TypeInferenceError("view: the offset is no int64", found=str(offset.ty), where=call.span)
    element = ty.dtype if _is_nothing(dtype) else dtype.value if isinstance(dtype, ir.DataTypeImm) else ""
    dims, ndim = (ty.shape, ty.ndim) if _is_nothing(shape) else (shape.ty.values, shape.ty.ndim)
    result = ir.TensorType(dims, element, ndim if dims is None else len(dims), ty.vdevice)
    _check_view(call, ty, result, offset)
    return result


def _check_view(call: ir.Call, old: ir.TensorType, new: ir.TensorType, offset: ir.Expr) -> None:
    """Refuse a view that is known to leave the memory of its tensor."""
    start = 0 if _is_nothing(offset) else ir.as_int(offset.value) if isinstance(offset, ir.PrimValue) else None
    if start is not None and start < 0:
        raise error.TypeInferenceError("view: the offset is negative", found=str(start), where=call.span)
    unit = "bytes" if old.dtype else "elements"
    apart = bool(old.dtype) != bool(new.dtype)
    sized = [(t, (ir.DataType(t.dtype).bits + 7) // 8 if t.dtype else 1) for t in (old, new)]
    counts: list[Any] = [
        None if t.shape is None or apart else prod(t.shape, start=ir.const(w, "int64")) for t, w in sized
    ]
    same = old.shape is new.shape and old.dtype == new.dtype
    behind = same and start if None in counts else arith.Analyzer().can_prove((start or 0) + counts[1] - counts[0] > 0)
    if behind:
        raise error.ShapeMismatch(
            "view: it does not lie inside of the tensor",
            expected=f"at most {counts[0]} {unit}",
            found=f"{counts[1]} {unit} behind the first {start or 0}",
            where=call.span,
        )
