"""A slice of PyTorch's operator database; ``make torch-operators`` runs all of it."""

import warnings

import pytest

from tests.frontend.torch import op_db
from tests.frontend.torch.programs import evaluated, machine

ALL = {f"{info.name}.{info.variant_test_name}".rstrip("."): info for info in op_db.op_db}
SLICE = (
    "add div.floor_rounding remainder index_select scatter_reduce.mean var argmax cumsum nn.functional.avg_pool2d "
    "nn.functional.conv_transpose2d slice split_with_sizes where nonzero masked_fill constant_pad_nd "
    "nn.functional.pad.reflect index_put amax pow addbmm cholesky_inverse diagonal_scatter "
    "special.zeta nonzero_static linalg.pinv.hermitian _batch_norm_with_update"
).split()


@pytest.mark.share(6, None)
@pytest.mark.parametrize("name", [name for name in SLICE if name in ALL])
def test_slice(name):
    """Compiled for sizes that are open, in the first type; evaluated in the others and for known sizes."""
    info = ALL[name]
    with warnings.catch_warnings(action="ignore"):
        calls = [(info, s, dynamic) for _, _, s in op_db.samples(info, 1) for dynamic in (True, False)]
        found = [op_db.check(*calls[0], machine), *(op_db.check(*call, evaluated) for call in calls[1:])]
    assert "ok" in found


@pytest.mark.parametrize("name", "add cumsum clamp roll".split())
def test_arguments_in_other_forms(name):
    info = ALL[name]
    (_, _, sample), *_ = op_db.samples(info, 1, ["float32"])
    found = [op_db.check(*call, False, evaluated) for call in op_db.spellings(op_db.Call(info, sample))]
    assert "ok" in found, found


def test_every_operator_of_core_aten_is_converted_or_known_to_be_missing():
    """Gradients, random numbers and transforms are missing; anything else here is a regression."""
    import torch

    from weft.frontend.torch import registry

    missing = set()
    for name in op_db.core():
        packet = getattr(torch.ops.aten, name)
        for overload in packet.overloads():
            target = getattr(packet, overload)
            if torch.Tag.core in target.tags and registry.find(target) is None:
                missing.add(name)
    known = set(
        (
            "_fft_c2r _fft_r2c _local_scalar_dense rand randn randperm resize_ sym_is_contiguous sym_numel sym_size "
            "sym_storage_offset sym_stride"
        ).split()
    )
    assert {name for name in missing if not name.endswith("_backward")} <= known
