"""FlexibleShapeDispatch and ChangeBatch: a program for other extents of an axis than those it was written for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec.structs import replace

from weft import ir
from weft.error import InvalidArgument
from weft.relay.expr import Call, Function, GlobalVar, If, Let, Tuple, TupleGetItem, Var, const
from weft.relay.infer import infer_module
from weft.relay.op.registry import op_call
from weft.relay.op.slice import pad, strided_slice
from weft.relay.types import Any as AnyDim
from weft.relay.types import TensorType, TupleType
from weft.relay.walk import rewrite
from weft.spelling import also_called


def FlexibleShapeDispatch(
    buckets: Sequence[int],
    axis: int = 0,
    auto_pad: bool = False,
    pad_value: float = 0,
    input_indices: Sequence[int] | None = None,
    affects_output: bool = True,
) -> ir.Pass:
    """Make the pass that lets ``main`` take any extent of an axis; some extents get functions of constant shapes.

    Parameters
    ----------
    buckets : sequence of int
        The extents that get a function of their own, ``main_4`` for 4. Others are computed by ``main_dynamic``.
    axis : int
        The axis of the inputs, and of the outputs.
    auto_pad : bool
        Whether inputs of another extent are padded to the next larger bucket, and outputs cut again.
    pad_value : float
        What they are padded with.
    input_indices : sequence of int, optional
        The parameters that have the axis; by default the first.
    affects_output : bool
        Whether outputs have the axis, too. Where they have not, padding reaches the result.

    Raises
    ------
    InvalidArgument
        When a parameter that is named is no tensor, or has no such axis, or a bucket is not positive.

    Source: TVM's ``FlexibleShapeDispatch``.
    """

    def dispatch(mod: ir.IRModule) -> ir.IRModule:
        return flexible_dispatch(mod, buckets, axis, auto_pad, pad_value, input_indices, affects_output)

    return ir.Pass("FlexibleShapeDispatch", dispatch, 0, FlexibleShapeDispatch.__doc__)


@also_called(tensor_type="ty")
def override_shape(ty: ir.Type, axis: int, dim: int | ir.PrimExpr) -> ir.Type:
    """Return a type with another dimension; of a tuple, in each field that has the axis."""
    if isinstance(ty, ir.TupleType):
        return TupleType(tuple(override_shape(f, axis, dim) for f in ty.fields))
    if not isinstance(ty, ir.TensorType) or ty.shape is None or not -len(ty.shape) <= axis < len(ty.shape):
        raise InvalidArgument(
            f"there is no axis {axis}",
            found=str(ty),
            expected="a tensor that has it",
            help="see input_indices and affects_output",
        )
    shape = list(ty.shape)
    shape[axis] = dim  # type: ignore[call-overload]
    return TensorType(tuple(shape), ty.dtype)


def flexible_dispatch(
    mod: ir.IRModule,
    buckets: Sequence[int],
    axis: int = 0,
    auto_pad: bool = False,
    pad_value: float = 0,
    input_indices: Sequence[int] | None = None,
    affects_output: bool = True,
) -> ir.IRModule:
    """Do what :func:`FlexibleShapeDispatch` does with a module."""
    if any(b <= 0 for b in buckets):
        raise InvalidArgument("FlexibleShapeDispatch: buckets are positive", found=str(list(buckets)))
    out = infer_module(mod).copy()
    main: Any = out["main"]
    indices = [0] if input_indices is None else list(input_indices)
    inside = [i for i in indices if not 0 <= i < len(main.params)]
    if inside:
        raise InvalidArgument(
            f"FlexibleShapeDispatch: there is no parameter {inside[0]}", expected=f"0 to {len(main.params) - 1}"
        )
    result = main.ret_type if main.ret_type is not None else main.body.ty

    def special(dim: Any, name: str) -> Callable[..., Call]:
        params = [
            Var(p.name_hint, override_shape(p.ty, axis, dim) if i in indices else p.ty)
            for i, p in enumerate(main.params)
        ]
        body = _untyped(main.body, dict(zip(main.params, params, strict=True)))
        ret = override_shape(result, axis, dim) if affects_output else result
        gvar = GlobalVar(f"main_{name}")
        out[gvar] = Function(tuple(params), body, ret, main.type_params)
        return lambda args: Call(gvar, args)

    fallback = special(AnyDim(), "dynamic")
    params = tuple(
        Var(p.name_hint, override_shape(p.ty, axis, AnyDim()) if i in indices else p.ty)
        for i, p in enumerate(main.params)
    )
    at = axis % len(main.params[indices[0]].ty.shape)
    n = Var("n")
    body: Any = fallback(params)
    for bucket in sorted(set(buckets), reverse=True):
        call = special(ir.int64(bucket), str(bucket))
        args: list[Any] = list(params)
        for i in indices:
            shape = [int(d) for d in override_shape(main.params[i].ty, axis, bucket).shape]  # type: ignore[attr-defined]
            full = _padded(args[i], len(shape), axis, bucket, n, pad_value) if auto_pad else args[i]
            args[i] = op_call("reshape", full, newshape=tuple(shape))
        value: Any = call(tuple(args))
        if auto_pad and affects_output:
            value = _cut(value, result, axis, n)
        body = If(op_call("less_equal" if auto_pad else "equal", n, const(bucket, "int64")), value, body)
    extent = op_call("take", op_call("shape_of", params[indices[0]], dtype="int64"), const(at, "int64"), axis=0)
    ret = override_shape(result, axis, AnyDim()) if affects_output else result
    out["main"] = Function(params, Let(n, extent, body), ret, main.type_params, main.attrs)
    return infer_module(out)


def ChangeBatch(data: Mapping[Any, int], batch_size: int = 16) -> ir.Pass:
    """Make the pass that gives parameters of functions another extent of an axis.

    Parameters
    ----------
    data : mapping of Var to int
        The axis of each parameter that changes.
    batch_size : int
        The new extent.

    Source: TVM's ``ChangeBatch``.
    """

    def change(mod: ir.IRModule) -> ir.IRModule:
        def of(func: Any) -> Any:
            if type(func) is not Function or not any(p in data for p in func.params):
                return func
            params: tuple[Any, ...] = func.params
            new = {
                p: Var(p.name_hint, override_shape(p.ty, data[p], batch_size) if p in data else p.ty) for p in params
            }
            return Function(tuple(new.values()), _untyped(func.body, new), None, func.type_params, func.attrs)

        return infer_module(mod.with_functions({v: of(f) for v, f in mod.items()}))

    return ir.Pass("ChangeBatch", change, 0, ChangeBatch.__doc__)


def _untyped(body: ir.Expr, params: Mapping[Any, Var]) -> ir.Expr:
    """Copy an expression whose types follow from other parameters."""
    new: dict[Any, Any] = dict(params)

    def rule(e: ir.Expr) -> Any:
        if type(e) not in (Call, Tuple, TupleGetItem, If, Let):
            return e
        return replace(e, var=new[e.var], ty=None) if type(e) is Let else replace(e, ty=None)

    def named(var: Var, _: object) -> None:
        new[var] = Var(var.name_hint)

    return rewrite(body, rule, pre=lambda e: new.get(e) if type(e) is Var else None, on_let=named)


def _padded(x: ir.Expr, ndim: int, axis: int, bucket: int, n: Var, value: float) -> Any:
    """Pad an axis to the extent of a bucket."""
    where = np.zeros((ndim, 2), "int64")
    where[axis, 1] = 1
    width = op_call("multiply", const(where), op_call("subtract", const(bucket, "int64"), n))
    return pad(x, width, value)


def _cut(value: Any, ty: ir.Type, axis: int, n: Var) -> Any:
    """Take as much of each output as there was input."""
    if isinstance(ty, ir.TupleType):
        whole = Var("outputs")
        fields = (_cut(TupleGetItem(whole, i), f, axis, n) for i, f in enumerate(ty.fields))
        return Let(whole, value, Tuple(tuple(fields)))
    end = op_call("reshape", n, newshape=(1,))
    return strided_slice(value, const(np.zeros(1, "int64")), end, const(np.ones(1, "int64")), axes=[axis])
