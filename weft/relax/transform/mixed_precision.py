"""ToMixedPrecision: products in half precision, and what follows them where it may."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, op
from weft.relax.block_builder import BlockBuilder
from weft.relax.core_ops import CORE_OPS
from weft.relax.effects import mutable_variables
from weft.relax.expr import Binding, BindingBlock, MatchCast, SeqExpr, VarBinding
from weft.relax.expr import Var as RelaxVar
from weft.relax.infer import function_type
from weft.relax.rewriter import rewrite_bindings
from weft.relax.transform.element_moves import PRODUCTS, SELECTIONS
from weft.relax.unused import remove_all_unused

_ALWAYS = PRODUCTS | frozenset(
    "linear outer nn.conv1d_transpose nn.conv2d_transpose nn.conv3d_transpose nn.attention nn.attention_bias".split()
)
_FOLLOW = SELECTIONS | frozenset(
    "abs add broadcast_to ceil clip cos divide exp flip floor gelu layout_transform log maximum minimum multiply "
    "negative nn.adaptive_avg_pool1d nn.adaptive_avg_pool2d nn.adaptive_avg_pool3d nn.avg_pool1d nn.avg_pool2d "
    "nn.avg_pool3d nn.dropout nn.gelu nn.gelu_tanh nn.leakyrelu nn.prelu nn.selu nn.silu power repeat round rsqrt "
    "sigmoid sign sin sqrt square subtract tanh tile trunc".split()
)
_HALF, _FULL = "float16", "float32"


@ir.function_pass(kind=ir.Function)
def to_mixed_precision(
    func: ir.Function, mod: ir.IRModule, out_dtype: str = "float32", fp16_input_names: Sequence[str] | None = None
) -> ir.Function:
    """Compute products of float32 tensors on float16 operands, and element-wise work on what is float16 already.

    Requires: ``relax.normalized``.
    Ensures: ``relax.normalized``; types of results stay.
    With ``out_dtype="float16"``, before::

        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")):
            with R.dataflow():
                a = R.matmul(x, w)
                b = R.nn.relu(a)
                R.output(b)
            return b

    After::

        @R.function
        def main(x: R.Tensor((2, 3), "float32"), w: R.Tensor((3, 4), "float32")) -> R.Tensor((2, 4), "float32"):
            with R.dataflow():
                x16: R.Tensor((2, 3), "float16") = R.astype(x, dtype="float16")
                w16: R.Tensor((3, 4), "float16") = R.astype(w, dtype="float16")
                a16: R.Tensor((2, 4), "float16") = R.matmul(x16, w16, out_dtype="float16")
                b16: R.Tensor((2, 4), "float16") = R.nn.relu(a16)
                b: R.Tensor((2, 4), "float32") = R.astype(b16, dtype="float32")
                R.output(b)
            return b

    Options:
        ``out_dtype``: the data type of products, ``float16`` or ``float32``.
        ``fp16_input_names``: parameters that become float16.
    Cost: Linear.
    Source: TVM's ``ToMixedPrecision``; Micikevicius et al., Mixed Precision Training, 2018.
    """
    if out_dtype not in (_HALF, _FULL):
        raise error.InvalidArgument(
            "products have one of two types", expected="'float16' or 'float32'", found=repr(out_dtype)
        )
    state = _Mixed(out_dtype, mutable_variables(func, mod))
    if fp16_input_names:
        func = _with_half_params(func, set(fp16_input_names), state)
    new = rewrite_bindings(func, mod, state.rule)
    return func if new is func else remove_all_unused(new, mod)


def _with_half_params(func: ir.Function, names: set[str], state: _Mixed) -> ir.Function:
    params: list[Any] = []
    casts: list[Any] = []
    for p in func.params:
        if p.name_hint not in names or not _is_float32(p):
            params.append(p)
            continue
        ty: Any = p.ty
        half = RelaxVar(p.name_hint, ir.TensorType(ty.shape, _HALF, ty.ndim, ty.vdevice), span=p.span)
        params.append(half)
        cast: Any = op.make_call("astype")(half, dtype=_FULL)
        casts.append(VarBinding(p, ir.Call(cast.op, cast.args, cast.attrs, ty=ty)))
        if p not in state.mutable:
            state.half[p] = half
    seq: Any = func.body
    if not casts or not isinstance(seq, SeqExpr):
        return func
    body = SeqExpr((BindingBlock(tuple(casts)), *seq.blocks), seq.body, span=seq.span, ty=seq.ty)
    new = func.replace(params=tuple(params), body=body)
    return new.replace(ty=function_type(new))


def _is_float32(e: ir.Expr) -> bool:
    return isinstance(e.ty, ir.TensorType) and e.ty.dtype == _FULL


class _Mixed:
    """The float16 forms of float32 values."""

    def __init__(self, out_dtype: str, mutable: set[ir.ExprVar]) -> None:
        self.out_dtype = out_dtype
        self.mutable = mutable  # whose float16 forms do not last
        self.half: dict[ir.Expr, Any] = {}  # the variable of a float32 value to that of its float16 form
        self.products: set[ir.Expr] = set()  # variables whose values are no worse in float16
        self.casts: dict[tuple[ir.Expr, int], Any] = {}  # variable and block to its float16 form
        self.blocks: list[Any] = []  # keeps the blocks' lists alive, so that their ids stay unique

    def rule(self, binding: Binding, value: ir.Expr, bb: BlockBuilder) -> ir.Expr | None:
        """Replace one value; its type stays."""
        if isinstance(binding, MatchCast) or not isinstance(value, ir.Call) or not isinstance(value.op, ir.Op):
            return None
        name = value.op.name.removeprefix("relax.")
        if name in CORE_OPS or not _is_float32(value):
            return None
        tensors = [t for a in value.args for t in (a.fields if isinstance(a, ir.Tuple) else (a,)) if _is_tensor(t)]
        floats = [t for t in tensors if t.ty.dtype in (_FULL, _HALF)]  # type: ignore[union-attr]
        if name in _ALWAYS and floats and all(map(_is_float32, floats)):
            return self.product(binding, value, bb)
        cheap = [t in self.half or t in self.products for t in floats if not isinstance(t, ir.Constant)]
        if name in _FOLLOW and cheap and all(cheap):
            out = bb.emit(self.on_halves(value, value.attrs, bb), f"{binding.var.name_hint}16")
            return self.widened(binding, out)
        return None

    def product(self, binding: Binding, value: ir.Call, bb: BlockBuilder) -> ir.Expr:
        """Compute a product on float16 operands."""
        takes = "out_dtype" in op.get_op_def(value.op).attrs  # type: ignore[arg-type]
        attrs = value.attrs.with_(out_dtype=self.out_dtype) if takes else value.attrs
        new = self.on_halves(value, attrs, bb)
        if takes and self.out_dtype == _FULL:
            self.products |= {binding.var} - self.mutable
            return new
        return self.widened(binding, bb.emit(new, f"{binding.var.name_hint}16"))

    def widened(self, binding: Binding, half: ir.Expr) -> ir.Expr:
        """Return the float32 form of a result, and remember its float16 form."""
        if binding.var not in self.mutable:
            self.half[binding.var] = half
        return op.make_call("astype")(half, dtype=_FULL)

    def on_halves(self, value: ir.Call, attrs: Any, bb: BlockBuilder) -> ir.Call:
        """Return an operation on the float16 forms of its operands."""

        def narrow(e: ir.Expr) -> Any:
            if isinstance(e, ir.Tuple):
                return ir.Tuple(tuple(map(narrow, e.fields)), span=e.span)
            if not _is_tensor(e) or e.ty.dtype != _FULL:
                return e
            if isinstance(e, ir.Constant):
                return ir.constant(e.data.numpy().astype(_HALF))
            if e in self.half:
                return self.half[e]
            key = (e, id(bb.bindings()))
            if key not in self.casts or e in self.mutable:
                self.blocks.append(bb.bindings())
                self.casts[key] = bb.emit(op.make_call("astype")(e, dtype=_HALF), f"{getattr(e, 'name_hint', 'c')}16")
            return self.casts[key]

        return ir.Call(value.op, tuple(map(narrow, value.args)), attrs, value.ty_args, span=value.span)


def _is_tensor(e: ir.Expr) -> bool:
    return isinstance(getattr(e, "ty", None), ir.TensorType)
