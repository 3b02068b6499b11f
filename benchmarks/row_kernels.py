"""Memory- and row-shaped kernels: softmax, norms, element-wise chains, reductions, transposes, functions of one value.

Cases for ``benchmarks/kernels.py`` (which times them), each with its peers in ONNX Runtime and PyTorch. All contenders
read the same arrays and write into arrays allocated alike (NumPy asks for 2 MiB pages from 4 MiB on), so none of them
pays for fresh pages inside the timed call.
"""

from __future__ import annotations

import ctypes
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from weft import ir, te, topi
from weft.support.cc import run_compiler
from weft.target import Target, build
from weft.tir.schedule import default_schedule
from weft.topi.activation import ACTIVATIONS

RNG = np.random.default_rng(0)


@dataclass
class RowCase:
    """One kernel: its computation, its inputs, and the same as ONNX nodes and as a PyTorch call that writes `out`.

    Attributes
    ----------
    make : callable
        From placeholders to the output tensor.
    nodes : list
        ``(op, inputs, attributes)``; inputs are ``x0, x1, ...``, results ``v0, v1, ...``.
    constants : dict
        Constant inputs of the nodes.
    torch_call : callable
        ``fn(torch, inputs, out)``.
    c_function : str
        The function of C's mathematical library that does the same to one value.
    """

    name: str
    inputs: list[np.ndarray]
    make: Callable[..., Any]
    nodes: list[tuple[str, list[str], dict[str, Any]]] = field(default_factory=list)
    constants: dict[str, np.ndarray] = field(default_factory=dict)
    torch_call: Callable[..., Any] | None = None
    c_function: str = ""


def aligned(shape: Any, dtype: Any = np.float32) -> np.ndarray:
    """Make an array of zeros that begins at a cache line, as the runtimes' own allocators do."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count].view(dtype).reshape(shape)


def rand(*shape: int) -> np.ndarray:
    """Draw a float32 array."""
    array = aligned(shape)
    RNG.standard_normal(shape, np.float32, array)
    return array


# --- cases ------------------------------------------------------------------------------------------------------------


def softmax_case(n: int, k: int) -> RowCase:
    """Softmax over rows."""
    return RowCase(
        f"softmax {n}x{k}",
        [rand(n, k)],
        lambda x: topi.nn.softmax(x, -1),
        [("Softmax", ["x0"], {"axis": -1})],
        torch_call=lambda torch, i, out: torch.softmax(i[0], -1, out=out),
    )


def layer_norm_case(n: int, k: int, residual: bool = False) -> RowCase:
    """Layer normalisation, alone or of a sum."""
    g, b = rand(k), rand(k)
    rows = [rand(n, k) for _ in range(1 + residual)]
    nodes: list[Any] = [("Add", ["x0", "x1"], {})] if residual else []
    nodes.append(("LayerNormalization", ["v0" if residual else "x0", "g", "b"], {"axis": -1, "epsilon": 1e-5}))

    def make(*t: Any) -> Any:
        x = topi.add(t[0], t[1]) if residual else t[0]
        return topi.nn.layer_norm(x, t[-2], t[-1])

    def in_torch(torch: Any, i: Any, out: Any) -> Any:
        x = torch.add(i[0], i[1], out=out) if residual else i[0]
        return torch.nn.functional.layer_norm(x, [k], i[-2], i[-1])

    name = ("residual+layernorm " if residual else "layernorm ") + f"{n}x{k}"
    return RowCase(name, [*rows, g, b], make, nodes, {"g": g, "b": b}, in_torch)


def gelu_case(*shape: int) -> RowCase:
    """``gelu(x) * y + z``."""

    def in_torch(torch: Any, i: Any, out: Any) -> Any:
        torch.ops.aten.gelu.out(i[0], out=out)
        return out.mul_(i[1]).add_(i[2])

    def make(x: Any, y: Any, z: Any) -> Any:
        gelu = te.compute(x.shape, lambda *i: ACTIVATIONS["gelu"](x(*i)), name="gelu")
        return topi.add(topi.multiply(gelu, y), z)

    nodes: list[Any] = [("Gelu", ["x0"], {}), ("Mul", ["v0", "x1"], {}), ("Add", ["v1", "x2"], {})]
    name = "gelu(x)*y+z " + "x".join(map(str, shape))
    return RowCase(name, [rand(*shape) for _ in range(3)], make, nodes, torch_call=in_torch)


def reduce_case(kind: str, shape: tuple[int, ...], axes: tuple[int, ...]) -> RowCase:
    """A sum, mean or maximum over axes."""
    node = {"sum": "ReduceSum", "mean": "ReduceMean", "max": "ReduceMax"}[kind]
    call = {"sum": "sum", "mean": "mean", "max": "amax"}[kind]
    fn = {"sum": topi.sum, "mean": topi.mean, "max": topi.max}[kind]
    return RowCase(
        f"{kind} {'x'.join(map(str, shape))} over {','.join(map(str, axes))}",
        [rand(*shape)],
        lambda x: fn(x, list(axes), False),
        [(node, ["x0", "axes"], {"keepdims": 0})],
        {"axes": np.array(axes)},
        lambda torch, i, out: getattr(torch, call)(i[0], dim=axes, out=out),
    )


def transpose_case(shape: tuple[int, ...], perm: tuple[int, ...]) -> RowCase:
    """A permutation of axes."""
    return RowCase(
        f"transpose {'x'.join(map(str, shape))} by {','.join(map(str, perm))}",
        [rand(*shape)],
        lambda x: topi.transpose(x, list(perm)),
        [("Transpose", ["x0"], {"perm": list(perm)})],
        torch_call=lambda torch, i, out: out.copy_(i[0].permute(perm)),
    )


def function_case(kind: str, positive: bool = False) -> RowCase:
    """A function of one value on 64 K floats."""
    x = rand(64, 1024)
    if positive:
        np.abs(x, out=x)
        x += 0.01
    return RowCase(
        f"{kind} 64K",
        [x],
        getattr(topi, kind),
        [(kind.capitalize(), ["x0"], {})],
        torch_call=lambda torch, i, out: getattr(torch, kind)(i[0], out=out),
        c_function=kind + "f",
    )


def pool_case(kind: str, n: int, c: int, h: int, k: int, stride: int) -> RowCase:
    """Pooling, channels first."""
    pad = k // 2
    attrs = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [pad] * 4}
    call = {"max": "max_pool2d", "avg": "avg_pool2d"}[kind]
    return RowCase(
        f"{kind}pool {k}x{k}s{stride} {n}x{c}x{h}x{h}",
        [rand(n, c, h, h)],
        lambda x: topi.nn.pool2d(
            x, (k, k), (stride, stride), (1, 1), (pad, pad, pad, pad), kind, count_include_pad=False
        ),
        [({"max": "MaxPool", "avg": "AveragePool"}[kind], ["x0"], attrs)],
        torch_call=lambda torch, i, out: getattr(torch.nn.functional, call)(
            i[0], k, stride, pad, **({"count_include_pad": False} if kind == "avg" else {})
        ),
    )


def norm_case(kind: str, n: int, c: int, h: int, groups: int = 0) -> RowCase:
    """Instance or group normalisation, channels first."""
    x, g, b = rand(n, c, h, h), rand(c), rand(c)
    if groups:
        node = ("GroupNormalization", ["x0", "g", "b"], {"num_groups": groups, "epsilon": 1e-5})
        make = lambda x, g, b: topi.nn.group_norm(x, g, b, groups)  # noqa: E731
        call = lambda torch, i, out: torch.nn.functional.group_norm(i[0], groups, i[1], i[2])  # noqa: E731
    else:
        node = ("InstanceNormalization", ["x0", "g", "b"], {"epsilon": 1e-5})
        make = lambda x, g, b: topi.nn.instance_norm(x, g, b)  # noqa: E731
        call = lambda torch, i, out: torch.nn.functional.instance_norm(i[0], None, None, i[1], i[2])  # noqa: E731
    return RowCase(f"{kind}norm {n}x{c}x{h}x{h}", [x, g, b], make, [node], {"g": g, "b": b}, call)


def arg_case(n: int, k: int, axis: int) -> RowCase:
    """The index of the greatest element."""
    return RowCase(
        f"argmax {n}x{k} over {axis}",
        [rand(n, k)],
        lambda x: topi.reduce.arg_reduce("max", x, axis),
        [("ArgMax", ["x0"], {"axis": axis, "keepdims": 0})],
        torch_call=lambda torch, i, out: torch.argmax(i[0], axis, out=out),
    )


def cumsum_case(n: int, k: int, axis: int) -> RowCase:
    """A running sum."""
    return RowCase(
        f"cumsum {n}x{k} over {axis}",
        [rand(n, k)],
        lambda x: topi.cumsum(x, axis),
        [("CumSum", ["x0", "axis"], {})],
        {"axis": np.array(axis)},
        lambda torch, i, out: torch.cumsum(i[0], axis, out=out),
    )


def gather_case(n: int, k: int, count: int) -> RowCase:
    """Rows of a table."""
    return RowCase(
        f"gather {count} of {n}x{k}",
        [rand(n, k), RNG.integers(0, n, count)],
        lambda t, i: topi.take(t, i, 0),
        [("Gather", ["x0", "x1"], {"axis": 0})],
        torch_call=lambda torch, i, out: torch.index_select(i[0], 0, i[1], out=out),
    )


def copy_cases() -> list[RowCase]:
    """Concatenation, slices, padding, broadcasts."""
    a, b = rand(512, 300), rand(512, 468)
    x = rand(64, 56, 56)
    return [
        RowCase(
            "concat 512x300+468",
            [a, b],
            lambda a, b: topi.concatenate([a, b], 1),
            [("Concat", ["x0", "x1"], {"axis": 1})],
            torch_call=lambda torch, i, out: torch.cat([i[0], i[1]], 1, out=out),
        ),
        RowCase(
            "slice 1024x1024 [:, 3:900]",
            [rand(1024, 1024)],
            lambda x: topi.strided_slice(x, [0, 3], [1024, 900], [1, 1]),
            [("Slice", ["x0", "begin", "end", "axes"], {})],
            {"begin": np.array([3]), "end": np.array([900]), "axes": np.array([1])},
            lambda torch, i, out: out.copy_(i[0][:, 3:900]),
        ),
        RowCase(
            "pad 64x56x56 by 1",
            [x],
            lambda x: topi.nn.pad(x, [0, 1, 1], [0, 1, 1]),
            [("Pad", ["x0", "pads"], {})],
            {"pads": np.array([0, 1, 1, 0, 1, 1])},
            lambda torch, i, out: torch.nn.functional.pad(i[0], (1, 1, 1, 1)),
        ),
        RowCase(
            "add 8x512x49 + 512x1",
            [rand(8, 512, 49), rand(512, 1)],
            lambda x, y: topi.add(x, y),
            [("Add", ["x0", "x1"], {})],
            torch_call=lambda torch, i, out: torch.add(i[0], i[1], out=out),
        ),
        RowCase(
            "add 65536x7 + 7",
            [rand(65536, 7), rand(7)],
            lambda x, y: topi.add(x, y),
            [("Add", ["x0", "x1"], {})],
            torch_call=lambda torch, i, out: torch.add(i[0], i[1], out=out),
        ),
    ]


def cases() -> list[RowCase]:
    """List the cases; the targets' shapes first."""
    return [
        *(softmax_case(n, k) for n, k in ((1536, 128), (512, 1024), (4096, 4096))),
        *(layer_norm_case(n, k) for n, k in ((128, 768), (512, 1024), (4096, 1024))),
        *(layer_norm_case(n, k, True) for n, k in ((128, 768), (512, 1024), (4096, 1024))),
        gelu_case(4096, 4096),
        reduce_case("sum", (1 << 24,), (0,)),
        reduce_case("sum", (4096, 4096), (1,)),
        transpose_case((4096, 4096), (1, 0)),
        *(function_case(k) for k in ("exp", "tanh", "erf", "sin", "cos")),
        function_case("log", True),
        softmax_case(1000, 37),
        reduce_case("sum", (4096, 1024), (0,)),
        reduce_case("sum", (4096, 1000), (0,)),
        reduce_case("max", (4000, 777), (0,)),
        reduce_case("mean", (64, 197, 768), (1,)),
        reduce_case("mean", (32, 512, 7, 7), (2, 3)),
        reduce_case("max", (1000, 333), (1,)),
        transpose_case((12, 128, 64), (1, 0, 2)),
        transpose_case((8, 197, 12, 64), (0, 2, 1, 3)),
        transpose_case((12, 128, 64), (0, 2, 1)),
        transpose_case((1, 64, 112, 112), (0, 2, 3, 1)),
        transpose_case((1000, 777), (1, 0)),
        pool_case("max", 1, 64, 112, 3, 2),
        pool_case("avg", 1, 64, 56, 3, 1),
        norm_case("instance", 2, 64, 56),
        norm_case("group", 2, 64, 56, 8),
        arg_case(512, 1000, 1),
        arg_case(512, 1000, 0),
        cumsum_case(512, 1000, 1),
        cumsum_case(512, 1000, 0),
        gather_case(30522, 384, 512),
        *copy_cases(),
    ]


# --- measuring --------------------------------------------------------------------------------------------------------


def onnx_peer(case: RowCase, out: np.ndarray, threads: int) -> Callable[[], Any]:
    """Make an ONNX Runtime session that reads the case's arrays and writes `out`."""
    import onnx
    import onnxruntime as ort

    nodes = [onnx.helper.make_node(k, names, [f"v{i}"], **a) for i, (k, names, a) in enumerate(case.nodes)]
    used = {n for _, names, _ in case.nodes for n in names}
    kinds = {n: onnx.helper.np_dtype_to_tensor_dtype(a.dtype) for n, a in _named(case.inputs)}
    graph = onnx.helper.make_graph(
        nodes,
        "g",
        [onnx.helper.make_tensor_value_info(n, kinds[n], a.shape) for n, a in _named(case.inputs) if n in used],
        [
            onnx.helper.make_tensor_value_info(
                f"v{len(nodes) - 1}", onnx.helper.np_dtype_to_tensor_dtype(out.dtype), out.shape
            )
        ],
        [onnx.numpy_helper.from_array(a, n) for n, a in case.constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 21)], ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for n, a in _named(case.inputs):
        if n in used:
            binding.bind_input(n, "cpu", 0, a.dtype, a.shape, a.ctypes.data)
    binding.bind_output(f"v{len(nodes) - 1}", "cpu", 0, out.dtype, out.shape, out.ctypes.data)
    return lambda: session.run_with_iobinding(binding)


def _named(inputs: list[np.ndarray]) -> list[tuple[str, np.ndarray]]:
    return [(f"x{i}", a) for i, a in enumerate(inputs)]


def torch_peer(case: RowCase, out: np.ndarray, threads: int) -> Callable[[], Any]:
    """Make a call of PyTorch that reads the case's arrays; it writes `out` where the operator can."""
    import torch

    torch.set_num_threads(threads)
    inputs, result = [torch.from_numpy(a) for a in case.inputs], torch.from_numpy(out)
    call = case.torch_call
    assert call is not None
    with torch.inference_mode():
        first = call(torch, inputs, result)
        if first is not result and first.data_ptr() != result.data_ptr():
            result.copy_(first)

    def run() -> Any:
        with torch.inference_mode():
            return call(torch, inputs, result)

    return run


def c_library(name: str, x: np.ndarray, out: np.ndarray) -> Callable[[], Any]:
    """Make a loop in C that calls a function of the mathematical library for one value at a time."""
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "loop.c"), Path(folder, "loop.so")
        source.write_text(
            f"#include <math.h>\nvoid loop(const float* x, float* y, long n) "
            f"{{ for (long i = 0; i < n; ++i) y[i] = {name}(x[i]); }}\n"
        )
        run_compiler(["-O2", "-fno-builtin", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"])
        loop = ctypes.CDLL(str(library)).loop
    return lambda: loop(ctypes.c_void_p(x.ctypes.data), ctypes.c_void_p(out.ctypes.data), ctypes.c_long(x.size))


def compile_case(case: RowCase) -> tuple[Any, list[np.ndarray]]:
    """Compile a case by the rules; return the kernel and its arguments, the output last."""
    # extents of type int64, as the graph compiler's
    placeholders = [
        te.placeholder([ir.int64(d) for d in a.shape], str(a.dtype), name=f"x{i}") for i, a in enumerate(case.inputs)
    ]
    result = case.make(*placeholders)
    target = Target("llvm")
    func = default_schedule(te.create_prim_func([*placeholders, result]), target)
    out = aligned([int(d) for d in result.shape], result.dtype)
    return build(func, target)["main"], [*case.inputs, out]


def slices(contenders: dict[str, Callable[[], Any]], count: int) -> dict[str, list[float]]:
    """Run contenders in turn; return the seconds of each call."""
    times: dict[str, list[float]] = {n: [] for n in contenders}
    for fn in contenders.values():
        fn()
    for _ in range(count):
        for name, fn in contenders.items():
            time.sleep(0.02)
            fn()
            end = time.perf_counter() + 0.03
            for n in range(200):
                start = time.perf_counter()
                fn()
                now = time.perf_counter()
                times[name].append(now - start)
                if now > end and n >= 2:
                    break
    return times


def measure(case: RowCase, threads: int, count: int, peers: bool = True) -> dict[str, Any]:
    """Compile, check and time one case; times are (best, 25th percentile) in microseconds by contender."""
    start = time.perf_counter()
    kernel, arguments = compile_case(case)
    compile_ms = (time.perf_counter() - start) * 1e3
    kernel(*arguments)
    contenders: dict[str, Callable[[], Any]] = {"weft": lambda: kernel(*arguments)}
    worst = 0.0
    if peers:
        expected = aligned(arguments[-1].shape, arguments[-1].dtype)
        contenders["ort"] = onnx_peer(case, expected, threads)
        contenders["ort"]()
        error = np.abs(arguments[-1].astype(np.float64) - expected).max()
        worst = float(error / (np.abs(expected).max() + 1e-9))
        if case.torch_call is not None:
            contenders["torch"] = torch_peer(case, aligned(expected.shape, expected.dtype), threads)
        if case.c_function:
            contenders["C"] = c_library(case.c_function, case.inputs[0], aligned(expected.shape))
    times = slices(contenders, count)
    stats = {n: (min(t) * 1e6, float(np.percentile(t, 25)) * 1e6) for n, t in times.items()}
    moved = sum(a.nbytes for a in arguments)
    return {"name": case.name, "us": stats, "bytes": moved, "error": worst, "compile_ms": compile_ms}


def show(row: dict[str, Any]) -> str:
    """Format one result: best and 25th percentile of each, and the best peer's over Weft's."""
    us = row["us"]
    cells = " ".join(f"{n} {b:9.1f} ({p:9.1f})" for n, (b, p) in us.items())
    rate = f"{row['bytes'] / us['weft'][0] / 1e3:6.1f} GB/s"
    if len(us) < 2:
        return f"{row['name']:34} {cells} {rate}"
    ratios = [min(us[n][i] for n in us if n != "weft") / us["weft"][i] for i in (0, 1)]
    wrong = "" if row["error"] < 1e-4 else f"  WRONG BY {row['error']:.2g}"
    scalar = f"  C's scalar calls {us['C'][0] / us['weft'][0]:5.1f}" if "C" in us else ""
    return f"{row['name']:34} {cells} {rate}  ratio {ratios[0]:5.2f} ({ratios[1]:5.2f}){scalar}{wrong}"
