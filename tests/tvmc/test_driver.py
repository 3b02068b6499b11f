"""TVM's driver: a model file is loaded, tuned, compiled to a package and run, from Python and as a command."""

import io
import json
import subprocess
import sys

import numpy as np
import pytest
from weft.driver.tvmc.main import main
from weft.driver.tvmc.model import TVMCModel, TVMCPackage
from weft.driver.tvmc.result_utils import get_top_results
from weft.driver.tvmc.shape_parser import parse_shape_string
from weft.driver.tvmc.tracker import tracker_host_port_from_cli

import weft
from tests import onnx_models
from tests.refusals import refuses
from weft import ir, relay, rpc
from weft.driver import tvmc
from weft.error import WeftError

X = np.random.default_rng(0).standard_normal((3, 8), np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with m.onnx, x.npz and its outputs, and p.tar for both machines."""
    made = tmp_path_factory.mktemp("tvmc")
    proto, w, b = onnx_models.linear()
    (made / "m.onnx").write_bytes(proto.SerializeToString())
    np.savez(made / "x.npz", x=X)
    np.save(made / "y.npy", np.maximum(X @ w + b, 0))
    return made


@pytest.fixture(scope="module")
def model(folder):
    return tvmc.load(str(folder / "m.onnx"), shape_dict={"x": [3, 8]})


def same(result, folder):
    np.testing.assert_allclose(result.get_output("output_0"), np.load(folder / "y.npy"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("use_vm", [False, True])
def test_a_package_is_run_timed_and_opened_again(model, folder, tmp_path, capsys, use_vm):
    path = str(tmp_path / "p.tar")
    package = tvmc.compile(model, target="llvm", use_vm=use_vm, package_path=path)
    assert (package.type, package.executor_type) == (("vm", "vm") if use_vm else ("classic", "graph"))
    timing = {"benchmark": True, "repeat": 3, "number": 2, "profile": True, "end_to_end": True}
    result = tvmc.run(TVMCPackage(path), device="cpu", inputs={"x": X}, **timing)
    same(result, folder)
    assert len(result.times.results) == 3
    assert "output_0" in str(result)
    assert "Total" in capsys.readouterr().out
    result.save(str(tmp_path / "y.npz"))
    assert np.load(tmp_path / "y.npz").files == ["output_0"]


def test_a_package_is_run_on_another_machine(model, folder):
    package, server = tvmc.compile(model, target="llvm"), rpc.Server("127.0.0.1")
    same(tvmc.run(package, "cpu", "127.0.0.1", server.port, inputs={"x": X}), folder)
    server.terminate()


@pytest.mark.parametrize("enable_autoscheduler", [False, True])
def test_a_model_is_tuned_and_compiled_with_what_was_found(model, folder, enable_autoscheduler):
    log = tvmc.tune(model, "llvm", enable_autoscheduler=enable_autoscheduler, trials=1, tuner="random", timeout=60)
    tvmc.compile(model, "llvm", tuning_records=log)
    saved = str(folder / "saved.tar")
    model.save(saved)
    again = TVMCModel(model_path=saved)
    assert ir.structural_equal(again.mod, model.mod)
    assert open(again.default_tuning_records_path()).read() == open(log).read()  # noqa: PTH123, SIM115
    same(tvmc.run(TVMCPackage(again.default_package_path()), "cpu", inputs={"x": X}), folder)


def test_damaged_archives_are_refused(model, tmp_path):
    path = tmp_path / "p.tar"
    tvmc.compile(model, target="llvm", package_path=str(path))
    data, other = path.read_bytes(), tmp_path / "cut.tar"
    for length in range(0, 4096, 100):  # before the library is whole
        other.write_bytes(data[:length])
        refuses(WeftError, str(other), TVMCPackage, str(other))
    refuses(tvmc.TVMCException, "FileNotFoundError", TVMCModel, model_path=str(path))
    other.write_text("not a record")
    refuses(tvmc.TVMCException, "no log of tuning", tvmc.compile, model, "llvm", tuning_records=str(other))


def test_layouts_and_narrow_types_are_chosen_before():
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(4, 4, 3, 3))
    mod = relay.transform.InferType()(weft.IRModule.from_expr(relay.nn.conv2d(x, w, channels=4, kernel_size=(3, 3))))
    assert "NHWC" in str(tvmc.transform.apply_graph_transforms(mod, "NHWC:HWIO", "[nn.conv2d]"))
    assert "float16" in str(tvmc.transform.apply_graph_transforms(mod, mixed_precision=True))
    refuses(tvmc.TVMCException, "expected 1 or 3", tvmc.transform.convert_graph_layout, mod, ["NHWC"] * 2)


def test_the_command_compiles_and_runs(folder, tmp_path, capfd):
    path, out = str(tmp_path / "c.tar"), str(tmp_path / "y.npz")
    line = f"compile -O 2 --input-shapes x:[3,8] --target-llvm-mcpu haswell --executor-graph-link-params=1 -o {path}"
    more = "--dump-code relay,ll --pass-config tir.disable_vectorize=1 --print-pass-times"
    assert main([*line.split(), *more.split(), str(folder / "m.onnx")]) == 0
    assert "us]" in capfd.readouterr().out
    assert "define" in (tmp_path / "c.tar.ll").read_text()
    command = f"run --inputs {folder / 'x.npz'} --print-time --print-top 2 --outputs {out} {path}"
    subprocess.run([sys.executable, "-m", "weft.driver.tvmc", *command.split()], check=True)
    assert "mean (ms)" in capfd.readouterr().out
    np.testing.assert_allclose(np.load(out)["output_0"], np.load(folder / "y.npy"), rtol=1e-4, atol=1e-5)
    assert main(["tune", "--tasks", "list", "--input-shapes", "x:[3,8]", str(folder / "m.onnx")]) == 0
    assert "0. " in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("compile nowhere.onnx", "doesn't exist"),
        ("compile m.onnx -f mlf", "expected 'so' or 'tar'"),
        ("compile m.onnx --model-format keras", "no importer for 'keras'"),
        ("compile m.onnx --pass-config tir.disable_vectorize", "name=value"),
        ("tune m.onnx --tuner best", "unknown tuner 'best'"),
        ("run m.onnx", "an archive does not hold files alone"),
        ("tune m.onnx --tasks 99", "numbers below"),
    ],
)
def test_the_command_says_what_is_wrong(folder, capsys, monkeypatch, words, said):
    monkeypatch.chdir(folder)
    shapes = ["--input-shapes", "x:[3,8]"] if not words.startswith("run") else []
    assert main([*words.split(), *shapes]) == 1
    assert said in capsys.readouterr().err


def test_a_line_that_makes_no_sense(capsys):
    assert main(["compile", "m.onnx", "--bogus", "3"]) == 2
    assert "--bogus" in capsys.readouterr().err


def test_small_parts(model):
    shown = io.StringIO()
    model.summary(shown)
    assert "nn.relu" in shown.getvalue()
    assert parse_shape_string("a/b:0: [1, 2] c:[-1]")["a/b:0"] == [1, 2]
    assert tracker_host_port_from_cli("10.0.0.4:9190") == ("10.0.0.4", 9190)
    assert tracker_host_port_from_cli("10.0.0.4") == ("10.0.0.4", 9090)
    top = get_top_results(tvmc.TVMCResult({"output_0": np.array([[1.0, 5, 3]])}, None), 2)
    assert top.tolist() == [[1, 2], [5, 3]]
    target = tvmc.compiler.target_from_cli(json.dumps({"kind": "llvm"}), {"llvm": {"mcpu": "haswell"}})
    assert target.attrs["mcpu"] == "haswell"
    for kind, pattern, call in (
        (tvmc.TVMCException, "unknown fill mode", lambda: tvmc.runner.generate_tensor_data((1,), "int8", "some")),
        (tvmc.TVMCException, "no input 'z'", lambda: tvmc.runner.make_inputs_dict({"x": (1,)}, {}, {"z": 0})),
        (FileNotFoundError, "nowhere", lambda: tvmc.load("nowhere.onnx")),
        (tvmc.TVMCException, "does not say", lambda: tvmc.load("model.bin")),
    ):
        refuses(kind, pattern, call)
