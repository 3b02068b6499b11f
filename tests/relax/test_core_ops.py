"""Operators of the Relax language itself: each in a program that is printed, read back, compiled and run."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ffi, ir, relax, script
from weft.relax.core_ops import as_vdevice

HEAD = "@I.ir_module\nclass Module:\n"


@ffi.register_global_func("test.core_ops.twice_in_place", override=True)
def _twice_in_place(x):
    x.copyfrom(2 * x.numpy())
    return x


@ffi.register_global_func("test.core_ops.add_dps", override=True)
def _add_dps(x, y, out):
    out.copyfrom(x.numpy() + y.numpy())


@ffi.register_global_func("test.core_ops.add", override=True)
def _add(x, y):
    return weft.runtime.tensor(x.numpy() + y.numpy())


def run(source, *args):
    mod = script.from_source(HEAD + source)
    again = script.from_source(mod.script())
    assert ir.structural_equal(mod, again)
    vm = relax.VirtualMachine(weft.compile(again, target="llvm"), weft.cpu())
    return vm["main"](*[weft.runtime.tensor(a) for a in args]), vm


def data(*shape):
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


VALUES = {
    "call_packed": ("R.call_packed('test.core_ops.add', x, x, ty_args=R.Tensor((n,), 'float32'))", 2),
    "call_pure_packed": ("R.call_pure_packed('test.core_ops.add', x, x, ty_args=R.Tensor((n,), 'float32'))", 2),
    "call_dps_packed": ("R.call_dps_packed('test.core_ops.add_dps', (x, x), R.Tensor((n,), 'float32'))", 2),
    "call_inplace_packed": (
        "R.call_inplace_packed('test.core_ops.twice_in_place', y, inplace_indices=0,"
        " ty_args=R.Tensor((n,), 'float32'))",
        4,
    ),
    "to_vdevice": ("R.to_vdevice(y, 'llvm:0')", 2),
    "hint_on_device": ("R.hint_on_device(y, I.vdevice('llvm', 0, 'global'))", 2),
}


@pytest.mark.parametrize("name", VALUES)
@pytest.mark.parametrize("n", [0, 1, 7])
def test_values(name, n):
    text, factor = VALUES[name]
    source = f"""
    @R.function(pure=False)
    def main(x: R.Tensor(("n",), "float32")):
        n = T.int64()
        y = R.add(x, x)
        z = {text}
        return z
"""
    x = data(n)
    found, _ = run(source, x)
    np.testing.assert_allclose(found.numpy(), factor * x, rtol=1e-6)


CLOSURE = """
    @R.function
    def scaled(y: R.Tensor(("n",), "float32"), x: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        return R.multiply(R.subtract(y, x), x)

    @R.function
    def main(x: R.Tensor(("n",), "float32"), y: R.Tensor(("n",), "float32")) -> R.Tensor(("n",), "float32"):
        n = T.int64()
        f = R.make_closure(cls.scaled, (x,))
        a = R.invoke_pure_closure(f, (y,), ty_args=R.Tensor((n,), "float32"))
        return a
"""


@pytest.mark.parametrize("n", [0, 1, 7])
@pytest.mark.parametrize("effects", [False, True])
def test_closures(n, effects):
    source = CLOSURE
    if effects:
        source = source.replace("invoke_pure_closure", "invoke_closure")
        source = source.replace("@R.function\n    def main", "@R.function(pure=False)\n    def main")
    x, y = data(n), data(n) + 1
    found, _ = run(source, x, y)
    np.testing.assert_allclose(found.numpy(), (y - x) * x, rtol=1e-6)


def test_a_closure_leaves_the_machine():
    source = CLOSURE.replace('-> R.Tensor(("n",), "float32"):\n        n = T', "-> R.Any:\n        n = T")
    source = source.replace("        return a\n", "        return f\n")
    x, y = data(5), data(5) + 1
    closure, vm = run(source, x, y)
    found = vm.invoke_closure(closure, weft.runtime.tensor(y))
    np.testing.assert_allclose(found.numpy(), (y - x) * x, rtol=1e-6)


def test_effects_of_a_closure_are_refused_in_pure_functions():
    source = HEAD + CLOSURE.replace("invoke_pure_closure", "invoke_closure")
    refuses(error.WeftError, "relax.invoke_closure", relax.analysis.well_formed, script.from_source(source))


def test_constructors_are_operators():
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    assert relax.op.to_vdevice(x, "cuda:1").attrs["dst_vdevice"].vdevice_id == 1
    call = relax.op.call_inplace_packed("f", x, inplace_indices=[0], ty_args=x.ty)
    assert tuple(call.attrs["inplace_indices"]) == (0,)
    assert relax.op.call_builtin_with_ctx("vm.builtin.f", [x], ty_args=x.ty).op.name == "relax.call_builtin_with_ctx"


@pytest.mark.parametrize("indices", [[1], [-2], [-1], []])
def test_inplace_indices_name_arguments(indices):
    x = relax.Var("x", relax.TensorType((3,), "float32"))
    with pytest.raises(error.InvalidArgument, match="inplace_indices"):
        relax.op.call_inplace_packed("f", x, inplace_indices=indices, ty_args=x.ty)


def test_virtual_devices_have_names():
    assert (as_vdevice("cuda:1").target, as_vdevice("cuda:1").vdevice_id) == ("cuda", 1)
    assert as_vdevice("llvm:0:local").memory_scope == "local"
    refuses(error.InvalidArgument, "target:index:scope", as_vdevice, "cuda:x")


def test_shape_of_a_tensor():
    known = relax.get_shape_of(relax.Var("x", relax.TensorType((3, 4), "float32", 2)))
    assert [int(d) for d in known.values] == [3, 4]
    assert relax.get_shape_of(relax.Var("x", relax.TensorType(None, "float32", 2))).op.name == "relax.shape_of"
    refuses(error.WeftError, "only a tensor", relax.get_shape_of, relax.Var("x", relax.ShapeType(None, 2)))


def test_an_effect_in_a_pure_function_names_function_and_binding():
    source = """
    @R.function
    def helper(x: R.Tensor((4,), "float32")):
        y = R.add(x, x)
        told = R.print(y)
        return y
"""
    e = refuses(error.WeftError, "", relax.analysis.well_formed, script.from_source(HEAD + source))
    assert "relax.print" in str(e)
    assert "helper" in str(e)
    assert "told" in str(e)
