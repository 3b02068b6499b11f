"""From Relax values to te tensors and back: how operators and ``emit_te`` become TIR functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir import Expr, IterVar, Let, Node, PrimValue, ShapeExpr, TensorType, Tuple, Var, tensor_type, walk
from weft.te import Tensor as TETensor
from weft.te import create_prim_func, placeholder
from weft.tir import Buffer, For, LetStmt, PrimFunc

__all__ = ["prim_func_from_te", "undefined_vars"]


def prim_func_from_te(
    func: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], index_dtype: str | None = None
) -> tuple[Any, list[Expr], list[TensorType], list[Any]]:
    """Make a TIR function by running a te function on placeholders for Relax values.

    Parameters
    ----------
    index_dtype : str, optional
        The data type of loop variables, where it is not that of the sizes.

    Returns
    -------
    (prim_func, inputs, out_types, tir_vars)
        What :func:`call_tir` needs; `tir_vars` are symbolic variables that the buffers' shapes do not determine.
    """
    inputs: list[Expr] = []
    tensors: list[TETensor] = []

    def to_te(value: Any) -> Any:
        if isinstance(value, ShapeExpr):
            return value.values
        if isinstance(value, PrimValue):
            return value.value
        if isinstance(value, (list, tuple)):
            return type(value)(to_te(v) for v in value)
        if isinstance(value, Mapping):
            return {k: to_te(v) for k, v in value.items()}
        if isinstance(value, Tuple):
            return tuple(to_te(f) for f in value.fields)
        ty = getattr(value, "ty", None)
        if isinstance(value, Expr) and isinstance(ty, TensorType):
            if ty.shape is None or not ty.dtype:
                raise InvalidArgument(
                    "a te function needs tensors of known shape and data type",
                    found=str(ty),
                    help="use match_cast first",
                )
            for known, tensor in zip(inputs, tensors, strict=True):
                if known is value:
                    return tensor
            tensor = placeholder(ty.shape, ty.dtype, name=getattr(value, "name_hint", "A"))
            inputs.append(value)
            tensors.append(tensor)
            return tensor
        return value

    te_args = [to_te(a) for a in args]
    out = func(*te_args, **{k: to_te(v) for k, v in kwargs.items()})
    outs = list(out) if isinstance(out, (list, tuple)) else [out]
    prim = create_prim_func([*tensors, *outs], index_dtype)
    extra = undefined_vars(prim)
    if extra:
        prim = prim.replace(params=(*prim.params, *extra))
    return prim, inputs, [tensor_type(o.shape, o.dtype) for o in outs], extra


def undefined_vars(func: PrimFunc) -> list[Var]:
    """List the scalar variables that a function uses without a definition, in order of first use.

    Parameters, loop and block variables, pointers of buffers, and dimensions of parameter buffers that are bare
    variables count as
    defined.
    """
    defined: set[Node] = set(func.params)
    for _, buffer in func.buffer_map:
        defined.update(buffer.shape)
    used: list[Var] = []
    for node in walk(func.body):
        if isinstance(node, For):
            defined.add(node.loop_var)
        elif isinstance(node, (IterVar, LetStmt, Let)):
            defined.add(node.var)
        elif isinstance(node, Buffer):
            defined.add(node.data)
        elif isinstance(node, Var):
            used.append(node)
    for _, buffer in func.buffer_map:
        used.extend(v for d in buffer.shape for v in _vars(d))
    return [v for v in dict.fromkeys(used) if v not in defined]


def _vars(node: Node) -> list[Var]:
    return [v for v in walk(node) if isinstance(v, Var)]
