"""Queries that see no key: attention gives 0 for them, a softmax that is written out gives NaN, fused or not."""

from typing import Any

import numpy as np
import pytest
from onnx import helper

import weft
from tests.arrays import floats
from tests.frontend.models import model_of
from tests.relax_models import model
from weft import error, ir, op, runtime

RNG = np.random.default_rng(5)
f32 = floats(RNG)


def attention(arrays: list[np.ndarray], **attrs: Any) -> np.ndarray:
    params = [ir.ExprVar(f"x{i}", ir.tensor_type(a.shape, str(a.dtype))) for i, a in enumerate(arrays)]
    mod = model(lambda *v: op.make_call("nn.attention")(*v, **attrs), *params)
    return runtime.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())["main"](*arrays).numpy()


def blind(queries: int, keys: int) -> np.ndarray:
    """A bias that hides all keys from every second query."""
    bias = f32(1, 1, queries, keys)
    bias[:, :, ::2] = -np.inf
    return bias


@pytest.mark.parametrize(
    ("dtype", "queries", "keys"),
    [("float32", 1, 70), ("float32", 3, 1), ("float32", 40, 70), ("float64", 3, 9), ("float16", 3, 9)],
)
def test_of_masks(dtype: str, queries: int, keys: int) -> None:
    arrays = [a.astype(dtype) for a in (f32(1, queries, 2, 8), f32(1, keys, 2, 8), f32(1, keys, 2, 8))]
    bias = blind(queries, keys).astype(dtype)
    zero, nan = (attention([*arrays, bias], unseen=u) for u in ("zero", "nan"))
    assert (zero[:, ::2] == 0).all()
    assert np.isnan(nan[:, ::2]).all()
    np.testing.assert_array_equal(zero[:, 1::2], nan[:, 1::2])  # the same kernel
    assert np.isfinite(zero).all()
    np.testing.assert_array_equal(zero, attention([*arrays, bias]))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("attrs", [{"causal_mask": "BottomRight"}, {"causal_mask": "TopLeft", "window_size": 2}])
def test_of_causal_masks(dtype: str, attrs: dict[str, Any]) -> None:
    out = attention([f32(1, n, 2, 8).astype(dtype) for n in (20, 5, 5)], **attrs)
    first = 15 if attrs["causal_mask"] == "BottomRight" else 0
    seeing = slice(first, first + 5)
    assert (np.delete(out, np.r_[seeing], 1) == 0).mean() == (1 if first else pytest.approx(14 / 15))
    assert (out[:, seeing] != 0).all()


def test_not_numbers_stay() -> None:
    query, key, value = f32(1, 3, 1, 8), f32(1, 9, 1, 8), f32(1, 9, 1, 8)
    query[0, 1] = np.nan
    out = attention([query, key, value, blind(3, 9)])
    assert np.isnan(out[0, 1]).all()
    assert (out[0, ::2] == 0).all()


@pytest.mark.parametrize("level", [0, 3])
def test_of_a_softmax_that_is_written_out(level: int) -> None:
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["s"]),
        helper.make_node("Add", ["s", "mask"], ["m"]),
        helper.make_node("Softmax", ["m"], ["w"]),
        helper.make_node("MatMul", ["w", "v"], ["y"]),
    ]
    feeds = {"q": f32(1, 2, 6, 8), "k": f32(1, 2, 8, 9), "v": f32(1, 2, 9, 8), "mask": blind(6, 9)}
    mod = weft.relax.frontend.onnx.from_onnx(model_of(nodes, feeds, ["y"], 17, {}))
    with weft.transform.PassContext(opt_level=level):
        vm = runtime.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())
    out = vm["main"](*feeds.values()).numpy()
    assert np.isnan(out[:, :, ::2]).all()
    assert np.isfinite(out[:, :, 1::2]).all()


def test_of_the_operator_of_onnx() -> None:
    feeds = {"q": f32(1, 2, 6, 8), "k": f32(1, 2, 9, 8), "v": f32(1, 2, 9, 8), "mask": blind(6, 9)}
    model = model_of([helper.make_node("Attention", list(feeds), ["y"])], feeds, ["y"], 23, {})
    out = weft.Session(model).run(feeds)[0].numpy()
    assert (out[:, :, ::2] == 0).all()
    assert (out[:, :, 1::2] != 0).all()


def test_lengths_of_keys_are_those_of_the_batch() -> None:
    given = {"q": f32(1, 2, 6, 8), "k": f32(1, 2, 9, 8), "v": f32(1, 2, 9, 8), "kept": np.array([9, 4, 2], np.int64)}
    node = helper.make_node("Attention", ["q", "k", "v", "", "", "", "kept"], ["y"])
    with pytest.raises(error.ModelImportError, match=r"(?s)input 6.*expected 1.*found 3"):
        weft.Session(model_of([node], given, ["y"], 24, {}))
