"""DefaultGPUSchedule: what it binds, what it leaves, and that nothing else changes."""

import numpy as np

from weft import ir, te, tir, topi
from weft.target import Target
from weft.tir.transform import DefaultGPUSchedule


def kernel(target):
    x = te.placeholder((7, 5, 30), "float32", "x")
    func = te.create_prim_func([x, topi.sum(topi.exp(x), axis=1)])
    return func.with_attr("target", Target(target)) if target else func


def scheduled(func, **options):
    return DefaultGPUSchedule(**options)(ir.IRModule({"main": func}))["main"]


def test_each_block_has_threads():
    func = scheduled(kernel("cuda"), max_threads=64)
    bound = [n for n in ir.walk(func.body) if isinstance(n, tir.For) and n.kind == tir.ForKind.THREAD_BINDING]
    assert sorted(n.extent.value for n in bound) == [4, 17, 64, 64]
    x = np.random.default_rng(0).random((7, 5, 30), "float32")
    out = np.zeros((7, 30), "float32")
    tir.interpret(func, x, out)
    np.testing.assert_allclose(out, np.exp(x).sum(1), rtol=1e-5)


def test_what_is_scheduled_or_for_another_target_stays():
    func = scheduled(kernel("cuda"))
    assert scheduled(func) is func
    for target in ("llvm", None):
        func = kernel(target)
        assert scheduled(func) is func
