"""``weft inspect --schedule`` and ``weft profile`` say which rule took a kernel, and why others refused it."""

import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import weft
from tests import onnx_models
from weft.cli import main
from weft.tir.schedule.rules import select


def best_of_each():
    """A model of where the maxima of windows are, which no rule is for, and a product."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["y"], name="project"),
        helper.make_node("MaxPool", ["y"], ["m", "z"], name="best", kernel_shape=[2], strides=[2]),
    ]
    weights = {"w": np.ones((32, 64), np.float32)}
    return onnx_models.model(nodes, {"x": ("float32", (1, "rows", 32))}, {"z": ("int64", None)}, weights)


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


def convolution(channels, groups, size, **attributes):
    """A model of a convolution, and of where the maxima of its windows are."""
    weights = np.ones((channels, channels // groups, 3, 3), np.float32)
    node = helper.make_node("Conv", ["x", "w"], ["y"], name="mix", group=groups, pads=[1] * 4, **attributes)
    best = helper.make_node("MaxPool", ["y"], ["m", "z"], name="best", kernel_shape=[2, 2])
    image = ("float32", (1, channels, size, size))
    return onnx_models.model([node, best], {"x": image}, {"z": ("int64", None)}, {"w": weights})


def said(action):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        action()
    return [str(w.message) for w in caught if issubclass(w.category, weft.error.ScheduleWarning)]


def test_a_kernel_without_a_rule_that_costs_a_tenth_of_the_model_is_warned_of(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    model = convolution(4, 1, 256)
    (first,) = said(lambda: weft.Session(model))
    for part in (
        "'nn_max_pool_with_indices'",
        '"best" (MaxPool)',
        "% of the model's time",
        "rows: a reduction is not of the form",
        "help:",
    ):
        assert part in first
    assert said(lambda: weft.Session(model)) == [first], "kernels come from the cache now"


def test_a_model_from_the_cache_of_models_is_warned_of_each_time(tmp_path, monkeypatch):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("WEFT_MODEL_CACHE", "1")
    onnx.save(convolution(4, 1, 256), str(tmp_path / "m.onnx"))
    messages = [said(lambda: weft.Session(tmp_path / "m.onnx")) for _ in range(2)]
    assert messages[0] == messages[1] and len(messages[0]) == 1


def test_what_costs_little_or_suits_a_rule_is_not_warned_of():
    assert said(lambda: weft.Session(best_of_each())) == []
    assert said(lambda: weft.Session(convolution(32, 8, 24))) == []


def test_a_refused_rule_is_warned_of_with_its_reason(monkeypatch, tmp_path):
    def refusing(ctx, name):
        raise weft.error.ScheduleError("grouped: not today")

    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(select, "schedule_grouped", refusing)
    (message,) = said(lambda: weft.Session(convolution(128, 32, 28)))
    for part in ('"mix" (Conv)', "grouped: not today", "groups of 4 columns are not whole vectors"):
        assert part in message
