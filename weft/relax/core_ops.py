"""Operators that belong to the Relax language itself: calls into other levels, shape values, memory, checks.

Tensor operators live in ``weft.op``, shared with Relay; these here carry their type rule beside their constructor. A
rule gets the call, whose arguments already have types.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any

import numpy as np

from weft import ir
from weft.error import InvalidArgument, TypeInferenceError
from weft.relax.vocabulary import Dims, Places, Types, Value, VirtualDevice
from weft.spelling import also_called

TypeRule = Callable[[ir.Call], ir.Type]
CORE_OPS: dict[str, tuple[TypeRule, bool]] = {}
"""Name to (type rule, purity)."""


def core_op(*names: str, pure: bool = True) -> Callable[[TypeRule], TypeRule]:
    """Register the type rule of operators of the language: ``@core_op("shape_of")``."""

    def register(rule: TypeRule) -> TypeRule:
        CORE_OPS.update(dict.fromkeys(names, (rule, pure)))
        return rule

    return register


def is_op(expr: object, name: str) -> bool:
    """Whether `expr` is a call of the operator ``relax.<name>``."""
    return isinstance(expr, ir.Call) and isinstance(expr.op, ir.Op) and expr.op.name == "relax." + name


def as_relax(value: object) -> ir.Expr:
    """Convert Python values to graph-level expressions: numbers, strings, lists (tuples), shapes."""
    if isinstance(value, ir.Expr):
        return value
    if isinstance(value, str):
        return ir.ExprStringImm(value, ty=ir.AnyType())
    if isinstance(value, (list, tuple)):
        return ir.Tuple(tuple(as_relax(v) for v in value))
    if callable(value) or isinstance(value, ModuleType):  # some have attributes that arrays have
        raise InvalidArgument("no value", expected="an expression, array, number, string or tuple", found=repr(value))
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return ir.constant(value)  # type: ignore[arg-type]
    return ir.prim_value(value)  # type: ignore[arg-type]


def as_dtype(dtype: str | ir.Expr) -> ir.Expr:
    """Make a data type value of a name, or of one that is there."""
    return dtype if isinstance(dtype, ir.Expr) else ir.DataTypeImm(ir.DataType(str(dtype)), ty=ir.AnyType())


def as_shape_value(shape: Dims | ir.PrimExpr | int) -> ir.Expr:
    """Make a shape value of dimensions, of one dimension, or of a shape value that is there."""
    if isinstance(shape, ir.Expr):
        return shape
    return ir.shape_expr(shape if isinstance(shape, (list, tuple)) else (shape,))  # type: ignore[arg-type]


def _as_args(args: Any) -> ir.Tuple | ir.Expr:
    if isinstance(args, (list, tuple)):
        return ir.Tuple(tuple(as_relax(a) for a in args))
    whole = isinstance(args, ir.Tuple) or isinstance(getattr(args, "ty", None), ir.TupleType)
    return args if whole else ir.Tuple((args,))


def _out_type(out: Any) -> tuple[ir.Type, ...]:
    outs = tuple(out) if isinstance(out, (list, tuple)) else (out,)
    return outs if len(outs) == 1 else (ir.TupleType(outs),)


@also_called(out_sinfo="out_ty")
def call_tir(gvar: ir.GlobalVar | ir.ExternFunc, args: Value, out_ty: Types, tir_vars: Dims | None = None) -> ir.Call:
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
    extra = () if tir_vars is None else (tir_vars if isinstance(tir_vars, ir.Expr) else ir.shape_expr(tir_vars),)
    return ir.Call(ir.Op.get("relax.call_tir"), (gvar, _as_args(args), *extra), ty_args=_out_type(out_ty))


@also_called(out_sinfo="out_ty")
def call_tir_inplace(
    gvar: ir.GlobalVar, args: Value, inplace_indices: Places, out_ty: Types, tir_vars: Dims | None = None
) -> ir.Call:
    """Call a TIR function that writes its result into some of its inputs.

    ``inplace_indices[i]`` is the input that output i overwrites, or -1 for a fresh output.
    """
    indices = (inplace_indices,) if isinstance(inplace_indices, int) else tuple(inplace_indices)
    if isinstance(args, ir.ExprVar) and isinstance(args.ty, ir.TupleType):
        help = "write the tuple where it is given, so that its elements are known"
        raise InvalidArgument("call_tir_inplace takes tensors, or a tuple of them", found=args.name_hint, help=help)
    call = call_tir(gvar, args, out_ty, tir_vars)
    _check_places(call, indices)
    return ir.Call(ir.Op.get("relax.call_tir_inplace"), call.args, ir.Attrs.of(inplace_indices=indices), call.ty_args)


def _check_places(call: ir.Call, indices: tuple[int, ...]) -> None:
    """Refuse results without a place of their own, or whose place is no tensor."""
    operands: Any = call.args[1]
    results = [t for ty in call.ty_args for t in (ty.fields if isinstance(ty, ir.TupleType) else (ty,))]
    places = [i for i in indices if i >= 0]
    count = len(operands.fields)
    if not places or len(set(places)) < len(places) or max(places) >= count or len(indices) != len(results):
        raise InvalidArgument(
            "inplace_indices names an operand for each result, each operand once, or -1",
            expected=f"{len(results)} of -1..{count - 1}, one of them an operand",
            found=str(indices),
        )
    for i, ty in zip(indices, results, strict=True):
        found = operands.fields[i].ty if i >= 0 else None
        if found is not None and (contradict(found, ty) or not isinstance(found, ir.TensorType)):
            raise InvalidArgument(
                "only a tensor of the result's type is written in place",
                expected=str(ty),
                found=f"operand {i}, which is {found}",
            )


@also_called(out_sinfo="out_ty")
def call_tir_with_grad(
    gvar: ir.GlobalVar,
    args: Value,
    out_ty: Types,
    te_grad_name: str,
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: Dims | None = None,
) -> ir.Call:
    """Call a TIR function that ``Gradient`` goes through by a registered te function, with further arguments."""
    call = call_tir(gvar, args, out_ty, tir_vars)
    attrs = ir.Attrs.of(te_grad_name=te_grad_name, te_grad_kwargs=dict(te_grad_kwargs or {}))
    return ir.Call(ir.Op.get("relax.call_tir_with_grad"), call.args, attrs, call.ty_args)


@also_called(out_sinfo="out_ty")
def call_dps_packed(func: str | ir.Expr, args: Value, out_ty: Types) -> ir.Call:
    """Call a packed function in destination-passing style: inputs, then freshly allocated outputs."""
    extern = ir.ExternFunc(func) if isinstance(func, str) else func
    return ir.Call(ir.Op.get("relax.call_dps_packed"), (extern, _as_args(args)), ty_args=_out_type(out_ty))


def call_packed(func: str | ir.ExternFunc, *args: Any, ty_args: Types = None, sinfo_args: Types = None) -> ir.Call:
    """Call a packed function for its result and its effects."""
    extern = ir.ExternFunc(func) if isinstance(func, str) else func
    types = ty_args if ty_args is not None else sinfo_args
    types = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return ir.Call(extern, tuple(as_relax(a) for a in args), ty_args=types)


def call_pure_packed(func: str | ir.ExternFunc, *args: Any, ty_args: Types = None, sinfo_args: Types = None) -> ir.Call:
    """Call a packed function that is known to have no effects."""
    call: Any = call_packed(func, *args, ty_args=ty_args, sinfo_args=sinfo_args)
    return ir.Call(ir.Op.get("relax.call_pure_packed"), (call.op, *call.args), ty_args=call.ty_args)


def call_py_func(func_name: str | ir.Expr, args: Value, out_ty: Types) -> ir.Call:
    """Call a Python function of the module (see ``BasePyModule``), by its name."""
    if not isinstance(func_name, (str, ir.ExprStringImm)):
        raise InvalidArgument("Expected the name of a Python function", found=repr(func_name))
    return ir.Call(ir.Op.get("relax.call_py_func"), (as_relax(func_name), _as_args(args)), ty_args=_out_type(out_ty))


def call_builtin(name: str, args: Sequence[Any], out_ty: Types = None, *, with_ctx: bool = False) -> ir.Call:
    """Call a function of the VM's runtime, with the VM itself as first argument where it asks for it."""
    types = () if out_ty is None else _out_type(out_ty)
    op = ir.Op.get("relax.call_builtin_with_ctx" if with_ctx else "relax.call_builtin")
    return ir.Call(op, (ir.ExternFunc(name), ir.Tuple(tuple(as_relax(a) for a in args))), ty_args=types)


def call_builtin_with_ctx(
    func: str | ir.ExternFunc, args: Value, *, ty_args: Types = None, sinfo_args: Types = None
) -> ir.Call:
    """Call a function of the VM's runtime that takes the VM itself as its first argument."""
    extern = ir.ExternFunc(func) if isinstance(func, str) else func
    types = ty_args if ty_args is not None else sinfo_args
    types = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return ir.Call(ir.Op.get("relax.call_builtin_with_ctx"), (extern, _as_args(args)), ty_args=types)


def call_inplace_packed(
    func: str | ir.ExternFunc, *args: ir.Expr, inplace_indices: Places, ty_args: Types = None, sinfo_args: Types = None
) -> ir.Call:
    """Call a packed function that changes some of its arguments, and has no other effects.

    ``inplace_indices[i]`` is the argument that result i is, or -1 for a fresh result; an InvalidArgument where none is
    changed, or one is named that is not there. The arguments that it changes must not be used afterwards.
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
    attrs = ir.Attrs.of(inplace_indices=indices)
    return ir.Call(ir.Op.get("relax.call_inplace_packed"), (call.op, *call.args), attrs, call.ty_args)


def make_closure(func: ir.Expr, args: Value = ()) -> ir.Call:
    """Make a closure of a function of the module: `args` become its last arguments in each call.

    Parameters
    ----------
    func : GlobalVar
        The function.
    args : list of Expr or Tuple
        What is captured.
    """
    return ir.Call(ir.Op.get("relax.make_closure"), (func, _as_args(args)))


@also_called(sinfo_args="ty_args")
def invoke_closure(closure: ir.Expr, args: Value = (), ty_args: Types = None) -> ir.Call:
    """Call a closure that may have effects."""
    return _invoke("invoke_closure", closure, args, ty_args)


@also_called(sinfo_args="ty_args")
def invoke_pure_closure(closure: ir.Expr, args: Value = (), ty_args: Types = None) -> ir.Call:
    """Call a closure that has no effects."""
    return _invoke("invoke_pure_closure", closure, args, ty_args)


def _invoke(name: str, closure: ir.Expr, args: Any, types: Any) -> ir.Call:
    chosen = tuple(types) if isinstance(types, (list, tuple)) else () if types is None else (types,)
    return ir.Call(ir.Op.get("relax." + name), (closure, _as_args(args)), ty_args=chosen)


def hint_on_device(data: ir.Expr, dst_vdevice: VirtualDevice, memory_scope: str = "global") -> ir.Call:
    """Say that a tensor lies on a device, whereto it is copied unless it does."""
    device = as_vdevice(dst_vdevice)
    device = ir.VDevice(device.target, device.vdevice_id, memory_scope)
    return ir.Call(ir.Op.get("relax.hint_on_device"), (data,), ir.Attrs.of(dst_vdevice=device))


@also_called(expr="x")
def shape_of(x: ir.Expr) -> ir.Call:
    """Take the shape of a tensor as a shape value."""
    return ir.Call(ir.Op.get("relax.shape_of"), (x,))


@also_called(expr="x")
def tensor_to_shape(x: ir.Expr) -> ir.Call:
    """Convert a 1-D int64 tensor to a shape value; use ``match_cast`` to name its dimensions."""
    return ir.Call(ir.Op.get("relax.tensor_to_shape"), (x,))


def index_bounds(x: ir.Expr, places: int = 1) -> ir.Call:
    """Take the least and the greatest integer of a tensor, as a shape value; 0 and -1 where it is empty.

    Parameters
    ----------
    x : Expr
        A tensor of integers.
    places : int
        1, or the last dimension of `x`: then the two are taken in each place of it, one pair after another.
    """
    return ir.Call(ir.Op.get("relax.index_bounds"), (x, ir.prim_value(places)))


def bounds_of(values: np.ndarray, places: int) -> tuple[int, ...]:
    """Compute what :func:`index_bounds` means."""
    columns = values.reshape(-1, places).T
    return tuple(int(v) for c in columns for v in ((c.min(), c.max()) if c.size else (0, -1)))


@also_called(expr="shape")
def shape_to_tensor(shape: Dims) -> ir.Call:
    """Convert a shape value to a 1-D int64 tensor."""
    return ir.Call(ir.Op.get("relax.shape_to_tensor"), (as_shape_value(shape),))


def dynamic_strided_slice(x: ir.Expr, begin: ir.Expr, end: ir.Expr, strides: ir.Expr) -> ir.Call:
    """Take a part of a tensor, between bounds that tensors hold.

    Parameters
    ----------
    x : Expr
        A tensor of known rank.
    begin, end, strides : Expr
        ``(rank,) int64``, one bound for each axis; they follow NumPy's rules. ``match_cast`` names the dimensions of
        the result.
    """
    return ir.Call(ir.Op.get("relax.dynamic_strided_slice"), (x, begin, end, strides))


def null_value() -> ir.Call:
    """Make the null value."""
    return ir.Call(ir.Op.get("relax.null_value"), ())


def print_(*values: Any, format: str = "") -> ir.Call:
    """Print values at run time, by a Python format string or one after another."""
    return ir.Call(ir.Op.get("relax.print"), tuple(as_relax(v) for v in values), ir.Attrs.of(format=format))


def assert_op(condition: Value, format_args: Value = (), format: str | ir.ExprStringImm = "") -> ir.Call:
    """Raise an AssertionError at run time unless `condition`, a scalar bool, holds."""
    extra = format_args if isinstance(format_args, (list, tuple)) else (format_args,)
    return ir.Call(ir.Op.get("relax.assert_op"), tuple(map(as_relax, (condition, *extra))), ir.Attrs.of(format=format))


def as_vdevice(value: VirtualDevice) -> ir.VDevice:
    """Make a virtual device of itself, of a string such as ``cuda:1`` or ``llvm:0:global``, or of a device.

    In a module that lists its devices, ``cuda:1`` is the second of the list whose target is of that kind, and
    ``vdevice:1`` the second of all.
    """
    if isinstance(value, ir.VDevice):
        return value
    kind, *rest = str(value).removeprefix("device(").rstrip(")").split(":")
    if not kind or len(rest) > 2 or (rest and not rest[0].isdigit()):
        raise InvalidArgument(
            "a virtual device has the form 'target:index:scope'", expected="such as 'cuda:1'", found=repr(value)
        )
    kind, index = "llvm" if kind == "cpu" else kind, int(rest[0]) if rest else 0
    listed = ir.Ambient.current_of("vdevice") if isinstance(value, str) else None
    if not listed:
        return ir.VDevice(kind, index, *rest[1:])
    alike = [d for d in listed if kind in (d.kind, "vdevice") and d.memory_scope in (rest[1:] or [d.memory_scope])]
    if index >= len(alike):
        raise InvalidArgument(
            f"the module has no virtual device '{value}'",
            expected=f"a kind and the place among its devices, of {list(map(str, listed))}",
            help="add it to I.module_global_infos({'vdevice': [...]})",
        )
    return alike[index]


@also_called(data="x")
def to_vdevice(x: ir.Expr, dst_vdevice: VirtualDevice) -> ir.Call:
    """Copy a tensor to a virtual device, given as such or by name (``cuda:1``)."""
    return ir.Call(ir.Op.get("relax.to_vdevice"), (x,), ir.Attrs.of(dst_vdevice=as_vdevice(dst_vdevice)))


def alloc_tensor(
    shape: Dims, dtype: str | ir.Expr, runtime_device_index: Value = 0, storage_scope: Value = "global"
) -> ir.Call:
    """Allocate a tensor (``relax.builtin.alloc_tensor``), before memory is planned."""
    args = (as_shape_value(shape), as_dtype(dtype), as_relax(runtime_device_index), as_relax(storage_scope))
    return ir.Call(ir.Op.get("relax.builtin.alloc_tensor"), args)


def alloc_storage(
    size: Dims, virtual_device_index: Value = 0, storage_scope: Value = "global", dtype: str | ir.Expr = "uint8"
) -> ir.Call:
    """Allocate a block of `size` (a 1-element shape, bytes)."""
    args = (as_shape_value(size), as_relax(virtual_device_index), as_relax(storage_scope), as_dtype(dtype))
    return ir.Call(ir.Op.get("relax.memory.alloc_storage"), args)


def storage_tensor(
    storage: ir.Expr, offset: Value, shape: Dims, dtype: str | ir.Expr, runtime_device_index: Value = 0
) -> ir.Call:
    """Make a tensor (``relax.memory.alloc_tensor``) inside a storage block, `offset` bytes from its start.

    Its device is the block's, whatever `runtime_device_index` says, which programs of newer TVM give.
    """
    args = (storage, as_relax(offset), as_shape_value(shape), as_dtype(dtype))
    return ir.Call(ir.Op.get("relax.memory.alloc_tensor"), args)


# --- type rules -------------------------------------------------------------------------------------------------------


def contradict(a: ir.Type | None, b: ir.Type | None) -> bool:
    """Whether no value is of both types; what is not known, symbolic sizes included, contradicts nothing."""
    if a is b or a is None or b is None or isinstance(a, ir.AnyType) or isinstance(b, ir.AnyType):
        return False
    if isinstance(a, ir.TensorType) and isinstance(b, ir.TensorType):
        return bool(a.dtype and b.dtype and a.dtype != b.dtype) or _ranks(a.ndim, b.ndim) or _sizes(a.shape, b.shape)
    if isinstance(a, ir.TupleType) and isinstance(b, ir.TupleType):
        return len(a.fields) != len(b.fields) or any(map(contradict, a.fields, b.fields))
    if isinstance(a, ir.ShapeType) and isinstance(b, ir.ShapeType):
        return _ranks(a.ndim, b.ndim) or _sizes(a.values, b.values)
    if isinstance(a, ir.PrimType) and isinstance(b, ir.PrimType):
        return a.dtype != b.dtype
    kinds = (ir.TensorType, ir.TupleType, ir.ShapeType, ir.PrimType)
    return type(a) is not type(b) and isinstance(a, kinds) and isinstance(b, kinds)


def _ranks(a: int, b: int) -> bool:
    return a >= 0 and b >= 0 and a != b


def _sizes(a: Any, b: Any) -> bool:
    if a is None or b is None or len(a) != len(b):
        return False
    return any(
        isinstance(x, ir.IntImm) and isinstance(y, ir.IntImm) and x.value != y.value for x, y in zip(a, b, strict=True)
    )


@core_op("call_tir", "call_tir_with_grad", "call_dps_packed", "call_pure_packed", "call_py_func", "call_inplace_packed")
@core_op("call_builtin", "call_builtin_with_ctx", pure=False)
def from_type_args(call: ir.Call) -> ir.Type:
    """Return the type that a call says its result is of."""
    if not call.ty_args:
        return ir.AnyType()
    return call.ty_args[0] if len(call.ty_args) == 1 else ir.TupleType(call.ty_args)


@core_op("call_tir_inplace")
def _in_place_type(call: ir.Call) -> ir.Type:
    if isinstance(call.args[1], ir.Tuple):  # else it is checked in normal form
        _check_places(call, call.attrs["inplace_indices"])
    return from_type_args(call)


@core_op("make_closure")
def _closure_type(call: ir.Call) -> ir.Type:
    """The type of the function without the parameters that are captured."""
    ty = call.args[0].ty
    captured = call.args[1].ty if call.args[1].ty is not None else call.args[1]
    fields = getattr(captured, "fields", None)
    if not isinstance(ty, ir.FuncType) or ty.params is None or fields is None:
        return ir.AnyType()
    if len(fields) > len(ty.params):
        what, most = "make_closure: more values are captured than the function has parameters", len(ty.params)
        raise TypeInferenceError(what, expected=f"at most {most}", found=str(len(fields)), where=call.span)
    return ir.FuncType(ty.params[: len(ty.params) - len(fields)], ty.ret, ty.purity)


@core_op("invoke_closure", pure=False)
@core_op("invoke_pure_closure")
def _invoked_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    return from_type_args(call) if call.ty_args or not isinstance(ty, ir.FuncType) else ty.ret


@core_op("shape_of")
def _shape_of_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    if isinstance(ty, ir.TensorType):
        return ir.ShapeType(ty.shape, ty.ndim)
    return ir.ShapeType(None, -1)


@core_op("tensor_to_shape")
def _tensor_to_shape_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    if isinstance(ty, ir.TensorType) and ty.ndim not in (-1, 1):
        raise TypeInferenceError("tensor_to_shape: needs a 1-D tensor", expected="ndim 1", found=f"ndim {ty.ndim}")
    length = ty.shape[0] if isinstance(ty, ir.TensorType) and ty.shape is not None else None
    return ir.ShapeType(None, length.value if isinstance(length, ir.IntImm) else -1)


@core_op("index_bounds")
def _index_bounds_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    if isinstance(ty, ir.TensorType) and ty.dtype and not ir.DataType(ty.dtype).is_integer:
        raise TypeInferenceError("index_bounds: needs a tensor of integers", expected="integers", found=str(ty.dtype))
    value: Any = call.args[1]
    places = value.value
    return ir.ShapeType(None, 2 * places.value if isinstance(places, ir.IntImm) else -1)


@core_op("shape_to_tensor")
def _shape_to_tensor_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    ndim = ty.ndim if isinstance(ty, ir.ShapeType) else -1
    return ir.tensor_type((ndim,) if ndim >= 0 else None, "int64", ndim=1)


@core_op("dynamic_strided_slice")
def _dynamic_slice_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    if not isinstance(ty, ir.TensorType):
        raise TypeInferenceError("dynamic_strided_slice: x is no tensor", found=str(ty), where=call.span)
    for name, arg in zip(("begin", "end", "strides"), call.args[1:], strict=True):
        bound = arg.ty
        length = bound.shape[0] if isinstance(bound, ir.TensorType) and bound.shape and bound.ndim == 1 else None
        if (
            not isinstance(bound, ir.TensorType)
            or bound.dtype not in ("int64", "")
            or bound.ndim not in (1, -1)
            or (isinstance(length, ir.IntImm) and ty.ndim >= 0 and length.value != ty.ndim)
        ):
            raise TypeInferenceError(
                f"dynamic_strided_slice: {name} has one int64 for each axis of x",
                where=call.span,
                expected=f"R.Tensor(({ty.ndim if ty.ndim >= 0 else 'rank'},), 'int64')",
                found=str(bound),
            )
    return ir.TensorType(None, ty.dtype, ty.ndim)


@core_op("null_value")
@core_op("memory.alloc_storage", "vm.alloc_storage", pure=False)
def _any_type(call: ir.Call) -> ir.Type:
    return ir.AnyType()


@core_op(
    "print", "assert_op", "vm.call_tir_dyn", "memory.kill_storage", "memory.kill_tensor", "vm.kill_object", pure=False
)
def _unit_type(call: ir.Call) -> ir.Type:
    return ir.TupleType(())


@core_op("to_vdevice", "hint_on_device")
def _moved_type(call: ir.Call) -> ir.Type:
    ty = call.args[0].ty
    return ir.with_fields(ty, vdevice=call.attrs["dst_vdevice"]) if isinstance(ty, ir.TensorType) else ty


@core_op("builtin.alloc_tensor", pure=False)
def _alloc_tensor_type(call: ir.Call) -> ir.Type:
    return tensor_of(call.args[0], call.args[1])


@core_op("memory.alloc_tensor", "vm.alloc_tensor", pure=False)
def _storage_tensor_type(call: ir.Call) -> ir.Type:
    return tensor_of(call.args[2], call.args[3])


def tensor_operand(call: ir.Call, what: str = "the operator") -> ir.TensorType:
    """Return the type of the first operand, which has to be a tensor; `what` the call is, for the error."""
    ty: Any = call.args[0].ty  # type: ignore[attr-defined]
    if not isinstance(ty, ir.TensorType):
        raise TypeInferenceError(f"{what} needs a tensor", found=str(ty), where=call.span)
    return ty


def tensor_of(shape: ir.Expr, dtype: ir.Expr) -> ir.Type:
    """Return the type of a tensor that is made of a shape value and a data type value."""
    assert isinstance(dtype, ir.DataTypeImm)
    ty = shape.ty
    if isinstance(shape, ir.ShapeExpr):
        return ir.TensorType(shape.values, dtype.value, len(shape.values))
    dims, ndim = (ty.values, ty.ndim) if isinstance(ty, ir.ShapeType) else (None, -1)
    return ir.TensorType(dims, dtype.value, ndim)
