"""clang, where it is installed, writes LLVM IR; where it is not, the error says so."""

import stat

import pytest

from tests.refusals import refuses
from weft.support import clang


def test_no_compiler(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(clang, "find_spec", lambda name: None)
    assert clang.find_clang(required=False) == []
    refuses(RuntimeError, "no clang was found", clang.create_llvm, "int f() { return 1; }")


def test_the_compiler_of_a_package(monkeypatch, tmp_path):
    pytest.importorskip("ziglang")
    monkeypatch.setenv("PATH", str(tmp_path))
    text = clang.create_llvm('extern "C" int f() { return 41; }', options=["-O2"])
    assert "@f()" in text and "ret i32 41" in text


def test_the_compiler_is_called(monkeypatch, tmp_path):
    fake = tmp_path / "clang"
    fake.write_text(
        '#!/bin/sh\nwhile [ "$1" != -o ]; do shift; done\nout=$2; shift 2\n'
        '[ -s "$1" ] || { echo "no source"; exit 1; }\necho "define i32 @f()" > "$out"\n'
    )
    fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    out = tmp_path / "f.ll"
    assert "@f()" in clang.create_llvm("int f() { return 1; }", output=str(out)) and out.exists()
    refuses(RuntimeError, "no source", clang.create_llvm, str(tmp_path / "absent.cc"))
