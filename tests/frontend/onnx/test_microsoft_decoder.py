"""Operators of ``com.microsoft`` of single families of decoders, against ONNX Runtime or by their definition."""

from typing import Any

import numpy as np
import onnxruntime
import pytest

from tests.frontend.onnx.test_microsoft import RNG, check, f32, model
from weft.error import ModelImportError
from weft.frontend.onnx import from_onnx
from weft.relax.interpreter import evaluate

ROWS = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)
COLUMNS = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("gates", [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 8)])
def test_hyper_connections(flat: bool, gates: tuple[int, ...]) -> None:
    x, attrs = f32(2, 3, 4, 8), {"num_branches": 4} if flat else {}
    x = x.reshape(2, 3, 32) if flat else x
    check("HyperConnectionPreMix", [x, f32(*gates)], reduction_scale=0.5, **attrs)
    for mix in (None, f32(2, 3, 4, 4)):
        check("HyperConnectionPostMix", [x, f32(2, 3, 8), f32(*gates), mix], **attrs)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("mrope_layout", [0, 1])
def test_rotation_by_three_places(interleaved: int, mrope_layout: int) -> None:
    places, attrs = RNG.integers(0, 20, (3, 2, 5)), {"interleaved": interleaved, "mrope_layout": mrope_layout}
    check("MRotaryEmbedding", [f32(2, 3, 5, 16), places, f32(20, 8), f32(20, 8)], mrope_section=[4, 2, 2], **attrs)
    attrs |= {"num_heads": 3}
    check("MRotaryEmbedding", [f32(2, 5, 48), places, f32(20, 8), f32(20, 8)], mrope_section=[3, 3, 2], **attrs)
    check(
        "MRotaryEmbedding",
        [f32(2, 3, 5, 16), places, f32(20, 4), f32(20, 4)],
        mrope_section=[2, 1, 1],
        rotary_embedding_dim=8,
        **attrs,
    )
    with pytest.raises(ModelImportError, match="three sections"):
        from_onnx(
            model("MRotaryEmbedding", [f32(2, 3, 5, 16), places, f32(20, 8), f32(20, 8)], (1,), mrope_section=[4, 2, 1])
        )


def sparse(length: int, ends: tuple[int, int], rotary: bool, packed: bool) -> tuple[Any, dict[str, Any]]:
    """Make a model of attention to blocks, 4 heads of 16 numbers and 2 of keys, and its inputs."""
    parts = [f32(2, length, 64), f32(2, length, 32), f32(2, length, 32)]
    parts = [np.concatenate(parts, -1), None, None] if packed else parts
    given = [
        *parts,
        f32(2, 2, 64, 16),
        f32(2, 2, 64, 16),
        ROWS,
        COLUMNS,
        np.array([max(ends)], np.int32),
        np.array(ends, np.int32),
        *((f32(64, 8), f32(64, 8)) if rotary else ()),
    ]
    made = model(
        "SparseAttention",
        given,
        (1, 1, 1),
        (5, 6),
        num_heads=4,
        kv_num_heads=2,
        sparse_block_size=16,
        do_rotary=int(rotary),
    )
    return made, {f"x{i}": x for i, x in enumerate(given) if x is not None and i not in (5, 6)}


@pytest.mark.parametrize(("length", "end"), [(40, 40), (1, 50), (1, 33)])
@pytest.mark.parametrize("packed", [False, True])
def test_attention_to_blocks_of_keys(length: int, end: int, packed: bool) -> None:
    """ONNX Runtime writes new keys and values into the caches that it is given."""
    made, feeds = sparse(length, (end, end), not packed, packed)
    binding = (session := onnxruntime.InferenceSession(made.SerializeToString())).io_binding()
    caches = {name: onnxruntime.OrtValue.ortvalue_from_numpy(feeds[name].copy()) for name in ("x3", "x4")}
    for name, x in feeds.items():
        if name in caches:
            binding.bind_ortvalue_input(name, caches[name])
        else:
            binding.bind_cpu_input(name, x)
    binding.bind_output("y0")
    binding.bind_ortvalue_output("y1", caches["x3"])
    binding.bind_ortvalue_output("y2", caches["x4"])
    session.run_with_iobinding(binding)
    for got, want in zip(evaluate(from_onnx(made), *feeds.values()), binding.copy_outputs_to_cpu(), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_attention_to_blocks_of_sequences_of_unequal_length() -> None:
    """By its definition, since ONNX Runtime reads beyond the shorter one's layout."""
    ends = (33, 50)
    made, feeds = sparse(1, ends, False, False)
    out, *caches = evaluate(from_onnx(made), *feeds.values())
    for i, end in enumerate(ends):
        for given, cache, new in zip((feeds["x3"], feeds["x4"]), caches, (feeds["x1"], feeds["x2"]), strict=True):
            given[i, :, end - 1] = new[i, 0].reshape(2, 16)
            np.testing.assert_array_equal(cache[i], given[i])
        for head in range(4):
            layout, block = head % 2, (end - 1) // 16
            seen = COLUMNS[layout, ROWS[layout, block] : ROWS[layout, block + 1]]
            at = np.flatnonzero(np.isin(np.arange(end) // 16, seen))
            keys, values = (c[i, head // 2][at].astype(np.float64) for c in caches)
            weights = np.exp(keys @ feeds["x0"][i, 0, head * 16 : head * 16 + 16] / 4)
            want = weights @ values / weights.sum()
            np.testing.assert_allclose(out[i, 0, head * 16 : head * 16 + 16], want, rtol=1e-4, atol=1e-5)
