"""What accelerators compute: patterns of TensorRT, NNAPI, Core ML and of an example of a neural processing unit.

They say which operators a generator called ``relax.ext.<accelerator>`` is given; the generators are their vendors'.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft import error, ir
from weft.op.registry import list_ops
from weft.relax.backend.pattern_registry import get_patterns_with_prefix, register_patterns
from weft.relax.backend.patterns import make_matmul_pattern
from weft.relax.dpl import is_op, wildcard
from weft.relax.expr import ShapeExpr
from weft.relax.transform.canonicalize import canonicalize_bindings
from weft.relax.transform.fuse_by_pattern import FuseOpsByPattern, PatternCheckContext
from weft.relax.transform.merge_composite import merge_composite_functions


def _calls(library: str, count: int, names: str, renamed: Mapping[str, str] | None = None) -> list[Any]:
    """Make a pattern an operator of so many arguments, under its name or another; what Relax lacks is left out."""
    rows, known = [], set(list_ops())
    for name, op in {**{n: n for n in names.split()}, **(renamed or {})}.items():
        if op in known:
            args = {f"arg{i}": wildcard() for i in range(count)}
            root = is_op(f"relax.{op}")(*args.values())
            rows.append((f"{library}.{name}", root, {**args, "root": root}))
    return rows


def _fused(name: str, op: str) -> tuple[Any, ...]:
    args = {"input": wildcard(), "weight": wildcard()}
    first = is_op(f"relax.{op}")(*args.values())
    root = is_op("relax.nn.relu")(first)
    return name, root, {**args, "root": root}


def _tensorrt_resizes(context: PatternCheckContext) -> bool:
    """Whether the size is known, the image float in NCHW, and its rounding one that TensorRT has."""
    root: Any = context.annotated_expr["root"]
    data: Any = root.args[0]
    size = context.matched_bindings.get(root.args[1], root.args[1])
    attrs, dtype = root.attrs, data.ty.dtype
    return (
        isinstance(size, ShapeExpr)
        and all((ir.as_int(d) or 0) > 0 for d in size.values)
        and (attrs["layout"], data.ty.ndim) == ("NCHW", 4)
        and dtype in ("float16", "float32")
        and root.ty.dtype == dtype
        and attrs["coordinate_transformation_mode"]
        in ("asymmetric", "align_corners", "half_pixel", "pytorch_half_pixel")
        and (attrs["method"] != "nearest_neighbor" or attrs["rounding_method"] not in ("round", ""))
    )


def _tensorrt() -> list[Any]:
    unary = (
        "nn.relu sigmoid nn.silu tanh exp log sqrt abs negative sin cos atan ceil floor erf nn.softmax "
        "nn.batch_flatten expand_dims squeeze layout_transform nn.max_pool2d nn.avg_pool2d nn.max_pool3d nn.avg_pool3d "
        "nn.adaptive_avg_pool2d sum prod max min mean split"
    )
    binary = (
        "add subtract multiply divide power maximum minimum nn.conv1d nn.conv2d nn.conv3d nn.conv2d_transpose "
        "nn.conv3d_transpose reshape"
    )
    return [
        *_calls("tensorrt", 1, unary, {"transpose": "permute_dims", "concatenate": "concat"}),
        *_calls("tensorrt", 2, binary, {"nn.batch_matmul": "matmul"}),
        *((*row, _tensorrt_resizes) for row in _calls("tensorrt", 2, "image.resize2d")),
        *_calls("tensorrt", 3, "nn.layer_norm clip"),
        *_calls("tensorrt", 4, "strided_slice"),
    ]


def _example_npu() -> list[Any]:
    grouped = lambda context: context.annotated_expr["root"].attrs["groups"] > 1  # noqa: E731
    return [
        *_calls(
            "example_npu",
            1,
            "sigmoid tanh",
            {n: f"nn.{n}" for n in ("relu", "relu6", "gelu", "softmax", "max_pool2d", "avg_pool2d")},
        ),
        *_calls("example_npu", 3, "quantize dequantize"),
        *_calls("example_npu", 2, "add multiply subtract divide matmul", {"dense": "matmul", "conv1d": "nn.conv1d"}),
        *_calls("example_npu", 5, "", {"batch_norm": "nn.batch_norm"}),
        *_calls("example_npu", 2, "", {"conv2d": "nn.conv2d"}),
        *((*row, grouped) for row in _calls("example_npu", 2, "", {"depthwise_conv2d": "nn.conv2d"})),
        _fused("example_npu.matmul_relu_fused", "matmul"),
        _fused("example_npu.conv2d_relu_fused", "nn.conv2d"),
    ]


_NNAPI_LEVELS = {  # the first feature level of Android's that has the operator
    1: "add conv2d floor logistic max_pool_2d mul relu softmax tanh",
    2: "div mean sub transpose",
    3: "abs cast equal exp greater greater_equal less less_equal log maximum minimum neg not_equal pow rsqrt sqrt",
    6: "batch_matmul",
}


def _nnapi() -> list[Any]:
    data, weight, bias = wildcard(), wildcard(), wildcard()
    floats = [wildcard().has_dtype(t) for t in ("float16", "float32")]
    source = floats[0] | floats[1]
    casts = [is_op("relax.astype")(source).has_dtype(t) for t in ("float16", "float32")]
    renamed = {"logistic": "sigmoid", "neg": "negative", "transpose": "permute_dims", "max_pool_2d": "nn.max_pool2d"}
    return [
        *_calls(
            "nnapi",
            2,
            "add equal greater greater_equal less less_equal not_equal maximum minimum",
            {"mul": "multiply", "div": "divide", "sub": "subtract", "pow": "power", "batch_matmul": "matmul"},
        ),
        *_calls(
            "nnapi",
            1,
            "floor tanh abs exp log sqrt rsqrt mean",
            {"relu": "nn.relu", "softmax": "nn.softmax", **renamed},
        ),
        ("nnapi.cast", casts[0] | casts[1]),
        ("nnapi.conv2d", is_op("relax.add")(is_op("relax.nn.conv2d")(data, weight), bias)),
    ]


def _coreml() -> list[Any]:
    return [
        *_calls("coreml", 1, "nn.softmax nn.relu expand_dims nn.avg_pool2d nn.batch_flatten"),
        *_calls("coreml", 2, "add multiply nn.conv2d"),
        *_calls("coreml", 3, "clip"),
        ("coreml.matmul", *make_matmul_pattern()),
    ]


register_patterns([*_tensorrt(), *_example_npu(), *_nnapi(), *_coreml()])


def min_feature_level(pattern_name: str) -> int:
    """Return the first feature level of NNAPI that has what a pattern is called after."""
    for level, names in _NNAPI_LEVELS.items():
        if pattern_name.removeprefix("nnapi.") in names.split():
            return level
    raise error.InvalidArgument("NNAPI takes no such pattern", found=pattern_name)


def _partition(patterns: Sequence[Any], mod: ir.IRModule, bind_constants: bool) -> ir.IRModule:
    return merge_composite_functions()(FuseOpsByPattern(patterns, bind_constants)(mod))


def partition_for_tensorrt(mod: ir.IRModule) -> ir.IRModule:
    """Make functions for TensorRT of what it computes; constants go into them, so bind parameters first."""
    return _partition(get_patterns_with_prefix("tensorrt"), mod, True)


def partition_for_nnapi(mod: ir.IRModule, feature_level: int | None = None) -> ir.IRModule:
    """Make functions for NNAPI of what it computes at a feature level; of any, by default."""
    patterns = get_patterns_with_prefix("nnapi")
    if feature_level is not None:
        patterns = [p for p in patterns if min_feature_level(p.name) <= feature_level]
    return _partition(patterns, mod, False)


def partition_for_coreml(mod: ir.IRModule) -> ir.IRModule:
    """Make functions for Core ML of what it computes, with their constants."""
    return _partition(get_patterns_with_prefix("coreml"), canonicalize_bindings()(mod), True)
