"""Models that call functions of C++ sources and object files."""

import shutil

import numpy as np
import pytest
import weft.relax.frontend.nn as nn
from weft.relax.frontend.nn import op, spec

import weft
from tests.frontend.nn.tracing import compiled
from tests.refusals import refuses
from weft import error, relax

SOURCE = """
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <vector>

void scale(DLTensor* a, double factor, DLTensor* out) {
  std::vector<float> scaled;
  for (int64_t i = 0; i < a->shape[0]; ++i) scaled.push_back(static_cast<float*>(a->data)[i] * factor);
  if (factor > 100) TVM_FFI_THROW(ValueError) << "the factor " << factor << " is too large";
  for (int64_t i = 0; i < a->shape[0]; ++i) static_cast<float*>(out->data)[i] = scaled[i];
}
TVM_FFI_DLL_EXPORT_TYPED_FUNC(ext_scale, scale);
"""
SYMBOLS = {"ext_scale": lambda a, factor: nn.Tensor.placeholder(a.shape, a.dtype)}

pytestmark = pytest.mark.skipif(shutil.which("c++") is None, reason="needs a C++ compiler")


@pytest.fixture(scope="module")
def source():
    return nn.SourceModule(SYMBOLS, SOURCE, "cpp")


class Model(nn.Module):
    def __init__(self, external):
        self.external = external

    def forward(self, x):
        nn.add_extern(self.external)
        return self.external["ext_scale"](x + 1, 2.0) * 3

    def wrong(self, x):
        return self.external["ext_scale"](x, 200.0)


SPECS = {"forward": {"x": spec.Tensor(["n"], "float32")}}


def check(run):
    for n in (3, 1, 0):
        x = np.arange(n, dtype="float32")
        np.testing.assert_allclose(run(weft.runtime.tensor(x)).numpy(), (x + 1) * 6)


def test_an_object_of_a_source(source, tmp_path):
    path = tmp_path / "extern.o"
    source.compile(path)
    external = nn.ObjectModule(SYMBOLS, path)
    mod, params, external_mods = Model(external).export_tvm(SPECS, allow_extern=True)
    assert params == [] and external_mods == [external]
    check(compiled(relax.transform.AttachExternModules(external_mods)(mod))["forward"])


def test_exported_library(source, tmp_path):
    """The functions go into the library that a program is exported to."""
    mod, _, external_mods = Model(source).export_tvm(SPECS, allow_extern=True)
    path = tmp_path / "lib.so"
    weft.compile(relax.transform.AttachExternModules(external_mods)(mod), "llvm").export_library(path)
    check(relax.VirtualMachine(weft.runtime.load_module(path), weft.cpu())["forward"])


def test_jit(source):
    specs = {**SPECS, "wrong": {"x": spec.Tensor(["n"], "float32")}}
    jitted = Model(source).jit(specs, out_format="numpy")
    np.testing.assert_allclose(jitted(np.ones(2, "float32")), [12, 12])
    refuses(Exception, "the factor 200 is too large", jitted["wrong"], np.ones(2, "float32"))


def test_errors(source, tmp_path):
    refuses(error.InvalidArgument, "export with allow_extern=True", Model(source).export_tvm, SPECS)
    refuses(error.InvalidArgument, "there is no such object file", nn.ObjectModule, SYMBOLS, tmp_path / "none.o")
    refuses(error.InvalidArgument, "unsupported format", nn.SourceModule, SYMBOLS, SOURCE, "f90")
    refuses(error.CodegenError, r"does not compile[\s\S]*error", nn.SourceModule(SYMBOLS, "int f( {", "cpp").load)
    with pytest.raises(error.CodegenError, match="the C\\+\\+ compiler does not run"):
        nn.SourceModule(SYMBOLS, SOURCE, "cpp", compiler=str(tmp_path / "none")).load()

    class Other(nn.Module):
        def forward(self, x):
            return source["ext_none"](x)

        def twice(self, x):
            nn.add_extern(source)
            nn.add_extern(nn.SourceModule(SYMBOLS, SOURCE, "cpp"))
            return op.relu(x)

    refuses(error.InvalidArgument, "has no function 'ext_none'", Other().export_tvm, SPECS, allow_extern=True)
    with pytest.raises(error.InvalidArgument, match="functions of the same name"):
        Other().export_tvm({"twice": SPECS["forward"]}, allow_extern=True)
    refuses(error.InvalidArgument, "no module is being exported", nn.add_extern, source)
