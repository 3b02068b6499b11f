"""Intrinsics of LLVM that programs name: what the target lacks is an error, and never ends the process."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, te, tir
from weft.target import codegen

FMA = codegen.llvm_lookup_intrinsic_id("llvm.fma")


def build(name, target="llvm", n_args=1):
    a = te.placeholder((16,), name="a")
    call = te.compute((16,), lambda i: tir.call_llvm_pure_intrin("float32", name, *[a[i]] * n_args), name="call")
    return weft.build(te.create_prim_func([a, call]), target)


def test_a_number_names_no_intrinsic():
    func = tir.PrimFunc((), tir.Evaluate(tir.call_llvm_pure_intrin("float32", 4217, tir.const(1.0, "float32"))))
    assert "4217" in str(func)  # it is read, printed and rewritten as another call
    refuses(error.CodegenError, "no intrinsic has this number", weft.build, func.with_attr("global_symbol", "f"))


@pytest.mark.parametrize(("name", "n_args"), [("llvm.sqrt", 1), ("llvm.sqrt.f32", 1), ("llvm.fma", 3), (FMA, 3)])
def test_names_with_and_without_suffix(name, n_args):
    x, y = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    build(name, n_args=n_args)(x, y)
    np.testing.assert_allclose(y, np.sqrt(x) if n_args == 1 else x * x + x, rtol=1e-6)


@pytest.mark.parametrize(
    ("name", "n_args", "target", "message"),
    [
        ("llvm.nosuch", 1, "llvm", "'llvm.nosuch.f32'.*does not know the name"),
        ("llvm.x86.nosuch", 1, "llvm", "'llvm.x86.nosuch'.*does not know the name"),
        ("llvm.sqrt", 2, "llvm", "incorrect argument type"),
        ("llvm.maxnum", 1, "llvm", "'llvm.maxnum.f32' of these types"),
        ("llvm.x86.sse.sqrt.ss", 1, "llvm -mtriple=x86_64-linux-gnu", "'llvm.x86.sse.sqrt.ss' of these types"),
        ("llvm.aarch64.neon.frecpe.f32", 1, "llvm -mtriple=x86_64-linux-gnu", "Cannot select"),
        ("llvm.nvvm.sqrt.rn.f", 1, "llvm", "Cannot select"),
    ],
)
def test_what_is_refused(name, n_args, target, message):
    refuses(error.CodegenError, f"(?s)test_llvm_intrinsics.*{message}|{message}", build, name, target, n_args)


def test_functions_of_bits_are_for_integers():
    refuses(error.InvalidArgument, "popcount is for integers", tir.popcount, tir.Var("x", "float32"))
    refuses(error.InvalidArgument, "shift_left is for integers", tir.shift_left, tir.Var("x", "float32"), 2)


@pytest.mark.parametrize("name", ["llvm.fma", "llvm.x86.sse2.pmadd.wd", "llvm.x86.sse41.ptestc"])
def test_numbers_stand_for_names_in_this_process(name: str) -> None:
    number = codegen.llvm_lookup_intrinsic_id(name)
    assert number == codegen.llvm_lookup_intrinsic_id(name) > 0 and codegen.llvm_get_intrinsic_name(number) == name


def test_what_is_no_intrinsic_has_no_number() -> None:
    assert [codegen.llvm_lookup_intrinsic_id(n) for n in ("llvm.nonsense", "fma", "llvm.x() {\n}", "")] == [0, 0, 0, 0]
