"""What vendors' libraries take is grouped; what they do not take stays."""

import pytest
from weft.relax.backend.cuda.cublas import partition_for_cublas
from weft.relax.backend.cuda.cudnn import partition_for_cudnn
from weft.relax.backend.cuda.cutlass import partition_for_cutlass
from weft.relax.backend.rocm.hipblas import partition_for_hipblas

from tests.relax_models import model
from weft.relax import op


def groups(partition, make, *shapes, dtype="float16"):
    mod = model(make, *shapes, dtype=dtype)
    return [v.name_hint for v in partition(mod).get_global_vars() if v.name_hint != "main"]


CONVOLUTION = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
NAME = "fused_relax_permute_dims_relax_matmul_relax_add_relax_nn_relu_"


@pytest.mark.parametrize(
    ("partition", "library"),
    [(partition_for_cublas, "cublas"), (partition_for_hipblas, "hipblas"), (partition_for_cutlass, "cutlass")],
)
def test_products_with_what_follows(partition, library):
    assert groups(
        partition, lambda x, w, b: op.nn.relu(op.add(op.matmul(x, op.permute_dims(w)), b)), (8, 16), (32, 16), (32,)
    ) == [NAME + library]
    assert groups(partition, op.matmul, (2, 3, 8), (3, 1, 8, 4)) == []  # batches that broadcast both ways
    assert groups(partition, op.matmul, (8, 8), (8, 8), dtype="float64") == []


def test_residuals_and_convolutions():
    shapes = (8, 16), (16, 32), (32,), (8, 32)
    assert groups(partition_for_cutlass, lambda x, w, b, r: op.add(op.add(op.matmul(x, w), b), r), *shapes) == [
        "fused_relax_matmul_relax_add_relax_add_cutlass"
    ]
    conv = lambda x, w: op.nn.conv2d(x, w, **CONVOLUTION)  # noqa: E731
    for partition, library in ((partition_for_cutlass, "cutlass"), (partition_for_cudnn, "cudnn")):
        assert groups(partition, conv, (1, 8, 8, 4), (6, 3, 3, 4)) == [f"fused_relax_nn_conv2d_{library}"]
        assert groups(partition, op.nn.conv2d, (1, 4, 8, 8), (6, 4, 3, 3)) == (
            ["fused_relax_nn_conv2d_cudnn"] if library == "cudnn" else []
        )


def test_norms_and_attention():
    norm = lambda x, g, b: op.nn.layer_norm(x, g, b, axes=-1)  # noqa: E731
    assert groups(partition_for_cutlass, norm, (2, 8), (8,), (8,)) == ["fused_relax_nn_layer_norm_cutlass"]
    heads = [(1, 4, 2, 8)] * 3
    assert groups(partition_for_cutlass, op.nn.attention, *heads) == ["fused_relax_nn_attention_cutlass"]
