"""Libraries carry a digest: what was damaged is refused before its code is mapped; what has none is loaded as ever."""

import ctypes
import os
import random
import subprocess
import sys

import numpy as np
import pytest
from onnx import helper

import weft
from tests import onnx_models
from tests.refusals import refuses
from tests.runtime.programs import add_twice
from weft import ffi, runtime
from weft.runtime.elf import find_section
from weft.runtime.link import CONTAINER_MAGIC, UNSEALED_MAGIC


@pytest.fixture(scope="module", params=[False, True], ids=["library", "container"])
def exported(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("sealed") / "model.so"
    add_twice(2).export_library(path, container=request.param)
    return path.read_bytes()


def test_damage_anywhere_is_refused(exported, tmp_path):
    rng = random.Random(0)
    for at in [*rng.sample(range(len(exported)), 60), len(exported) - 1, len(exported) - 90]:
        data = bytearray(exported)
        data[at] ^= 1 << rng.randrange(8)
        path = tmp_path / f"{at}.so"
        path.write_bytes(data)
        if at in range(len(exported) - 56, len(exported) - 48):  # zeros that mean nothing
            continue
        refuses(weft.error.ExecutableError, "damaged", weft.runtime.load_module, path)


def test_pieces_put_together_are_refused(exported, tmp_path):
    path = tmp_path / "model.so"
    for at, other in ((4096, 4097), (5000, 4000), (0, 8)):
        path.write_bytes(exported[:at] + exported[other:])
        refuses(weft.error.ExecutableError, "damaged", weft.runtime.load_module, path)


def test_every_cut_is_refused(exported, tmp_path):
    """Also one that takes the digest and nothing else, by Python and by the C entry."""
    path, library, out = tmp_path / "model.so", ctypes.CDLL(str(ffi.find_library())), ctypes.c_void_p()
    path.write_bytes(exported)
    for size in [*range(len(exported) - 1, len(exported) - 300, -1), *range(len(exported) - 300, -1, -31)]:
        os.truncate(path, size)
        refuses(weft.error.ExecutableError, "", weft.runtime.load_module, path)
        assert library.weft_load_module(os.fsencode(path), ctypes.byref(out)) != 0, size


def test_a_library_without_a_digest_is_loaded(exported, tmp_path):
    """One that ``strip`` has written anew, and a container of the form that had none."""
    path = tmp_path / "model.so"
    path.write_bytes(exported)
    if exported.startswith(CONTAINER_MAGIC):
        path.write_bytes(exported[:-96].replace(CONTAINER_MAGIC, UNSEALED_MAGIC))
    else:
        subprocess.run(["strip", path], check=True)
    assert not runtime.seal.check_seal(path)
    assert weft.runtime.load_module(path) is not None


def test_large_weights_are_summed_up(tmp_path, monkeypatch):
    monkeypatch.setattr(runtime.seal, "_LARGE", 1000)
    path = tmp_path / "model.so"
    weights = np.arange(5000, dtype=np.float32)
    weft.Session(model_with(weights)).executable.export_library(path)
    start, length = find_section(path, ".weft")
    data, pattern = bytearray(path.read_bytes()), weights[1000:1100].tobytes()
    at = bytes(data).index(pattern)
    assert start <= at < start + length
    sums = len(data) - 64
    for place in (at, start - 1, sums):
        data[place] ^= 1
        os.remove(path)
        path.write_bytes(data)
        refuses(weft.error.ExecutableError, "damaged", weft.runtime.load_module, path)
        data[place] ^= 1
    data[sums : sums + 8] = bytes(8)  # as early versions wrote it: weights are not looked at
    data[at] ^= 1
    os.remove(path)
    path.write_bytes(data)
    weft.runtime.load_module(path)


def test_the_c_entry_refuses_what_is_damaged(tmp_path):
    path = tmp_path / "model.so"
    add_twice(2).export_library(path)
    library, out = ctypes.CDLL(str(ffi.find_library())), ctypes.c_void_p()
    assert library.weft_load_module(os.fsencode(path), ctypes.byref(out)) == 0
    sound = path.read_bytes()
    for at in (len(sound) // 2, len(sound) - 64, len(sound) - 1, len(sound) - 200):
        data = bytearray(sound)
        data[at] ^= 4
        other = tmp_path / f"{at}.so"
        other.write_bytes(data)
        assert library.weft_load_module(os.fsencode(other), ctypes.byref(out)) != 0, at


def model_with(weights):
    vector = ("float32", weights.shape)
    return onnx_models.model([helper.make_node("Add", ["x", "w"], ["y"])], {"x": vector}, {"y": vector}, {"w": weights})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="sections of ELF files")
def test_sections_are_found_by_name(exported, tmp_path):
    path = tmp_path / "model.so"
    path.write_bytes(exported)
    if not exported.startswith(b"\x7fELF"):
        assert find_section(path, ".weft") is None
        return
    listing = subprocess.run(["readelf", "-SW", path], capture_output=True, text=True, check=True).stdout
    (line,) = [line for line in listing.splitlines() if " .weft " in line]
    offset, size = line.split(".weft")[1].split()[2:4]
    assert find_section(path, ".weft") == (int(offset, 16), int(size, 16))
    assert find_section(path, ".no_such") is None
