"""``weft inspect --schedule`` and ``weft profile`` say which rule took a kernel, and why others refused it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import weft
from weft.cli import main


def best_of_each():
    """A model of an ArgMax, which no rule is for, and a product."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="project"),
        helper.make_node("ArgMax", ["y"], ["z"], name="best", axis=-1, keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "best",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 32])],
        [helper.make_tensor_value_info("z", TensorProto.INT64, None)],
        [onnx.numpy_helper.from_array(np.ones((32, 64), np.float32), "w")],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("schedule")
    onnx.save(best_of_each(), str(folder / "m.onnx"))
    main(["compile", str(folder / "m.onnx"), "-o", str(folder / "m.so")])
    return folder


def printed(capsys, *arguments):
    assert main(list(arguments)) == 0
    return capsys.readouterr().out


def test_inspect_says_which_rules_took_the_kernels_of_a_model_and_of_a_library(files, capsys):
    of_model = printed(capsys, "inspect", str(files / "m.onnx"), "--schedule")
    assert "no rule suits" in of_model and "which does not suit it" in of_model and "refused" in of_model
    assert "of the machine's ceiling" in of_model
    of_library = printed(capsys, "inspect", str(files / "m.so"), "--schedule")
    assert of_library == of_model


def test_profile_has_a_column_of_rules_and_says_what_was_refused(files, capsys):
    text = printed(capsys, "profile", str(files / "m.onnx"), "--repeat", "1")
    assert "\tgeneric\t" in text and "no schedule rule suits it; " in text


def test_records_come_from_the_cache_and_from_other_processes(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    fresh = weft.Session(best_of_each()).schedule
    assert fresh and "refused" in fresh
    assert weft.Session(best_of_each()).schedule == fresh
