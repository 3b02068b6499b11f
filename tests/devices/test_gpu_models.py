"""Whole models on every kind of device that this machine has, and the operators that they are made of."""

import numpy as np
import pytest
from weft.contrib import graph_executor
from weft.relax.frontend import nn

import weft
from examples.minilm.network import feeds_of, load_tokenizer, write_onnx
from tests.refusals import refuses
from weft import environment, error, relax, relay, runtime, te, tir
from weft.frontend.onnx import from_onnx
from weft.script import tir as T

RNG = np.random.default_rng(0)


class Perceptron(nn.Module):
    def __init__(self):
        self.first, self.norm, self.then = nn.Linear(20, 33), nn.LayerNorm(33), nn.Linear(33, 7)

    def forward(self, x):
        return nn.op.softmax(self.then(self.norm(nn.op.relu(self.first(x)))), axis=-1)


class Convolutions(nn.Module):
    def __init__(self):
        self.first, self.then = nn.Conv2D(3, 8, 3, padding=1), nn.Conv2D(8, 8, 3, stride=2, groups=8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        x = nn.op.relu(self.then(nn.op.relu(self.first(x))))
        return self.head(nn.op.sum(x, axis=[2, 3]))


def on_both(gpu, mod, name="main"):
    """A function of a model as it was compiled for this machine and for a device; arrays go in and come back."""

    def compiled(target, dev):
        vm = relax.VirtualMachine(weft.compile(mod, target=target), dev)
        return lambda *arrays: vm[name](*(runtime.tensor(a, device=dev) for a in arrays)).numpy()

    return compiled("llvm", runtime.cpu()), compiled(gpu.kind, gpu.dev)


@pytest.mark.parametrize(
    ("model", "shape", "inputs"),
    [(Perceptron, ("n", 20), [(5, 20), (1, 20), (64, 20)]), (Convolutions, (2, 3, 9, 11), [(2, 3, 9, 11)])],
)
def test_models_compute_what_they_compute_on_the_host(gpu, model, shape, inputs):
    mod, named = model().export_tvm({"forward": {"x": nn.spec.Tensor(shape, "float32")}})
    weights = [(RNG.standard_normal([int(d) for d in p.shape]) * 0.3).astype("float32") for _, p in named]
    here, there = on_both(gpu, mod, "forward")
    for size in inputs:
        x = RNG.standard_normal(size).astype("float32")
        np.testing.assert_allclose(there(x, *weights), here(x, *weights), rtol=2e-5, atol=2e-6)


def test_a_model_with_constants_and_conditions(gpu):
    bb = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((3, 4), "float32"))
    w = relax.const(RNG.random((3, 4)).astype("float32"))
    with bb.function("main", [x]):
        total = bb.emit(relax.op.sum(x))
        positive = bb.emit(relax.op.greater(total, relax.const(np.float32(0))))
        out = bb.emit(relax.op.where(positive, relax.op.multiply(x, w), relax.op.subtract(x, w)))
        bb.emit_func_output(out)
    vm = relax.VirtualMachine(weft.compile(bb.get(), target=gpu.kind), gpu.dev)
    value = w.data.numpy()
    for sign in (1, -1):
        a = (sign * RNG.random((3, 4))).astype("float32")
        (on,) = gpu.put(a)
        np.testing.assert_allclose(vm["main"](on).numpy(), a * value if sign > 0 else a - value, rtol=1e-6)
    refuses(error.InvalidArgument, f"expected {gpu.kind}, found cpu", vm["main"], runtime.tensor(a))


@pytest.mark.parametrize("form", ["most", "least", "other"])
def test_threads_reduce_by_what_they_keep(gpu, form):
    """The larger by a test, as ONNX's models have it; what no reduction is known for is refused, never raced."""
    n, m = 5, 100

    def keep(x, y):
        return {"most": tir.Select(x > y, x, y), "least": tir.Select(y >= x, x, y), "other": x * 2.0 + y}[form]

    a = te.placeholder((n, m), name="A")
    k = te.reduce_axis((0, m), "k")
    reducer = te.comm_reducer(
        keep, {"most": te.min_value, "least": te.max_value, "other": te.min_value}[form], name="keep"
    )
    b = te.compute((n,), lambda i: reducer(a[i, k], axis=k), name="B")
    sch = tir.Schedule(te.create_prim_func([a, b]))
    i, j = sch.get_loops(sch.get_block("B"))
    _, inner = sch.split(j, [None, 16])
    sch.bind(i, "blockIdx.x")
    sch.bind(inner, "threadIdx.x")
    if form == "other":
        refuses(error.WeftError, "not one thread's own", weft.build, sch.mod, target=gpu.kind)
        return
    x = RNG.standard_normal((n, m)).astype("float32")
    args = gpu.put(x, x[:, 0] * 0)
    weft.build(sch.mod, target=gpu.kind)(*args)
    np.testing.assert_array_equal(args[1].numpy(), x.max(1) if form == "most" else x.min(1))


OPERATORS = {
    "products": (relax.op.matmul, [(100, 70), (70, 90)], {}),
    "products of rows": (relax.op.matmul, [("n", 64), (64, 50)], {}),
    "batches": (relax.op.matmul, [(3, 40, 64), (3, 64, 50)], {}),
    "a vector": (relax.op.matmul, [(1, 300), (300, 200)], {}),
    "windows": (relax.op.nn.conv2d, [(2, 16, 13, 15), (24, 16, 3, 3)], {"padding": 1, "strides": 2}),
    "a symbolic batch": (relax.op.nn.conv2d, [("n", 16, 9, 9), (24, 16, 3, 3)], {"padding": 1}),
    "groups": (relax.op.nn.conv2d, [(2, 16, 13, 15), (24, 4, 3, 3)], {"groups": 4}),
    "transposed windows": (relax.op.nn.conv2d_transpose, [(2, 6, 7, 5), (6, 4, 4, 4)], {"strides": 2, "padding": 1}),
    "largest of windows": (relax.op.nn.max_pool2d, [("n", 8, 15, 15)], {"pool_size": 3, "strides": 2, "padding": 1}),
    "one sum": (relax.op.sum, [(333, 777)], {}),
    "sums of columns": (relax.op.sum, [(333, 77)], {"axis": 0}),
    "mean and variance": (relax.op.variance, [(5, 400)], {"axis": 1}),
    "the largest of few": (relax.op.topk, [(8, 1000)], {"k": 5, "ret_type": "values"}),
    "running sums": (relax.op.cumsum, [(7, 33)], {"axis": 1}),
    "order": (relax.op.sort, [(5, "n")], {"axis": 1}),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators_that_nobody_scheduled(gpu, name):
    op, shapes, attributes = OPERATORS[name]
    n = tir.SizeVar("n", "int64")
    sizes = [[n if d == "n" else d for d in s] for s in shapes]
    bb, infos = relax.BlockBuilder(), [relax.TensorStructInfo(s, "float32") for s in sizes]
    with bb.function("main", xs := [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]):
        bb.emit_func_output(bb.emit(op(*xs, **attributes)))
    mod = bb.get()
    values = [RNG.standard_normal([37 if d == "n" else d for d in s]).astype("float32") for s in shapes]
    here, there = on_both(gpu, mod)
    np.testing.assert_allclose(there(*values), here(*values), rtol=2e-5, atol=2e-4)


def test_what_one_step_stores_the_next_one_reads(gpu):
    """A maximum and its place, each element a choice between what was given and what is there."""
    bb, n = relax.BlockBuilder(), 50
    x = relax.Var("x", relax.TensorStructInfo((n, 9), "float32"))

    def last_largest(a):
        def pick(old, new):
            return tir.Select(old[1] >= new[1], old[0], new[0]), tir.Select(old[1] >= new[1], old[1], new[1])

        place = te.comm_reducer(pick, lambda i, v: (tir.const(-1, i), te.min_value(v)), name="largest")
        k = te.reduce_axis((0, 9), "k")
        return te.compute((n,), lambda i: place((k.var, a[i, k]), axis=k), name="largest")

    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit_te(lambda a: list(last_largest(a)), x))
    given = RNG.standard_normal((n, 9)).astype("float32")
    vm = relax.VirtualMachine(weft.compile(bb.get(), target=gpu.kind), gpu.dev)
    places, values = vm["main"](*gpu.put(given))
    np.testing.assert_array_equal(values.numpy(), given.max(1))
    np.testing.assert_array_equal(places.numpy(), given.argmax(1))


def test_more_shared_memory_than_a_block_has_is_refused(gpu):
    @T.prim_func
    def f(A: T.Buffer((64,), "float32"), B: T.Buffer((64,), "float32")):
        for t in T.thread_binding(64, thread="threadIdx.x"):
            S = T.alloc_buffer((1 << 20,), "float32", scope="shared")
            S[t * 16644] = A[t]
            B[t] = S[(63 - t) * 16644]

    refuses(error.CodegenError, "(?s)too much shared memory.*41942.. for 'S'", weft.build, f, target=gpu.kind)


def test_graphs_of_relay(gpu):
    x, w = relay.var("x", shape=(2, 3, 9, 9)), relay.var("w", shape=(4, 3, 3, 3))
    y = relay.nn.global_avg_pool2d(relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1), kernel_size=(3, 3), channels=4)))
    mod = weft.IRModule.from_expr(relay.Function([x, w], relay.nn.softmax(relay.nn.batch_flatten(y))))
    value, weight = RNG.random((2, 3, 9, 9)).astype("float32"), RNG.random((4, 3, 3, 3)).astype("float32")
    found = []
    for target, dev in (("llvm", runtime.cpu()), (gpu.kind, gpu.dev)):
        machine = graph_executor.GraphModule(relay.build(mod, target=target, params={"w": weight})["default"](dev))
        machine.run(x=value)
        assert machine.get_output(0).device == dev
        found.append(machine.get_output(0).numpy())
    np.testing.assert_allclose(found[1], found[0], rtol=1e-5)
    with pytest.raises(error.InvalidArgument, match="programs ahead of time are the CPU's"):
        relay.build(mod, target=gpu.kind, executor=relay.backend.Executor("aot"))


@pytest.mark.skipif(environment.DEVICES.read() == "0", reason="a driver compiles its kernels for some seconds")
def test_a_trained_network(gpu, tmp_path):
    path = tmp_path / "minilm.onnx"
    write_onnx(path)
    feeds = feeds_of(load_tokenizer().encode("Threads of a block share what they have loaded.").ids)
    mod, found = from_onnx(str(path)), []
    for target, dev in (("llvm", runtime.cpu()), (gpu.kind, gpu.dev)):
        vm = relax.VirtualMachine(weft.compile(mod, target=target), dev)
        names = vm.executable.function("main").param_names
        outputs = vm["main"](*(runtime.tensor(feeds[name], device=dev) for name in names))
        found.append([o.numpy() for o in outputs])
    for expected, y in zip(*found, strict=True):
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
