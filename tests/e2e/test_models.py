"""Whole networks against ONNX Runtime: one compilation that is given no shapes, five sizes."""

import pytest

from benchmarks import zoo
from benchmarks.peer import largest_difference, peer_session, weft_session
from weft import environment

SWEEP = environment.SWEEP.read()
LARGE = ("resnet50", "mobilenet_v2", "mobilenet_v3")
"""What takes 15 seconds and more, whose blocks the detector and `test_light_models` have: ``make sweep``."""


@pytest.mark.parametrize("name", [name for name in zoo.MODELS if SWEEP or name not in LARGE])
def test_agrees_with_onnxruntime(name):
    path = zoo.onnx_path(name)
    ours, theirs = weft_session(path), peer_session(path)
    for size in range(zoo.N_SIZES):
        feeds = zoo.inputs(name, size, seed=1)
        difference = largest_difference([o.numpy() for o in ours.run(feeds)], theirs.run(None, feeds))
        assert difference < 1e-3, f"{name} at {zoo.describe(name, size)}"


def test_decoder_generates_like_onnxruntime():
    """The keys and values that one step returns are the past of the next."""
    path = zoo.onnx_path("decoder_step")
    ours, theirs = weft_session(path), peer_session(path)
    feeds = zoo.inputs("decoder_step", 2)
    mine, peer = dict(feeds), dict(feeds)
    past = [name for name in feeds if name.startswith("past.")]
    for _ in range(6):
        found, expected = ours.run(mine), theirs.run(None, peer)
        assert largest_difference([f.numpy() for f in found], expected) < 1e-3
        token = expected[0][:, -1:].argmax(-1)
        assert (found[0].numpy()[:, -1:].argmax(-1) == token).all()
        mine = {"input_ids": token, **dict(zip(past, found[1:], strict=True))}
        peer = {"input_ids": token, **dict(zip(past, expected[1:], strict=True))}
    assert found[1].shape[2] == feeds[past[0]].shape[2] + feeds["input_ids"].shape[1] + 5


@pytest.mark.parametrize("name", ["text_recogniser", "mobilenet_v3", "text_detector"] if SWEEP else ["text_recogniser"])
def test_fixed_shapes_give_the_same(name, monkeypatch):
    monkeypatch.setenv("WEFT_OPT_LEVEL", "0")  # of the shapes alone: LLVM's optimiser meets the same networks above
    feeds = zoo.inputs(name, 1)
    path = zoo.onnx_path(name)
    fixed = weft_session(path, shape_dict={"image": list(feeds["image"].shape)})
    expected = peer_session(path).run(None, feeds)
    assert largest_difference([o.numpy() for o in fixed.run(feeds)], expected) < 1e-3
