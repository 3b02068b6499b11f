"""Linking of WebAssembly objects; tests/devices/test_web.py runs what is linked."""

import struct
from pathlib import Path

import pytest

import weft
from tests.refusals import refusals, refuses
from weft import error, runtime, te
from weft.runtime.wasm_link import link_wasm
from weft.runtime.wasm_object import MAGIC, read_object, uleb
from weft.target import Target


def objects_of(*names: str) -> list[bytes]:
    """An object for each function that doubles vectors of any length."""
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: te.exp(a[i]) * 2, name="b")
    functions = {name: te.create_prim_func([a, b]).with_attr("global_symbol", name) for name in names}
    return runtime.object_code(weft.build(weft.IRModule(functions), target="wasm32"))[0]


def sections(data: bytes) -> list[tuple[int, bytes]]:
    """Kind and content of each section, which have to fill the file."""
    assert data.startswith(MAGIC)
    found, at = [], len(MAGIC)
    while at < len(data):
        kind, size, shift = data[at], 0, 0
        at += 1
        while True:
            size |= (data[at] & 127) << shift
            shift, at = shift + 7, at + 1
            if data[at - 1] < 128:
                break
        assert at + size <= len(data)
        found.append((kind, data[at : at + size]))
        at += size
    return found


def test_several_objects_become_one_module(tmp_path: Path) -> None:
    file = link_wasm(tmp_path / "both.wasm", objects_of("one", "two"), ["one", "two"], None)
    found = sections(file.read_bytes())
    kinds = [kind for kind, _ in found]
    assert kinds == sorted(kinds[:-1]) + [0] and {1, 2, 3, 7, 10, 11} <= set(kinds)
    exports, imports = dict(found)[7], dict(found)[2]
    assert b"__tvm_ffi_one" in exports and b"__tvm_ffi_two" in exports
    assert imports.count(b"weft_arg_error") == 1 and b"__stack_pointer" in imports


def test_places_for_the_loader_are_addresses_of_the_module(tmp_path: Path) -> None:
    data = link_wasm(tmp_path / "both.wasm", objects_of("one", "two"), ["one", "two"], None).read_bytes()
    body = next(content for kind, content in sections(data) if kind == 0 and content[1:].startswith(b"weft.link"))
    memory, table, context, n = struct.unpack_from("<4I", body, 10)
    assert context == 0xFFFFFFFF and len(body) == 10 + 16 + 8 * n and n > 2
    for i in range(n):
        kind, at = struct.unpack_from("<2I", body, 26 + 8 * i)
        if kind % 2:
            value = struct.unpack_from("<I", data, at)[0]
        else:
            digits = data[at : at + 5]
            assert all(b > 127 for b in digits[:4]) and digits[4] < 128
            value = sum((b & 127) << 7 * k for k, b in enumerate(digits))
        assert value <= (table if kind in (2, 3) else memory)


def test_a_function_that_no_object_has_is_refused(tmp_path: Path) -> None:
    with pytest.raises(error.ExecutableError, match="no object has the function two"):
        link_wasm(tmp_path / "x.wasm", objects_of("one"), ["one", "two"], None)


def test_a_function_of_two_objects_is_refused(tmp_path: Path) -> None:
    with pytest.raises(error.ExecutableError, match="two objects define '__tvm_ffi_one'"):
        link_wasm(tmp_path / "x.wasm", [*objects_of("one"), *objects_of("one")], ["one"], None)


def test_objects_of_other_machines_are_refused(tmp_path: Path) -> None:
    n = te.placeholder((4,), name="a")
    here = weft.build(te.create_prim_func([n, te.compute((4,), lambda i: n[i], name="b")]), target="llvm")
    refuses(error.ExecutableError, "no WebAssembly object", here.export_library, tmp_path / "x.wasm")


def test_objects_that_are_cut_short_are_refused() -> None:
    whole = objects_of("one")[0]
    read_object(whole)
    parts = [whole[:n] for n in range(len(MAGIC) + 1, len(whole))]  # between two sections, a file may end
    assert refusals(error.ExecutableError, read_object, parts) > 0.98 * (len(whole) - len(MAGIC))


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 2**31, 2**32 - 1])
def test_numbers_are_written_as_leb128(value: int) -> None:
    for width in (0, 5):
        digits = uleb(value, width)
        assert len(digits) >= width and sum((b & 127) << 7 * k for k, b in enumerate(digits)) == value


def test_the_target_has_vectors_of_128_bits() -> None:
    target = Target("wasm32")
    assert target.pointer_bits == 32 and target.vector_bits == 128 and "simd128" in target.features
    assert "v128" in weft.build(te_add(), target="wasm32").get_source("asm")
    assert "simd128" not in Target("llvm -mtriple=wasm32-unknown-unknown -mattr=-simd128").features
    refuses(error.InvalidArgument, "simd129", Target, "llvm -mtriple=wasm32-unknown-unknown -mattr=+simd129")


def te_add() -> object:
    """Adds two vectors of 64 float32."""
    a, b = te.placeholder((64,), name="a"), te.placeholder((64,), name="b")
    return te.create_prim_func([a, b, te.compute((64,), lambda i: a[i] + b[i], name="c")])


def test_code_for_webassembly_is_not_called_here() -> None:
    refuses(error.CodegenError, "for another machine", weft.build(te_add(), target="wasm32")["main"])
