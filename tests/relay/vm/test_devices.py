"""Programs over two CPU devices with separate memories: planning, copies, storages and constants on their device."""

import numpy as np
import pytest

import weft
from tests.refusals import refuses
from weft import error, relay
from weft.relay.transform import InferType, PlanDevices, ToANormalForm
from weft.runtime.relay_vm import VirtualMachine

TARGETS = {weft.cpu(0): "llvm", weft.cpu(1): "llvm"}
DEVICES = [weft.cpu(0), weft.cpu(1)]
X = np.arange(12, dtype="float32").reshape(3, 4) / 10


def text(body):
    return relay.fromtext('#[version = "0.0.5"]\n' + body)


def run(mod, *args, targets=TARGETS):
    exe = relay.vm.compile(mod, targets)
    return exe, VirtualMachine(exe, DEVICES).invoke("main", *args)


def count(exe, name):
    return sum(i.name == name for f in exe.functions for i in f.instructions)


def planned(mod):
    return PlanDevices(devices=["cpu:0", "cpu:1"])(InferType()(ToANormalForm()(InferType()(mod))))


def test_chain_over_two_devices():
    mod = text("""
    def @main(%x: Tensor[(3, 4), float32]) {
      let %a = on_device(add(%x, %x), device="cpu:0");
      let %b = on_device(exp(%a), device="cpu:1");
      on_device(multiply(%b, 2f), device="cpu:0")
    }""")
    exe, out = run(mod, X)
    np.testing.assert_allclose(out.numpy(), 2 * np.exp(2 * X), rtol=1e-5)
    assert out.device == weft.cpu(0) and count(exe, "DeviceCopy") == 2
    assert {i.device_index for f in exe.functions for i in f.instructions if i.name == "AllocStorage"} == {0, 1}


def test_whole_program_on_the_second_device():
    """Parameters are taken there, constants lie there, nothing is copied inside."""
    x, w = relay.var("x", shape=(3, 4)), relay.const(np.ones((5, 4), "float32"))
    body = relay.annotation.on_device(relay.nn.dense(x, w), weft.cpu(1), constrain_result=True)
    exe, out = run(relay.Function([x], body), X)
    np.testing.assert_allclose(out.numpy(), X.sum(1, keepdims=True).repeat(5, 1), rtol=1e-5)
    assert out.device == weft.cpu(1) and count(exe, "DeviceCopy") == 0
    assert exe.function("main").param_device_indexes == (1,)
    assert "on device index 1" in exe.constants


def test_dynamic_shapes():
    mod = text("""
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      let %a = on_device(add(%x, %y), device="cpu:1");
      (concatenate((%a, %a), axis=0), on_device(exp(%a), device="cpu:0"))
    }""")
    for n in (1, 3, 7):
        x = np.random.default_rng(n).normal(size=(n, 4)).astype("float32")
        _, out = run(mod, x, x)
        np.testing.assert_allclose(out[0].numpy(), np.concatenate([2 * x, 2 * x]), rtol=1e-5)
        np.testing.assert_allclose(out[1].numpy(), np.exp(2 * x), rtol=1e-5)
        assert out[1].device == weft.cpu(0)


def test_lists_calls_and_branches():
    """A fold on the second device over a list that the first made: the elements are copied where they are read."""
    mod = text("""
    type List[A] { Cons(A, List[A]), Nil, }
    def @make(%n: int32, %x: Tensor[(4), float32]) -> List[Tensor[(4), float32]] {
      if (%n == 0) { Nil } else { Cons(%x, @make(%n - 1, add(%x, %x))) }
    }
    def @total(%xs: List[Tensor[(4), float32]], %sum: Tensor[(4), float32]) -> Tensor[(4), float32] {
      match (%xs) {
        Cons(%x, %rest) => { @total(%rest, on_device(add(%x, %sum), device="cpu:1", constrain_result=True)) },
        Nil => { %sum },
      }
    }
    def @main(%n: int32, %x: Tensor[(4), float32]) {
      let %xs = @make(%n, on_device(exp(%x), device="cpu:1"));
      @total(%xs, zeros(shape=[4], dtype="float32"))
    }""")
    x = np.full(4, 0.5, "float32")
    exe, out = run(mod, 5, x)
    np.testing.assert_allclose(out.numpy(), np.exp(x) * 31, rtol=1e-5)
    assert out.device == weft.cpu(1)


def test_device_copy_by_hand():
    x = relay.var("x", shape=(4,))
    there = relay.exp(relay.device_copy(x, weft.cpu(0), "cpu:1"))
    exe, out = run(relay.Function([x], there), X[0])
    np.testing.assert_allclose(out.numpy(), np.exp(X[0]), rtol=1e-5)
    assert out.device == weft.cpu(1) and count(exe, "DeviceCopy") == 1


def test_a_value_is_copied_once():
    mod = text("""
    def @main(%x: Tensor[(4), float32]) {
      let %a = on_device(exp(%x), device="cpu:0", constrain_result=True);
      let %b = on_device(add(%a, %a), device="cpu:1");
      (%a, %b, on_device(multiply(%a, %a), device="cpu:1"))
    }""")
    exe, out = run(mod, X[0])
    e = np.exp(X[0])
    for got, want, device in zip(out, (e, e + e, e * e), (0, 1, 1), strict=True):
        np.testing.assert_allclose(got.numpy(), want, rtol=1e-5)
        assert got.device == weft.cpu(device)
    assert count(exe, "DeviceCopy") == 1


def test_the_same_on_one_device():
    """Annotations for the one device there is are nothing."""
    mod = text('def @main(%x: Tensor[(4), float32]) { on_device(exp(%x), device="cpu:0") }')
    exe = relay.vm.compile(mod, "llvm")
    np.testing.assert_allclose(VirtualMachine(exe, weft.cpu()).run(X[0]).numpy(), np.exp(X[0]), rtol=1e-5)
    assert count(exe, "DeviceCopy") == 0


@pytest.mark.parametrize(
    "targets", [["llvm", "llvm"], {"cpu:0": "llvm", "cpu:1": "llvm"}, {"cpu": "llvm", weft.cpu(1): "llvm"}]
)
def test_targets_of_devices(targets):
    mod = text('def @main(%x: Tensor[(4), float32]) { on_device(exp(%x), device="cpu:1", constrain_result=1) }')
    _, out = run(mod, X[0], targets=targets)
    assert out.device == weft.cpu(1)


def test_planning_twice_changes_nothing():
    mod = text("""
    def @main(%x: Tensor[(4), float32]) {
      on_device(add(on_device(exp(%x), device="cpu:1"), 1f), device="cpu:0")
    }""")
    once = planned(planned(mod))
    assert str(once) == str(planned(once)) and "device_copy" in str(once)


def test_errors():
    mod = text('def @main(%x: Tensor[(4), float32]) { on_device(exp(%x), device="cuda:0") }')
    refuses(error.WeftError, "device cuda:0, which there is no target for", relay.vm.compile, mod, TARGETS)
    mod = text("""
    def @main(%x: Tensor[(4), float32], %c: bool) {
      if (%c) { on_device(exp(%x), device="cpu:0", constrain_result=True) }
      else { on_device(exp(%x), device="cpu:1", constrain_result=True) }
    }""")
    refuses(error.WeftError, "on two devices", relay.vm.compile, mod, TARGETS)
    refuses(error.WeftError, "there is no target", relay.vm.compile, mod, {})


def test_kernels_of_other_kinds_of_devices():
    """For a CPU and a GPU each kernel is there for where it runs; shapes and conditions stay on the CPU."""
    mod = text("""
    def @main(%x: Tensor[(?, 4), float32], %n: int32) {
      let %a = on_device(add(%x, %x), device="cpu:0");
      let %b = on_device(exp(%a), device="cuda:0");
      if (%n < 3) { (%b, on_device(take(%b, %n, axis=0), device="cpu:0", constrain_result=1)) }
      else { (%b, zeros(shape=[4], dtype="float32")) }
    }""")
    cuda = weft.target.Target("cuda -arch=sm_90", host="llvm")
    lowered, _ = relay.vm.VMCompiler().optimize(mod, {"cpu": "llvm", "cuda": cuda})
    assert "@fused_exp_device_1," in str(lowered["main"]) and "@fused_add," in str(lowered["main"])
    assert "src_device=0, dst_device=1" in str(lowered["main"]) and "src_device=1, dst_device=0" in str(lowered["main"])
    alone, _ = relay.vm.VMCompiler().optimize(text("def @main(%x: Tensor[(?), float32]) { exp(%x) }"), cuda)
    main = str(alone["main"])
    assert "@shape_func_device_1," in main and "@fused_exp," in main
    assert main.count("device_index=1") == 1, "the machine adds a CPU, where shapes are"
    refuses(error.WeftError, "made for CPUs only", relay.vm.compile, mod, {"cpu": "llvm", "cuda": cuda})
