"""Operators on what a tensor says of itself at run time: data type, dimensions, strides, offset.

Each is a call of a function of the host that reads the tensor's DLPack structure (``register_op_attr``: FLegalize).
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from weft import error, ir, tir
from weft.relax.core_ops import as_relax, core_op

_FIELDS = {
    "tensor_dtype_code": (5, "uint8"),
    "tensor_dtype_bits": (6, "uint8"),
    "tensor_dtype_lanes": (7, "uint16"),
    "tensor_ndim": (4, "int32"),
    "tensor_byte_offset": (8, "int64"),
}
"""Fields of DLTensor, as ``tir.tvm_struct_get`` numbers them, and their types."""
_SHAPE, _STRIDES, _ELEMENT = 2, 3, 17
_INDEXED = ("tensor_shape_i", "tensor_stride_i")
_TYPES = {**{n: t for n, (_, t) in _FIELDS.items()}, "tensor_elem_offset": "int64", **dict.fromkeys(_INDEXED, "int64")}

_TENSOR, _AXIS = ir.Var("tensor", "handle"), ir.Var("axis", "int64")


def _maker(name: str) -> Callable[..., ir.Call]:
    def make(x: ir.Expr, *axis: int | ir.Expr) -> ir.Call:
        return ir.Call(ir.Op.get(f"relax.inspect.{name}"), (x, *map(as_relax, axis)))

    make.__name__, make.__doc__ = name, f"Read ``{name}`` of a tensor, as {_TYPES[name]}, when the program runs."
    return make


OPERATORS = {f"inspect.{name}": _maker(name) for name in _TYPES}
"""Constructors, by the name of the operator; those that end in ``_i`` take an axis."""


class _Axes:
    """What a tensor says of each of its dimensions."""

    def __init__(self, name: str, tensor: ir.Expr) -> None:
        self._name, self._tensor = name, tensor

    def __getitem__(self, axis: int | ir.Expr) -> ir.Call:
        return OPERATORS[self._name](self._tensor, axis)


def attribute_of(value: ir.ExprVar, name: str) -> Any:
    """Return what ``x.ndim``, ``x.dtype.bits`` or ``x.shape[i]`` is in a program, where `x` is a tensor."""
    if not isinstance(value.ty, ir.TensorType):
        return getattr(value, name)
    if name in ("shape", "strides"):
        return _Axes(f"inspect.tensor_{name.removesuffix('s')}_i", value)
    if name == "dtype":
        parts = {"type_code": "code", "bits": "bits", "lanes": "lanes"}
        return SimpleNamespace(**{k: OPERATORS[f"inspect.tensor_dtype_{v}"](value) for k, v in parts.items()})
    read = OPERATORS.get(f"inspect.tensor_{name}")
    return getattr(value, name) if read is None else read(value)


def _type(name: str) -> Callable[[ir.Call], ir.Type]:
    count = 2 if name in _INDEXED else 1

    def rule(call: ir.Call) -> ir.Type:
        types = [getattr(a, "ty", None) for a in call.args]
        if (
            len(types) != count
            or not isinstance(types[0], ir.TensorType)
            or (count == 2 and not isinstance(types[1], ir.PrimType))
        ):
            raise error.TypeInferenceError(
                f"inspect.{name}: wrong arguments",
                where=call.span,
                expected="a tensor" + " and an axis" * (count - 1),
                found=", ".join(map(str, types)),
            )
        axis = ir.as_int(getattr(call.args[-1], "value", None)) if count == 2 else None
        if axis is not None and (axis < 0 or axis >= types[0].ndim >= 0):
            raise error.IndexOutOfRange(
                f"inspect.{name}: the tensor has no such axis",
                where=call.span,
                expected=f"at least 0, below {types[0].ndim}",
                found=str(axis),
            )
        return ir.PrimType(_TYPES[name])

    return rule


def _legalize(name: str) -> Callable[..., ir.Expr]:
    def legal(bb: Any, call: ir.Call) -> ir.Expr:
        params = (_TENSOR, _AXIS)[: len(call.args)]
        attrs = ir.Attrs.of({"tir.is_host_func": True, "tir.is_scheduled": True})
        func = tir.PrimFunc(params, _body(name), "int64", attrs=attrs)
        return ir.Call(bb.add_func(func, f"get_{name}"), call.args, ty=ir.PrimType(_TYPES[name]), span=call.span)

    return legal


def _get(of: ir.PrimExpr, index: Any, field: int, dtype: str) -> Any:
    return ir.CallIntrin(dtype, ir.Op.get("tir.tvm_struct_get"), (of, ir.as_expr(index), ir.as_expr(field)))


def _field(name: str) -> Any:
    return ir.cast("int64", _get(_TENSOR, 0, *_FIELDS[name]))


def _body(name: str) -> tir.Stmt:
    if name in _FIELDS:
        return tir.Return(_field(name))
    if name == "tensor_elem_offset":
        bits = _field("tensor_dtype_bits") * _field("tensor_dtype_lanes")
        return tir.Return(ir.floordiv(_field("tensor_byte_offset"), ir.floordiv(bits + ir.int64(7), ir.int64(8))))
    ndim, shape, strides = _field("tensor_ndim"), ir.Var("shape", "handle"), ir.Var("strides", "handle")
    body: tir.Stmt = tir.Return(_get(shape, _AXIS, _ELEMENT, "int64"))
    if name == "tensor_stride_i":
        body = tir.LetStmt(
            strides,
            _get(_TENSOR, 0, _STRIDES, "handle"),
            tir.IfThenElse(
                ir.CallIntrin("bool", ir.Op.get("tir.isnullptr"), (strides,)),
                _compact(shape, ndim),
                tir.Return(_get(strides, _AXIS, _ELEMENT, "int64")),
            ),
        )
    body = tir.LetStmt(shape, _get(_TENSOR, 0, _SHAPE, "handle"), body)
    inside = ir.logical_and(ir.int64(0) <= _AXIS, _AXIS < ndim)
    return tir.AssertStmt(inside, ir.StringImm("the axis is not below the number of dimensions"), body)


def _compact(shape: ir.Var, ndim: ir.PrimExpr) -> tir.Stmt:
    """Return the product of the dimensions behind the axis: the stride of a tensor that says none."""
    zero, after = ir.int64(0), ir.Var("after", "int64")
    product = tir.decl_buffer((ir.int64(1),), "int64", "product", scope="local")
    so_far = tir.BufferLoad(product, (zero,))
    extent = _get(shape, _AXIS + ir.int64(1) + after, _ELEMENT, "int64")
    loop = tir.For(
        after, zero, ndim - _AXIS - ir.int64(1), tir.ForKind.SERIAL, tir.BufferStore(product, so_far * extent, (zero,))
    )
    start = tir.BufferStore(product, ir.int64(1), (zero,))
    return tir.AllocBuffer(product, tir.seq(start, loop, tir.Return(so_far)))


for _name in _TYPES:
    core_op(f"inspect.{_name}")(_type(_name))
    ir.register_op_attr(f"relax.inspect.{_name}", "FLegalize", _legalize(_name))
