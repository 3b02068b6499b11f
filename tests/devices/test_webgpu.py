"""Kernels of WGSL, computed by what browsers compute them with: wgpu (PyPI), on any adapter, such as Mesa's."""

import base64
import json
import math
import shutil
from typing import NamedTuple

import numpy as np
import pytest

import weft
from examples.minilm.network import write_onnx
from tests.devices import missing
from tests.devices.test_gpu_models import OPERATORS
from tests.devices.test_web import ROOT, opened_in_browser
from tests.target.programs import vector
from weft import ir, relax, target, tir
from weft.frontend.onnx import from_onnx
from weft.runtime import tensor
from weft.target.gpu import lower_for_gpu
from weft.target.webgpu import emit_wgsl

try:
    import wgpu
except ImportError:
    wgpu = None
RNG = np.random.default_rng(0)
TARGET = target.Target("webgpu")
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


class Plan(NamedTuple):
    """What a host's half of a function does: buffers, kernels in their order, and which buffers are its parameters'."""

    text: str
    memory: list[bytes]
    dispatches: list[tuple[str, list[int], list[int], list[int]]]  # kernel, buffers, numbers' bits, groups
    results: list[int | None]

    def arrays(self, memory, arguments):
        """The arguments as they are afterwards."""
        return [
            a if i is None else np.frombuffer(memory[i], a.dtype)[: a.size].reshape(a.shape)
            for i, a in zip(self.results, arguments, strict=True)
        ]


def planned(scheduled, arguments):
    """Lower a scheduled function for WebGPU; the plan of a call of it."""
    split = lower_for_gpu(weft.IRModule({"f": scheduled}), TARGET)
    functions, func = split.device, split.host["f"]
    known, places, memory, dispatches, buffers = {}, {}, [], [], dict(func.buffer_map)
    for p, a in zip(func.params, arguments, strict=True):
        if p not in buffers:
            known[p] = a
            continue
        known.update({d: n for d, n in zip(buffers[p].shape, a.shape, strict=True) if isinstance(d, ir.Var)})
        places[buffers[p].data] = len(memory)
        memory.append(a.tobytes())
    for node in ir.walk(func.body):
        if isinstance(node, tir.LetStmt) and node.var.dtype == "handle":  # a workspace
            places[node.var] = len(memory)
            memory.append(bytes(number(node.value.args[1], known)))
        if not (isinstance(node, tir.Evaluate) and isinstance(node.value, ir.CallIntrin)):
            continue
        name, *args = node.value.args
        if name.value not in functions:
            continue
        kernel = functions[name.value]
        given = args[: len(kernel.params)]
        tags = kernel.attrs["tir.kernel_launch_params"]
        extents = {t: number(e, known) for t, e in zip(tags, args[len(given) :], strict=True)}
        numbers = [number(a, known) & 0xFFFFFFFF for a in given if a not in places]
        grid = [extents.get(f"blockIdx.{axis}", 1) for axis in "xyz"]
        dispatches.append((name.value, [places[a] for a in given if a in places], numbers, grid))
    results = [places[buffers[p].data] if p in buffers else None for p in func.params]
    return Plan(emit_wgsl(functions), memory, dispatches, results)


def run(adapter, scheduled, *arguments):
    """Call a scheduled function on copies of arrays."""
    plan = planned(scheduled, arguments)
    module = adapter.create_shader_module(code=plan.text)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    memory = [adapter.create_buffer_with_data(data=data, usage=usage) for data in plan.memory]
    for name, buffers, numbers, grid in plan.dispatches:
        pipeline = adapter.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": name})
        for first in range(0, grid[0], MOST_GROUPS):
            place = np.array([first, 0, 0, *numbers], "uint32").tobytes()
            args = adapter.create_buffer_with_data(data=place + bytes(-len(place) % 16), usage=wgpu.BufferUsage.UNIFORM)
            bound = enumerate([*(memory[i] for i in buffers), args])
            entries = [{"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}} for i, b in bound]
            encoder = adapter.create_command_encoder()
            work = encoder.begin_compute_pass()
            work.set_pipeline(pipeline)
            work.set_bind_group(0, adapter.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
            work.dispatch_workgroups(min(grid[0] - first, MOST_GROUPS), *grid[1:])
            work.end()
            adapter.queue.submit([encoder.finish()])
    return plan.arrays({i: adapter.queue.read_buffer(memory[i]) for i in plan.results if i is not None}, arguments)


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
    "to an integer": (
        lambda v: (v * tir.const(1e9, "float32")).astype("int32"),
        FLOATS,
        lambda v: np.clip(np.float64(v * np.float32(1e9)), -(2**31), 2**31 - 1).astype("int32"),
    ),
}


@pytest.mark.parametrize("name", EXACT)
def test_integers(adapter, name):
    f, x, reference = EXACT[name]
    expected = reference(x)
    found = run(adapter, vector(f, str(x.dtype)), x, np.zeros_like(expected))[1]
    np.testing.assert_array_equal(found, expected)


CLOSE = {
    "exp": np.exp,
    "tanh": np.tanh,
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "fabs": np.abs,
    "floor": np.floor,
    "round": np.round,
    "sin": np.sin,
    "erf": np.vectorize(math.erf),
}


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


def calls(mod, exact, size):
    """Functions of a model with the default schedule of GPUs, random numbers, and what `exact` makes of them here."""
    functions = kernels(mod)
    assert functions
    for plain, wide in zip(functions, kernels(exact), strict=True):
        arguments, here = [argument(plain, p, size) for p in plain.params], []
        for p, a in zip(wide.params, arguments, strict=True):
            here.append(weft.runtime.tensor(a.astype(wide.buffer_map[p].dtype)) if isinstance(a, np.ndarray) else a)
        weft.build(wide.with_attr("global_symbol", "f"), target="llvm")(*here)
        yield TARGET.attribute("tir.schedule")(plain, TARGET), arguments, here


def agree(found, expected, rtol=2e-5, atol=2e-4):
    """What was computed is what was computed here."""
    for f, e in zip(found, expected, strict=True):
        if isinstance(f, np.ndarray):
            np.testing.assert_allclose(f, e.numpy(), rtol=rtol, atol=atol)


def argument(func, param, size):
    """A dimension, or random numbers of a shape of which it is each that is open."""
    buffer = dict(func.buffer_map).get(param)
    if buffer is None:
        return size
    shape = [number(d, {v: size for v in ir.walk(d) if isinstance(v, ir.Var)}) for d in buffer.shape]
    if buffer.dtype.startswith("int"):
        return RNG.integers(0, 2, shape).astype(buffer.dtype)
    return RNG.standard_normal(shape).astype(buffer.dtype)


def operator(name):
    """The calls of an operator's model."""
    op, shapes, attributes = OPERATORS[name]
    n = tir.SizeVar("n", "int64")

    def model(dtype):
        infos = [relax.TensorStructInfo([n if d == "n" else d for d in s], dtype) for s in shapes]
        bb = relax.BlockBuilder()
        with bb.function("main", xs := [relax.Var(f"x{i}", info) for i, info in enumerate(infos)]):
            bb.emit_func_output(bb.emit(op(*xs, **attributes)))
        return bb.get()

    return calls(model("float32"), model("float64"), 37)


TAKEN = sorted(OPERATORS.keys() - {"order", "the largest of few"})


@pytest.mark.parametrize("name", TAKEN)
def test_operators_with_default_schedules(adapter, name):
    for scheduled, arguments, expected in operator(name):
        agree(run(adapter, scheduled, *arguments), expected)


def test_a_trained_network(adapter, tmp_path):
    """Every kernel of MiniLM is taken, and computes what it computes here."""
    write_onnx(tmp_path / "minilm.onnx")
    mod = from_onnx(str(tmp_path / "minilm.onnx"))
    for scheduled, arguments, expected in calls(mod, mod, 11):
        agree(run(adapter, scheduled, *arguments), expected, 1e-4, 1e-4)


PAGE = """<script type="module">
import { openGPU } from "/web/src/webgpu.js";
const bytes = (text) => Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
const text = (buffer) => btoa(Array.from(new Uint8Array(buffer), (v) => String.fromCharCode(v)).join(""));
const raised = async (f) => { try { await f(); return null; } catch (e) { return [e.kind, e.message]; } };
let answer = null;
try {
  const gpu = await openGPU();
  answer = { results: [] };
  for (const plan of await (await fetch("/plans.json")).json()) {
    const kernels = await gpu.kernels(plan.text), memory = plan.memory.map((m) => gpu.buffer(bytes(m)));
    for (const [name, at, numbers, grid] of plan.dispatches) kernels.run(name, at.map((i) => memory[i]), numbers, grid);
    answer.results.push(await Promise.all(memory.map(async (m) => text(await gpu.read(m)))));
  }
  answer.zeros = Array.from(new Uint8Array(await gpu.read(gpu.buffer(5))));
  answer.wrong = await raised(() => gpu.kernels("fn f() -> i32 { return 1.5; }"));
  const { text: some, dispatches: [[name]] } = (await (await fetch("/plans.json")).json())[0];
  answer.lost = await raised(async () => {
    (await gpu.kernels(some)).run(name, [], [], [1]);
    await gpu.read(gpu.buffer(4));
  });
} catch (e) { answer = String(e); }
await fetch("/page", { method: "POST", body: JSON.stringify(answer) });
</script>"""


LONG = 500
"""Lines of a kernel over which Chromium's GPU of software thinks for minutes: those are compiled alone."""


def test_a_browser_computes_the_same(tmp_path):
    """Through the package in web/, with the browser's own compiler of WGSL."""
    made = [(planned(s, a), a, e) for name in TAKEN for s, a, e in operator(name)]
    for f, x, reference in EXACT.values():
        arguments = [x, np.zeros_like(reference(x))]
        made.append((planned(vector(f, str(x.dtype)), arguments), arguments, [tensor(x), tensor(reference(x))]))
    made.sort(key=lambda m: len(m[0].text))  # a short one is the page's example
    write_onnx(tmp_path / "minilm.onnx")
    for func in kernels(from_onnx(str(tmp_path / "minilm.onnx"))):
        scheduled = weft.IRModule({"f": TARGET.attribute("tir.schedule")(func, TARGET)})
        made.append((Plan(emit_wgsl(lower_for_gpu(scheduled, TARGET).device), [], [], []), [], []))
    made = [(p if p.text.count("\n") < LONG else Plan(p.text, [], [], []), *m) for p, *m in made]
    plans = [p._replace(memory=[base64.b64encode(m).decode() for m in p.memory])._asdict() for p, *_ in made]
    (tmp_path / "plans.json").write_text(json.dumps(plans))
    (tmp_path / "index.html").write_text(PAGE)
    shutil.copytree(ROOT / "web/src", tmp_path / "web/src")
    options = ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader")
    with opened_in_browser(tmp_path, tmp_path / "profile", *options) as posted:
        answer = posted()
    if "may use no GPU" in answer:
        missing(f"WebGPU in Chromium: {answer}")
    assert isinstance(answer, dict), answer
    computed = [(m, memory) for m, memory in zip(made, answer["results"], strict=True) if memory]
    assert len(computed) > 12
    for (plan, arguments, expected), memory in computed:
        agree(plan.arrays([base64.b64decode(m) for m in memory], arguments), expected)
    assert answer["zeros"] == [0] * 8
    assert answer["wrong"][0] == "CodegenError" and "line 1" in answer["wrong"][1]
    assert answer["lost"][0] == "InternalError" and answer["lost"][1]
