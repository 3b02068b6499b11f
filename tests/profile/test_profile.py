"""Profiles of models: work, rates, where kernels come from, and the files that are written."""

import json
import re

import numpy as np
import onnx
import pytest
from onnx import helper

from tests import onnx_models
from weft import error, profile, te
from weft.cli import main
from weft.tir.analysis.work import work_of

CEILINGS = (100.0, 10.0)


def model(path=None):
    """relu(x @ w + b), softmax: (n, 64) to (n, 32)."""
    rng = np.random.default_rng(0)
    weights = {"w": rng.standard_normal((64, 32)).astype(np.float32), "b": rng.standard_normal(32).astype(np.float32)}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="product"),
        helper.make_node("Add", ["p", "b"], ["q"], name="bias"),
        helper.make_node("Relu", ["q"], ["r"], name="relu"),
        helper.make_node("Softmax", ["r"], ["y"], name="softmax", axis=-1),
    ]
    made = onnx_models.model(nodes, {"x": ("float32", ("n", 64))}, {"y": ("float32", ("n", 32))}, weights)
    if path is not None:
        onnx.save(made, path)
    return made


def test_kernels_rates_and_nodes():
    found = profile.profile_model(model(), {"x": np.ones((5, 64), np.float32)}, repeat=3, ceilings=CEILINGS)
    product = next(k for k in found.kernels if "matmul" in k.name)
    assert re.findall(r'"(\w+)"', " ".join(product.nodes)) == ["product", "bias", "relu"]
    operations = 5 * 32 * (64 * 2 + 2)  # multiply and add, bias, maximum
    assert product.gflops == pytest.approx(operations / product.us / 1e3)
    volume = 4 * (5 * 64 + 64 * 32 + 32 + 5 * 32)
    assert product.gbytes == pytest.approx(volume / product.us / 1e3)
    assert product.roofline == pytest.approx(max(product.gflops / 100, product.gbytes / 10))
    softmax = next(k for k in found.kernels if "softmax" in k.name)
    assert softmax.calls == 1 and "softmax" in softmax.nodes[0]
    assert [k.us for k in found.kernels] == sorted((k.us for k in found.kernels), reverse=True)
    assert found.total_us > 0


def test_work_of_symbolic_extents():
    """Dimensions that are expressions of variables that no argument has are known by the arguments' shapes."""
    n = te.var("n", "int64")
    x = te.placeholder(((n + 1) // 2, 4), name="x")
    func = te.create_prim_func([x, te.compute(((n + 1) // 2, 4), lambda i, j: x[i, j] * 2.0 + 1.0, name="y")])
    assert work_of(func, [(7, 4), (7, 4)]) == (7 * 4 * 2, 2 * 7 * 4 * 4)
    assert work_of(func) is None


def test_indices_are_no_work():
    x = te.placeholder((8, 8), name="x")
    func = te.create_prim_func([x, te.compute((64,), lambda i: x[i // 8, i % 8] + 1.0, name="y")])
    assert work_of(func).operations == 64


def test_page(tmp_path):
    found = profile.profile_model(model(), {"x": np.ones((5, 64), np.float32)}, repeat=1, ceilings=CEILINGS)
    profile.write_page(found, tmp_path / "p.html", "<model> & more")
    text = (tmp_path / "p.html").read_text()
    assert "&lt;model&gt; &amp; more" in text and "http" not in text
    data = json.loads(re.search(r'id="profile">(.*?)</script>', text)[1])
    assert data == json.loads(json.dumps(found.as_dict())) and len(data["kernels"]) == len(found.kernels)


def test_command(tmp_path, capsys):
    model(tmp_path / "m.onnx")
    files = {name: tmp_path / name for name in ("p.json", "p.html", "p.trace")}
    options = ["--json", files["p.json"], "--html", files["p.html"], "--trace", files["p.trace"], "--repeat", 1]
    assert main(["profile", str(tmp_path / "m.onnx"), "--shape", "x=3,64", *map(str, options)]) == 0
    printed = capsys.readouterr().out
    assert "GFLOP/s" in printed and "product" in printed
    assert json.loads(files["p.json"].read_text())["kernels"]
    assert all(e["dur"] >= 0 for e in json.loads(files["p.trace"].read_text())["traceEvents"])
    assert main(["profile", str(tmp_path / "none.onnx")]) == 1
    assert main(["profile", str(tmp_path / "none.so")]) == 1


def test_bad_numbers():
    with pytest.raises(error.InvalidArgument, match="runs"):
        profile.profile_model(model(), {"x": np.ones((5, 64), np.float32)}, repeat=0)
