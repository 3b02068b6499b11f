"""WidenConv1d: convolutions of sequences become convolutions of images of one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir, registry, runtime
from weft.op import Layout, get_op_def, in_places, make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS, is_op
from weft.relax.expr import Binding
from weft.relax.rewriter import rewrite_bindings


@ir.function_pass(kind=ir.Function, opt_level=2)
def widen_conv1d(func: ir.Function, mod: ir.IRModule) -> ir.Function:
    """Compute 1-D convolutions, and what lies between them, on images of height 1.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``. Values of the shape ``(n, c, w)`` have a twin ``(n, c, 1, w)`` from the first
        convolution on; whatever else needs them reads a reshape of it. ConvertLayout then treats them as all images.
    Before::

        @R.function
        def main(x: R.Tensor((1, 1, 4), "float32")):
            with R.dataflow():
                y = R.nn.conv1d(x, R.const([[[1.0, 2.0]]], "float32"), padding=[1, 0])
                z = R.nn.relu(y)
                R.output(z)
            return z

    After::

        @R.function
        def main(x: R.Tensor((1, 1, 4), "float32")) -> R.Tensor((1, 1, 4), "float32"):
            with R.dataflow():
                lv: R.Tensor((1, 1, 1, 4), "float32") = R.reshape(x, R.shape([1, 1, 1, 4]))
                lv0: R.Tensor((1, 1, 1, 4), "float32") = R.nn.conv2d(
                    lv,
                    R.const([[[[1.0, 2.0]]]], "float32"),
                    strides=[1, 1],
                    padding=[0, 1, 0, 0],
                    dilation=[1, 1],
                )
                lv1: R.Tensor((1, 1, 4), "float32") = R.reshape(lv0, R.shape([1, 1, 4]))
                lv2: R.Tensor((1, 1, 1, 4), "float32") = R.nn.relu(lv0)
                lv3: R.Tensor((1, 1, 4), "float32") = R.reshape(lv2, R.shape([1, 1, 4]))
                z: R.Tensor((1, 1, 4), "float32") = lv3
                R.output(z)
            return z
    Cost: Linear.
    Source: None.
    """
    wide = _Wide()
    return rewrite_bindings(func, mod, wide.rule)


class _Wide:
    """Which values have a twin with a row of height 1."""

    def __init__(self) -> None:
        self.twins: dict[ir.Expr, ir.Expr] = {}
        self.parts: dict[ir.Expr, ir.Expr] = {}

    def rule(self, binding: Binding, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        """Compute on twins where an operand has one, and bind the value to a reshape of its twin."""
        if isinstance(value, ir.TupleGetItem) and value.tuple_value in self.parts:
            return self._bind(ir.TupleGetItem(self.parts[value.tuple_value], value.index), value.ty, bb)
        if is_op(value, "split") and self.has(value.args[0]):  # type: ignore[attr-defined]
            self.parts[binding.var] = bb.emit(_along_axes(self, value, bb))  # type: ignore[arg-type]
            return None
        if not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op) or not isinstance(value.ty, ir.TensorType):
            return None
        name = value.op.name.removeprefix("relax.")
        if value.ty.ndim != 3 or value.ty.shape is None or name in CORE_OPS:
            return None
        made = _RULES.get(name, _along_axes)(self, value, bb)
        if made is None:
            return None
        if name == "permute_dims":
            return make_call("reshape")(bb.emit(made), ir.shape_expr(value.ty.shape))
        return self._bind(made, value.ty, bb)

    def _bind(self, made: ir.Expr, ty: Any, bb: BlockBuilder) -> ir.Expr:
        """Bind a twin, and what it is the twin of."""
        twin = bb.emit(made)
        original = bb.emit(make_call("reshape")(twin, ir.shape_expr(ty.shape)))
        self.twins[original] = twin
        return original

    def has(self, expr: ir.Expr) -> bool:
        """Whether there is a twin already."""
        return expr in self.twins

    def of(self, expr: ir.Expr, bb: BlockBuilder) -> Any:
        """Return the twin of a value of three dimensions or fewer, None where there cannot be one."""
        if self.has(expr):
            return self.twins[expr]
        ty = expr.ty
        if not isinstance(ty, ir.TensorType) or ty.shape is None or ty.ndim > 3:
            return None
        if ty.ndim == 0:
            return expr
        if isinstance(expr, ir.Constant):
            data = np.asarray(expr.data.numpy())
            dims = (1,) * (3 - data.ndim) + data.shape
            return ir.constant(runtime.aligned(data.reshape(*dims[:2], 1, dims[2])))
        one = ir.const(1, "int64")
        sizes = (one,) * (3 - ty.ndim) + tuple(ty.shape)
        twin = bb.emit(make_call("reshape")(expr, ir.shape_expr((*sizes[:2], one, sizes[2]))))
        if ty.ndim == 3:
            self.twins[expr] = twin
        return twin


_Rule = Callable[[_Wide, ir.Call, Any], "ir.Call | None"]
_RULES: registry.Registry[_Rule] = registry.Registry()


def _pair(value: Any) -> tuple[int, int]:
    """Return a stride or dilation with that of the rows, 1, before it."""
    return (1, int(np.ravel(value)[0]))


def _padding(value: Any) -> tuple[int, ...]:
    before, after = (int(np.ravel(value)[i]) for i in (0, -1))
    return (0, before, 0, after)


@_RULES.on("nn.conv1d", "nn.conv1d_transpose")
def _conv1d(s: _Wide, call: ir.Call, bb: BlockBuilder) -> ir.Call | None:
    assert isinstance(call.op, ir.Op)
    weight, attrs = call.args[1], call.attrs
    layouts = (attrs.get("data_layout"), attrs.get("out_layout"), (attrs.get("kernel_layout") or "OIW")[2:])
    ty = weight.ty
    if any(x not in (None, "", "NCW", "W") for x in layouts) or not isinstance(ty, ir.TensorType) or ty.shape is None:
        return None
    if isinstance(weight, ir.Constant):
        kernel: ir.Expr = ir.constant(runtime.aligned(weight.data.numpy()[:, :, None]))
    else:
        shape = (*ty.shape[:2], ir.const(1, "int64"), ty.shape[2])
        kernel = bb.emit(make_call("reshape")(weight, ir.shape_expr(shape)))
    keep = {k: attrs[k] for k in ("groups", "out_dtype", "pad_value") if attrs.get(k)}
    if attrs.get("output_padding"):
        keep["output_padding"] = (0, int(np.ravel(attrs["output_padding"])[0]))
    keep |= {k: _pair(attrs.get(k, 1)) for k in ("strides", "dilation")}
    keep["padding"] = _padding(attrs.get("padding", 0))
    return make_call(call.op.name.removeprefix("relax.").replace("1d", "2d"))(s.of(call.args[0], bb), kernel, **keep)


def _along_axes(s: _Wide, call: ir.Call, bb: BlockBuilder) -> ir.Call | None:
    """Compute on twins; vectors of an operator that names an axis lie along it, wherever it is."""
    assert isinstance(call.op, ir.Op)
    definition = get_op_def(call.op)
    operands = [f for a in call.args for f in (a.fields if isinstance(a, ir.Tuple) else (a,))]
    if definition.layout is not Layout.AXES or call.op.name == "relax.broadcast_to" or not any(map(s.has, operands)):
        return None
    names = definition.names_axes(call.attrs)

    def operand(arg: ir.Expr) -> Any:
        if isinstance(arg, ir.Tuple):
            fields = tuple(map(operand, arg.fields))
            return None if any(f is None for f in fields) else ir.Tuple(fields)
        return arg if names and getattr(arg.ty, "ndim", -1) == 1 else s.of(arg, bb)

    args = tuple(map(operand, call.args))
    if any(a is None for a in args):
        return None
    return ir.Call(call.op, args, in_places(definition.attrs, call.attrs, (0, 1, 3), 4), span=call.span)


@_RULES.on("permute_dims")
def _permute(s: _Wide, call: ir.Call, bb: BlockBuilder) -> ir.Call | None:
    """Move the row of height 1 before the others: ``(n, c, 1, w)`` becomes ``(n, 1, w, c)``."""
    if not s.has(call.args[0]) or tuple(a % 3 for a in call.attrs.get("axes") or ()) != (0, 2, 1):
        return None
    return ir.Call(call.op, (s.of(call.args[0], bb),), ir.Attrs.of(axes=(0, 2, 3, 1)), span=call.span)


@_RULES.on("nn.max_pool1d", "nn.avg_pool1d")
def _pool(s: _Wide, call: ir.Call, bb: BlockBuilder) -> ir.Call | None:
    attrs = call.attrs
    layouts = {attrs.get("layout") or "NCW", attrs.get("out_layout") or "NCW"}
    if not s.has(call.args[0]) or layouts != {"NCW"}:
        return None
    names = [k for k in ("pool_size", "strides", "dilation") if attrs.get(k) is not None]
    new = {k: _pair(attrs[k]) for k in names} | {k: attrs[k] for k in ("ceil_mode", "count_include_pad") if k in attrs}
    op = call.op.name.removeprefix("relax.").replace("1d", "2d")  # type: ignore[union-attr]
    return make_call(op)(s.of(call.args[0], bb), padding=_padding(attrs.get("padding", 0)), **new)
