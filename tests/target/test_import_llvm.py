"""Kernels call functions of LLVM IR that a loop imports, as text or from a file."""

import subprocess
import sys

import numpy as np
import pytest

import weft
from weft import error, ir, te, tir
from weft.script import tir as T

DEFINED = """
define float @{name}(float %x, float %y) #0 {{
  %r = {what} float %x, %y
  ret float %r
}}
attributes #0 = {{ "target-cpu"="i486" "target-features"="+x87" }}
"""
ADD, SUBTRACT = (DEFINED.format(name="weft_test_mixed", what=w) for w in ("fadd", "fsub"))


def kernel(*imports, extent=10):
    """Two loops, of which the outer one may go; imports are on both."""
    outer, inner = ({"pragma_import_llvm": i} for i in (imports[0], imports[-1]))

    @T.prim_func
    def main(A: T.Buffer((extent, 10), "float32"), B: T.Buffer((extent, 10), "float32")):
        for o in T.serial(extent, annotations=outer):
            for i in T.serial(10, annotations=inner):
                with T.block("B"):
                    u, v = T.axis.remap("SS", [o, i])
                    B[u, v] = T.call_pure_extern("float32", "weft_test_mixed", A[u, v], T.float32(2.0))

    return main


def run(module, extent=10):
    a = np.random.default_rng(0).normal(size=(extent, 10)).astype("float32")
    b = weft.runtime.tensor(np.zeros_like(a))
    module(weft.runtime.tensor(a), b)
    return a, b.numpy()


@pytest.mark.parametrize("extent", [10, 1])
@pytest.mark.parametrize("form", ["text", "file"])
def test_imported_code_runs_and_is_inlined(form, extent, tmp_path):
    (tmp_path / "mixed.ll").write_text(ADD)
    module = weft.build(kernel(ADD if form == "text" else str(tmp_path / "mixed.ll"), extent=extent), target="llvm")
    assert "weft_test_mixed" in module.get_source("ll") and "weft_test_mixed(" not in module.get_source("asm")
    (tmp_path / "mixed.ll").write_text("changed later")
    a, b = run(module, extent)
    np.testing.assert_array_equal(b, a + 2)


def test_of_two_definitions_the_later_one_holds():
    a, b = run(weft.build(kernel(ADD, SUBTRACT), target="llvm"))
    np.testing.assert_array_equal(b, a - 2)


def test_kernels_of_one_library_import_the_same_names(tmp_path):
    both = {"one": kernel(ADD), "two": kernel(SUBTRACT)}
    mod = ir.IRModule({weft.ir.GlobalVar(n): f.with_attr("global_symbol", n) for n, f in both.items()})
    weft.build(mod, target="llvm").export_library(str(tmp_path / "lib.so"))
    loaded = weft.runtime.load_module(str(tmp_path / "lib.so"))
    for name, expected in (("one", 2), ("two", -2)):
        a, b = run(loaded[name])
        np.testing.assert_array_equal(b, a + np.float32(expected))


def test_pragma_of_a_tensor_expression():
    A = te.placeholder((10, 10), name="A")
    two = tir.const(2.0)
    B = te.compute((10, 10), lambda i, j: tir.call_extern("float32", "weft_test_mixed", A[i, j], two), name="B")
    s = te.create_schedule(B.op)
    s[B].pragma(s[B].op.axis[0], "import_llvm", ADD)
    a, b = run(weft.build(s, [A, B], target="llvm"))
    np.testing.assert_array_equal(b, a + 2)


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ("no IR\nat all", error.CodegenError, "pragma_import_llvm"),
        ("/no/such/file.ll", error.InvalidArgument, "cannot be read"),
        (7, error.InvalidArgument, "found 7"),
        (ADD.replace("float %y", "double %y"), error.CodegenError, "cannot be linked"),
    ],
)
def test_what_is_no_llvm_ir_is_refused(given, kind, message):
    with pytest.raises(kind, match=message):
        weft.build(kernel(given), target="llvm")


def test_modules_of_an_error_are_closed_before_their_context():
    """Both were garbage of one cycle, which is freed in any order; the process ended."""
    program = """if 1:
        import gc, weft
        from tests.target.test_import_llvm import ADD, kernel
        kept = []
        for _ in range(20):
            try:
                weft.build(kernel(ADD, "no IR\\nat all"), target="llvm")
            except weft.error.CodegenError as e:
                kept.append(e)
                e.self = e
        del kept
        gc.collect()
        print("alive")"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.stdout == "alive\n", done.stderr[-2000:]
