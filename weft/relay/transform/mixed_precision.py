"""ToMixedPrecision: products compute in a narrower data type, and what follows them where that is safe.

Operators are of three kinds. Some are always computed in the narrow type, some where operands have it, or are variables
or constants, some never.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.error import UnsupportedOperator
from weft.ir import Attrs, Pass, PassContext
from weft.relay.expr import Call, Constant, Function, Let, Tuple, TupleGetItem, Var
from weft.relay.op.registry import op_call
from weft.relay.transform.typed_pass import with_types
from weft.relay.walk import map_parts, subexpressions

MIXED_PRECISION_ALWAYS, MIXED_PRECISION_FOLLOW, MIXED_PRECISION_NEVER = range(3)

_ALWAYS = (
    "nn.conv1d nn.conv2d nn.conv3d nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.dense nn.batch_matmul"
)
_FOLLOW = """
    add subtract multiply divide sqrt maximum minimum max min argmax argmin sigmoid tanh clip
    less less_equal greater greater_equal where argwhere copy cast cast_like shape_of zeros full dyn.full
    reshape dyn.reshape transpose squeeze expand_dims concatenate split take tile dyn.tile scatter strided_slice
    dyn.strided_slice broadcast_to_like dyn.broadcast_to nn.batch_flatten nn.pad nn.depth_to_space image.resize2d
    nn.bias_add nn.batch_norm nn.relu nn.leaky_relu nn.prelu nn.dropout fast_exp fast_erf fast_tanh
    nn.max_pool1d nn.max_pool2d nn.max_pool3d nn.avg_pool1d nn.avg_pool2d nn.avg_pool3d nn.global_max_pool2d
    nn.adaptive_max_pool1d nn.adaptive_max_pool2d nn.adaptive_max_pool3d"""
_NEVER = """
    exp power erf arange sum mean variance nn.softmax nn.cross_entropy nn.cross_entropy_with_logits nn.l2_normalize
    nn.layer_norm nn.global_avg_pool2d nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d"""
_KINDS = {
    name: kind
    for kind, names in (
        (MIXED_PRECISION_ALWAYS, _ALWAYS),
        (MIXED_PRECISION_FOLLOW, _FOLLOW),
        (MIXED_PRECISION_NEVER, _NEVER),
    )
    for name in names.split()
}
_KEEP = "relay.ToMixedPrecision.keep_orig_output_dtype"
ir.register_config_option(_KEEP, bool, doc="ToMixedPrecision: whether results stay in the narrow type")


def register_mixed_precision_conversion(
    op_name: str, func: Callable[[Any, str], list[Any]] | None = None, level: int = 10
) -> Any:
    """Say how an operator is converted; without a function this is a decorator.

    ``func(call, dtype)`` returns the kind (``MIXED_PRECISION_ALWAYS``, ``_FOLLOW`` or ``_NEVER``), the data type of
    the attribute ``out_dtype``, and the one of the result.
    """
    return ir.register_op_attr(op_name, "FTVMMixedPrecisionConversionType", func, level)


def ToMixedPrecision(mixed_precision_type: str = "float16", missing_op_mode: int = 1) -> Pass:
    """Make the pass that lets a program of float32 compute in another data type, where that is worth it and safe.

    Parameters
    ----------
    mixed_precision_type : str
        The data type.
    missing_op_mode : int
        What to do about operators of unknown kind, which stay: 0 raises an error, 1 warns, 2 is silent.

    The option ``relay.ToMixedPrecision.keep_orig_output_dtype`` of the pass context lets results have the data types
    that they had. Parameters keep theirs.

    Source: TVM's ``ToMixedPrecision``.
    """

    def over_module(mod: ir.IRModule) -> ir.IRModule:
        typed = ir.passes_named("relay.InferType")()(mod)
        called = {e for _, f in typed.items() for e in subexpressions(f) if isinstance(e, ir.GlobalVar)}
        keep, missing = bool(PassContext.current().config.get(_KEEP, False)), set[str]()
        made = {}
        for v, f in typed.items():
            made[v] = f
            if type(f) is Function and "Primitive" not in f.attrs:
                made[v] = ir.with_deep_stack(
                    lambda f=f, v=v: _Mixed(mixed_precision_type, missing).function(f, keep or v in called)
                )
        if missing and missing_op_mode < 2:
            text = f"ToMixedPrecision does not know and leaves: {', '.join(sorted(missing))}"
            if missing_op_mode == 0:
                raise UnsupportedOperator(text, help="register_mixed_precision_conversion says of what kind they are")
            warnings.warn(text, stacklevel=2)
        return typed.with_functions(made)

    return with_types(lambda: Pass("ToMixedPrecision", over_module, 0, ToMixedPrecision.__doc__))()


class _Mixed:
    """Converts one function. The types of new expressions are those of the old ones with other data types."""

    def __init__(self, dtype: str, missing: set[str]) -> None:
        self.dtype, self.missing = dtype, missing
        self.memo: dict[Any, Any] = {}
        self.casts: dict[tuple[Any, str], Any] = {}

    def function(self, func: Function, keep: bool) -> Function:
        body = self.original(func.body) if keep else self.visited(func.body)
        if body is func.body:
            return func
        return func.replace(body=body, ret_type=func.ret_type if keep else body.ty, ty=None)

    def visited(self, e: ir.Expr) -> Any:
        """Return the new expression, of the data types that it has now."""
        chain: list[tuple[Let, Var, Any]] = []
        while type(e) is Let and e not in self.memo:
            value = self.visited(e.value)
            var = e.var if value.ty is e.value.ty else Var(e.var.name_hint, value.ty)
            self.memo[e.var] = var
            chain.append((e, var, value))
            e = e.body
        if e not in self.memo:
            self.memo[e] = self.converted(e)
        made = self.memo[e]
        for let, var, value in reversed(chain):
            same = var is let.var and value is let.value and made is let.body
            made = self.memo[let] = let if same else Let(var, value, made, ty=made.ty, span=let.span)
        return made

    def original(self, e: ir.Expr) -> Any:
        """Return the new expression, cast to the type that the old one had."""
        return self.cast(self.visited(e), e.ty) if isinstance(e.ty, (ir.TensorType, ir.TupleType)) else self.visited(e)

    def converted(self, e: ir.Expr) -> Any:
        if type(e) is Tuple:
            fields = tuple(map(self.visited, e.fields))
            same = all(a is b for a, b in zip(fields, e.fields, strict=True))
            return e if same else Tuple(fields, ty=ir.TupleType(tuple(f.ty for f in fields)), span=e.span)
        if type(e) is TupleGetItem:
            whole = self.visited(e.tuple_value)
            return e if whole is e.tuple_value else self.item(whole, e.index)
        if type(e) is Call and isinstance(e.op, ir.Op):
            return self.call(e)
        if type(e) is Function:
            return self.function(e, keep=True)
        return map_parts(e, self.original)

    def item(self, whole: Any, index: int) -> Any:
        return whole.fields[index] if type(whole) is Tuple else TupleGetItem(whole, index, ty=whole.ty.fields[index])

    def call(self, e: Call) -> Any:
        kind, accumulated, result = self.kind(e)
        args = [self.visited(a) for a in e.args]
        leaves = [f for a in args for f in (a.fields if type(a) is Tuple else (a,))]
        if kind == MIXED_PRECISION_FOLLOW:
            follows = all(not _has_float32(a.ty) or isinstance(a, (Var, Constant)) for a in leaves)
            kind = MIXED_PRECISION_ALWAYS if follows else MIXED_PRECISION_NEVER
        if kind == MIXED_PRECISION_NEVER or not any(map(_has_float32, (a.ty for a in e.args))):
            new = tuple(map(self.original, e.args))
            return ir.with_fields(e, args=new)
        attrs = dict(e.attrs.items)
        if "out_dtype" in attrs and attrs["out_dtype"] in ("", None, "float32"):
            attrs["out_dtype"] = accumulated
        elif attrs.get("dtype") == "float32":
            attrs["dtype"] = accumulated
        new = tuple(self.cast(a, _swapped(old.ty, self.dtype)) for a, old in zip(args, e.args, strict=True))
        made = Call(e.op, new, Attrs.of(attrs), ty=_swapped(e.ty, accumulated), span=e.span)
        return self.cast(made, _swapped(e.ty, result))

    def kind(self, e: Any) -> list[Any]:
        """Return of what kind a call is, and the data types of the attribute and of the result."""
        func = e.op.get_attr("FTVMMixedPrecisionConversionType")
        if func is not None:
            kind, *dtypes = func(e, self.dtype)
            return [int(kind), *map(str, dtypes)]
        if e.op.name not in _KINDS:
            self.missing.add(e.op.name)
        return [_KINDS.get(e.op.name, MIXED_PRECISION_NEVER), self.dtype, self.dtype]

    def cast(self, x: ir.Expr, want: Any) -> Any:
        """Cast an expression to a type; casts of the same are one, and a cast back is the expression itself."""
        if isinstance(want, ir.TupleType):
            if _dtypes(x.ty) == _dtypes(want):
                return x
            return Tuple(tuple(self.cast(self.item(x, i), t) for i, t in enumerate(want.fields)), ty=want)
        if not isinstance(want, ir.TensorType) or x.ty.dtype == want.dtype:
            return x
        key = (x, str(want.dtype))
        if key not in self.casts:
            made = op_call("cast", x, dtype=want.dtype)
            made = Call(made.op, made.args, made.attrs, ty=_swapped(x.ty, str(want.dtype), always=True))
            self.casts[key], self.casts[made, str(x.ty.dtype)] = made, x
        return self.casts[key]


def _dtypes(ty: ir.Type) -> Any:
    return tuple(map(_dtypes, ty.fields)) if isinstance(ty, ir.TupleType) else getattr(ty, "dtype", None)


def _has_float32(ty: ir.Type) -> bool:
    return any(map(_has_float32, ty.fields)) if isinstance(ty, ir.TupleType) else getattr(ty, "dtype", "") == "float32"


def _swapped(ty: Any, dtype: str, always: bool = False) -> Any:
    """Return a type with another data type in the place of float32, or of any."""
    if isinstance(ty, ir.TupleType):
        return ir.TupleType(tuple(_swapped(t, dtype, always) for t in ty.fields))
    swaps = isinstance(ty, ir.TensorType) and (always or ty.dtype == "float32")
    return type(ty)(ty.shape, dtype) if swaps else ty
