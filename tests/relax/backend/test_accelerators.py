"""What accelerators take is grouped, priorities and feature levels kept."""

import pytest
import weft.relax.backend.contrib.example_npu  # noqa: F401 - registers its patterns
from weft.relax.backend.contrib.nnapi import min_feature_level, partition_for_nnapi
from weft.relax.backend.contrib.tensorrt import partition_for_tensorrt
from weft.relax.backend.metal.coreml import partition_for_coreml

import weft
from tests.relax_models import model as program
from weft.error import InvalidArgument
from weft.relax import op
from weft.relax.backend.pattern_registry import get_patterns_with_prefix
from weft.relax.transform import FuseOpsByPattern, MergeCompositeFunctions


def composites(mod):
    nodes = (node for func in mod.functions.values() for node in weft.ir.walk(func))
    found = (n.attrs.get("Composite") for n in nodes if isinstance(n, weft.ir.Function))
    return sorted({str(name) for name in found if name})


def conv_relu(x, w, **attrs):
    return op.nn.relu(op.nn.conv2d(x, w, **attrs))


def npu(mod):
    grouped = FuseOpsByPattern(get_patterns_with_prefix("example_npu"), bind_constants=False, annotate_codegen=True)
    return MergeCompositeFunctions()(grouped(mod))


IMAGE = (1, 4, 8, 8)
FACTORS = ((2, 3), (3, 4))


@pytest.mark.parametrize(
    ("partition", "make", "shapes", "found"),
    [
        (npu, conv_relu, (IMAGE, (6, 4, 3, 3)), ["example_npu.conv2d_relu_fused"]),
        (npu, lambda x, w: op.nn.conv2d(x, w, groups=2), (IMAGE, (6, 2, 3, 3)), ["example_npu.depthwise_conv2d"]),
        (npu, lambda x, w: op.nn.softmax(op.matmul(x, w)), FACTORS, ["example_npu.dense", "example_npu.softmax"]),
        (partition_for_tensorrt, conv_relu, (IMAGE, (6, 4, 3, 3)), ["tensorrt.nn.conv2d", "tensorrt.nn.relu"]),
        (
            partition_for_tensorrt,
            lambda x: op.image.resize2d(x, (4, 4), method="linear"),
            (IMAGE,),
            ["tensorrt.image.resize2d"],
        ),
        (partition_for_tensorrt, lambda x: op.image.resize2d(x, (4, 4), method="nearest_neighbor"), (IMAGE,), []),
        (
            partition_for_tensorrt,
            lambda x: op.concat([op.clip(x, 0, 1), x], 1),
            (IMAGE,),
            ["tensorrt.clip", "tensorrt.concatenate"],
        ),
        (partition_for_nnapi, lambda x, w: op.exp(op.matmul(x, w)), FACTORS, ["nnapi.batch_matmul", "nnapi.exp"]),
        (lambda m: partition_for_nnapi(m, 3), lambda x, w: op.exp(op.matmul(x, w)), FACTORS, ["nnapi.exp"]),
        (partition_for_nnapi, lambda x: op.astype(x, "float16"), ((2, 3),), ["nnapi.cast"]),
        (partition_for_nnapi, lambda x: op.astype(x, "int32"), ((2, 3),), []),
        (partition_for_coreml, lambda x: op.nn.softmax(op.add(x, x)), ((2, 3),), ["coreml.add", "coreml.nn.softmax"]),
    ],
)
def test_what_is_taken(partition, make, shapes, found):
    assert composites(partition(program(make, *shapes))) == found


def test_no_such_level():
    assert min_feature_level("nnapi.add") == 1
    with pytest.raises(InvalidArgument, match="NNAPI takes no such pattern"):
        min_feature_level("nnapi.lstm")
