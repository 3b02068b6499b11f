"""Blobs as object files: what a linker makes of them holds their bytes where the symbol says."""

import ctypes
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.refusals import refuses
from weft import target, te
from weft.error import ExecutableError
from weft.runtime import save_param_dict_to_file
from weft.runtime.data_object import fill_reserved, write_data_object
from weft.runtime.link import link_library


class Bytes:
    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def append_to(self, path: Path) -> None:
        with path.open("ab") as file:
            file.write(self.data)


@pytest.fixture(scope="module")
def code() -> bytes:
    x = te.placeholder((4,), name="x")
    func = te.create_prim_func([x, te.compute((4,), lambda i: x[i] + 1.0, name="y")])
    return target.compile_func(func.with_attr("global_symbol", "f"), target.Target("llvm"))


@pytest.mark.parametrize("size", [0, 1, 7, 64, 65, 4096, 1_000_003])
def test_a_library_holds_the_bytes_on_a_cache_line(tmp_path, code, size):
    data = bytes((i * 7 + 3) % 251 for i in range(size))
    assert write_data_object(tmp_path / "data.o", Bytes(data), "some_data", code)
    subprocess.run(["cc", "-shared", "-o", tmp_path / "lib.so", tmp_path / "data.o"], check=True)
    symbol = (ctypes.c_char * max(1, size)).in_dll(ctypes.CDLL(str(tmp_path / "lib.so")), "some_data")
    assert ctypes.addressof(symbol) % 64 == 0
    assert bytes(symbol)[:size] == data


LINKERS = ["cc", "cc -fuse-ld=gold", "cc -fuse-ld=lld", f"{sys.executable} -m ziglang cc"]


@pytest.fixture(scope="module", params=LINKERS)
def linker(request, tmp_path_factory):
    """A linker's command that the machine has, with the code that it links in front of the data."""
    folder, command = tmp_path_factory.mktemp("linker"), request.param.split()
    source, compiled = folder / "more.c", folder / "more.o"
    source.write_text("int zeros[3000]; int set[3000] = {5}; _Thread_local int own; int f(void) { return own + 8; }")
    for step in (["-c", "-g", "-o", compiled, source], ["-shared", "-o", folder / "lib.so", compiled]):
        if subprocess.run([*command, "-fPIC", *step], capture_output=True).returncode:
            pytest.skip(f"no {request.param}")
    return [*command, "-shared", "-fPIC", "-g", compiled]


@pytest.mark.parametrize("size", [1, 65, 4096, 1_000_003])
def test_what_was_reserved_is_written_into_the_finished_library(tmp_path, code, size, linker):
    path, data = tmp_path / "lib.so", bytes((i * 7 + 3) % 251 for i in range(size))
    assert write_data_object(tmp_path / "data.o", Bytes(data), "some_data", code, reserved=True)
    subprocess.run([*linker, tmp_path / "data.o", "-o", path], check=True)
    assert fill_reserved(path, Bytes(data))
    assert not subprocess.run(["readelf", "-aW", path], capture_output=True, text=True, check=True).stderr
    subprocess.run(["strip", "-g", "-o", tmp_path / "stripped.so", path], check=True)
    for name in ("lib.so", "stripped.so"):
        library = ctypes.CDLL(str(tmp_path / name))
        symbol = (ctypes.c_char * max(1, size)).in_dll(library, "some_data")
        assert ctypes.addressof(symbol) % 64 == 0
        assert bytes(symbol)[:size] == data
        assert list((ctypes.c_int * 3000).in_dll(library, "zeros")) == [0] * 3000
        assert (ctypes.c_int.in_dll(library, "set").value, library.f()) == (5, 8)


def test_a_section_that_the_linker_put_elsewhere_is_linked_with_its_bytes(tmp_path, code):
    script = tmp_path / "order.ld"
    script.write_text("SECTIONS { .weft : { *(.weft) } } INSERT BEFORE .data;")
    link_library(tmp_path / "lib.so", [code], Bytes(b"abc" * 999), options=[f"-Wl,-T,{script}"])
    symbol = (ctypes.c_char * 2997).in_dll(ctypes.CDLL(str(tmp_path / "lib.so")), "__tvm_ffi__library_bin")
    assert bytes(symbol) == b"abc" * 999


def test_the_stack_of_the_library_is_not_executable(tmp_path, code):
    write_data_object(tmp_path / "data.o", Bytes(b"abc"), "some_data", code)
    subprocess.run(["cc", "-shared", "-o", tmp_path / "lib.so", tmp_path / "data.o"], check=True)
    listing = subprocess.run(["readelf", "-lW", tmp_path / "lib.so"], capture_output=True, text=True, check=True).stdout
    (stack,) = [line for line in listing.splitlines() if "GNU_STACK" in line]
    assert " RWE " not in stack


@pytest.mark.parametrize("like", [b"", b"\x7fELF", b"\xcf\xfa\xed\xfe" + bytes(100), b"\x7fELF\x01\x01" + bytes(100)])
def test_other_formats_are_left_alone(tmp_path, like):
    assert not write_data_object(tmp_path / "data.o", Bytes(b"abc"), "some_data", like)
    assert not (tmp_path / "data.o").exists()


@pytest.mark.parametrize(
    ("write", "error"),
    [
        (lambda path, data: link_library(path, [b"no object"], None), ExecutableError),
        (lambda path, data: link_library(path, [data], None, container=True), OSError),
        (lambda path, data: link_library(path, [], Bytes(data), container=True), OSError),
        (lambda path, data: save_param_dict_to_file({"p": np.frombuffer(data, np.uint8)}, path), OSError),
    ],
)
def test_failing_leaves_nothing_and_keeps_what_was_there(tmp_path, write, error):
    """The disk is full, or the linker fails."""
    path = tmp_path / "file"
    path.write_bytes(b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, limits[1]))
    try:
        refuses(error, str(path), write, path, bytes(1 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [(p.name, p.read_bytes()) for p in tmp_path.iterdir()] == [("file", b"old")]
