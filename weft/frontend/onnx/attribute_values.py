"""Which values attributes may have, whatever the operator makes of them: flags, words, counts and extents."""

from __future__ import annotations

from collections.abc import Iterator

from weft.error import ModelImportError
from weft.frontend.onnx.model import onnx
from weft.frontend.onnx.schema import attribute_value

_FLAGS = frozenset(
    """align_corners allowzero antialias ceil_mode center_point_box count_include_pad detect_negative detect_positive
    exclude_outside exclusive fmod input_forget interleaved is_causal keepdims largest layout linear_before_reset
    noop_with_empty_axes reverse
    saturate select_last_index sorted spatial storage_order training_mode transA transB upper""".split()
)
_POSITIVE = frozenset(
    ("blocksize", "dilations", "group", "hidden_size", "kernel_shape", "num_outputs", "output_shape", "p", "strides")
)
_NOT_NEGATIVE = frozenset(("output_padding",))
_WORDS: dict[str, tuple[str, ...]] = {
    "approximate": ("none", "tanh"),
    "auto_pad": ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID", ""),
    "direction": ("forward", "reverse", "bidirectional", "LEFT", "RIGHT"),
    "keep_aspect_ratio_policy": ("stretch", "not_larger", "not_smaller"),
    "nearest_mode": ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil"),
    "padding_mode": ("zeros", "border", "reflection"),
}
_WORDS_OF: dict[tuple[str, str], tuple[str, ...]] = {
    ("BitShift", "direction"): ("LEFT", "RIGHT"),
    ("DepthToSpace", "mode"): ("DCR", "CRD"),
    ("NegativeLogLikelihoodLoss", "reduction"): ("none", "sum", "mean"),
    ("ScatterElements", "reduction"): ("none", "add", "mul", "max", "min"),
    ("ScatterND", "reduction"): ("none", "add", "mul", "max", "min"),
    ("SoftmaxCrossEntropyLoss", "reduction"): ("none", "sum", "mean"),
    ("SpaceToDepth", "mode"): ("DCR", "CRD"),
}
_POOLS = ("AveragePool", "MaxPool", "LpPool")
_PADDED = ("Conv", "DeformConv", "ConvInteger", "ConvTranspose", "QLinearConv", *_POOLS)


def value_errors(node: onnx.NodeProto) -> Iterator[ModelImportError]:
    """Yield an error for each attribute of a node whose value no operator gives a meaning.

    Parameters
    ----------
    node : onnx.NodeProto
        A node of the default domain whose attributes have the types that its schema says.
    """
    for a in node.attribute:
        value, expected = attribute_value(a), _expected(node.op_type, a.name)
        numbers = value if isinstance(value, list) else [value]
        if isinstance(expected, tuple):
            wrong = isinstance(value, str) and value not in expected
        else:
            wrong = expected is not None and any(isinstance(v, int) and not _RANGES[expected](v) for v in numbers)
        if wrong:
            text = ", ".join(filter(None, expected)) if isinstance(expected, tuple) else expected
            what = f"{node.op_type}: attribute '{a.name}' has a wrong value"
            yield ModelImportError(what, expected=text, found=str(value))
        elif a.name == "pads" and node.op_type in _POOLS:
            yield from _pool_errors(node, list(a.ints))


_RANGES = {
    "0 or 1": lambda v: v in (0, 1),
    "at least 1": lambda v: v >= 1,
    "at least 0": lambda v: v >= 0,
    "0 to 3": lambda v: 0 <= v <= 3,
    "FLOAT (1), FLOAT16 (10), DOUBLE (11) or BFLOAT16 (16)": lambda v: v in (1, 10, 11, 16),
    "FLOAT (1), FLOAT16 (10) or BFLOAT16 (16)": lambda v: v in (0, 1, 10, 16),
}


def _expected(op_type: str, name: str) -> str | tuple[str, ...] | None:
    if name in _FLAGS:
        return "0 or 1"
    if name in _POSITIVE:
        return "at least 1"
    if name == "qk_matmul_output_mode":
        return "0 to 3"
    if name == "stash_type":
        return "FLOAT (1), FLOAT16 (10), DOUBLE (11) or BFLOAT16 (16)"
    if name == "precision" or (op_type, name) == ("DequantizeLinear", "output_dtype"):
        return "FLOAT (1), FLOAT16 (10) or BFLOAT16 (16)"
    if name in _NOT_NEGATIVE or (name == "pads" and op_type in _PADDED):
        return "at least 0"
    return _WORDS_OF.get((op_type, name)) or _WORDS.get(name)


def _pool_errors(node: onnx.NodeProto, pads: list[int]) -> Iterator[ModelImportError]:
    """Padding as wide as the window makes windows without an element."""
    attributes = {a.name: attribute_value(a) for a in node.attribute}
    kernel, given = attributes.get("kernel_shape", []), attributes.get("dilations")
    dilations = given if given and len(given) == len(kernel) else [1] * len(kernel)
    if len(pads) == 2 * len(kernel):
        for pad, k, d in zip(pads, [*kernel, *kernel], [*dilations, *dilations], strict=True):
            if pad > (k - 1) * d:
                what = f"{node.op_type}: padding is as wide as the window"
                yield ModelImportError(what, expected=f"at most {(k - 1) * d}", found=str(pads))
                return
