"""What NVIDIA's and AMD's libraries take, as patterns: cuBLAS, hipBLAS, cuDNN and CUTLASS.

``partition_for_cublas(mod)`` and its like group what a library would compute. The libraries themselves are called by a
generator ``relax.ext.cublas`` of the user's own; without one, ``RunCodegen`` says that it is missing.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any

from weft import arith, ir
from weft.relax.backend import patterns as forms
from weft.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from weft.relax.infer import same_shape
from weft.relax.transform.fuse_by_pattern import FuseOpsByPattern, PatternCheckContext

__all__ = ["partition_for_cublas", "partition_for_cudnn", "partition_for_cutlass", "partition_for_hipblas"]

cublas = cudnn = cutlass = hipblas = sys.modules[__name__]

Check = Callable[[PatternCheckContext], bool]
_EQUAL = ("float16", "float32", "bfloat16", "int8")


def _product(dims: Sequence[Any]) -> Any:
    return math.prod(dims, start=ir.int64(1))


def _same(a: Any, b: Any) -> bool:
    return arith.Analyzer().can_prove_equal(a, b)


def _types(context: PatternCheckContext, *names: str) -> list[Any] | None:
    """Return the tensor types of annotated parts whose shapes are known."""
    found = [context.annotated_expr[name].ty for name in names]  # type: ignore[attr-defined]
    return found if all(isinstance(t, ir.TensorType) and t.shape is not None for t in found) else None


# --- products ---------------------------------------------------------------------------------------------------------


def _check_blas(context: PatternCheckContext) -> bool:
    """Whether a batched product of BLAS computes it: equal types, one batch, a constant length of sums."""
    types = _types(context, "lhs", "rhs")
    if forms.has_leaking_intermediate_variables(context) or types is None:
        return False
    lhs, rhs = types
    if lhs.dtype != rhs.dtype or lhs.dtype not in _EQUAL or ir.as_int(lhs.shape[-1]) is None:
        return False
    narrow = lhs.dtype == "int8"
    if narrow and any((ir.as_int(t.shape[-1]) or 1) % 4 for t in types):
        return False
    if "bias" in context.annotated_expr:
        bias = _types(context, "bias")
        if narrow or bias is None or ir.as_int(_product(bias[0].shape[:-1])) != 1:
            return False
    left, right = (_product(t.shape[:-2]) for t in types)
    return any(isinstance(n, ir.Var) for n in (left, right)) or _same(left, right) or ir.as_int(right) == 1


def _check_cutlass_matmul(context: PatternCheckContext) -> bool:
    """Whether the batches of both operands agree, or one of them has none."""
    types = _types(context, "lhs", "rhs")
    if forms.has_leaking_intermediate_variables(context) or types is None or not _cutlass_types(*types):
        return False
    lhs, rhs = types
    if not _residual_fits(context) or ir.as_int(lhs.shape[-1]) is None:
        return False
    if 1 in (ir.as_int(_product(t.shape[:-2])) for t in types):
        return True
    return all(_same(a, b) for a, b in itertools.zip_longest(lhs.shape[-3::-1], rhs.shape[-3::-1], fillvalue=1))


def _cutlass_types(lhs: Any, rhs: Any) -> bool:
    floats = lhs.dtype == rhs.dtype and lhs.dtype in ("float16", "float32")
    return floats or {lhs.dtype, rhs.dtype} <= {"int8", "uint8"}


def _residual_fits(context: PatternCheckContext) -> bool:
    """Whether a residual has the result's shape, or is like a bias, and does not follow from the result."""
    root, residual = context.annotated_expr["root"], context.annotated_expr.get("residual")
    if residual is None:
        return True
    bound = context.value_to_bound_var
    var: Any = residual if isinstance(residual, ir.ExprVar) else bound.get(residual)
    if var is None or var in ir.reached((bound[root],), lambda v: context.var_usages.get(v, ())):
        return False
    shape, other = bound[root].ty.shape, var.ty.shape  # type: ignore[attr-defined]
    if shape is None or other is None:
        return False
    return same_shape(shape, other) or (
        bool(other) and _same(other[-1], shape[-1]) and _same(_product(other), shape[-1])
    )


# --- convolutions, norms ----------------------------------------------------------------------------------------------


def _check_conv2d(layouts: Sequence[tuple[str, str]], whole: bool) -> Check:
    def check(context: PatternCheckContext) -> bool:
        types = _types(context, "input", "weight")
        if forms.has_leaking_intermediate_variables(context) or types is None or not _cutlass_types(*types):
            return False
        root: Any = context.annotated_expr["root"]
        data, weight = types
        if (root.attrs["data_layout"], root.attrs["kernel_layout"]) not in layouts:
            return False
        if not whole:
            return data.dtype in ("float16", "float32")
        depthwise = ir.as_int(data.shape[3]) == ir.as_int(weight.shape[0]) == root.attrs["groups"]
        return _residual_fits(context) and all(ir.as_int(d) is not None for d in data.shape) and not depthwise

    return check


def _check_layer_norm(context: PatternCheckContext) -> bool:
    """Whether it is over the last axis, with both scale and bias."""
    call: Any = context.matched_expr
    axes, ndim = call.attrs["axes"], call.ty.ndim
    return bool(call.attrs["center"] and call.attrs["scale"]) and [a % ndim for a in axes] == [ndim - 1]


# --- registries -------------------------------------------------------------------------------------------------------


def _products(library: str, check: Check) -> list[Any]:
    rows = []
    for transposed, (suffix, bias, activation) in itertools.product((False, True), _EPILOGUES):
        name = f"{library}.matmul{'_transposed' if transposed else ''}{suffix}"
        rows.append((name, *forms.make_matmul_pattern(bias, activation, transposed), check))
    return rows


def _convolutions(library: str, check: Check, epilogues: Sequence[Any]) -> list[Any]:
    return [
        (f"{library}.conv2d{suffix}", *forms.make_conv2d_pattern(bias, activation), check)
        for suffix, bias, activation in epilogues
    ]


def _residuals(rows: Sequence[Any]) -> list[Any]:
    """Add a residual behind each pattern with a bias; without one, a residual is a bias."""
    out = []
    for (ending, activation), (name, pattern, parts, check) in itertools.product(
        (("", None), ("_relu", "relax.nn.relu")), rows
    ):
        for op in ("add", "multiply") if "bias" in name else ():
            made = forms.make_residual_block_pattern((pattern, dict(parts)), f"relax.{op}", activation)
            out.append((f"{name}_residual_{op}{ending}", *made, check))
    return out


_EPILOGUES = [
    ("", False, None),
    ("_bias", True, None),
    ("_bias_relu", True, "relax.nn.relu"),
    ("_bias_gelu", True, "relax.nn.gelu"),
]
_NHWC, _NCHW = ("NHWC", "OHWI"), ("NCHW", "OIHW")
_CUTLASS_CONVOLUTIONS = _convolutions(
    "cutlass", _check_conv2d([_NHWC], True), [*_EPILOGUES[:3], ("_bias_silu", True, "relax.nn.silu")]
)
_CUTLASS_PRODUCTS = _products("cutlass", _check_cutlass_matmul)

register_patterns(
    [
        *_CUTLASS_CONVOLUTIONS,
        *_CUTLASS_PRODUCTS,
        *_residuals([*_CUTLASS_CONVOLUTIONS, *_CUTLASS_PRODUCTS]),
        ("cutlass.attention", *forms.make_attention_pattern()),
        ("cutlass.attention_bias", *forms.make_attention_pattern(with_bias=True)),
        ("cutlass.layer_norm", forms.make_layer_norm_pattern(), {}, _check_layer_norm),
        *_products("cublas", _check_blas),
        *_products("hipblas", _check_blas),
        *_convolutions("cudnn", _check_conv2d([_NHWC, _NCHW], False), _EPILOGUES[:3]),
    ]
)


def _partition(library: str, mod: ir.IRModule, bind_constants: bool, annotate_codegen: bool = True) -> ir.IRModule:
    patterns = get_patterns_with_prefix(library)
    return FuseOpsByPattern(patterns, bind_constants=bind_constants, annotate_codegen=annotate_codegen)(mod)


def partition_for_cublas(mod: ir.IRModule, bind_constants: bool = False) -> ir.IRModule:
    """Group the products that cuBLAS computes, with biases and activations; constants stay outside by default."""
    return _partition("cublas", mod, bind_constants)


def partition_for_hipblas(mod: ir.IRModule, bind_constants: bool = False) -> ir.IRModule:
    """Group the products that hipBLAS computes."""
    return _partition("hipblas", mod, bind_constants)


def partition_for_cudnn(mod: ir.IRModule) -> ir.IRModule:
    """Group the convolutions that cuDNN computes: of floats, NHWC with OHWI or NCHW with OIHW."""
    return _partition("cudnn", mod, False)


def partition_for_cutlass(mod: ir.IRModule, annotate_codegen: bool = True) -> ir.IRModule:
    """Group the products, convolutions (NHWC), attentions and layer norms that CUTLASS computes."""
    return _partition("cutlass", mod, False, annotate_codegen)
