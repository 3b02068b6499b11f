"""The operator Attention is one kernel that reads heads of keys and values where they lie: beside float64."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests.arrays import floats
from tests.frontend.models import model_of
from weft import error

RNG = np.random.default_rng(11)
f32 = floats(RNG)


def arguments(
    queries: int,
    new: int,
    past: int = 0,
    batch: int = 1,
    heads: tuple[int, int] = (6, 2),
    mask: str = "",
    size: tuple[int, int] = (16, 24),
    kept: Any = None,
) -> dict[str, np.ndarray]:
    """Inputs by the names of their places; a mask hides all keys from the last query."""
    own, shared = heads
    feeds = {
        "q": f32(batch, own, queries, size[0]),
        "k": f32(batch, shared, new, size[0]),
        "v": f32(batch, shared, new, size[1]),
    }
    if mask:
        keep = RNG.random((queries, past + new)) < 0.7
        keep[-1:] = False
        feeds["mask"] = keep if mask == "bool" else np.where(keep, f32(*keep.shape), -np.inf).astype(np.float32)
    if past:
        feeds |= {"pk": f32(batch, shared, past, size[0]), "pv": f32(batch, shared, past, size[1])}
    return feeds if kept is None else {**feeds, "kept": np.array(kept, np.int64)}


def model(feeds: dict[str, np.ndarray], opset: int, causal: int, dims: bool) -> onnx.ModelProto:
    places = ["q", "k", "v", "mask", "pk", "pv", "kept"][: 6 if opset < 24 else 7]
    outputs = ["y", "nk", "nv"] if "pk" in feeds else ["y"]
    node = helper.make_node("Attention", [n if n in feeds else "" for n in places], outputs, is_causal=causal)
    names = {n: [f"{n}_{i}", *a.shape[1:]] if a.ndim > 2 else [] for i, (n, a) in enumerate(feeds.items())}
    for name in names:  # each has its own names, but for the mask's queries
        names[name][2:3] = ["queries" if name == "q" else f"{name}_length"]
    names |= {"mask": ["queries", "mask_length"], "kept": ["kept"]}
    return model_of([node], feeds, outputs, opset, None, names if dims else None)


def expected(feeds: dict[str, np.ndarray], causal: int) -> np.ndarray:
    q, k, v = (feeds[n].astype(np.float64) for n in "qkv")
    past = feeds["pk"].shape[2] if "pk" in feeds else 0
    if past:
        k, v = np.concatenate([feeds["pk"], k], 2), np.concatenate([feeds["pv"], v], 2)
    k, v = (np.repeat(x, q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.swapaxes(2, 3) / np.sqrt(q.shape[3])
    mask = feeds.get("mask")
    if mask is not None:
        scores = np.where(mask, scores, -np.inf) if mask.dtype == bool else scores + mask
    if causal:
        scores = np.where(np.tri(*scores.shape[2:], past, dtype=bool), scores, -np.inf)
    if "kept" in feeds:
        scores = np.where(np.arange(k.shape[2]) < feeds["kept"][:, None, None, None], scores, -np.inf)
    top = scores.max(-1, keepdims=True, initial=-1e30)
    weights = np.exp(scores - top)
    return weights / np.maximum(weights.sum(-1, keepdims=True), 1e-30) @ v


def kernels(made: onnx.ModelProto) -> list[str]:
    mod = weft.relax.get_pipeline("default", weft.target.Target("llvm"))(weft.frontend.onnx.from_onnx(made))
    return [v.name_hint for v, f in mod.items() if isinstance(f, weft.tir.PrimFunc)]


def check(session: weft.Session, feeds: dict[str, np.ndarray], causal: int) -> None:
    out, *caches = (x.numpy() for x in session.run(feeds))
    np.testing.assert_allclose(out, expected(feeds, causal), rtol=1e-4, atol=1e-5)
    for cache, old, new in zip(caches, ("pk", "pv"), "kv", strict=False):
        np.testing.assert_array_equal(cache, np.concatenate([feeds[old], feeds[new]], 2))


CASES: list[tuple[int, int, dict[str, Any]]] = [
    (23, 0, {"queries": 1, "new": 70}),
    (23, 1, {"queries": 1, "new": 1, "past": 300, "mask": "float"}),
    (24, 1, {"queries": 1, "new": 1, "past": 37, "mask": "bool", "heads": (5, 1)}),
    (23, 0, {"queries": 3, "new": 3, "past": 8, "heads": (4, 4)}),
    (23, 1, {"queries": 41, "new": 41, "mask": "bool", "batch": 2}),
    (24, 0, {"queries": 1, "new": 9, "mask": "float", "size": (20, 7)}),
    (24, 0, {"queries": 2, "new": 9, "batch": 3, "kept": [9, 4, 0]}),
]


@pytest.mark.parametrize("dims", [False, True])
@pytest.mark.parametrize(("opset", "causal", "options"), CASES)
def test_groups_of_queries_share_keys(opset: int, causal: int, options: dict[str, Any], dims: bool) -> None:
    feeds = arguments(**options)
    made = model(feeds, opset, causal, dims)
    names = kernels(made)
    assert sum("attention" in n for n in names) == 1
    assert not [n for n in names if "matmul" in n or "softmax" in n or "broadcast_to" in n]
    session = weft.Session(made)
    check(session, feeds, causal)
    if not dims:
        return
    past = options.get("past", 0)
    kept = {"kept": [1]} if "kept" in options else {}
    for queries, new, before in ((1, 1, past), (1, 530, past), (5, 66, past and 1), (0, 4, past)):
        sizes: dict[str, Any] = {"queries": queries, "new": new, "past": before, "batch": 1}
        check(session, arguments(**{**options, **sizes, **kept}), causal)
    none: dict[str, Any] = {"batch": 0, "kept": [] if kept else None}
    check(session, arguments(**{**options, **none}), causal)


def test_a_mask_is_as_long_as_the_keys() -> None:
    feeds = arguments(2, 3, 4, mask="float")
    session = weft.Session(model(feeds, 23, 0, True))
    with pytest.raises(error.ShapeMismatch, match=r"(?s)dimension 1 of input 3.*expected 7.*found 6"):
        session.run({**feeds, "mask": f32(2, 6)})


@pytest.mark.parametrize("dims", [False, True])
@pytest.mark.parametrize(
    ("kept", "found"), [([9, 4, 10], "expected 9, found 10"), ([9, -1, 3], "expected 0, found -1")]
)
def test_no_more_keys_are_kept_than_there_are(kept: list[int], found: str, dims: bool) -> None:
    feeds = arguments(2, 9, batch=3, kept=[9, 9, 0])
    session = weft.Session(model(feeds, 24, 0, dims))
    check(session, feeds, 0)
    with pytest.raises(error.IndexOutOfRange, match=f"(?s)number of keys that are no padding.*{found}"):
        session.run({**feeds, "kept": np.array(kept)})
