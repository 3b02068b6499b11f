"""Types of Relax expressions: of calls by operator rule or by unifying a function's parameters with the arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, ir
from weft.error import ShapeMismatch, TypeInferenceError
from weft.op import equal_dims, get_op_def, list_ops
from weft.relax.core_ops import CORE_OPS, from_type_args, shape_of
from weft.relax.expr import SeqExpr


def type_of(expr: ir.Expr) -> ir.Type:
    """Return the type of a typed expression or atom.

    Raises
    ------
    TypeInferenceError
        When it has none yet.
    """
    ty = expr.ty if expr.ty is not None else _ATOM(expr)  # type: ignore[attr-defined]
    if ty is None:
        raise TypeInferenceError(f"the type of '{getattr(expr, 'name_hint', expr)}' is not known", where=expr.span)
    return ty


_ATOM = ir.Dispatch("type of an atom", (ir.Expr,), default=lambda e: None)


@_ATOM.on(ir.ShapeExpr)
def _shape_atom(e: ir.ShapeExpr) -> ir.Type:
    return ir.ShapeType(e.values, len(e.values))


@_ATOM.on(ir.PrimValue)
def _prim_atom(e: ir.PrimValue) -> ir.Type:
    return ir.PrimType(e.value.dtype, e.value)


@_ATOM.on(ir.Constant)
def _constant_atom(e: ir.Constant) -> ir.Type:
    return ir.tensor_type(tuple(int(d) for d in e.data.shape), str(e.data.dtype))


@_ATOM.on(ir.Tuple)
def _tuple_atom(e: ir.Tuple) -> ir.Type:
    return ir.TupleType(tuple(type_of(f) for f in e.fields))


@_ATOM.on(ir.ExternFunc)
def _extern_atom(e: ir.ExternFunc) -> ir.Type:
    return ir.PackedFuncType()


@_ATOM.on(ir.GlobalVar, ir.ExprStringImm, ir.DataTypeImm)
def _opaque_atom(e: ir.Expr) -> ir.Type:
    return ir.AnyType()  # of a kernel as a value, too: those who call it say what it gives


@_ATOM.on(ir.TupleGetItem)
def _get_item_atom(e: ir.TupleGetItem) -> ir.Type:
    ty = type_of(e.tuple_value)
    if isinstance(ty, ir.TupleType):
        if not 0 <= e.index < len(ty.fields):
            raise TypeInferenceError(
                f"tuple index {e.index} is out of range", expected=f"0..{len(ty.fields) - 1}", where=e.span
            )
        return ty.fields[e.index]
    return ir.AnyType()


@_ATOM.on(ir.Function)
def _function_atom(e: ir.Function) -> ir.Type:
    return function_type(e)


@_ATOM.on(SeqExpr)
def _seq_atom(e: SeqExpr) -> ir.Type:
    return type_of(e.body)


@_ATOM.on(ir.If)
def _if_atom(e: ir.If) -> ir.Type:
    return merge_types(type_of(e.true_branch), type_of(e.false_branch))


def get_shape_of(expr: ir.Expr) -> ir.Expr:
    """Return the shape of a tensor: its dimensions where its type has them, else the operation that takes it."""
    ty = infer_call(expr) if isinstance(expr, ir.Call) and expr.ty is None else type_of(expr)
    if not isinstance(ty, ir.TensorType):
        raise TypeInferenceError("only a tensor has a shape", found=str(ty), where=expr.span)
    return shape_of(expr) if ty.shape is None else ir.shape_expr(ty.shape)


def function_type(func: ir.BaseFunc) -> ir.Type:
    """Return the type of a function from its parameters and result."""
    if isinstance(func, ir.Function):
        return ir.FuncType(tuple(p.ty or ir.AnyType() for p in func.params), func.ret_ty or ir.AnyType(), func.is_pure)
    if isinstance(func, ir.ExternFunc):
        return ir.PackedFuncType()
    return func.ty_of_references or ir.AnyType()


def result_type(declared: ir.Type | None, found: ir.Type | None) -> ir.Type | None:
    """Return the type of a function's result: that of its body, on declared devices, where it implies the other."""
    if declared is None or found is None or ir.structural_equal(declared, found):
        return found if declared is None else declared
    implied = isinstance(declared, ir.AnyType) or ir.structural_equal(merge_types(declared, found), declared)
    return _on_devices_of(declared, found) if implied else declared


def _on_devices_of(declared: ir.Type, found: ir.Type) -> ir.Type:
    if isinstance(declared, ir.TupleType) and isinstance(found, ir.TupleType):
        return ir.TupleType(tuple(map(_on_devices_of, declared.fields, found.fields)))
    where = getattr(declared, "vdevice", None)
    return found if where is None else _on_device(found, where)


def typed_call(call: ir.Call) -> ir.Call:
    """Return a call with the type that it has."""
    return ir.Call(call.op, call.args, call.attrs, call.ty_args, ty=infer_call(call))


def infer_call(call: ir.Call, module: ir.IRModule | None = None) -> ir.Type:
    """Infer the type of a call whose arguments have types.

    Parameters
    ----------
    module : IRModule, optional
        Where functions called by global variable are found.
    """
    op = call.op
    if isinstance(op, ir.Op):
        name = op.name.removeprefix("relax.")
        core = CORE_OPS.get(name)
        if core is not None:
            return core[0](call)
        definition = get_op_def(op)
        return _placed(definition.infer(*call.args, **dict(call.attrs.items)), call)
    if isinstance(op, ir.ExternFunc):
        return from_type_args(call)
    if isinstance(op, ir.GlobalVar) and module is not None and op in module:
        ty: ir.Type | None = function_type(module[op])
    else:
        ty = op.ty  # type: ignore[attr-defined]
    return derive_call_type(ty, call) if isinstance(ty, ir.FuncType) else ir.AnyType()


@ir.default_op_attr("FInferType")
def _own_rule(op: ir.Op) -> Callable[[ir.Call, object], ir.Type] | None:
    known = op.name.startswith("relax.") and (op.name[6:] in CORE_OPS or op.name[6:] in list_ops())
    return (lambda call, context: infer_call(call)) if known else None


def _placed(ty: ir.Type, call: ir.Call) -> ir.Type:
    """Put results on the virtual device of the arguments, where these have one."""
    flat = [a for arg in call.args for a in (arg.fields if isinstance(arg, ir.Tuple) else (arg,))]
    types = [a.ty for a in flat if isinstance(a, ir.ExprVar)]
    where = next((t.vdevice for t in types if isinstance(t, ir.TensorType) and t.vdevice is not None), None)
    return ty if where is None else _on_device(ty, where)


def _on_device(ty: ir.Type, where: ir.VDevice) -> ir.Type:
    if isinstance(ty, ir.TensorType) and ty.vdevice is None:
        return ir.TensorType(ty.shape, ty.dtype, ty.ndim, where)
    return ir.TupleType(tuple(_on_device(f, where) for f in ty.fields)) if isinstance(ty, ir.TupleType) else ty


def derive_call_type(ty: ir.FuncType, call: ir.Call) -> ir.Type:
    """Return the result type of calling a function of type `ty`, its symbolic dimensions bound by the arguments.

    Raises
    ------
    TypeInferenceError
        When the number or a kind of argument is wrong.
    ShapeMismatch
        When a constant dimension disagrees.
    """
    if ty.params is None:
        return ty.ret
    if len(ty.params) != len(call.args):
        name, expected = getattr(call.op, "name_hint", "function"), str(len(ty.params))
        found = str(len(call.args))
        raise TypeInferenceError(f"{name}: wrong number of arguments", expected=expected, found=found, where=call.span)
    binding: dict[ir.Var, Any] = {}
    for param, arg in zip(ty.params, call.args, strict=True):
        bind_type(param, type_of(arg), binding, call)
    return ir.substitute(ty.ret, binding)


def bind_type(param: ir.Type, arg: ir.Type, binding: dict[ir.Var, Any], call: ir.Call) -> None:
    """Bind the symbolic sizes of a parameter's type to those of an argument's; what is constant must agree."""
    if isinstance(param, ir.TensorType) and isinstance(arg, ir.TensorType):
        if param.dtype and arg.dtype and param.dtype != arg.dtype:
            raise TypeInferenceError(
                "argument has another data type", expected=param.dtype, found=arg.dtype, where=call.span
            )
        if param.shape is not None and arg.shape is not None:
            unify_dims(param.shape, arg.shape, binding, call)
    elif isinstance(param, ir.ShapeType) and isinstance(arg, ir.ShapeType):
        if param.values is not None and arg.values is not None:
            unify_dims(param.values, arg.values, binding, call)
    elif isinstance(param, ir.TupleType) and isinstance(arg, ir.TupleType) and len(param.fields) == len(arg.fields):
        for p, a in zip(param.fields, arg.fields, strict=True):
            bind_type(p, a, binding, call)
    elif (
        isinstance(param, ir.PrimType)
        and isinstance(arg, ir.PrimType)
        and isinstance(param.value, ir.Var)
        and arg.value is not None
    ):
        binding.setdefault(param.value, arg.value)


def unify_dims(
    params: tuple[Any, ...], args: tuple[Any, ...], binding: dict[ir.Var, Any], call: ir.Call | None = None
) -> None:
    """Bind the symbolic dimensions of `params` to those of `args`; constants must agree."""
    if len(params) != len(args):
        raise ShapeMismatch(
            "argument has another rank", expected=str(len(params)), found=str(len(args)), where=call and call.span
        )
    analyzer = arith.Analyzer()
    for p, a in zip(params, args, strict=True):
        if isinstance(p, ir.Var) and p not in binding:
            binding[p] = a
        elif analyzer.can_prove(ir.substitute(p, binding) != a):
            raise ShapeMismatch(
                "argument has another dimension", expected=str(p), found=str(a), where=call and call.span
            )


def same_shape(a: Sequence[ir.PrimExpr] | None, b: Sequence[ir.PrimExpr] | None) -> bool:
    """Whether two shapes are known and provably equal."""
    return a is not None and b is not None and len(a) == len(b) and all(map(equal_dims, a, b))


def merge_types(a: ir.Type, b: ir.Type) -> ir.Type:
    """Return the narrowest type that holds both: the type of an If."""
    if a is b or ir.structural_equal(a, b):
        return a
    if isinstance(a, ir.TensorType) and isinstance(b, ir.TensorType):
        dtype = a.dtype if a.dtype == b.dtype else ""
        ndim = a.ndim if a.ndim == b.ndim else -1
        if same_shape(a.shape, b.shape):
            return ir.TensorType(a.shape, dtype, ndim, a.vdevice)
        return ir.TensorType(None, dtype, ndim)
    if isinstance(a, ir.ShapeType) and isinstance(b, ir.ShapeType):
        return ir.ShapeType(None, a.ndim if a.ndim == b.ndim else -1)
    if isinstance(a, ir.TupleType) and isinstance(b, ir.TupleType) and len(a.fields) == len(b.fields):
        return ir.TupleType(tuple(merge_types(x, y) for x, y in zip(a.fields, b.fields, strict=True)))
    if isinstance(a, ir.PrimType) and isinstance(b, ir.PrimType) and a.dtype == b.dtype:
        return ir.PrimType(a.dtype)
    return ir.AnyType()
