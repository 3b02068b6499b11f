"""Single kernels against ONNX Runtime, interleaved in one process: best and 25th percentile, and the ratio (above 1:
Weft is faster).

    python benchmarks/kernels.py --threads 2 --only gemm,conv --json out.json

Each contender runs in slices with a pause between, so that spinning workers of one do not take the cores of the next.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

Case = tuple[str, Any, list[np.ndarray], Any, float]


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="comma-separated parts of case names")
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--no-peer", action="store_true", help="time Weft alone")
    parser.add_argument("--json", default="")
    return parser.parse_args()


ARGS = parse() if __name__ == "__main__" else argparse.Namespace(threads=1, only="", slices=8, no_peer=False, json="")
os.environ["WEFT_NUM_THREADS"] = str(ARGS.threads)
os.environ.setdefault("OMP_NUM_THREADS", str(ARGS.threads))

from weft import te, tir  # noqa: E402 - the pool reads its size at import
from weft.target import Target, build  # noqa: E402
from weft.tir.schedule import default_schedule  # noqa: E402

RNG = np.random.default_rng(0)
PANEL = 32


def rand(*shape: int) -> np.ndarray:
    """Draw a float32 array."""
    return RNG.standard_normal(shape, np.float32)


def pack(weight: np.ndarray) -> np.ndarray:
    """Pack (K, N) into panels of columns."""
    k, n = weight.shape
    padded = np.zeros((k, -(-n // PANEL) * PANEL), np.float32)
    padded[:, :n] = weight
    return np.ascontiguousarray(padded.reshape(k, -1, PANEL).transpose(1, 0, 2))


# --- computations -----------------------------------------------------------------------------------------------------


def gemm_func(m: Any, n: int, k: int) -> Any:
    """A product with packed constant weights."""
    a, w = te.placeholder((m, k), name="A"), te.placeholder((-(-n // PANEL), k, PANEL), name="W")
    r = te.reduce_axis((0, k), name="r")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, r] * w[j // PANEL, r, j % PANEL], axis=r), name="C")
    return te.create_prim_func([a, w, c])


def conv_func(n: int, h: int, w: int, ci: int, co: int, k: int, stride: int, pad: int) -> Any:
    """A channels-last convolution with packed weights, bias and ReLU."""
    x, weight, bias = (
        te.placeholder((n, h, w, ci), name="X"),
        te.placeholder((-(-co // PANEL), k, k, ci, PANEL), name="W"),
        te.placeholder((co,), name="B"),
    )
    data = _padded(x, n, h, w, ci, pad)
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    rh, rw, rc = te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw"), te.reduce_axis((0, ci), "rc")
    c = te.compute(
        (n, oh, ow, co),
        lambda b, i, j, o: te.sum(
            data[b, i * stride + rh, j * stride + rw, rc] * weight[o // PANEL, rh, rw, rc, o % PANEL], axis=[rh, rw, rc]
        ),
        name="conv",
    )
    y = te.compute(
        (n, oh, ow, co), lambda b, i, j, o: tir.max(c[b, i, j, o] + bias[o], tir.const(0, "float32")), name="Y"
    )
    return te.create_prim_func([x, weight, bias, y])


def _padded(x: Any, n: int, h: int, w: int, c: int, pad: int) -> Any:
    if not pad:
        return x
    zero = tir.const(0, "float32")
    return te.compute(
        (n, h + 2 * pad, w + 2 * pad, c),
        lambda b, i, j, o: tir.if_then_else(
            tir.all(i >= pad, i < h + pad, j >= pad, j < w + pad), x[b, i - pad, j - pad, o], zero
        ),
        name="pad",
    )


def depthwise_func(h: int, w: int, c: int, k: int, stride: int) -> Any:
    """A channels-last depthwise convolution with ReLU."""
    pad = k // 2
    x, weight = te.placeholder((1, h, w, c), name="X"), te.placeholder((k, k, c), name="W")
    data = _padded(x, 1, h, w, c, pad)
    oh, ow = (h + 2 * pad - k) // stride + 1, (w + 2 * pad - k) // stride + 1
    rh, rw = te.reduce_axis((0, k), "rh"), te.reduce_axis((0, k), "rw")
    d = te.compute(
        (1, oh, ow, c),
        lambda b, i, j, o: te.sum(data[b, i * stride + rh, j * stride + rw, o] * weight[rh, rw, o], axis=[rh, rw]),
        name="dw",
    )
    y = te.compute((1, oh, ow, c), lambda b, i, j, o: tir.max(d[b, i, j, o], tir.const(0, "float32")), name="Y")
    return te.create_prim_func([x, weight, y])


def softmax_func(n: int, k: int) -> Any:
    """Softmax over rows."""
    x = te.placeholder((n, k), name="X")
    r, r2 = te.reduce_axis((0, k), "r"), te.reduce_axis((0, k), "r2")
    m = te.compute((n,), lambda i: te.max(x[i, r], axis=r), name="M")
    e = te.compute((n, k), lambda i, j: tir.exp(x[i, j] - m[i]), name="E")
    s = te.compute((n,), lambda i: te.sum(e[i, r2], axis=r2), name="S")
    return te.create_prim_func([x, te.compute((n, k), lambda i, j: e[i, j] / s[i], name="Y")])


def layer_norm_func(n: int, k: int) -> Any:
    """Layer normalisation over rows."""
    x, g, b = te.placeholder((n, k), name="X"), te.placeholder((k,), name="G"), te.placeholder((k,), name="Bias")
    r, r2 = te.reduce_axis((0, k), "r"), te.reduce_axis((0, k), "r2")
    total = te.compute((n,), lambda i: te.sum(x[i, r], axis=r), name="T")
    mean = te.compute((n,), lambda i: total[i] / float(k), name="Mean")
    sq = te.compute((n,), lambda i: te.sum((x[i, r2] - mean[i]) * (x[i, r2] - mean[i]), axis=r2), name="V")
    y = te.compute((n, k), lambda i, c: (x[i, c] - mean[i]) / tir.sqrt(sq[i] / float(k) + 1e-5) * g[c] + b[c], name="Y")
    return te.create_prim_func([x, g, b, y])


def map_func(shape: tuple[int, ...], fn: Callable[..., Any], inputs: int = 1) -> Any:
    """An element-wise function."""
    xs = [te.placeholder(shape, name=f"X{i}") for i in range(inputs)]
    return te.create_prim_func([*xs, te.compute(shape, lambda *i: fn(*[x(*i) for x in xs]), name="Y")])


def transpose_func(n: int, m: int) -> Any:
    """A matrix transpose."""
    x = te.placeholder((n, m), name="X")
    return te.create_prim_func([x, te.compute((m, n), lambda i, j: x[j, i], name="Y")])


def sum_func(n: int, k: int) -> Any:
    """Sums of rows."""
    x = te.placeholder((n, k), name="X")
    r = te.reduce_axis((0, k), "r")
    return te.create_prim_func([x, te.compute((n,), lambda i: te.sum(x[i, r], axis=r), name="Y")])


# --- peers ------------------------------------------------------------------------------------------------------------


def peer(
    nodes: list[tuple[str, list[str], dict[str, Any]]], inputs: list[np.ndarray], constants: dict[str, np.ndarray]
) -> Callable[[], list[np.ndarray]]:
    """Make an ONNX Runtime session of a chain of nodes; inputs are ``x0, x1, ...``, values ``v0, v1, ...``."""
    import onnx
    import onnxruntime as ort

    proto = []
    for i, (kind, names, attrs) in enumerate(nodes):
        proto.append(onnx.helper.make_node(kind, names, [f"v{i}"], **attrs))
    graph = onnx.helper.make_graph(
        proto,
        "g",
        [onnx.helper.make_tensor_value_info(f"x{i}", 1, a.shape) for i, a in enumerate(inputs)],
        [onnx.helper.make_tensor_value_info(f"v{len(nodes) - 1}", 1, None)],
        [onnx.numpy_helper.from_array(a, n) for n, a in constants.items()],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 20)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = ARGS.threads
    session = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    feed = {f"x{i}": ort.OrtValue.ortvalue_from_numpy(a) for i, a in enumerate(inputs)}
    binding = session.io_binding()
    for n, v in feed.items():
        binding.bind_ortvalue_input(n, v)
    binding.bind_output(f"v{len(nodes) - 1}")
    return lambda: session.run_with_iobinding(binding) or binding.get_outputs()


# --- cases ------------------------------------------------------------------------------------------------------------


def gemm_case(m: int, n: int, k: int, symbolic: bool = False) -> Case:
    """A product against MatMul with a constant right side."""
    a, w = rand(m, k), rand(k, n)
    func = gemm_func(te.size_var("m", "int64") if symbolic else m, n, k)
    name = f"gemm {m}x{n}x{k}" + (" symbolic" if symbolic else "")
    return (
        name,
        func,
        [a, pack(w), np.zeros((m, n), np.float32)],
        lambda: peer([("MatMul", ["x0", "w"], {})], [a], {"w": w}),
        2.0 * m * n * k,
    )


def conv_case(h: int, ci: int, co: int, k: int, stride: int = 1) -> Case:
    """A convolution against Conv with Relu."""
    pad = k // 2
    x, w, b = rand(1, h, h, ci), rand(co, ci, k, k) * 0.05, rand(co)
    packed = np.zeros((-(-co // PANEL) * PANEL, ci, k, k), np.float32)
    packed[:co] = w
    packed = np.ascontiguousarray(packed.reshape(-1, PANEL, ci, k, k).transpose(0, 3, 4, 2, 1))
    o = (h + 2 * pad - k) // stride + 1
    attrs = {"kernel_shape": [k, k], "strides": [stride, stride], "pads": [pad] * 4}
    other = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    run = lambda: peer([("Conv", ["x0", "w", "b"], attrs), ("Relu", ["v0"], {})], [other], {"w": w, "b": b})  # noqa: E731
    return (
        f"conv {k}x{k}s{stride} {ci}->{co} @{h}",
        conv_func(1, h, h, ci, co, k, stride, pad),
        [x, packed, b, np.zeros((1, o, o, co), np.float32)],
        run,
        2.0 * o * o * co * ci * k * k,
    )


def depthwise_case(h: int, c: int, k: int, stride: int) -> Case:
    """A depthwise convolution against Conv with groups."""
    pad = k // 2
    x, w = rand(1, h, h, c), rand(k, k, c)
    o = (h + 2 * pad - k) // stride + 1
    other, kernel = np.ascontiguousarray(x.transpose(0, 3, 1, 2)), np.ascontiguousarray(w.transpose(2, 0, 1)[:, None])
    attrs = {"kernel_shape": [k, k], "strides": [stride, stride], "pads": [pad] * 4, "group": c}
    run = lambda: peer([("Conv", ["x0", "w"], attrs), ("Relu", ["v0"], {})], [other], {"w": kernel})  # noqa: E731
    return (
        f"depthwise {k}x{k}s{stride} {c} @{h}",
        depthwise_func(h, h, c, k, stride),
        [x, w, np.zeros((1, o, o, c), np.float32)],
        run,
        2.0 * o * o * c * k * k,
    )


def cases() -> list[Case]:
    """List the cases."""
    out = [
        gemm_case(*s)
        for s in (
            (128, 768, 768),
            (128, 3072, 768),
            (128, 768, 3072),
            (384, 768, 768),
            (512, 512, 512),
            (1024, 1024, 1024),
            (1, 4096, 4096),
            (1, 3072, 768),
        )
    ]
    out += [gemm_case(m, 768, 768, symbolic=True) for m in (1, 7, 37, 128)] + [
        gemm_case(128, 384, 384),
        gemm_case(128, 1536, 384),
        gemm_case(128, 384, 1536),
    ]
    out += [conv_case(224, 3, 64, 7, 2)]
    out += [
        conv_case(*s)
        for s in (
            (56, 64, 64, 3),
            (28, 128, 128, 3),
            (14, 256, 256, 3),
            (7, 512, 512, 3),
            (56, 128, 128, 3, 2),
            (28, 256, 256, 3, 2),
        )
    ]
    out += [
        conv_case(*s)
        for s in (
            (56, 64, 256, 1),
            (56, 256, 64, 1),
            (28, 512, 128, 1),
            (14, 1024, 256, 1),
            (14, 256, 1024, 1),
            (7, 512, 2048, 1),
            (7, 2048, 512, 1),
        )
    ]
    out += [
        conv_case(56, 256, 512, 1, 2),
        conv_case(112, 32, 16, 1),
        conv_case(112, 16, 96, 1),
        conv_case(14, 96, 576, 1),
    ]
    out += [
        depthwise_case(*s)
        for s in ((112, 32, 3, 1), (112, 96, 3, 2), (56, 144, 3, 1), (14, 384, 3, 1), (14, 576, 5, 1), (7, 960, 3, 1))
    ]
    for n, k in ((1536, 128), (128, 768), (512, 1024), (4096, 4096)):
        x = rand(n, k)
        out.append(
            (
                f"softmax {n}x{k}",
                softmax_func(n, k),
                [x, np.zeros_like(x)],
                lambda x=x: peer([("Softmax", ["x0"], {"axis": -1})], [x], {}),
                0.0,
            )
        )
    for n, k in ((128, 384), (128, 768), (512, 1024), (4096, 1024)):
        x, g, b = rand(n, k), rand(k), rand(k)
        node = ("LayerNormalization", ["x0", "g", "b"], {"axis": -1})
        run = partial(peer, [node], [x], {"g": g, "b": b})
        out.append((f"layernorm {n}x{k}", layer_norm_func(n, k), [x, g, b, np.zeros_like(x)], run, 0.0))
    half, root = 0.5, float(np.sqrt(0.5))
    for shape in ((128, 1536), (128, 3072), (4096, 4096)):
        x = rand(*shape)
        func = map_func(shape, lambda v: v * half * (tir.erf(v * root) + 1.0))
        out.append(
            (
                f"gelu {shape[0]}x{shape[1]}",
                func,
                [x, np.zeros_like(x)],
                lambda x=x: peer([("Gelu", ["x0"], {})], [x], {}),
                0.0,
            )
        )
    for op, fn in (("Exp", tir.exp), ("Tanh", tir.tanh), ("Erf", tir.erf)):
        x = rand(64, 1024)
        out.append(
            (
                f"{op.lower()} 64K",
                map_func((64, 1024), fn),
                [x, np.zeros_like(x)],
                lambda x=x, op=op: peer([(op, ["x0"], {})], [x], {}),
                0.0,
            )
        )
    x, y = rand(64, 12544), rand(64, 12544)
    out.append(
        (
            "add 802816",
            map_func((64, 12544), lambda a, b: a + b, 2),
            [x, y, np.zeros_like(x)],
            lambda: peer([("Add", ["x0", "x1"], {})], [x, y], {}),
            0.0,
        )
    )
    big = rand(4096, 4096)
    out.append(
        (
            "transpose 4096",
            transpose_func(4096, 4096),
            [big, np.zeros_like(big)],
            lambda: peer([("Transpose", ["x0"], {"perm": [1, 0]})], [big], {}),
            0.0,
        )
    )
    out.append(
        (
            "rowsum 4096",
            sum_func(4096, 4096),
            [big, np.zeros(4096, np.float32)],
            lambda: peer([("ReduceSum", ["x0", "axes"], {"keepdims": 0})], [big], {"axes": np.array([1])}),
            0.0,
        )
    )
    return out


# --- measuring --------------------------------------------------------------------------------------------------------


def slices(contenders: dict[str, Callable[[], Any]], count: int) -> dict[str, list[float]]:
    """Run contenders in turn; return the seconds of each call."""
    times: dict[str, list[float]] = {n: [] for n in contenders}
    for fn in contenders.values():
        fn()
    for _ in range(count):
        for name, fn in contenders.items():
            time.sleep(0.03)
            end = time.perf_counter() + 0.03
            for n in range(200):
                start = time.perf_counter()
                fn()
                now = time.perf_counter()
                times[name].append(now - start)
                if now > end and n >= 2:
                    break
    return times


def main() -> None:
    """Measure and print."""
    target = Target("llvm")
    rows = []
    wanted = [p.strip() for p in ARGS.only.split(",") if p.strip()]
    print(
        f"{'kernel':34} {'weft us':>10} {'p25':>10} {'GF/s':>7} "
        f"{'ort us':>10} {'p25':>10} {'ratio':>6} {'p25':>6} {'compile ms':>10}"
    )
    for name, func, arrays, make_peer, flops in cases():
        if wanted and not any(w in name for w in wanted):
            continue
        start = time.perf_counter()
        kernel = build(default_schedule(func, target), target)["main"]
        compile_ms = (time.perf_counter() - start) * 1e3
        contenders: dict[str, Callable[[], Any]] = {"weft": lambda k=kernel, a=arrays: k(*a)}
        if not ARGS.no_peer:
            contenders["ort"] = make_peer()
            expected = contenders["ort"]()[0].numpy()
            kernel(*arrays)
            found = arrays[-1].transpose(0, 3, 1, 2) if arrays[-1].ndim == 4 else arrays[-1]
            worst = float(np.abs(found - expected).max() / (np.abs(expected).max() + 1e-9))
            if not worst < 1e-4:
                print(f"{name}: wrong by {worst}", file=sys.stderr)
        times = slices(contenders, ARGS.slices)
        stats = {n: (min(t) * 1e6, float(np.percentile(t, 25)) * 1e6) for n, t in times.items()}
        weft, ort = stats["weft"], stats.get("ort", (float("nan"), float("nan")))
        rate = f"{flops / weft[0] / 1e3:7.1f}" if flops else " " * 7
        print(
            f"{name:34} {weft[0]:10.1f} {weft[1]:10.1f} {rate} {ort[0]:10.1f} {ort[1]:10.1f} "
            f"{ort[0] / weft[0]:6.2f} {ort[1] / weft[1]:6.2f} {compile_ms:10.0f}",
            flush=True,
        )
        rows.append({"name": name, "weft_us": weft, "ort_us": ort, "threads": ARGS.threads, "compile_ms": compile_ms})
    ratios = [r["ort_us"][0] / r["weft_us"][0] for r in rows if r["ort_us"][0] == r["ort_us"][0]]
    if ratios:
        print(f"geometric mean of ratios {float(np.exp(np.mean(np.log(ratios)))):.2f}, least {min(ratios):.2f}")
    if ARGS.json:
        with open(ARGS.json, "w") as f:
            json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
