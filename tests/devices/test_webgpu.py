"""Kernels of WGSL, computed by what browsers compute them with: wgpu (PyPI), on any adapter, such as Mesa's."""

import math

import numpy as np
import pytest

import weft
from examples.minilm.network import write_onnx
from tests.devices import missing
from tests.devices.test_gpu_models import OPERATORS
from tests.target.programs import vector
from weft import ir, relax, tir
from weft.frontend.onnx import from_onnx
from weft.target import Target
from weft.target.gpu import lower_for_gpu
from weft.target.webgpu import emit_wgsl

try:
    import wgpu
except ImportError:
    wgpu = None
RNG = np.random.default_rng(0)
TARGET = Target("webgpu")
MOST_GROUPS = 65535  # of a dispatch, along each axis


@pytest.fixture(scope="module")
def adapter():
    """A device of an adapter of Vulkan, Metal or Direct3D 12."""
    if wgpu is None:
        missing("wgpu (pip install 'weft[devices]')")
    found = [a for a in wgpu.gpu.enumerate_adapters_sync() if a.info["backend_type"] != "OpenGL"]
    if not found:
        missing("an adapter of WebGPU")
    return found[0].request_device_sync(required_features=["shader-f16"])


def number(e, known):
    """The value of an expression of dimensions."""
    values = {v: ir.const(n, v.dtype) for v, n in known.items()}
    return ir.as_int(weft.arith.Analyzer().simplify(ir.substitute(e, values)))


def launch(adapter, functions, func, arguments):
    """Do what the host's half of a function does: launch its kernels in their order, on copies of arrays."""
    module = adapter.create_shader_module(code=emit_wgsl(functions))
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    known, memory, buffers = {}, {}, dict(func.buffer_map)
    for p, a in zip(func.params, arguments, strict=True):
        if p not in buffers:
            known[p] = a
            continue
        known.update({d: n for d, n in zip(buffers[p].shape, a.shape, strict=True) if isinstance(d, ir.Var)})
        memory[buffers[p].data] = adapter.create_buffer_with_data(data=a.tobytes(), usage=usage)

    for node in ir.walk(func.body):
        if isinstance(node, tir.LetStmt) and node.var.dtype == "handle":  # a workspace
            memory[node.var] = adapter.create_buffer(size=number(node.value.args[1], known), usage=usage)
        if not (isinstance(node, tir.Evaluate) and isinstance(node.value, ir.CallIntrin)):
            continue
        name, *args = node.value.args
        if name.value not in functions:
            continue
        kernel = functions[name.value]
        tags = kernel.attrs["tir.kernel_launch_params"]
        given = args[: len(kernel.params)]
        extents = {t: number(e, known) for t, e in zip(tags, args[len(given) :], strict=True)}
        numbers = b"".join(np.int32(number(a, known)).tobytes() for a in given if a not in memory)
        pipeline = adapter.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": name.value})
        grid = [extents.get(f"blockIdx.{axis}", 1) for axis in "xyz"]
        for first in range(0, grid[0], MOST_GROUPS):
            place = np.array([first, 0, 0], "uint32").tobytes() + numbers
            args = adapter.create_buffer_with_data(data=place + bytes(-len(place) % 16), usage=wgpu.BufferUsage.UNIFORM)
            bound = enumerate([*(memory[a] for a in given if a in memory), args])
            entries = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}} for i, b in bound]
            encoder = adapter.create_command_encoder()
            work = encoder.begin_compute_pass()
            work.set_pipeline(pipeline)
            work.set_bind_group(0, adapter.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
            work.dispatch_workgroups(min(grid[0] - first, MOST_GROUPS), *grid[1:])
            work.end()
            adapter.queue.submit([encoder.finish()])
    return [np.frombuffer(adapter.queue.read_buffer(memory[buffers[p].data]), a.dtype)[: a.size].reshape(a.shape)
            if p in buffers else a for p, a in zip(func.params, arguments, strict=True)]  # fmt: skip


def run(adapter, scheduled, *arguments):
    split = lower_for_gpu(weft.IRModule({"f": scheduled}), TARGET)
    return launch(adapter, split.device, split.host["f"], arguments)


FLOATS = np.array([*RNG.standard_normal(90), 0.0, -0.0, 1e-3, 8.5, -8.5, 30.0, -30.0], "float32")
INTS = np.array([*range(-9, 9), -(2**31), 2**31 - 1], "int32")
WIDE = np.array([0, 1, -1, 2**31, -(2**40) - 7, 2**62], "int64")
EXACT = {
    "floor division": (lambda v: tir.floordiv(v, tir.const(3, "int32")), INTS, lambda v: v // 3),
    "by zero": (lambda v: tir.floordiv(v, v - v), INTS, lambda v: v * 0),
    "shifts": (lambda v: (v >> (v - v + 40)) + (v << (v - v + 33)), INTS, lambda v: np.int32(v < 0) * -1),
    "powers": (lambda v: tir.power(v, tir.const(5, "int32")), INTS, lambda v: v**5),
    "64 bits copied": (lambda v: v, WIDE, lambda v: v),
    "64 bits to a float": (lambda v: v.astype("float32"), WIDE, lambda v: v.astype("float32")),
    "64 bits cut": (lambda v: v.astype("int32"), WIDE, lambda v: v.astype("int32")),
    "to an integer": (lambda v: (v * tir.const(1e9, "float32")).astype("int32"), FLOATS,
                      lambda v: np.clip(np.float64(v * np.float32(1e9)), -(2**31), 2**31 - 1).astype("int32")),
}  # fmt: skip


@pytest.mark.parametrize("name", EXACT)
def test_integers(adapter, name):
    f, x, reference = EXACT[name]
    expected = reference(x)
    found = run(adapter, vector(f, str(x.dtype)), x, np.zeros_like(expected))[1]
    np.testing.assert_array_equal(found, expected)


CLOSE = {
    "exp": np.exp, "tanh": np.tanh, "sigmoid": lambda v: 1 / (1 + np.exp(-v)), "fabs": np.abs, "floor": np.floor,
    "round": np.round, "sin": np.sin, "erf": np.vectorize(math.erf),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", CLOSE)
def test_functions(adapter, name, dtype):
    x = FLOATS.astype(dtype) if dtype == "float32" else np.clip(FLOATS, -9, 9).astype(dtype)
    found = run(adapter, vector(getattr(tir, name), dtype), x, x * 0)[1]
    rtol = 3e-5 if dtype == "float32" else 2e-3
    np.testing.assert_allclose(found, CLOSE[name](x.astype("float64")), rtol=rtol, atol=1e-6)


@pytest.mark.parametrize("size", [1, 63, 64, 65])
def test_sizes(adapter, size):
    x = RNG.standard_normal(size).astype("float32")
    np.testing.assert_array_equal(run(adapter, vector(lambda v: v + 1.0, "float32"), x, x * 0)[1], x + 1)


def kernels(mod):
    """The functions of a model, fused and not scheduled."""
    steps = relax.transform
    fused = ir.Sequential([steps.LegalizeOps(), steps.AnnotateTIROpPattern(), steps.FuseOps(), steps.FuseTIR()])(mod)
    return [f for f in fused.functions.values() if isinstance(f, tir.PrimFunc)]


def agree(adapter, mod, exact, size, rtol=2e-5, atol=2e-4):
    """Run each function of a model on random numbers by WGSL, with GPUs' default schedule, and as `exact` here."""
    functions = kernels(mod)
    assert functions
    for plain, wide in zip(functions, kernels(exact), strict=True):
        arguments, here = [argument(plain, p, size) for p in plain.params], []
        for p, a in zip(wide.params, arguments, strict=True):
            here.append(weft.runtime.tensor(a.astype(wide.buffer_map[p].dtype)) if isinstance(a, np.ndarray) else a)
        weft.build(wide.with_attr("global_symbol", "f"), target="llvm")(*here)
        bound = TARGET.attribute("tir.schedule")(plain, TARGET)
        for found, expected in zip(run(adapter, bound, *arguments), here, strict=True):
            if isinstance(found, np.ndarray):
                np.testing.assert_allclose(found, expected.numpy(), rtol=rtol, atol=atol)


def argument(func, param, size):
    """A dimension, or random numbers of a shape of which it is each that is open."""
    buffer = dict(func.buffer_map).get(param)
    if buffer is None:
        return size
    shape = [number(d, {v: size for v in ir.walk(d) if isinstance(v, ir.Var)}) for d in buffer.shape]
    if buffer.dtype.startswith("int"):
        return RNG.integers(0, 2, shape).astype(buffer.dtype)
    return RNG.standard_normal(shape).astype(buffer.dtype)


@pytest.mark.parametrize("name", sorted(OPERATORS.keys() - {"order", "the largest of few"}))
def test_operators_with_default_schedules(adapter, name):
    op, shapes, attributes = OPERATORS[name]
    n = tir.SizeVar("n", "int64")

    def model(dtype):
        infos = [relax.TensorStructInfo([n if d == "n" else d for d in s], dtype) for s in shapes]
        bb = relax.BlockBuilder()
        with bb.function("main", xs := [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]):
            bb.emit_func_output(bb.emit(op(*xs, **attributes)))
        return bb.get()

    agree(adapter, model("float32"), model("float64"), 37)


def test_a_trained_network(adapter, tmp_path):
    """Every kernel of MiniLM is taken, and computes what it computes here."""
    write_onnx(tmp_path / "minilm.onnx")
    mod = from_onnx(str(tmp_path / "minilm.onnx"))
    agree(adapter, mod, mod, 11, 1e-4, 1e-4)
