"""Programs in C++ find an installed Weft by CMake, pkg-config and ``weft config``, and run a model."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tvm_ffi.libinfo

import weft
from tests import onnx_models
from weft.cli import main
from weft.ffi import find_library
from weft.support.system_library import create_object

ROOT = Path(__file__).resolve().parents[2]
SHARE = ROOT / "weft/share"

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")


def values(*shape):
    """What the examples give a model."""
    return (np.arange(np.prod(shape)) % 7 - 3).astype("float32").reshape(shape)


def expected_lines(threads, w, b):
    total = np.maximum(values(3, 8) @ w + b, 0).sum(dtype="float64")
    return [
        "input x: float32 [rows, 8]",
        "output y: float32 [rows, 5]",
        *[f"sum {total:.4f}"] * threads,
        "InvalidArgument: main: parameter 0 'x': expected ndim 2, found 3: a tensor float32[3, 8, 1]",
    ]


def same_lines(printed, wanted):
    """Whether lines are the same; sums may differ in their last digits."""
    lines = printed.splitlines()
    assert len(lines) == len(wanted), printed
    for line, want in zip(lines, wanted, strict=True):
        if want.startswith("sum "):
            assert float(line.removeprefix("sum ")) == pytest.approx(float(want.removeprefix("sum ")), rel=1e-4)
        else:
            assert line == want


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A library, the object of the same model, and its weights."""
    folder = tmp_path_factory.mktemp("hosts")
    proto, w, b = onnx_models.linear()
    (folder / "m.onnx").write_bytes(proto.SerializeToString())
    documented("model", folder)
    assert main(["compile", str(folder / "m.onnx"), "-o", str(folder / "m.o"), "--system-lib", "--prefix", "p_"]) == 0
    return folder, w, b


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Packages beside each other, as a wheel lays them."""
    site = tmp_path_factory.mktemp("site")
    (site / "weft/lib").mkdir(parents=True)
    shutil.copytree(SHARE, site / "weft/share")
    for name, place in {
        "include": ROOT / "native/include",
        "native": ROOT / "native",
        "__init__.py": ROOT / "weft/__init__.py",
    }.items():
        (site / "weft" / name).symlink_to(place)
    (site / "weft/lib" / find_library().name).symlink_to(find_library())
    (site / "tvm_ffi").symlink_to(Path(tvm_ffi.libinfo.find_libtvm_ffi()).parents[1])
    return site


def documented(page_block, folder, python=None, lines=None):
    """Run the first commands of a block of docs/deploy.md, by this checkout or what `python` has; what they print."""
    page = (ROOT / "docs/deploy.md").read_text()
    (commands,) = re.findall(rf"^```sh {re.escape(page_block)}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    for part in ("examples", "weft") if python is None else ("examples",):
        if not (folder / part).exists():
            (folder / part).symlink_to(ROOT / part)
    (folder / "bin").mkdir(exist_ok=True)
    (folder / "bin/python").write_text(f'#!/bin/sh\nexec "{python or sys.executable}" "$@"\n')
    (folder / "bin/python").chmod(0o755)
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT) if python is None else "",
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
        "CARGO_TARGET_DIR": str(folder / "cargo"),
        "CMAKE_BUILD_PARALLEL_LEVEL": "2",
        "CMAKE_GENERATOR": "Unix Makefiles",
        "CMAKE_BUILD_TYPE": "None",  # neither optimised nor with what debuggers read
    }
    command = ["bash", "-e", "-c", "\n".join(commands.splitlines()[:lines])]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_cmake_finds_a_checkout_and_the_example_runs(model):
    folder, w, b = model
    wanted = expected_lines(3, w, b)
    printed = documented("c++", folder)
    same_lines("\n".join(printed.splitlines()[-len(wanted) :]), wanted)
    lost = subprocess.run([folder / "build/host", folder / "none.so"], capture_output=True, text=True)
    assert lost.returncode == 1 and "none.so" in lost.stdout


def project(folder, body):
    (folder / "CMakeLists.txt").write_text(f"cmake_minimum_required(VERSION 3.20)\nproject(p NONE)\n{body}\n")
    command = ["cmake", "-S", str(folder), "-B", str(folder / "build")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("ask", "message"),
    [(weft.__version__, None), ("0.1", None), ("99.0", "99.0"), ("", None), ("COMPONENTS dynamic", "it has: static")],
)
def test_cmake_finds_installed_packages_without_python(installed, tmp_path, ask, message):
    body = [
        f"set(weft_DIR {installed}/weft/share/cmake/weft)",
        f"find_package(weft {ask} REQUIRED)",
        "get_target_property(at weft::runtime IMPORTED_LOCATION)",
        'message("at ${at} ${Python_FOUND}")',
    ]
    done = project(tmp_path, "\n".join(body))
    assert (done.returncode == 0) == (message is None), done.stderr
    assert (message or f"at {installed}/weft/lib/{find_library().name} \n") in done.stderr


@pytest.mark.skipif(shutil.which("pkg-config") is None, reason="needs pkg-config")
def test_pkg_config_and_the_versions(installed):
    environment = {**os.environ, "PKG_CONFIG_PATH": str(installed / "weft/share/pkgconfig")}

    def asked(*options):
        return subprocess.check_output(["pkg-config", *options, "weft"], env=environment, text=True).strip()

    assert asked("--modversion") == weft.__version__
    assert f'version = "{weft.__version__}"' in (SHARE / "rust/Cargo.toml").read_text()
    assert json.loads((ROOT / "web/package.json").read_text())["version"] == weft.__version__
    folders = [Path(o.removeprefix("-I")) for o in asked("--cflags").split()]
    assert (folders[0] / "weft/vm.h").is_file() and (folders[1] / "tvm/ffi/c_api.h").is_file()
    options = asked("--libs").split()
    places = [Path(o.removeprefix("-L")) for o in options if o.startswith("-L")]
    for name in ("weft_runtime", "tvm_ffi"):
        assert f"-l{name}" in options and any(next(p.glob(f"lib{name}.*"), None) for p in places)


def test_config_prints_what_is_there(capsys):
    folders = ["--cmake", "--pkgconfig", "--includes", "--library", "--sources", "--tvm-ffi", "--java", "--rust"]
    assert main(["config", *folders, "--cflags", "--libs"]) == 0
    printed = capsys.readouterr().out.splitlines()
    lines, (flags, libs) = printed[:6] + printed[8:], printed[6:8]
    inside = [
        "weft-config.cmake",
        "weft.pc",
        "weft/vm.h",
        "",
        "static.cmake",
        "include/tvm/ffi/c_api.h",
        "Weft.java",
        "Cargo.toml",
    ]
    assert all((Path(folder) / name).exists() for folder, name in zip(lines, inside, strict=True)), lines
    assert all(Path(f.removeprefix("-I")).is_dir() for f in flags.split()) and str(find_library()) in libs


def test_config_asks_what_is_wanted(capsys):
    assert main(["config"]) == 1
    assert "needs to know what to print" in capsys.readouterr().err


def test_an_object_registers_its_model_and_keeps_its_names(model, tmp_path):
    folder, w, b = model
    symbols = subprocess.check_output(["nm", str(folder / "m.o")], text=True)
    assert not re.findall(r" [A-TVX-Z] .*", symbols), "what another model has, too, is no global symbol"
    library = tmp_path / "linked.so"  # a program that has the object: the constructor runs when it is loaded
    ffi = tvm_ffi.libinfo.find_libtvm_ffi()
    other = folder / "other.o"
    assert main(["compile", str(folder / "m.onnx"), "-o", str(other), "--system-lib"]) == 0
    command = ["c++", "-shared", "-o", str(library), str(folder / "m.o"), str(other), ffi, str(find_library())]
    subprocess.run(command, check=True)
    program = f"""
import ctypes, numpy as np, weft.runtime
ctypes.CDLL({str(library)!r})
x = np.load({str(tmp_path / "x.npy")!r})
y, z = (weft.relax.VirtualMachine(weft.runtime.system_lib(p), weft.cpu())["main"](x).numpy() for p in ("p_", ""))
np.save({str(tmp_path / "y.npy")!r}, y)
assert (y == z).all()
"""
    np.save(tmp_path / "x.npy", values(2, 8))
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), np.maximum(values(2, 8) @ w + b, 0), rtol=1e-4, atol=1e-5)


def test_wrong_prefixes_are_refused(tmp_path, capsys):
    with pytest.raises(weft.error.InvalidArgument, match="part of a name in C"):
        create_object(tmp_path / "m.o", [], prefix="a-b")
    assert main(["compile", "m.onnx", "-o", "m.so", "--prefix", "p_"]) == 1
    assert "add --system-lib" in capsys.readouterr().err
