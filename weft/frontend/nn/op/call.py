"""Calls of what is no operator: functions of te and TIR, packed functions, and printing."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from weft import error, ir, relax, tir
from weft.frontend.nn.exporter import Exporter
from weft.frontend.nn.op.elementwise import cos, exp, multiply, sin
from weft.frontend.nn.op.manipulate import arange, concat, pad, unsqueeze
from weft.frontend.nn.tensor import Object, Tensor, apply, builder, caller, emit, unwrap_nested, wrap_nested

__all__ = [
    "IntExpr",
    "OutType",
    "debug_func",
    "extern",
    "get_timestep_embedding",
    "print_",
    "tensor_expr_op",
    "tensor_ir_inplace_op",
    "tensor_ir_op",
]

IntExpr = int | ir.PrimExpr
OutType = TypeVar("OutType")


def tensor_expr_op(
    tensor_expr_func: Callable[..., Any], name_hint: str, args: Sequence[Any], *, attrs: Mapping[str, Any] | None = None
) -> Any:
    """Compute by a function of tensor expressions.

    Parameters
    ----------
    tensor_expr_func : callable
        Takes te tensors and scalars, and returns te tensors.
    name_hint : str
        The name of the TIR function that becomes of it.
    args : list of Tensor, int or PrimExpr
        The arguments.
    attrs : mapping, optional
        Attributes of the TIR function.
    """
    call = builder().call_te(
        tensor_expr_func, *[unwrap_nested(a) for a in args], primfunc_name_hint=name_hint, primfunc_attrs=attrs
    )
    return wrap_nested(emit(call, name_hint), name_hint)


def tensor_ir_op(
    func: tir.PrimFunc, name_hint: str, args: Tensor | IntExpr | Sequence[Tensor | IntExpr], out: OutType
) -> OutType:
    """Compute by a TIR function.

    Parameters
    ----------
    func : PrimFunc
        Its parameters are the inputs, the outputs, then scalars; or scalars stand among the inputs.
    name_hint : str
        Its name in the module.
    args : Tensor, or list of Tensor and PrimExpr
        The inputs and the scalars.
    out : Tensor or list of Tensor
        Placeholders for the outputs.
    """
    inputs, scalars = _sorted_args(name_hint, func, args)
    gvar = builder().add_func(func, name_hint)
    call = relax.call_tir(gvar, inputs, _out_types(out), scalars or None)
    return wrap_nested(emit(call, name_hint), name_hint)


def tensor_ir_inplace_op(
    func: tir.PrimFunc,
    name_hint: str,
    args: Tensor | IntExpr | Sequence[Tensor | IntExpr],
    inplace_indices: int | Sequence[int],
    out: OutType,
) -> OutType:
    """Compute by a TIR function that writes into some of its inputs.

    Parameters
    ----------
    inplace_indices : int or list of int
        The input that each output is, or -1 for a fresh one; such an input must not be used afterwards.
    """
    inputs, scalars = _sorted_args(name_hint, func, args)
    gvar = builder().add_func(func, name_hint)
    call = relax.call_tir_inplace(gvar, inputs, inplace_indices, _out_types(out), scalars or None)
    return wrap_nested(emit(call, name_hint), name_hint)


def _sorted_args(name: str, func: tir.PrimFunc, args: Any) -> tuple[list[Any], list[Any]]:
    """Part what stands before the outputs of a TIR function from the scalars behind them."""
    values: list[Any] = []
    for a in args if isinstance(args, (list, tuple)) else [args]:
        if isinstance(a, ir.ShapeExpr):
            values += a.values
        elif isinstance(a, (Tensor, Object)):
            values.append(a._expr)
        elif isinstance(a, (int, ir.PrimExpr)):
            values.append(ir.as_expr(a, "int64"))
        else:
            raise error.InvalidArgument(
                f"'{name}': arguments are tensors and scalars", found=type(a).__name__, where=caller()
            )
    scalar = [isinstance(v, ir.PrimExpr) for v in values]
    if scalar == [func.buffer_of(p) is None for p in func.params[: len(values)]]:
        return [ir.prim_value(v) if s else v for v, s in zip(values, scalar, strict=True)], []
    first = scalar.index(True) if True in scalar else len(values)
    if not all(scalar[first:]):
        raise error.InvalidArgument(
            f"'{name}': tensors come first, then scalars, or all as the function has its parameters", where=caller()
        )
    return values[:first], values[first:]


def _out_types(out: Any) -> Any:
    if isinstance(out, Tensor):
        return out._expr.ty
    if isinstance(out, (list, tuple)) and out and all(isinstance(o, Tensor) for o in out):
        return [o._expr.ty for o in out]
    raise error.InvalidArgument(
        "out says what the results are",
        expected="nn.Tensor.placeholder(shape, dtype), or a list of such",
        found=repr(out),
        where=caller(),
    )


def extern(name: str, args: Sequence[Any], out: OutType) -> OutType:
    """Call a packed function that writes into its last arguments, the outputs.

    Parameters
    ----------
    name : str
        The function, which the registry or a linked library has at run time.
    args : list of Tensor, PrimExpr, int, float or str
        The arguments before the outputs.
    out : Tensor or list of Tensor
        Placeholders for the outputs.
    """
    call = relax.call_dps_packed(name, [unwrap_nested(a) for a in args], _out_types(out))
    return wrap_nested(emit(call, name), name)


def debug_func(name: str, *args: Any, _line_info: str | None = None) -> None:
    """Call a packed function with the place of this line and some values, when the program gets there.

    Parameters
    ----------
    name : str
        A function of the registry that takes the place, ``"file:line"``, and the values.

    Raises
    ------
    InvalidArgument
        When the module is exported without ``debug=True``.
    """
    io = Exporter.current().io_effect
    if io is None:
        raise error.InvalidArgument("printing and debugging are off", where=caller(), help="export with debug=True")
    if _line_info is None:
        place = caller()
        _line_info = f"{place.file}:{place.line}" if place is not None else "<unknown>"
    texts = [ir.ExprStringImm(text, ty=ir.AnyType()) for text in (name, _line_info)]
    values = [unwrap_nested(a) for a in args]
    io.emit_call(
        relax.call_pure_packed("vm.builtin.invoke_debug_func", io.effect, *texts, *values, ty_args=ir.AnyType())
    )


def print_(tensor: Tensor) -> None:
    """Print a tensor when the program gets there; the module is exported with ``debug=True``."""
    debug_func("vm.builtin.debug_print", tensor)


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Make sinusoidal embeddings of time steps, (n,) to (n, embedding_dim), as diffusion models do."""
    steps = unsqueeze(apply("astype", x, dtype="float32", name="steps"), 1)
    half = embedding_dim // 2
    exponent = arange(0, half, dtype="float32")
    exponent = multiply(Tensor.from_scalar(-math.log(max_period), "float32"), exponent)
    angles = steps * unsqueeze(exp(exponent / float(half - downscale_freq_shift)), 0)
    if scale != 1:
        angles = multiply(Tensor.from_scalar(scale, "float32"), angles)
    parts = [cos(angles), sin(angles)] if flip_sin_to_cos else [sin(angles), cos(angles)]
    out = concat(parts, -1)
    if embedding_dim % 2:
        out = pad(out, (0, 0, 0, 1))
    return apply("astype", out, dtype="float32", name=name)
