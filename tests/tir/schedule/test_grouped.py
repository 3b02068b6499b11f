"""Grouped convolutions whose groups are no whole vectors: the rule takes them at any shape, and values are right."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

import weft
from tests.relax_models import computed
from tests.tir.schedule.run_scheduled import run
from weft import error, ir, machine, target, te, tir
from weft.tir.schedule import explain_schedule, noting_schedules, schedule_func
from weft.topi.conv import conv

HOST = target.Target("llvm")
WIDE = machine.Machine(vector_bits=512, vector_registers=32, cores=2)


def function(n, h, w, case, *, epilogue, dtype="float32"):
    x = te.placeholder((n, h, w, case.groups * case.per_in), dtype, "x")
    k = te.placeholder((case.kernel, case.kernel, case.per_in, case.groups * case.per_out), dtype, "w")
    y = conv(x, k, case.stride, case.pad, case.dilation, case.groups, "NHWC", "HWIO")
    if not epilogue:
        return te.create_prim_func([x, k, y])
    b = te.placeholder((y.shape[-1],), dtype, "b")
    z = te.compute(y.shape, lambda *i: tir.max(y(*i) + b(i[-1]), ir.const(0, dtype)), "z")
    return te.create_prim_func([x, k, b, z])


def case_of(**sizes):
    plain = {"groups": 4, "per_in": 4, "per_out": 4, "kernel": 3, "stride": 1, "pad": 1, "dilation": 1}
    return SimpleNamespace(**{**plain, **sizes})


def values(case, n, h, w):
    rng = np.random.default_rng(n * h * w)
    x = rng.standard_normal((n, h, w, case.groups * case.per_in)).astype(np.float32)
    k = rng.standard_normal((case.kernel, case.kernel, case.per_in, case.groups * case.per_out)).astype(np.float32)
    return x, k, rng.standard_normal(k.shape[-1]).astype(np.float32)


def expected(case, x, k, b, epilogue):
    attrs = {"strides": case.stride, "padding": case.pad, "dilation": case.dilation, "groups": case.groups}
    y = computed("nn.conv2d", x, k, **attrs, data_layout="NHWC", kernel_layout="HWIO")
    return np.maximum(y + b, 0) if epilogue else y


def check(func, case, sizes, epilogue, *, taken=True):
    with noting_schedules() as records:
        scheduled = schedule_func(func, HOST)
    assert ("grouped" in records[0].taken.values()) == taken, records[0]
    kernel = target.build(scheduled, HOST)["main"]
    for n, h, w in sizes:
        x, k, b = values(case, n, h, w)
        want = expected(case, x, k, b, epilogue)
        out = weft.runtime.tensor(np.full(want.shape, np.nan, np.float32))
        kernel(*map(weft.runtime.tensor, (x, k, b) if epilogue else (x, k)), out)
        np.testing.assert_allclose(out.numpy(), want, rtol=2e-4, atol=2e-4)


def drawn(seed):
    r = random.Random(seed)
    case = case_of(
        groups=r.choice([2, 3, 5, 8, 32]),
        per_in=r.choice([1, 2, 3, 4, 6]),
        per_out=r.choice([2, 3, 4, 6, 12]),
        kernel=r.choice([1, 2, 3, 5]),
        stride=r.choice([1, 1, 2, 3]),
        dilation=r.choice([1, 1, 2]),
    )
    case.pad = r.choice([0, 1, 2])
    least = (case.kernel - 1) * case.dilation + 1
    return case, [(r.choice([1, 2]), least + r.randrange(12), least + r.randrange(20)) for _ in range(3)]


@pytest.mark.parametrize("seed", range(9))
def test_random_shapes(seed):
    case, sizes = drawn(seed)
    n, h, w = sizes[0]
    epilogue = bool(seed % 2)
    check(function(ir.int64(n), ir.int64(h), ir.int64(w), case, epilogue=epilogue), case, sizes[:1], epilogue)


@pytest.mark.parametrize("seed", range(5))
def test_random_shapes_of_symbolic_size(seed):
    case, sizes = drawn(100 + seed)
    n, h, w = (te.size_var(name, "int64") for name in "nhw")
    epilogue = bool(seed % 2)
    check(function(n, h, w, case, epilogue=epilogue), case, sizes, epilogue)


@pytest.mark.parametrize(
    "sizes", [{}, {"per_out": 6}, {"per_out": 1}, {"per_in": 3, "stride": 2}, {"groups": 3, "per_out": 5}]
)
def test_long_vectors(sizes):
    case = case_of(**sizes)
    func = function(ir.int64(1), ir.int64(6), ir.int64(9), case, epilogue=True)
    x, k, b = values(case, 1, 6, 9)
    want = expected(case, x, k, b, True)
    found = np.zeros(want.shape, np.float32)
    run(schedule_func(func, WIDE), x, k, b, found)
    np.testing.assert_allclose(found, want, rtol=2e-4, atol=2e-4)


def test_groups_of_whole_vectors_stay_with_the_contraction():
    case = case_of(per_out=16, per_in=16)
    check(function(ir.int64(1), ir.int64(8), ir.int64(8), case, epilogue=False), case, [(1, 8, 8)], False, taken=False)


def test_groups_of_one_output_channel():
    case = case_of(per_out=1, per_in=3, groups=13)
    n, h, w = (te.size_var(name, "int64") for name in "nhw")
    check(function(n, h, w, case, epilogue=True), case, [(1, 5, 9), (2, 3, 4)], True)


@pytest.mark.parametrize("epilogue", [False, True])
def test_one_pixel(epilogue):
    case = case_of(kernel=1, pad=0)
    check(function(ir.int64(1), ir.int64(1), ir.int64(1), case, epilogue=epilogue), case, [(1, 1, 1)], epilogue)


def test_the_estimate_finds_nothing_slow():
    func = function(ir.int64(1), ir.int64(56), ir.int64(56), case_of(groups=32), epilogue=True)
    with pytest.raises(error.InvalidArgument, match="only functions of TIR"):
        explain_schedule("conv", HOST)
    (report,) = explain_schedule(func, HOST).kernels
    assert not report.slow and report.record.rules() == ["grouped"]
