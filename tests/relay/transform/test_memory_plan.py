"""Explicit allocation, shape functions, and storage that is shared."""

import numpy as np
import pytest

from tests import arrays
from tests.relay.lower.machine import TARGET, bindings, calls, check, kernels, lowered
from weft import ir, relay
from weft.relay.transform import ManifestAlloc, MemoryPlan

floats = arrays.floats(np.random.default_rng(6))
STATIC = """
def @main(%x: Tensor[(4, 4), float32], %y: Tensor[(4, 4), float32]) {
  %0 = nn.softmax(%x, axis=1);
  %1 = nn.softmax(%0, axis=0);
  %2 = nn.softmax(%1, axis=1);
  %3 = nn.softmax(%2, axis=0);
  nn.softmax(%3, axis=1)
}
"""
DYNAMIC = STATIC.replace("%x: Tensor[(4, 4), float32]", "%x: Tensor[(?, 4), float32]")


def planned(text):
    return lowered(text, ManifestAlloc(TARGET), MemoryPlan())


def n_storages(mod, name="main"):
    return len(calls(mod, "memory.alloc_storage", name))


def test_allocation_is_explicit():
    mod = lowered(STATIC, ManifestAlloc(TARGET))
    assert n_storages(mod) == len(calls(mod, "memory.alloc_tensor")) == len(kernels(mod, "vm.invoke_tvm_op"))
    assert not calls(mod, "vm.call_kernel") and not calls(mod, "vm.shape_of")
    for call in calls(mod, "memory.alloc_tensor"):
        assert call.attrs["const_shape"] == (4, 4)


def test_shapes_come_from_one_function():
    mod = lowered(DYNAMIC, ManifestAlloc(TARGET))
    assert kernels(mod, "vm.invoke_tvm_op").count("shape_func") == 1 and len(calls(mod, "vm.shape_of")) == 1
    sizes = {id(c.args[0]) for c in calls(mod, "memory.alloc_storage")}
    assert len(sizes) == 2  # of the shape function's results, and of (n, 4) float32


@pytest.mark.parametrize("text", [STATIC, DYNAMIC])
def test_lives_that_do_not_overlap_share(text):
    mod = planned(text)
    assert n_storages(mod) == 2 if text is STATIC else n_storages(mod) <= 4
    sizes = [(n, 4) for n in ((4,) if text is STATIC else (1, 3, 0))]
    check(text, *((floats(*s), floats(4, 4)) for s in sizes))


def test_a_constant_arena_has_aligned_places():
    mod = planned(STATIC)
    offsets = {c.attrs["offset"] for c in calls(mod, "memory.alloc_tensor")}
    assert all(o % 64 == 0 for o in offsets) and len(offsets) == 2


def test_what_escapes_has_a_storage_of_its_own():
    text = """
    def @main(%x: Tensor[(4, 4), float32], %y: Tensor[(4, 4), float32]) {
      %0 = nn.softmax(%x, axis=0);
      %1 = nn.softmax(%0, axis=1);
      (%0, %1, nn.softmax(%1, axis=0))
    }
    """
    assert n_storages(planned(text)) == 3
    check(text, (floats(4, 4), floats(4, 4)))


def test_element_wise_results_lie_over_dying_operands():
    text = """
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      %0 = concatenate((%x, %y), axis=0);
      concatenate((exp(%0), %x), axis=0)
    }
    """
    before, after = lowered(text, ManifestAlloc(TARGET)), planned(text)
    assert n_storages(after) < n_storages(before)
    check(text, (floats(2, 4), floats(3, 4)), (floats(0, 4), floats(1, 4)))


def test_no_storage_is_held_across_a_call():
    text = """
    def @f(%x: Tensor[(4, 4), float32]) -> Tensor[(4, 4), float32] { nn.dense(%x, %x) }
    def @main(%x: Tensor[(4, 4), float32]) -> Tensor[(4, 4), float32] {
      let %a = nn.dense(nn.softmax(nn.dense(%x, %x)), %x);
      let %b = @f(%a);
      let %c = nn.dense(nn.softmax(nn.dense(%b, %a)), %x);
      %c
    }
    """
    mod = planned(text)
    at = next(
        i for i, (_, v) in enumerate(bindings(mod)) if isinstance(v, ir.Call) and getattr(v.op, "name_hint", "") == "f"
    )
    storages = {
        id(v): i
        for i, (v, e) in enumerate(bindings(mod))
        if getattr(e, "op", None) is ir.Op.get("memory.alloc_storage")
    }
    uses = {
        id(e.args[0]): i
        for i, (_, e) in enumerate(bindings(mod))
        if getattr(e, "op", None) is ir.Op.get("memory.alloc_tensor")
    }
    crossing = [s for s, i in storages.items() if i < at < uses[s]]
    assert not crossing
    check(text, (floats(4, 4) / 4,))


def test_numbers_reach_kernels_as_tensors():
    text = """
    def @main(%x: Tensor[(?, 4), float32], %y: Tensor[(?, 4), float32]) {
      %0 = concatenate((%x, %y), axis=0);
      reverse(exp(strided_slice(%0, begin=[1, 0], end=[2147483647, 4], strides=[2, 1])), axis=0)
    }
    """
    check(text, (floats(2, 4), floats(3, 4)), (floats(4, 4), floats(4, 4)), (floats(1, 4), floats(0, 4)))


def test_passes_leave_other_programs_alone():
    text = '#[version = "0.0.5"] def @main(%i: int32) { add(%i, 1) }'
    mod = lowered(text)
    for p in (ManifestAlloc(TARGET), MemoryPlan()):
        assert p(mod)["main"] is mod["main"]
    assert isinstance(mod["main"], relay.Function)
