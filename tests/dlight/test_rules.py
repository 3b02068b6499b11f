"""Rules for whole functions: what they take, and that the schedules compute what the functions did."""

import numpy as np
import pytest

from weft import dlight as dl
from weft import ir, te, tir, topi
from weft.dlight.gpu.elementwise import Elementwise
from weft.target import Target, build
from weft.target.gpu import lower_for_gpu
from weft.tir.analysis import used_vars
from weft.tir.analysis.apart import values_at
from weft.tir.interpret import interpret

CUDA = Target("cuda")
HOST = Target("llvm")


def placeholder(*shape, name="x"):
    return te.placeholder(shape, "float32", name)


def elementwise(n=5, m=7):
    x = placeholder(n, m)
    return [x, topi.exp(topi.add(x, x))]


def matmul(n=37, m=21, k=19):
    a, b = placeholder(n, k), placeholder(k, m, name="b")
    return [a, b, topi.nn.relu(topi.matmul(a, b))]


def batched(b=2, n=9, m=5, k=6):
    x, y = placeholder(b, n, k), placeholder(b, m, k, name="y")
    r = te.reduce_axis((0, k), "r")
    return [x, y, te.compute((b, n, m), lambda q, i, j: te.sum(x[q, i, r] * y[q, j, r], axis=r), name="z")]


def gemv(n=13, k=70):
    w, x, r = placeholder(n, k, name="w"), placeholder(k), te.reduce_axis((0, k), "r")
    y = te.compute((n,), lambda i: te.sum(w[i, r] * x[r], axis=r), name="y")
    return [w, x, te.compute((n,), lambda i: y[i] * 2.0, name="twice")]


def few_rows():
    return matmul(3, 21, 70)


def rms_norm(n=5, m=70):
    x, r = placeholder(n, m), te.reduce_axis((0, m), "r")
    squares = te.compute((n,), lambda i: te.sum(x[i, r] * x[i, r], axis=r), name="squares")
    return [x, te.compute((n, m), lambda i, j: x[i, j] * tir.rsqrt(squares[i] / m + 1e-5), name="norm")]


def total(n=11, k=33):
    x = placeholder(n, k)
    return [x, topi.sum(x, axis=1)]


def softmax(n=4, m=300):
    x, r, q = placeholder(n, m), te.reduce_axis((0, m), "r"), te.reduce_axis((0, m), "q")
    top = te.compute((n,), lambda i: te.max(x[i, r], axis=r), name="top")
    part = te.compute((n,), lambda i: te.sum(te.exp(x[i, q] - top[i]), axis=q), name="part")
    return [x, te.compute((n, m), lambda i, j: te.exp(x[i, j] - top[i]) / part[i], name="out")]


def transpose(n=21, m=35):
    x = placeholder(n, m)
    return [x, te.compute((m, n), lambda i, j: x[j, i], name="t")]


def everything(x=3):
    x = placeholder(x)
    return [x, topi.sum(x)]


def many():
    """As many elements as are made four a thread, read in another order and beside the edge."""
    x = placeholder(1024, 3, 171)
    return [x, te.compute((3, 1024, 256), lambda c, i, j: te.if_then_else(j < 171, x[i, c, te.min(j, 170)], 2.0))]


def few():
    return gemv(3, 5)


def function(args, target):
    return te.create_prim_func(args).with_attr("target", target)


def applied(func, *rules):
    return dl.ApplyDefaultSchedule(*rules)(ir.IRModule({"main": func}))["main"]


def arrays(func, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.uniform(-1, 1, [int(d) for d in b.shape]).astype(b.dtype) for _, b in func.buffer_map]


def on_host(func, *args):
    """Run a function on the processor, its threads one after another."""

    def serial(node):
        if isinstance(node, tir.For) and node.kind == tir.ForKind.THREAD_BINDING:
            return tir.For(node.loop_var, node.min, node.extent, tir.ForKind.SERIAL, node.body)
        return node

    attrs = ir.Attrs.of({"global_symbol": "main"})
    build(func.replace(body=ir.rewrite(func.body, serial), attrs=attrs), HOST)["main"](*args)


def check(func, scheduled, run=on_host):
    given = arrays(func)
    expected, found = [a.copy() for a in given], [a.copy() for a in given]
    on_host(func, *expected)
    run(scheduled, *found)
    for a, b in zip(expected, found, strict=True):
        np.testing.assert_allclose(b, a, rtol=2e-5, atol=2e-5)


def test_the_interpreter_agrees():
    for rule, graph in ((dl.gpu.Matmul(), batched), (dl.gpu.GEMV(), lambda: gemv(3, 40))):
        func = function(graph(), CUDA)
        scheduled = applied(func, rule)
        assert scheduled is not func
        check(func, scheduled, run=interpret)


TAKEN = [
    (dl.gpu.Matmul(), matmul),
    (dl.gpu.Matmul(), batched),
    (dl.gpu.GEMV(), gemv),
    (dl.gpu.Reduction(), total),
    (dl.gpu.Reduction(), gemv),
    (dl.gpu.GeneralReduction(), softmax),
    (dl.gpu.Transpose(), transpose),
    (dl.gpu.GEMV(), few),
    (dl.gpu.Reduction(), few),
    (Elementwise(), many),
    (dl.gpu.Reduction(selective=True), lambda: total(300, 600)),
    (dl.gpu.LowBatchGEMV(), few_rows),
    (dl.gpu.RMSNorm(), rms_norm),
    *[(dl.gpu.Fallback(), f) for f in (elementwise, matmul, softmax, transpose, everything)],
]


@pytest.mark.parametrize(("rule", "graph"), TAKEN, ids=lambda v: getattr(v, "__name__", type(v).__name__))
def test_rules_for_gpus(rule, graph):
    func = function(graph(), CUDA)
    scheduled = applied(func, rule)
    assert scheduled.attrs["tir.is_scheduled"]
    threads = {
        n.thread_binding.thread_tag for n in ir.walk(scheduled.body) if isinstance(n, tir.For) and n.thread_binding
    }
    assert {"blockIdx.x", "threadIdx.x"} <= threads
    check(func, scheduled)
    assert "__global__" in build(scheduled, CUDA).imports[0].inspect_source()


@pytest.mark.parametrize("sizes", [(1, 1, 1), (64, 64, 32), (3, 130, 5), (65, 2, 17)])
def test_products_of_odd_sizes(sizes):
    func = function(matmul(*sizes), CUDA)
    check(func, applied(func, dl.gpu.Matmul(), dl.gpu.Fallback()))


@pytest.mark.parametrize("blocks", [1, 1 << 30])
def test_products_are_staged_ahead(blocks, monkeypatch):
    """In large and small tiles; neighbouring threads load neighbouring elements; one barrier for each step."""
    monkeypatch.setattr("weft.dlight.gpu.matmul._BLOCKS", blocks)
    func = function(matmul(130, 150, 50), CUDA)
    scheduled = applied(func, dl.gpu.Matmul())
    check(func, scheduled)
    (kernel,) = lower_for_gpu(ir.IRModule({"main": scheduled}), CUDA).device.values()
    assert {n.dtype for n in ir.walk(kernel.body) if isinstance(n, ir.Var)} == {"int32", "handle"}
    steps, *_ = [n for n in ir.walk(kernel.body) if isinstance(n, tir.For) and n.kind is tir.ForKind.SERIAL]
    waits = [n for n in ir.walk(steps) if isinstance(n, ir.CallIntrin) and n.op.name == "tir.tvm_storage_sync"]
    loads = [n.value for n in ir.walk(steps) if isinstance(n, tir.BufferStore) and n.buffer.name.endswith("_ahead")]
    assert len(waits) == 1 and loads
    threads = {n.loop_var: n.thread_binding.thread_tag for n in ir.find(kernel.body, tir.For) if n.thread_binding}
    for load in ir.find(tuple(loads), tir.BufferLoad):
        moved = [
            {v: np.asarray(int(threads.get(v) == "threadIdx.x") * n) for v in used_vars(*load.indices)} for n in (1, 0)
        ]
        one, zero = (int(values_at(load.indices[0], at)) for at in moved)
        assert one - zero == 1


def deep_windows():
    x, w = te.placeholder((1, 96, 9, 9), name="x"), te.placeholder((20, 96, 3, 3), name="w")
    return [x, w, topi.nn.relu(topi.nn.conv2d(x, w, 1, 1, 1))]


@pytest.mark.parametrize("graph", [lambda: matmul(20, 30, 512), lambda: matmul(3, 70, 2310), deep_windows])
def test_few_results_are_sums_of_parts(graph):
    """Two kernels: parts of the depth, then their sum with what follows."""
    func = function(graph(), CUDA)
    scheduled = applied(func, dl.gpu.Matmul())
    check(func, scheduled)
    host, device = lower_for_gpu(ir.IRModule({"main": scheduled}), CUDA)
    assert len(device) == 2 and len(host.functions) == 1


REFUSED = [
    (dl.gpu.Matmul(), gemv),
    (dl.gpu.Matmul(), elementwise),
    (dl.gpu.GEMV(), total),
    (dl.gpu.GEMV(), elementwise),
    (Elementwise(), elementwise),
    (Elementwise(), total),
    (Elementwise(), lambda: elementwise(1021, 1023)),
    (dl.gpu.Reduction(), softmax),
    (dl.gpu.GeneralReduction(), elementwise),
    (dl.gpu.Transpose(), elementwise),
    (dl.cpu.GEMV(), total),
    (dl.cpu.Reduction(), softmax),
    (dl.gpu.Reduction(selective=True), few),
    (dl.gpu.LowBatchGEMV(), matmul),
    (dl.gpu.LowBatchGEMV(2), few_rows),
    (dl.gpu.RMSNorm(), softmax),
]


@pytest.mark.parametrize(("rule", "graph"), REFUSED, ids=lambda v: getattr(v, "__name__", type(v).__name__))
def test_functions_of_another_kind_stay(rule, graph):
    func = function(graph(), HOST if isinstance(rule, dl.cpu.CPUScheduleRule) else CUDA)
    assert applied(func, rule) is func


def test_rules_for_another_target_do_not_apply():
    assert applied(function(elementwise(), HOST), dl.gpu.Fallback()).attrs.get("tir.is_scheduled") is None
    assert applied(function(gemv(), CUDA), dl.cpu.GEMV()).attrs.get("tir.is_scheduled") is None


@pytest.mark.parametrize(("rule", "graph"), [(dl.cpu.GEMV(), gemv), (dl.cpu.Reduction(), total)])
def test_rules_for_processors(rule, graph):
    func = function(graph(), HOST)
    scheduled = applied(func, rule)
    assert scheduled.attrs["tir.is_scheduled"]
    check(func, scheduled)
    check(func, scheduled, run=lambda f, *args: build(f, HOST)["main"](*args))


def test_the_first_rule_that_takes_a_function_decides_and_scheduled_ones_stay():
    seen = []

    @dl.ScheduleRule.from_callable("Watching")
    def watching(func, target, tunable):
        seen.append((target, tunable))

    once = applied(function(elementwise(), CUDA), watching, dl.gpu.Fallback())
    assert seen == [(CUDA, False)] and type(watching).__name__ == "Watching"
    assert applied(once, watching) is once and len(seen) == 1


def test_the_target_around_is_used():
    with CUDA:
        assert applied(te.create_prim_func(elementwise()), dl.gpu.Fallback()).attrs["tir.is_scheduled"]


def test_normal_form():
    (info,) = dl.normalize_prim_func(tir.Schedule(te.create_prim_func(total(1, 8))))
    assert (info.dom_kind(), info.dom(), info.is_reduction()) == ("SR", [1, 8], True)


@pytest.mark.parametrize(("rows", "terms", "threads"), [(300, 600, 32), (300, 4096, 256), (20, 4096, 1024)])
def test_a_thread_of_many_rows_has_sixteen_terms(rows, terms, threads):
    scheduled = applied(function(total(rows, terms), CUDA), dl.gpu.Reduction(selective=True))
    loops = [n for n in ir.find(scheduled.body, tir.For) if n.thread_binding]
    assert {ir.as_int(n.extent) for n in loops if n.thread_binding.thread_tag == "threadIdx.x"} == {threads}


def test_many_rows_are_blocks_along_the_first_axis():
    scheduled = applied(function(matmul(1 << 23, 16, 8), CUDA), dl.gpu.Matmul())
    loops = [n for n in ir.walk(scheduled.body) if isinstance(n, tir.For) and n.thread_binding]
    blocks = {n.thread_binding.thread_tag: ir.as_int(n.extent) for n in loops}
    assert blocks["blockIdx.x"] > 65535 >= max(blocks["blockIdx.y"], blocks["blockIdx.z"])
