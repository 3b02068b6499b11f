"""Operators that belong to the Relax language itself: calls into other levels, shape values, memory, checks.

Tensor operators live in ``weft.op``, shared with Relay; these here carry their type rule beside their constructor. A
rule gets the call, whose arguments already have types.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from weft.error import InvalidArgument, TypeInferenceError
from weft.ir import (
    AnyType,
    Attrs,
    Call,
    DataType,
    DataTypeImm,
    Expr,
    ExprStringImm,
    ExternFunc,
    FuncType,
    GlobalVar,
    IntImm,
    Op,
    PrimType,
    PrimValue,
    ShapeExpr,
    ShapeType,
    TensorType,
    Tuple,
    TupleType,
    Type,
    VDevice,
    constant,
    prim_value,
    shape_expr,
    tensor_type,
)

__all__ = [
    "CORE_OPS", "alloc_storage", "alloc_tensor", "as_relax", "as_vdevice", "assert_op", "call_builtin",
    "call_builtin_with_ctx", "call_dps_packed", "call_inplace_packed", "call_packed", "call_pure_packed", "call_tir",
    "call_tir_inplace", "const", "dynamic_strided_slice", "hint_on_device", "index_bounds", "invoke_closure",
    "invoke_pure_closure", "is_op", "make_closure", "null_value", "print_", "shape_of", "shape_to_tensor",
    "tensor_to_shape", "to_vdevice",
]  # fmt: skip

TypeRule = Callable[[Call], Type]
CORE_OPS: dict[str, tuple[TypeRule, bool]] = {}
"""Name to (type rule, purity)."""


def _core(name: str, *, pure: bool = True) -> Callable[[TypeRule], TypeRule]:
    def register(rule: TypeRule) -> TypeRule:
        CORE_OPS[name] = (rule, pure)
        return rule

    return register


def is_op(expr: Any, name: str) -> bool:
    """Whether `expr` is a call of the operator ``relax.<name>``."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == "relax." + name


def const(value: Any, dtype: str | None = None) -> Any:
    """Make a tensor constant (TVM's ``relax.const``)."""
    return constant(value, dtype)


def as_relax(value: Any) -> Expr:
    """Convert Python values to graph-level expressions: numbers, strings, lists (tuples), shapes."""
    if isinstance(value, Expr):
        return value
    if isinstance(value, str):
        return ExprStringImm(value, ty=AnyType())
    if isinstance(value, (list, tuple)):
        return Tuple(tuple(as_relax(v) for v in value))
    if callable(value) or isinstance(value, ModuleType):  # some have attributes that arrays have
        raise InvalidArgument("no value", expected="an expression, array, number, string or tuple", found=repr(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return constant(value)
    return prim_value(value)


def _as_args(args: Any) -> Tuple | Expr:
    if isinstance(args, (list, tuple)):
        return Tuple(tuple(as_relax(a) for a in args))
    return args if isinstance(args, Tuple) or isinstance(getattr(args, "ty", None), TupleType) else Tuple((args,))


def _out_type(out: Any) -> tuple[Type, ...]:
    outs = tuple(out) if isinstance(out, (list, tuple)) else (out,)
    return outs if len(outs) == 1 else (TupleType(outs),)


def call_tir(gvar: GlobalVar | ExternFunc, args: Any, out_ty: Any, tir_vars: Any = None) -> Call:
    """Call a TIR function in destination-passing style.

    Parameters
    ----------
    gvar : GlobalVar
        The function; its parameters are the inputs, then the outputs, then the scalars of `tir_vars`.
    args : list of Expr
        The inputs.
    out_ty : TensorType or list of them
        The outputs that are allocated for the call.
    tir_vars : ShapeExpr or list of PrimExpr, optional
        Scalar arguments.
    """
    extra = () if tir_vars is None else (tir_vars if isinstance(tir_vars, Expr) else shape_expr(tir_vars),)
    return Call(Op.get("relax.call_tir"), (gvar, _as_args(args), *extra), ty_args=_out_type(out_ty))


def call_tir_inplace(gvar: GlobalVar, args: Any, inplace_indices: Any, out_ty: Any, tir_vars: Any = None) -> Call:
    """Call a TIR function that writes its result into some of its inputs.

    ``inplace_indices[i]`` is the input that output i overwrites, or -1 for a fresh output.
    """
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    call = call_tir(gvar, args, out_ty, tir_vars)
    return Call(Op.get("relax.call_tir_inplace"), call.args, Attrs.of(inplace_indices=indices), call.ty_args)


def call_dps_packed(func: Any, args: Any, out_ty: Any) -> Call:
    """Call a packed function in destination-passing style: inputs, then freshly allocated outputs."""
    extern = ExternFunc(func) if isinstance(func, str) else func
    return Call(Op.get("relax.call_dps_packed"), (extern, _as_args(args)), ty_args=_out_type(out_ty))


def call_packed(func: str | ExternFunc, *args: Any, ty_args: Any = None, sinfo_args: Any = None) -> Call:
    """Call a packed function for its result and its effects."""
    extern = ExternFunc(func) if isinstance(func, str) else func
    types = ty_args if ty_args is not None else sinfo_args
    types = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return Call(extern, tuple(as_relax(a) for a in args), ty_args=types)


def call_pure_packed(func: str | ExternFunc, *args: Any, ty_args: Any = None, sinfo_args: Any = None) -> Call:
    """Call a packed function that is known to have no effects."""
    call: Any = call_packed(func, *args, ty_args=ty_args, sinfo_args=sinfo_args)
    return Call(Op.get("relax.call_pure_packed"), (call.op, *call.args), ty_args=call.ty_args)


def call_builtin(name: str, args: Sequence[Any], out_ty: Any = None, *, with_ctx: bool = False) -> Call:
    """Call a function of the VM's runtime, with the VM itself as first argument where it asks for it."""
    types = () if out_ty is None else _out_type(out_ty)
    op = Op.get("relax.call_builtin_with_ctx" if with_ctx else "relax.call_builtin")
    return Call(op, (ExternFunc(name), Tuple(tuple(as_relax(a) for a in args))), ty_args=types)


def call_builtin_with_ctx(func: str | ExternFunc, args: Any, *, ty_args: Any = None, sinfo_args: Any = None) -> Call:
    """Call a function of the VM's runtime that takes the VM itself as its first argument."""
    extern = ExternFunc(func) if isinstance(func, str) else func
    types = ty_args if ty_args is not None else sinfo_args
    types = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return Call(Op.get("relax.call_builtin_with_ctx"), (extern, _as_args(args)), ty_args=types)


def call_inplace_packed(
    func: str | ExternFunc, *args: Any, inplace_indices: Any, ty_args: Any = None, sinfo_args: Any = None
) -> Call:
    """Call a packed function that changes some of its arguments, and has no other effects.

    ``inplace_indices[i]`` is the argument that result i is, or -1 for a fresh result. The arguments that it changes
    must not be used afterwards.

    Raises
    ------
    InvalidArgument
        When an index names no argument, or no argument is changed at all.
    """
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    wrong = [i for i in indices if not -1 <= i < len(args)]
    if wrong or not any(i >= 0 for i in indices):
        raise InvalidArgument(
            "call_inplace_packed: inplace_indices must name arguments",
            expected=f"-1..{len(args) - 1}, one of them not negative",
            found=str(indices),
            help="use call_pure_packed for a function that changes no argument",
        )
    call: Any = call_packed(func, *args, ty_args=ty_args, sinfo_args=sinfo_args)
    attrs = Attrs.of(inplace_indices=indices)
    return Call(Op.get("relax.call_inplace_packed"), (call.op, *call.args), attrs, call.ty_args)


def make_closure(func: Expr, args: Any = ()) -> Call:
    """Make a closure of a function of the module: `args` become its last arguments in each call.

    Parameters
    ----------
    func : GlobalVar
        The function.
    args : list of Expr or Tuple
        What is captured.
    """
    return Call(Op.get("relax.make_closure"), (func, _as_args(args)))


def invoke_closure(closure: Expr, args: Any = (), ty_args: Any = None) -> Call:
    """Call a closure that may have effects."""
    return _invoke("invoke_closure", closure, args, ty_args)


def invoke_pure_closure(closure: Expr, args: Any = (), ty_args: Any = None) -> Call:
    """Call a closure that has no effects."""
    return _invoke("invoke_pure_closure", closure, args, ty_args)


def _invoke(name: str, closure: Expr, args: Any, types: Any) -> Call:
    chosen = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return Call(Op.get("relax." + name), (closure, _as_args(args)), ty_args=chosen)


def hint_on_device(data: Expr, dst_vdevice: Any, memory_scope: str = "global") -> Call:
    """Say that a tensor lies on a device, whereto it is copied unless it does."""
    device = as_vdevice(dst_vdevice)
    device = VDevice(device.target, device.vdevice_id, memory_scope)
    return Call(Op.get("relax.hint_on_device"), (data,), Attrs.of(dst_vdevice=device))


def shape_of(x: Expr) -> Call:
    """Take the shape of a tensor as a shape value."""
    return Call(Op.get("relax.shape_of"), (x,))


def tensor_to_shape(x: Expr) -> Call:
    """Convert a 1-D int64 tensor to a shape value; use ``match_cast`` to name its dimensions."""
    return Call(Op.get("relax.tensor_to_shape"), (x,))


def index_bounds(x: Expr, places: int = 1) -> Call:
    """Take the least and the greatest integer of a tensor, as a shape value; 0 and -1 where it is empty.

    Parameters
    ----------
    x : Expr
        A tensor of integers.
    places : int
        1, or the last dimension of `x`: then the two are taken in each place of it, one pair after another.
    """
    return Call(Op.get("relax.index_bounds"), (x, prim_value(places)))


def shape_to_tensor(shape: Any) -> Call:
    """Convert a shape value to a 1-D int64 tensor."""
    return Call(Op.get("relax.shape_to_tensor"), (shape if isinstance(shape, Expr) else shape_expr(shape),))


def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> Call:
    """Take a part of a tensor, between bounds that tensors hold.

    Parameters
    ----------
    x : Expr
        A tensor of known rank.
    begin, end, strides : Expr
        ``(rank,) int64``, one bound for each axis; they follow NumPy's rules. ``match_cast`` names the dimensions of
        the result.
    """
    return Call(Op.get("relax.dynamic_strided_slice"), (x, begin, end, strides))


def null_value() -> Call:
    """Make the null value."""
    return Call(Op.get("relax.null_value"), ())


def print_(*values: Any, format: str = "") -> Call:
    """Print values at run time, by a Python format string or one after another."""
    return Call(Op.get("relax.print"), tuple(as_relax(v) for v in values), Attrs.of(format=format))


def assert_op(condition: Any, format_args: Any = (), format: Any = "") -> Call:
    """Raise an AssertionError at run time unless `condition`, a scalar bool, holds."""
    extra = format_args if isinstance(format_args, (list, tuple)) else (format_args,)
    return Call(
        Op.get("relax.assert_op"), (as_relax(condition), *(as_relax(a) for a in extra)), Attrs.of(format=format)
    )


def as_vdevice(value: Any) -> VDevice:
    """Make a virtual device of itself, of a string such as ``cuda:1`` or ``llvm:0:global``, or of a device."""
    if isinstance(value, VDevice):
        return value
    kind, *rest = str(value).removeprefix("device(").rstrip(")").split(":")
    if not kind or len(rest) > 2 or (rest and not rest[0].isdigit()):
        raise InvalidArgument(
            "a virtual device has the form 'target:index:scope'", expected="such as 'cuda:1'", found=repr(value)
        )
    return VDevice("llvm" if kind == "cpu" else kind, int(rest[0]) if rest else 0, *rest[1:])


def to_vdevice(x: Expr, dst_vdevice: Any) -> Call:
    """Copy a tensor to a virtual device, given as such or by name (``cuda:1``)."""
    return Call(Op.get("relax.to_vdevice"), (x,), Attrs.of(dst_vdevice=as_vdevice(dst_vdevice)))


def alloc_tensor(shape: Any, dtype: str, runtime_device_index: int = 0, storage_scope: str = "global") -> Call:
    """Allocate a tensor (``relax.builtin.alloc_tensor``), before memory is planned."""
    shape = shape if isinstance(shape, Expr) else shape_expr(shape)
    args = (
        shape,
        DataTypeImm(dtype, ty=AnyType()),
        prim_value(runtime_device_index),
        ExprStringImm(storage_scope, ty=AnyType()),
    )
    return Call(Op.get("relax.builtin.alloc_tensor"), args)


def alloc_storage(
    size: Any, virtual_device_index: int = 0, storage_scope: str = "global", dtype: str = "uint8"
) -> Call:
    """Allocate a block of `size` (a 1-element shape, bytes)."""
    size = size if isinstance(size, Expr) else shape_expr(size)
    args = (
        size,
        prim_value(virtual_device_index),
        ExprStringImm(storage_scope, ty=AnyType()),
        DataTypeImm(dtype, ty=AnyType()),
    )
    return Call(Op.get("relax.memory.alloc_storage"), args)


def storage_tensor(storage: Expr, offset: Any, shape: Any, dtype: str) -> Call:
    """Make a tensor (``relax.memory.alloc_tensor``) inside a storage block, `offset` bytes from its start."""
    shape = shape if isinstance(shape, Expr) else shape_expr(shape)
    return Call(
        Op.get("relax.memory.alloc_tensor"), (storage, prim_value(offset), shape, DataTypeImm(dtype, ty=AnyType()))
    )


# --- type rules -------------------------------------------------------------------------------------------------------


@_core("call_tir")
@_core("call_tir_inplace")
@_core("call_dps_packed")
@_core("call_pure_packed")
@_core("call_inplace_packed")
def _from_type_args(call: Call) -> Type:
    if not call.ty_args:
        return AnyType()
    return call.ty_args[0] if len(call.ty_args) == 1 else TupleType(call.ty_args)


@_core("make_closure")
def _closure_type(call: Call) -> Type:
    """The type of the function without the parameters that are captured."""
    ty = call.args[0].ty
    captured = call.args[1].ty if call.args[1].ty is not None else call.args[1]
    fields = getattr(captured, "fields", None)
    if not isinstance(ty, FuncType) or ty.params is None or fields is None:
        return AnyType()
    if len(fields) > len(ty.params):
        raise TypeInferenceError(
            "make_closure: more values are captured than the function has parameters",
            expected=f"at most {len(ty.params)}",
            found=str(len(fields)),
            where=call.span,
        )
    return FuncType(ty.params[: len(ty.params) - len(fields)], ty.ret, ty.purity)


@_core("invoke_closure", pure=False)
@_core("invoke_pure_closure")
def _invoked_type(call: Call) -> Type:
    ty = call.args[0].ty
    return _from_type_args(call) if call.ty_args or not isinstance(ty, FuncType) else ty.ret


@_core("call_builtin", pure=False)
@_core("call_builtin_with_ctx", pure=False)
def _builtin_type(call: Call) -> Type:
    return _from_type_args(call)


@_core("shape_of")
def _shape_of_type(call: Call) -> Type:
    ty = call.args[0].ty
    if isinstance(ty, TensorType):
        return ShapeType(ty.shape, ty.ndim)
    return ShapeType(None, -1)


@_core("tensor_to_shape")
def _tensor_to_shape_type(call: Call) -> Type:
    ty = call.args[0].ty
    if isinstance(ty, TensorType) and ty.ndim not in (-1, 1):
        raise TypeInferenceError("tensor_to_shape: needs a 1-D tensor", expected="ndim 1", found=f"ndim {ty.ndim}")
    length = ty.shape[0] if isinstance(ty, TensorType) and ty.shape is not None else None
    return ShapeType(None, length.value if isinstance(length, IntImm) else -1)


@_core("index_bounds")
def _index_bounds_type(call: Call) -> Type:
    ty = call.args[0].ty
    if isinstance(ty, TensorType) and ty.dtype and not DataType(ty.dtype).is_integer:
        raise TypeInferenceError("index_bounds: needs a tensor of integers", expected="integers", found=str(ty.dtype))
    places: Any = call.args[1].value
    return ShapeType(None, 2 * places.value if isinstance(places, IntImm) else -1)


@_core("shape_to_tensor")
def _shape_to_tensor_type(call: Call) -> Type:
    ty = call.args[0].ty
    ndim = ty.ndim if isinstance(ty, ShapeType) else -1
    return tensor_type((ndim,) if ndim >= 0 else None, "int64", ndim=1)


@_core("dynamic_strided_slice")
def _dynamic_slice_type(call: Call) -> Type:
    ty = call.args[0].ty
    if not isinstance(ty, TensorType):
        raise TypeInferenceError("dynamic_strided_slice: x is no tensor", found=str(ty), where=call.span)
    for name, arg in zip(("begin", "end", "strides"), call.args[1:], strict=True):
        bound = arg.ty
        length = bound.shape[0] if isinstance(bound, TensorType) and bound.shape and bound.ndim == 1 else None
        if (
            not isinstance(bound, TensorType)
            or bound.dtype not in ("int64", "")
            or bound.ndim not in (1, -1)
            or (isinstance(length, IntImm) and ty.ndim >= 0 and length.value != ty.ndim)
        ):
            raise TypeInferenceError(
                f"dynamic_strided_slice: {name} has one int64 for each axis of x", where=call.span,
                expected=f"R.Tensor(({ty.ndim if ty.ndim >= 0 else 'rank'},), 'int64')", found=str(bound),
            )  # fmt: skip
    return TensorType(None, ty.dtype, ty.ndim)


@_core("null_value")
def _any_type(call: Call) -> Type:
    return AnyType()


@_core("print", pure=False)
@_core("assert_op", pure=False)
@_core("vm.call_tir_dyn", pure=False)
@_core("memory.kill_storage", pure=False)
@_core("memory.kill_tensor", pure=False)
@_core("vm.kill_object", pure=False)
def _unit_type(call: Call) -> Type:
    return TupleType(())


@_core("to_vdevice")
@_core("hint_on_device")
def _moved_type(call: Call) -> Type:
    ty = call.args[0].ty
    return TensorType(ty.shape, ty.dtype, ty.ndim, call.attrs["dst_vdevice"]) if isinstance(ty, TensorType) else ty


@_core("builtin.alloc_tensor", pure=False)
def _alloc_tensor_type(call: Call) -> Type:
    return _tensor_of(call.args[0], call.args[1])


@_core("memory.alloc_storage", pure=False)
def _alloc_storage_type(call: Call) -> Type:
    return AnyType()


@_core("memory.alloc_tensor", pure=False)
def _storage_tensor_type(call: Call) -> Type:
    return _tensor_of(call.args[2], call.args[3])


def _tensor_of(shape: Any, dtype: Any) -> Type:
    if isinstance(shape, ShapeExpr):
        return TensorType(shape.values, dtype.value, len(shape.values))
    ndim = shape.ty.ndim if isinstance(shape.ty, ShapeType) else -1
    return TensorType(shape.ty.values if isinstance(shape.ty, ShapeType) else None, dtype.value, ndim)


def prim_of(expr: Expr) -> Any:
    """Return the scalar expression behind a PrimValue or a value of PrimType, or None."""
    if isinstance(expr, PrimValue):
        return expr.value
    return expr.ty.value if isinstance(expr.ty, PrimType) else None  # type: ignore[attr-defined]
