"""The names of ``R``: what Relax scripts are written in.

Types stand in ``annotation``. Names that are not defined here are operators: of the registry (``R.nn.softmax``), or
of the language itself (``R.memory.alloc_storage``), which take their operands as they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from weft import ir, runtime
from weft.error import InvalidArgument
from weft.ir import AnyType, Attrs, Constant, DataTypeImm, Expr, ExprStringImm, Op, Type, shape_expr
from weft.ir import Call as CallNode
from weft.ir import ExternFunc as ExternFuncNode
from weft.ir import ShapeExpr as ShapeExprNode
from weft.ir import Tuple as TupleNode
from weft.ir import TupleGetItem as TupleGetItemNode
from weft.ir.text.parser import MacroDecorator, ir_module
from weft.op import list_ops, make_call
from weft.relax import core_ops, data_ops, memory_ops
from weft.relax.ccl_ops import COLLECTIVES
from weft.relax.core_ops import CORE_OPS, as_relax
from weft.relax.dpl import PatternMatchingRewriter
from weft.relax.expr import Var as VarNode
from weft.relax.expr import const as tensor_constant
from weft.relax.op import masked_fill
from weft.relax.script.annotation import (
    Any_,
    Callable_,
    Note,
    PackedFunc,  # noqa: F401 - names of R
    Prim,  # noqa: F401
    Shape,  # noqa: F401
    Tensor,  # noqa: F401
    TupleOf,
    as_type,
)
from weft.relax.script.building import WORDS, BlockFrame, open_function
from weft.relax.vocabulary import Dims, Places, Value, VirtualDevice
from weft.topi.typing import Extent

macro = MacroDecorator()

ObjectType = Object = Any_


class Command(NamedTuple):
    """A statement that the parser acts on: ``dataflow``, ``output``, ``func_attr``, ``match_cast``, ``emit_te``."""

    kind: str
    value: Any


def dataflow() -> Command | BlockFrame:
    """Open a dataflow block."""
    frame = open_function()
    return Command("dataflow", None) if frame is None else BlockFrame(frame)


def output(*variables: Any) -> Command | None:
    """Name the variables of a dataflow block that are visible after it."""
    frame = open_function()
    if frame is None:
        return Command("output", variables)
    if frame.block is None:
        raise InvalidArgument("output belongs to a dataflow block", help="use `with R.dataflow():`")
    return frame.block.output(*variables)


def func_attr(attrs: dict[str, Any]) -> Command | None:
    """Set attributes of the function."""
    frame = open_function()
    said = ir.said(attrs)
    return Command("func_attr", said) if frame is None else frame.attrs.update(said)


def match_cast(value: Value, ty: Note) -> Command:
    """Check a value's type at run time; symbolic variables of `ty` that are new take their values from it."""
    return Command("match_cast", (as_relax(value), as_type(ty)))


def emit_te(func: Callable[..., Any], *args: Expr, primfunc_name_hint: str | None = None, **kwargs: Any) -> Command:
    """Call a te function, as a TIR function that is added to the module."""
    return Command("emit_te", (func, args, primfunc_name_hint, kwargs))


def const(data: object, dtype: str | None = None) -> Constant:
    """Make a tensor constant by TVM's rule: numbers and arrays of 64 bits become int32 and float32 by default."""
    return tensor_constant(data, dtype)


def rewriter(rewriter_mod: ir.IRModule | type) -> PatternMatchingRewriter:
    """Make a rewriter of a module, or of the class that this decorates: ``pattern`` becomes ``replacement``."""
    return PatternMatchingRewriter.from_module(ir_module(rewriter_mod, frame=sys._getframe(1)))


# --- values -----------------------------------------------------------------------------------------------------------


def shape(values: Sequence[Extent]) -> ShapeExprNode:
    """Make a shape value."""
    return shape_expr(values)


ShapeExpr = shape


def prim_value(value: Value | bool | float, dtype: str | None = None) -> Expr:
    """Make a scalar value; a variable of the graph that is one stays."""
    if isinstance(value, VarNode) and isinstance(value.ty, ir.PrimType):
        return value
    return ir.prim_value(value, dtype)  # type: ignore[arg-type]


def str_(value: str) -> ExprStringImm:
    """Make a string value."""
    return ExprStringImm(value, ty=AnyType())


def dtype(value: object) -> DataTypeImm:
    """Make a data type value."""
    return DataTypeImm(str(getattr(value, "dtype", value)), ty=AnyType())


def tuple_(*fields: Any) -> TupleNode:
    """Make a tuple."""
    return TupleNode(tuple(as_relax(f) for f in fields))


def TupleGetItem(value: Value, index: int) -> TupleGetItemNode:
    """Take an element of a tuple."""
    return TupleGetItemNode(as_relax(value), index)


def ExternFunc(name: str, attrs: Mapping[str, Any] | Attrs | Note = None, ty: Note = None) -> ExternFuncNode:
    """Refer to a packed function by its global name; a type, also in the second place, says what it takes and gives."""
    if attrs is not None and not isinstance(attrs, (Mapping, Attrs)):
        attrs, ty = None, attrs
    return ExternFuncNode(name, Attrs.of(attrs), ty=None if ty is None else as_type(ty))


def Var(name: str, ty: Note = None) -> VarNode:
    """Refer to a variable that the program does not introduce."""
    return VarNode(name, None if ty is None else as_type(ty))


def _types(types: Any) -> tuple[Type, ...]:
    if types is None:
        return ()
    return tuple(as_type(t) for t in types) if isinstance(types, (tuple, list)) else (as_type(types),)


def Call(
    op: str | Expr, args: Iterable[Value] = (), attrs: Mapping[str, Any] | Attrs | None = None, ty_args: Note = None
) -> CallNode:
    """Call an operator by its name, or any function, with operands as they are."""
    target = Op.get(op) if isinstance(op, str) else op
    return CallNode(target, tuple(as_relax(a) for a in args), Attrs.of(attrs), _types(ty_args))


def _out(out_ty: Any, out_sinfo: Any) -> Any:
    chosen = out_ty if out_ty is not None else out_sinfo
    if chosen is None:
        raise InvalidArgument("the type of the result is missing", help="out_ty=R.Tensor(shape, dtype)")
    return [as_type(t) for t in chosen] if isinstance(chosen, (list, tuple)) else as_type(chosen)


def call_tir(
    func: ir.GlobalVar, args: Value, out_ty: Note = None, tir_vars: Dims | None = None, *, out_sinfo: Note = None
) -> CallNode:
    """Call a TIR function in destination-passing style."""
    return core_ops.call_tir(func, args, _out(out_ty, out_sinfo), tir_vars)


def call_tir_inplace(
    func: ir.GlobalVar,
    args: Value,
    inplace_indices: Places,
    out_ty: Note = None,
    tir_vars: Dims | None = None,
    *,
    out_sinfo: Note = None,
) -> CallNode:
    """Call a TIR function that writes its result into inputs."""
    return core_ops.call_tir_inplace(func, args, inplace_indices, _out(out_ty, out_sinfo), tir_vars)


def call_tir_with_grad(
    func: ir.GlobalVar,
    args: Value,
    out_ty: Note = None,
    te_grad_name: str = "",
    te_grad_kwargs: Mapping[str, Any] | None = None,
    tir_vars: Dims | None = None,
    *,
    out_sinfo: Note = None,
) -> CallNode:
    """Call a TIR function that ``Gradient`` goes through by a registered te function."""
    return core_ops.call_tir_with_grad(func, args, _out(out_ty, out_sinfo), te_grad_name, te_grad_kwargs, tir_vars)


def call_py_func(func_name: str, args: Value, out_ty: Note = None, *, out_sinfo: Note = None) -> CallNode:
    """Call a Python function of the module by its name."""
    return core_ops.call_py_func(func_name, args, _out(out_ty, out_sinfo))


def call_dps_packed(func: str | Expr, args: Value, out_ty: Note = None, *, out_sinfo: Note = None) -> CallNode:
    """Call a packed function in destination-passing style."""
    return core_ops.call_dps_packed(func, args, _out(out_ty, out_sinfo))


def call_packed(
    func: str | ExternFuncNode, *args: Any, ty_args: Note = None, sinfo_args: Note = None, **attrs: Any
) -> CallNode:
    """Call a packed function for its result and its effects."""
    call = core_ops.call_packed(func, *args, ty_args=_types(ty_args if ty_args is not None else sinfo_args))
    return CallNode(call.op, call.args, Attrs.of(attrs), call.ty_args) if attrs else call


def call_pure_packed(func: str | ExternFuncNode, *args: Any, ty_args: Note = None, sinfo_args: Note = None) -> CallNode:
    """Call a packed function that has no effects."""
    return core_ops.call_pure_packed(func, *args, ty_args=_types(ty_args if ty_args is not None else sinfo_args))


def call_inplace_packed(
    func: str | ExternFuncNode, *args: Expr, inplace_indices: Places, ty_args: Note = None, sinfo_args: Note = None
) -> CallNode:
    """Call a packed function that changes some of its arguments."""
    types = _types(ty_args if ty_args is not None else sinfo_args)
    return core_ops.call_inplace_packed(func, *args, inplace_indices=inplace_indices, ty_args=types)


def invoke_closure(closure: Expr, args: Value = (), ty_args: Note = None, *, sinfo_args: Note = None) -> CallNode:
    """Call a closure that may have effects."""
    return core_ops.invoke_closure(closure, args, _types(ty_args if ty_args is not None else sinfo_args))


def invoke_pure_closure(closure: Expr, args: Value = (), ty_args: Note = None, *, sinfo_args: Note = None) -> CallNode:
    """Call a closure that has no effects."""
    return core_ops.invoke_pure_closure(closure, args, _types(ty_args if ty_args is not None else sinfo_args))


make_closure = core_ops.make_closure
to_vdevice = core_ops.to_vdevice


def hint_on_device(data: Expr, dst_vdevice: VirtualDevice, memory_scope: str | None = None) -> CallNode:
    """Say that a tensor lies on a device."""
    device = core_ops.as_vdevice(dst_vdevice)
    return core_ops.hint_on_device(data, device, memory_scope or device.memory_scope)


def _builtin(name: str) -> Any:
    def make(func: Any, args: Any = (), ty_args: Any = None, sinfo_args: Any = None) -> CallNode:
        extern = ExternFuncNode(func) if isinstance(func, str) else func
        types = _types(ty_args if ty_args is not None else sinfo_args)
        operands = args if isinstance(args, Expr) else TupleNode(tuple(as_relax(a) for a in args))
        return CallNode(Op.get("relax." + name), (extern, operands), ty_args=types)

    make.__doc__ = f"Build ``{name}``, a call of a function of the VM's runtime."
    return make


call_builtin = _builtin("call_builtin")
call_builtin_with_ctx = _builtin("call_builtin_with_ctx")


# --- operators --------------------------------------------------------------------------------------------------------


def _core(name: str) -> Any:
    """Return the constructor of an operator of the language itself."""
    defaults = {"format": ""} if name in ("print", "assert_op") else {}

    def make(*args: Any, **kwargs: Any) -> CallNode:
        return CallNode(Op.get("relax." + name), tuple(as_relax(a) for a in args), Attrs.of({**defaults, **kwargs}))

    make.__name__ = name.rsplit(".", 1)[-1]
    make.__doc__ = f"Build a call of ``relax.{name}``."
    return make


_CONSTRUCTORS: dict[str, Any] = {
    **COLLECTIVES,
    "builtin.alloc_tensor": core_ops.alloc_tensor,
    "masked_fill": masked_fill,
    "memory.alloc_storage": core_ops.alloc_storage,
    "memory.alloc_tensor": core_ops.storage_tensor,
    "memory.ensure_zero_offset": memory_ops.ensure_zero_offset,
    "memory.view": memory_ops.view,
    "nonzero": data_ops.nonzero,
    **{name: getattr(runtime, name) for name in ("cpu", "cuda", "device", "opencl", "vulkan")},
    "shape_to_tensor": core_ops.shape_to_tensor,
    "unique": data_ops.unique,
    "vm.alloc_storage": memory_ops.vm_alloc_storage,
    "vm.alloc_tensor": memory_ops.vm_alloc_tensor,
    "vm.call_tir_dyn": memory_ops.vm_call_tir_dyn,
}


class _Namespace:
    """Operators that share a prefix."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        full = self._prefix + name
        if full in _CONSTRUCTORS:
            return _CONSTRUCTORS[full]
        if full in CORE_OPS:
            return _core(full)
        names = list_ops()
        if full in names:
            return make_call(full)
        if any(n.startswith(full + ".") for n in (*names, *CORE_OPS)):
            return _Namespace(full + ".")
        near = [n for n in (*names, *CORE_OPS) if n.rsplit(".", 1)[-1][:4] == name[:4]]
        raise AttributeError(
            f"R has no operator '{full}'" + (f"; near names: {', '.join('R.' + n for n in near[:5])}" if near else "")
        )


_ROOT = _Namespace("")
_RENAMED = {"str": str_, "tuple": tuple_, "Tuple": TupleOf, "Callable": Callable_, "Any": Any_}


def named(name: str) -> Any:
    """Return what ``R.<name>`` is."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name in _RENAMED or name in WORDS:
        return _RENAMED.get(name) or WORDS[name]
    return globals()[name] if name in globals() else getattr(_ROOT, name)
