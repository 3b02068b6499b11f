"""Patterns that several code generators use. Each function returns a pattern and its annotated parts."""

from __future__ import annotations

from weft.relax import dpl
from weft.relax.dpl import DFPattern, is_op, wildcard
from weft.relax.expr import DataflowVar
from weft.relax.transform.fuse_by_pattern import PatternCheckContext

__all__ = [
    "has_leaking_intermediate_variables",
    "make_attention_pattern",
    "make_conv2d_pattern",
    "make_fused_bias_activation_pattern",
    "make_layer_norm_pattern",
    "make_matmul_pattern",
    "make_residual_block_pattern",
    "make_rms_norm_pattern",
]

Annotated = tuple[DFPattern, dict[str, DFPattern]]

make_fused_bias_activation_pattern = dpl.make_fused_bias_activation_pattern


def _with_epilogue(
    root: DFPattern, annotations: dict[str, DFPattern], with_bias: bool, activation: str | None
) -> Annotated:
    annotations["root"] = root
    out = root
    if with_bias:
        annotations["bias"] = bias = wildcard()
        out = is_op("relax.add")(out, bias)
    return (is_op(activation)(out) if activation else out), annotations


def make_conv2d_pattern(with_bias: bool = False, activation: str | None = None) -> Annotated:
    """A convolution, perhaps with what follows it: a bias and an activation."""
    data, weight = wildcard(), wildcard()
    parts: dict[str, DFPattern] = {"input": data, "weight": weight}
    return _with_epilogue(is_op("relax.nn.conv2d")(data, weight), parts, with_bias, activation)


def make_matmul_pattern(
    with_bias: bool = False, activation: str | None = None, transposed_rhs: bool = False
) -> Annotated:
    """A product, perhaps of a transposed right operand, with a bias and an activation."""
    lhs, rhs = wildcard(), wildcard()
    annotations: dict[str, DFPattern] = {"lhs": lhs, "rhs": rhs}
    right = is_op("relax.permute_dims")(rhs) if transposed_rhs else rhs
    return _with_epilogue(is_op("relax.matmul")(lhs, right), annotations, with_bias, activation)


def make_residual_block_pattern(
    node_output: DFPattern | Annotated, binary_op: str = "relax.add", activation: str | None = None
) -> Annotated:
    """What a node gives, added to or multiplied with another value, with an activation behind."""
    output, annotations = node_output if isinstance(node_output, tuple) else (node_output, {})
    residual = wildcard()
    annotations["residual"] = residual
    joined = is_op(binary_op)(output, residual) | is_op(binary_op)(residual, output)
    return (is_op(activation)(joined) if activation else joined), annotations


def make_attention_pattern(with_bias: bool = False) -> Annotated:
    """An attention, perhaps with a bias on its scores."""
    names = ["query", "key", "value", *(["bias"] if with_bias else [])]
    parts: dict[str, DFPattern] = {name: wildcard() for name in names}
    return is_op("relax.nn.attention")(*parts.values()), parts


def has_leaking_intermediate_variables(context: PatternCheckContext) -> bool:
    """Whether a group's variables besides its result are seen outside of it, or may be, being no dataflow variables."""
    inside = set(context.matched_bindings)
    inner = inside - {context.value_to_bound_var[context.matched_expr]}
    return any(
        not isinstance(v, DataflowVar) or any(user not in inside for user in context.var_usages.get(v, ()))
        for v in inner
    )


def make_layer_norm_pattern() -> DFPattern:
    """A layer norm."""
    return is_op("relax.nn.layer_norm")(wildcard(), wildcard(), wildcard())


def make_rms_norm_pattern() -> DFPattern:
    """A root mean square norm."""
    return is_op("relax.nn.rms_norm")(wildcard(), wildcard())
