"""Virtual devices: where values live, and on which device of the machine memory is taken."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, ir, relax, script
from weft.relax.rewriter import all_bindings
from weft.relax.transform import RealizeVDevice, UpdateVDevice

HEAD = """@I.ir_module
class Module:
    I.module_global_infos({"vdevice": [I.vdevice("llvm", 0), I.vdevice("llvm", 1)]})
"""
SOURCE = f"""{HEAD}
    @R.function
    def main(x: R.Tensor((4, 4), "float32", "llvm:0"), w: R.Tensor((4, 4), "float32")):
        with R.dataflow():
            a = R.matmul(x, x)
            b = R.to_vdevice(a, "llvm:1")
            c = R.matmul(b, w)
            d = R.nn.relu(c)
            h = R.hint_on_device(d, "llvm:0")
            e = R.add(h, x)
            R.output(e)
        return e
"""


def places(func):
    found = {p.name_hint: p.ty.vdevice for p in func.params}
    found |= {b.var.name_hint: b.var.ty.vdevice for b in all_bindings(func)}
    return {n: None if d is None else d.vdevice_id for n, d in found.items()}


def allocated(ex):
    """Return the devices that storage is taken on, one an instruction."""
    calls = [line for line in ex.as_text().splitlines() if line.startswith("  call  vm.builtin.alloc_storage")]
    return [int(line.split("in:")[1].split(", ")[2].removeprefix("i")) for line in calls]


def run(mod, devices):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((4, 4), np.float32) for _ in range(2))
    vm = relax.VirtualMachine(weft.compile(mod, target="llvm"), devices)
    np.testing.assert_allclose(vm["main"](x, w).numpy(), np.maximum(x @ x @ w, 0) + x, rtol=1e-4, atol=1e-5)


def test_devices_spread_from_what_is_known():
    mod = script.from_source(SOURCE)
    new = RealizeVDevice()(mod)
    relax.analysis.well_formed(new)
    assert places(new["main"]) == {"x": 0, "a": 0, "b": 1, "w": 1, "c": 1, "d": 1, "h": 0, "e": 0}
    assert new["main"].ret_ty.vdevice.vdevice_id == 0
    assert [b.value.op.name for b in all_bindings(new["main"])].count("relax.to_vdevice") == 2
    run(new, [weft.cpu(0), weft.cpu(1)])
    run(mod, [weft.cpu(0), weft.cpu(1)])


def test_memory_is_taken_where_results_live():
    ex = weft.compile(RealizeVDevice()(script.from_source(SOURCE)), target="llvm")
    assert set(allocated(ex)) == {0, 1}


def test_blocks_are_not_shared_between_devices():
    lines = "\n".join(
        f"            a{i} = R.matmul(c{i}, c{i})\n            b{i} = R.to_vdevice(a{i}, 'llvm:1')\n"
        f"            d{i} = R.matmul(b{i}, b{i})\n            c{i + 1} = R.to_vdevice(d{i}, 'llvm:0')"
        for i in range(3)
    )
    source = f"""{HEAD}
    @R.function
    def main(c0: R.Tensor((4, 4), "float32", "llvm:0")):
        with R.dataflow():
{lines}
            R.output(c3)
        return c3
"""
    ex = weft.compile(RealizeVDevice()(script.from_source(source)), target="llvm")
    assert sorted(set(allocated(ex))) == [0, 1]
    x = 0.3 * np.eye(4, dtype="float32")
    found = relax.VirtualMachine(ex, [weft.cpu(0), weft.cpu(1)])["main"](x).numpy()
    np.testing.assert_allclose(found, np.linalg.matrix_power(x, 64), atol=1e-6)


def test_hints_where_nothing_is_known_place_the_input():
    source = f"""{HEAD}
    @R.function
    def main(x: R.Tensor((4, 4), "float32"), w: R.Tensor((4, 4), "float32")):
        a = R.add(x, w)
        b = R.hint_on_device(a, "llvm:1")
        return b
"""
    new = RealizeVDevice()(script.from_source(source))["main"]
    assert places(new) == {"x": 1, "w": 1, "a": 1, "b": 1}
    source = f"""{HEAD}
    @R.function
    def main(x: R.Tensor((4, 4), "float32")) -> R.Tuple(R.Tensor((4, 4), "float32", "llvm:1"), R.Tensor((4, 4))):
        a = R.exp(x)
        b = R.add(a, a)
        t = (b, a)
        return t
"""
    new = RealizeVDevice()(script.from_source(source))["main"]
    tensors = (new.params[0], *(b.var for b in new.body.blocks[0].bindings[:2]))
    assert [v.ty.vdevice.vdevice_id for v in tensors] == [1] * 3
    assert RealizeVDevice()(script.from_source(SOURCE.replace("llvm:0", "llvm:1"))) is not None


def test_update():
    mod = script.from_source(SOURCE)
    new = UpdateVDevice(ir.VDevice("llvm", 5), 1)(mod)
    assert {n.vdevice_id for n in ir.walk(new["main"]) if isinstance(n, ir.VDevice)} == {0, 5}
    assert [d.vdevice_id for d in new.global_infos["vdevice"]] == [0, 5]
    assert UpdateVDevice(ir.VDevice("llvm", 1), 1)(mod) is mod
    refuses(error.InvalidArgument, "no virtual device 2", UpdateVDevice(ir.VDevice("llvm", 5), 2), mod)


def listed(second, name):
    head = HEAD.replace('I.vdevice("llvm", 1)', second)
    return script.from_source(SOURCE.replace(HEAD, head).replace("llvm:1", name))


DESCRIBED = 'I.vdevice({"kind": "llvm", "mcpu": "haswell"}, 1)'
PLACES = (
    (DESCRIBED, "llvm:1"),
    ('I.vdevice("llvm -mcpu=haswell", 7)', "vdevice:1"),
    ('I.vdevice("llvm")', "llvm:1:global"),
)


@pytest.mark.parametrize(("second", "name"), PLACES)
def test_a_name_is_a_place_in_the_modules_list(second, name):
    assert set(allocated(weft.compile(RealizeVDevice()(listed(second, name)), target="llvm"))) == {0, 1}


def test_a_device_that_no_list_has_is_refused():
    for name, told in (("llvm:2", "no virtual device 'llvm:2'"), ("llvm:x", "'target:index:scope'")):
        refuses(error.InvalidArgument, told, listed, DESCRIBED, name)
    mod = script.from_source(SOURCE.replace(HEAD, "@I.ir_module\nclass Module:\n"))
    refuses(error.LoweringError, "does not list", weft.compile, mod, target="llvm")
