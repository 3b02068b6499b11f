"""BasePyModule: one class of Python functions, Relax functions and kernels, called with NumPy and torch."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relax
from weft.script import ir as I
from weft.script import relax as R
from weft.script import tir as T


@I.ir_module
class Mixed(relax.BasePyModule):
    @T.prim_func
    def double(a: T.handle, b: T.handle):
        n = T.int64()
        A = T.match_buffer(a, (n,), "float32")
        B = T.match_buffer(b, (n,), "float32")
        for i in range(n):
            B[i] = A[i] * T.float32(2)

    @R.function
    def main(x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        y = R.call_py_func("halve", (x,), out_ty=R.Tensor((n,), "float32"))
        z = R.add(y, x)
        return z

    @I.pyfunc
    def halve(self, x):
        """Half of each element."""
        return np.asarray(x.numpy() if hasattr(x, "numpy") else x) / 2

    @I.pyfunc
    def both(self, x):
        return self.call_tir(self.double, [x], relax.TensorType((weft.tir.Var("n", "int64"),), "float32"))


X = np.array([1.0, 2.0, 5.0], "float32")


def numpy_of(value):
    return value if isinstance(value, np.ndarray) else value.numpy()


def test_functions_of_all_kinds_are_methods():
    module = Mixed(weft.cpu())
    assert isinstance(module, relax.BasePyModule) and isinstance(Mixed, weft.IRModule)
    np.testing.assert_allclose(numpy_of(module.main(X)), X * 1.5)
    np.testing.assert_allclose(numpy_of(module.both(X)), X * 2)
    np.testing.assert_allclose(numpy_of(module.call_py_func("halve", [X])), X / 2)
    assert module.list_functions() == {"tir": ["double"], "relax": ["main"], "extern": []}
    assert module.get_function("nothing") is None and callable(module.get_function("double"))


def test_torch_tensors_come_and_go():
    torch = pytest.importorskip("torch")
    out = Mixed(weft.cpu()).main(torch.tensor(X))
    assert isinstance(out, torch.Tensor)
    np.testing.assert_allclose(out.numpy(), X * 1.5)


def test_the_text_has_all_functions():
    text = Mixed(weft.cpu()).script()
    assert "def double(" in text and "def main(" in text and "Half of each element" in text
    assert sorted(Mixed.pyfuncs) == ["both", "halve"]


def test_functions_are_added_and_missing_ones_said():
    module = Mixed(weft.cpu())
    module.add_python_function("third", lambda self, x: x / 3)
    np.testing.assert_allclose(module.third(X), X / 3)
    module.add_python_function("power", lambda x, n: x**n)  # one that does not ask for the module
    np.testing.assert_allclose(module.power(X, 3), X**3)
    np.testing.assert_allclose(module.call_dps_packed("power", [X, 2], [3]), X**2)
    for call, text in (
        (lambda: module.call_tir("none", [X], [3]), "no kernel"),
        (lambda: module.call_py_func("none", [X]), "not found"),
        (lambda: module.call_dps_packed("test.none", [X], [3]), "not found"),
        (lambda: module.call_tir("double", [], relax.TensorType((weft.tir.Var("n", "int64"),))), "Cannot infer"),
    ):
        refuses(error.InvalidArgument, text, call)


def test_global_functions_write_results():
    @weft.register_global_func("test.base_py.add", override=True)
    def add(a, b, out):
        out.copyfrom(a.numpy() + b.numpy())

    module = relax.BasePyModule(weft.IRModule({}), weft.cpu(), "llvm")
    np.testing.assert_allclose(numpy_of(module.call_dps_packed("test.base_py.add", [X, X], (3,))), 2 * X)


def test_relax_functions_are_python_functions_at_any_stage():
    converter = weft.relax.relax_to_pyfunc_converter.RelaxToPyFuncConverter

    @I.ir_module
    class Dense:
        @R.function
        def main(x: R.Tensor((2, 4), "float32"), w: R.Tensor((4, 3), "float32")) -> R.Tensor((2, 3), "float32"):
            return R.nn.relu(R.matmul(x, w))

    x, w = np.random.default_rng(0).standard_normal((2, 4, 4)).astype("float32")
    x, w = x[:2], w[:, :3]
    for stage in (Dense, relax.transform.LegalizeOps()(Dense)):
        made = converter(stage).convert("main")
        np.testing.assert_allclose(made.pyfuncs["main"](x, w), np.maximum(x @ w, 0), rtol=1e-5)
        np.testing.assert_allclose(
            numpy_of(made(weft.cpu()).call_py_func("main", [x, w])), np.maximum(x @ w, 0), rtol=1e-5
        )
    torch = pytest.importorskip("torch")
    out = made.pyfuncs["main"](torch.tensor(x), torch.tensor(w))
    assert isinstance(out, torch.Tensor) and tuple(out.shape) == (2, 3)
    refuses(error.InvalidArgument, "Relax function 'other' not found", converter(Dense).convert, ["main", "other"])
