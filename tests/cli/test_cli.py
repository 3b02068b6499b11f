"""The command line: every command, its exit codes, and what it prints where there is no terminal."""

import sys

import numpy as np
import pytest

import weft
from tests import clock, onnx_models
from weft.cli import main


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with m.onnx, m.so and x.npy."""
    folder = tmp_path_factory.mktemp("cli")
    proto, w, b = onnx_models.linear()
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    assert main(["compile", str(folder / "m.onnx"), "-o", str(folder / "m.so")]) == 0
    x = np.random.default_rng(0).standard_normal((3, 8), np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "expected.npy", np.maximum(x @ w + b, 0))
    return folder


@pytest.fixture
def expected(files):
    return np.load(files / "expected.npy")


@pytest.mark.parametrize("model", ["m.so", "m.onnx"])
def test_run_writes_outputs(files, expected, tmp_path, capsys, model):
    out = tmp_path / "y.npz"
    assert main(["run", str(files / model), "--input", f"x=@{files / 'x.npy'}", "--output", str(out)]) == 0
    np.testing.assert_allclose(np.load(out)["y"], expected, rtol=1e-4, atol=1e-5)
    assert f"wrote {out}" in capsys.readouterr().out


def test_run_reads_archives_and_writes_npy(files, expected, tmp_path):
    np.savez(tmp_path / "in.npz", x=np.load(files / "x.npy"))
    arguments = ["run", str(files / "m.so"), "-i", f"@{tmp_path / 'in.npz'}", "-o", str(tmp_path / "y.npy")]
    assert main(arguments) == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), expected, rtol=1e-4, atol=1e-5)


def test_run_reads_json(files, tmp_path):
    rows = "[[1,2,3,4,5,6,7,8]]"
    assert main(["run", str(files / "m.so"), "--input", f"x={rows}", "--output", str(tmp_path / "y.npz")]) == 0
    assert np.load(tmp_path / "y.npz")["y"].shape == (1, 5)


def test_run_makes_random_inputs_and_times(files, capsys):
    assert main(["run", str(files / "m.so"), "--shape", "x=5,8", "--repeat", "7"]) == 0
    printed = capsys.readouterr().out
    assert "random inputs: x float32 [5, 8]" in printed
    assert "latency of 7 runs" in printed
    for word in ("min", "p50", "p90", "p99", "max", "mean"):
        assert f"  {word}\t" in printed


def test_random_inputs_agree_about_symbols(tmp_path, capsys):
    (tmp_path / "add.onnx").write_bytes(onnx_models.add().SerializeToString())
    assert main(["run", str(tmp_path / "add.onnx"), "--shape", "y=6,4"]) == 0
    assert "x float32 [6, 4], y float32 [6, 4]" in capsys.readouterr().out


REFUSED = {
    "no such file": (["run", "{}/nowhere.onnx"], "nowhere.onnx"),
    "malformed input": (["run", "{}/m.so", "--input", "x"], "malformed --input"),
    "unreadable input": (["run", "{}/m.so", "--input", "x=@{}/none.npy"], "cannot read"),
    "input that is no array": (["run", "{}/m.so", "--input", "x=@{}/m.onnx"], "is no NumPy file"),
    "input that is no JSON": (["run", "{}/m.so", "--input", "x=[1,"], "neither a file nor JSON"),
    "input twice": (["run", "{}/m.so", "--input", "x=1", "--input", "x=2"], "two values for input 'x'"),
    "unknown input": (["run", "{}/m.so", "--input", "x=@{}/x.npy", "--input", "q=1"], "unknown: q"),
    "wrong rank": (["run", "{}/m.so", "--input", "x=[1,2]"], "input 'x' has a wrong rank"),
    "repeat": (["run", "{}/m.so", "--repeat", "0"], "at least 1"),
    "output": (["run", "{}/m.so", "--output", "y.txt"], ".npz or .npy"),
    "output folder": (["run", "{}/m.so", "--output", "{}/no/y.npz"], "cannot write"),
    "malformed shape": (["compile", "{}/m.onnx", "-o", "{}/n.so", "--shape", "x"], "malformed --shape"),
    "shape that cannot be": (["compile", "{}/m.onnx", "-o", "{}/n.so", "--shape", "x=2,9"], "fixed dimension"),
    "folder": (["compile", "{}/m.onnx", "-o", "{}/none/n.so"], "folder does not exist"),
    **{o: (["profile", "{}/m.onnx", o, "{}/none/p"], "does not exist") for o in ("--json", "--trace", "--html")},
    "target": (["compile", "{}/m.onnx", "-o", "{}/n.so", "--target", "llvmm"], "did you mean 'llvm'"),
    "stage": (["inspect", "{}/m.onnx", "--stage", "FuseOp"], "did you mean 'FuseOps'"),
    "stage of a library": (["inspect", "{}/m.so", "--stage", "FuseOps"], "no stage"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_errors_are_messages(files, capsys, kind):
    words, message = REFUSED[kind]
    assert main([w.replace("{}", str(files)) for w in words]) == 1
    printed = capsys.readouterr().err
    assert "error: " in printed
    assert message in printed
    assert "Traceback" not in printed


@pytest.mark.parametrize(
    "words", [["run"], ["compile", "m.onnx"], ["frobnicate"], ["run", "m.so", "--repeat", "many"], ["cache", "burn"]]
)
def test_bad_usage_ends_with_2(words):
    assert main(words) == 2


def test_help_and_version(capsys):
    assert main(["--version"]) == 0
    assert weft.__version__ in capsys.readouterr().out
    assert main(["--help"]) == 0
    printed = capsys.readouterr().out
    for command in ("compile", "run", "inspect", "doctor", "cache"):
        assert command in printed


def test_compile_fixes_shapes(files, tmp_path):
    out = tmp_path / "fixed.so"
    assert main(["compile", str(files / "m.onnx"), "-o", str(out), "--shape", "x=3,8"]) == 0
    assert weft.Session(out).inputs[0].shape == (3, 8)


@pytest.mark.filterwarnings("ignore:precision")
def test_compile_writes_webassembly(files, tmp_path, capsys):
    out = tmp_path / "m.wasm"
    assert main(["compile", str(files / "m.onnx"), "-o", str(out), "--target", "wasm32"]) == 0
    assert out.read_bytes().startswith(b"\x00asm\x01") and b"weft.modules" in out.read_bytes()
    assert main(["run", str(out)]) == 1
    assert "runs in JavaScript" in capsys.readouterr().err


def test_compile_takes_a_precision(files, expected, tmp_path, capsys):
    out = tmp_path / "bf16.so"
    assert main(["compile", str(files / "m.onnx"), "-o", str(out), "--precision", "bf16"]) == 0
    assert main(["run", str(out), "-i", f"x=@{files / 'x.npy'}", "-o", str(tmp_path / "y.npy")]) == 0
    found = np.load(tmp_path / "y.npy")
    np.testing.assert_allclose(found, expected, atol=2e-2 * np.abs(expected).max())
    assert main(["run", str(files / "m.onnx"), "--precision", "fp8"]) == 1
    assert "unknown precision 'fp8'" in capsys.readouterr().err


def test_compile_reports_progress_in_lines(files, tmp_path, capsys):
    assert main(["compile", str(files / "m.onnx"), "-o", str(tmp_path / "m.so")]) == 0
    printed = capsys.readouterr()
    assert "compiling m.onnx" in printed.err
    assert "kernels" in printed.err
    assert "\x1b" not in printed.err + printed.out


def test_inspect_shows_every_stage(files, capsys):
    assert main(["inspect", str(files / "m.onnx"), "--stage", "stages"]) == 0
    stages = capsys.readouterr().out.split()
    assert {"import", "FuseOps", "StaticPlanBlockMemory", "bytecode", "kernels", "memory"} <= set(stages)
    for stage in stages:
        assert main(["inspect", str(files / "m.onnx"), "--stage", stage]) == 0, stage
        assert capsys.readouterr().out.strip(), stage


def test_inspect_spells_stages_freely(files, capsys):
    for spelling in ("FuseOps", "fuse-ops", "fuse_ops", "fuseops"):
        assert main(["inspect", str(files / "m.onnx"), "--stage", spelling]) == 0
        assert "main" in capsys.readouterr().out


def test_inspect_of_a_library(files, capsys):
    assert main(["inspect", str(files / "m.so")]) == 0
    assert "input\tx\tfloat32\t(rows, 8)" in capsys.readouterr().out
    assert main(["inspect", str(files / "m.so"), "--stage", "bytecode"]) == 0
    assert "@main" in capsys.readouterr().out


def test_doctor(capsys):
    assert main(["doctor"]) == 0
    printed = capsys.readouterr().out
    for word in ("weft", "llvmlite", "features", "threads for kernels", "kernel cache", "linker"):
        assert word in printed


def test_cache(files, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WEFT_CACHE_DIR", str(tmp_path))
    assert main(["inspect", str(files / "m.onnx")]) == 0
    entries = len([*tmp_path.glob("??/*")])
    assert entries > 0
    capsys.readouterr()
    assert main(["cache", "info"]) == 0
    assert f"entries\t{entries}\n" in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert f"deleted {entries} entries" in capsys.readouterr().out
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


def test_python_dash_m(files):
    run = clock.run([sys.executable, "-m", "weft", "run", str(files / "gone.so")])
    assert run.returncode == 1
    assert "no such library" in run.stderr
