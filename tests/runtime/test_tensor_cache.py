"""Folders of tensors, those that a process has loaded, and windows of rows that are overwritten."""

import json

import numpy as np
import pytest
from tvm_ffi import Shape
from weft.contrib import tvmjs

import weft
from tests.refusals import refuses


def function(name):
    return weft.get_global_func("vm.builtin." + name)


@pytest.fixture
def params():
    return {
        "w_0": np.random.default_rng(0).standard_normal((30, 7)).astype("float32"),
        "w_1": np.arange(5),
        "w_2": np.zeros((0, 3), "float32"),
        "b": np.array([np.inf, -3.4e38, 1e-40, 0.1], "float32"),
        "h": np.ones((2, 2), "float16"),
    }


def rounded(value):
    import ml_dtypes

    return value.astype(ml_dtypes.bfloat16).astype("float32")


@pytest.mark.parametrize("form", ["raw", "f32-to-bf16"])
def test_what_is_written_comes_back(tmp_path, params, form):
    tvmjs.dump_tensor_cache(params, tmp_path, form, {"a": 1}, shard_cap_mb=300 / (1 << 20))
    assert len(list(tmp_path.glob("params_shard_*.bin"))) > 1
    found, more = tvmjs.load_tensor_cache(tmp_path, weft.cpu())
    assert more == {"a": 1} and list(found) == list(params)
    for name, value in params.items():
        narrow = form != "raw" and value.dtype == "float32"
        expected = rounded(value) if narrow else value
        if name == "b" and narrow:
            expected[1] = -3.3895314e38  # finite numbers stay finite
        np.testing.assert_array_equal(found[name].numpy(), expected)
        assert found[name].numpy().dtype == value.dtype


def test_tensors_are_replaced_and_added(tmp_path, params):
    tvmjs.dump_tensor_cache(params, tmp_path, "raw")
    new = {"w_0": params["w_0"] + 1, "c": np.ones(3, "float32")}
    tvmjs.dump_tensor_cache(iter(new.items()), tmp_path, "raw", update_if_exists=True)
    found, _ = tvmjs.load_tensor_cache(tmp_path, weft.cpu())
    for name, value in {**params, **new}.items():
        np.testing.assert_array_equal(found[name].numpy(), value)
    with pytest.raises(weft.error.InvalidArgument, match="'c' is there already"):
        tvmjs.dump_tensor_cache({"c": np.ones(4, "float32")}, tmp_path, "raw", update_if_exists=True)


def test_loaded_tensors_by_name_and_number(tmp_path, params):
    tvmjs.dump_tensor_cache(params, tmp_path, "raw")
    function("tensor_cache.load")(str(tmp_path), 1, 0)
    try:
        assert len(function("param_array_from_cache")("w", -1)) == 3
        assert len(function("param_array_from_cache")("w", 2)) == 2
        (b,) = function("param_array_from_cache_by_name")(["b"])
        np.testing.assert_array_equal(b.numpy(), params["b"])
        refuses(ValueError, "w_3", function("param_array_from_cache"), "w", 4)
        refuses(ValueError, "loaded already", function("tensor_cache.update"), "b", b, False)
        function("tensor_cache.remove")("b")
        assert function("tensor_cache.get")("b") is None
    finally:
        function("tensor_cache.clear")()
    assert len(function("param_array_from_cache")("w", -1)) == 0


def test_damage_is_noticed(tmp_path, params):
    refuses(weft.error.InvalidArgument, "there are no tensors", tvmjs.load_tensor_cache, tmp_path, weft.cpu())
    tvmjs.dump_tensor_cache(params, tmp_path)
    description = tmp_path / "tensor-cache.json"
    rows = json.loads(description.read_text())
    rows["records"][0]["records"][0]["shape"] = [30, 8]
    whole = description.read_text()
    description.write_text(json.dumps(rows))
    with pytest.raises(weft.error.InvalidArgument, match="'w_0' does not have the bytes of its shape"):
        tvmjs.load_tensor_cache(tmp_path, weft.cpu())
    description.write_text(whole)
    shard = tmp_path / "params_shard_0.bin"
    data = bytearray(shard.read_bytes())
    data[3] ^= 1
    shard.write_bytes(data)
    refuses(weft.error.InvalidArgument, "is damaged", tvmjs.load_tensor_cache, tmp_path, weft.cpu())


@pytest.mark.parametrize("sinks", [0, 3])
def test_windows_keep_the_newest_rows(sinks):
    window, rows = 8, np.arange(60, dtype="int32").reshape(30, 2)
    start = weft.runtime.tensor(np.zeros((window, 2), "int32"))
    cache = function("attention_kv_cache_create")(start, Shape([window, 2]), 0)
    done = 0
    for n in [1, 2, 4, 3, 5, 1, 1, 5]:
        new = weft.runtime.tensor(rows[done : done + n])
        if sinks:
            function("attention_kv_cache_window_override_with_sinks")(cache, new, window, sinks)
        else:
            function("attention_kv_cache_window_override")(cache, new, window)
        done += n
        kept = min(done, window)
        found = function("attention_kv_cache_view")(cache, Shape([kept, 2])).numpy()
        first = min(sinks, done)
        expected = np.concatenate([rows[:first], rows[done - (kept - first) : done]])
        np.testing.assert_array_equal(found[np.argsort(found[:, 0])], expected)
    with pytest.raises(weft.error.ShapeMismatch, match="do not fit the window"):
        function("attention_kv_cache_window_override")(cache, weft.runtime.tensor(rows[:1]), 9)
