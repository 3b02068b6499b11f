"""Single kernels beside the peers', as shares of the machine's ceilings; the ratio is the best peer's time over Weft's.

    python -m benchmarks.kernels --threads 2 --only gemm,conv --json out.json

Products and convolutions run against ONNX Runtime (one node, weights constant), PyTorch (MKL and oneDNN) and, for
products, NumPy's OpenBLAS; memory- and row-shaped kernels stand in ``row_kernels`` and run here too. Contenders take
turns in slices with pauses between them, so that spinning workers of one do not take the cores of the next; best and
25th percentile of all calls are shown.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


def parse() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", default="", help="comma-separated parts of case names")
    parser.add_argument("--slices", type=int, default=8)
    parser.add_argument("--no-peer", action="store_true", help="time Weft alone")
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


ARGS = parse() if __name__ == "__main__" else None
if ARGS is not None:
    for name in ("WEFT_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(ARGS.threads)

import numpy as np  # noqa: E402 - the libraries read the number of threads at import

from benchmarks import report, row_kernels  # noqa: E402
from benchmarks.row_kernels import aligned, rand, slices  # noqa: E402
from weft import te, tir, topi  # noqa: E402
from weft.ir import cast  # noqa: E402
from weft.profile import fma_peak, read_bandwidth  # noqa: E402
from weft.target import Target, build  # noqa: E402
from weft.tir.schedule import default_schedule  # noqa: E402
from weft.topi.conv import conv  # noqa: E402

PANEL = 32
BERT = ((128, 768, 768), (128, 3072, 768), (128, 768, 3072), (384, 768, 768))
SQUARES = tuple((n, n, n) for n in (128, 256, 512, 1024, 2048))
CONVOLUTIONS = (
    (224, 3, 64, 7, 2),
    (56, 64, 64, 1, 1),
    (56, 64, 64, 3, 1),
    (56, 64, 256, 1, 1),
    (56, 256, 64, 1, 1),
    (56, 256, 128, 1, 1),
    (56, 128, 128, 3, 2),
    (28, 128, 512, 1, 1),
    (56, 256, 512, 1, 2),
    (28, 512, 128, 1, 1),
    (28, 128, 128, 3, 1),
    (28, 512, 256, 1, 1),
    (28, 256, 256, 3, 2),
    (14, 256, 1024, 1, 1),
    (28, 512, 1024, 1, 2),
    (14, 1024, 256, 1, 1),
    (14, 256, 256, 3, 1),
    (14, 1024, 512, 1, 1),
    (14, 512, 512, 3, 2),
    (7, 512, 2048, 1, 1),
    (14, 1024, 2048, 1, 2),
    (7, 2048, 512, 1, 1),
    (7, 512, 512, 3, 1),
)
"""The distinct convolutions of ResNet-50: size, input and output channels, kernel, stride."""
DEPTHWISE = (
    (112, 32, 3, 1),
    (112, 96, 3, 2),
    (56, 144, 3, 1),
    (56, 144, 5, 2),
    (28, 240, 5, 1),
    (14, 384, 3, 1),
    (14, 480, 3, 1),
    (14, 576, 3, 2),
    (14, 672, 5, 1),
    (7, 960, 3, 1),
    (7, 1152, 5, 1),
)
"""Of MobileNet and EfficientNet: size, channels, kernel, stride."""
WITH_TILES = {"gemm 1024x1024x1024": 1.5, "gemm 2048x2048x2048": 1.5}
"""Products that must be so much faster than the best peer where there are matrix tiles, at no larger error."""


@dataclass
class Case:
    """One kernel: its function, its arguments (the output last), and its peers by name."""

    name: str
    func: Any
    arguments: list[np.ndarray]
    operations: float
    expected: Callable[[], np.ndarray] | None = None
    peers: dict[str, Callable[[], Callable[[], Any]]] = field(default_factory=dict)


# --- peers ------------------------------------------------------------------------------------------------------------


def onnx_call(nodes: list[Any], inputs: list[np.ndarray], constants: dict[str, np.ndarray], out: np.ndarray) -> Any:
    """Make a session of a chain of nodes whose input ``x0`` and output are bound to arrays."""
    case = row_kernels.RowCase("", inputs, lambda: None, nodes, constants)
    run = row_kernels.onnx_peer(case, out, ARGS.threads if ARGS else 1)
    run.kept = (case, out)  # type: ignore[attr-defined] - the session knows their addresses only
    return run


def torch_call(make: Callable[[Any], Callable[[], Any]]) -> Callable[[], Any]:
    """Make a call of PyTorch on the same number of threads."""
    import torch

    torch.set_num_threads(ARGS.threads if ARGS else 1)
    call = make(torch)

    def run() -> Any:
        with torch.inference_mode():
            return call()

    return run


# --- products ---------------------------------------------------------------------------------------------------------


def packed(weight: np.ndarray, group: int = 1) -> np.ndarray:
    """Pack (k, n) into panels of columns, with `group` neighbouring rows together."""
    k, n = weight.shape
    padded = np.zeros((k, -(-n // PANEL) * PANEL), weight.dtype)
    padded[:, :n] = weight
    moved = padded.reshape(k // group, group, -1, PANEL).transpose(2, 0, 3, 1)
    result = aligned((moved.shape[0], k // group, PANEL * group), weight.dtype)
    result[:] = moved.reshape(result.shape)
    return result


def product(m: Any, n: int, k: int, types: tuple[str, str, str], group: int = 1) -> Any:
    """The function of a product with packed constant weights."""
    a = te.placeholder((m, k), types[0], name="A")
    w = te.placeholder((-(-n // PANEL), k // group, PANEL * group), types[1], name="W")
    r = te.reduce_axis((0, k), name="r")

    def element(i: Any, j: Any) -> Any:
        weight = (
            w[j // PANEL, r // group, (j % PANEL) * group + r % group] if group > 1 else w[j // PANEL, r, j % PANEL]
        )
        return te.sum(cast(types[2], a[i, r]) * cast(types[2], weight), axis=r)

    return te.create_prim_func([a, w, te.compute((m, n), element, name="C")])


def gemm(m: int, n: int, k: int, symbolic: bool = False) -> Case:
    """A product of float32."""
    a, w, out = rand(m, k), rand(k, n), aligned((m, n))
    func = product(te.size_var("m", "int64") if symbolic else m, n, k, ("float32",) * 3)  # type: ignore[arg-type]
    name = f"{'gemv' if m == 1 else 'gemm'} {m}x{n}x{k}{' symbolic' if symbolic else ''}"
    peers = {
        "ort": lambda: onnx_call([("MatMul", ["x0", "w"], {})], [a], {"w": w}, aligned((m, n))),
        "torch": lambda: torch_call(lambda t: _torch_product(t, a, w)),
        "openblas": lambda: functools.partial(np.matmul, a, w, out=aligned((m, n))),
    }
    return Case(name, func, [a, packed(w), out], 2.0 * m * n * k, lambda: a.astype(np.float64) @ w, peers)


def _torch_product(torch: Any, a: np.ndarray, w: np.ndarray) -> Callable[[], Any]:
    x, y, out = torch.from_numpy(a), torch.from_numpy(w), torch.zeros(a.shape[0], w.shape[1])
    return lambda: torch.mm(x, y, out=out)


def narrow(m: int, n: int, k: int, kind: str) -> Case:
    """A product of bytes or of bfloat16, for comparison with Weft's own float32."""
    import ml_dtypes

    rng = np.random.default_rng(0)
    if kind == "int8":
        a, w = rng.integers(0, 256, (m, k)).astype(np.uint8), rng.integers(-128, 128, (k, n)).astype(np.int8)
        func, out, group = product(m, n, k, ("uint8", "int8", "int32"), 4), aligned((m, n), np.int32), 4
    else:
        a, w = (rng.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((m, k), (k, n)))
        func, out, group = product(m, n, k, ("bfloat16", "bfloat16", "float32"), 2), aligned((m, n)), 2
    wide = np.int32 if kind == "int8" else np.float64
    return Case(
        f"{kind} gemm {m}x{n}x{k}",
        func,
        [a, packed(w, group), out],
        2.0 * m * n * k,
        lambda: a.astype(wide) @ w.astype(wide),
    )


# --- convolutions -----------------------------------------------------------------------------------------------------


def convolution(size: int, c: int, o: int, k: int, stride: int) -> Case:
    """A convolution with bias and ReLU, channels last, by the algorithm that the graph compiler chooses."""
    pad, out_size = k // 2, (size + 2 * (k // 2) - k) // stride + 1
    x, w, b = rand(1, size, size, c), rand(o, c, k, k), rand(o)
    w *= 0.05
    data, bias = te.placeholder(x.shape, name="X"), te.placeholder((o,), name="B")
    tile = topi.winograd_tile((1, out_size, out_size), (c, o)) if k == 3 and stride == 1 and c % 16 == 0 else 0
    if tile:
        weights = topi.winograd_weight(w, tile, PANEL)
        kernel = te.placeholder(weights.shape, name="W")
        y = topi.conv2d_winograd(data, kernel, pad, tile, o)
    else:
        weights = w.reshape(-1, PANEL, c, k, k).transpose(0, 3, 4, 2, 1)
        kernel = te.placeholder(weights.shape, name="W")
        y = conv(data, kernel, stride, pad, data_layout="NHWC", kernel_layout=f"OHWI{PANEL}o", channels=o)
    z = te.compute(y.shape, lambda *i: tir.max(y(*i) + bias(i[-1]), tir.const(0, "float32")), name="Y")
    own = aligned(weights.shape)
    own[:] = weights
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    attrs = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [pad] * 4}
    shape = (1, o, out_size, out_size)
    peers = {
        "ort": lambda: onnx_call(
            [("Conv", ["x0", "w", "b"], attrs), ("Relu", ["v0"], {})], [first], {"w": w, "b": b}, aligned(shape)
        ),
        "torch": lambda: torch_call(lambda t: _torch_convolution(t, x, w, b, stride, pad)),
    }
    return Case(
        f"conv {k}x{k}s{stride} {c}->{o} @{size}{f' winograd {tile}' if tile else ''}",
        te.create_prim_func([data, kernel, bias, z]),
        [x, own, b, aligned((1, out_size, out_size, o))],
        2.0 * out_size**2 * c * o * k * k,
        lambda: _expected(x, w, b, stride, pad),
        peers,
    )


def _torch_convolution(torch: Any, x: Any, w: Any, b: Any, stride: int, pad: int, groups: int = 1) -> Callable[[], Any]:
    last = torch.channels_last
    data = torch.from_numpy(x).permute(0, 3, 1, 2)
    weight = torch.from_numpy(w).contiguous(memory_format=last)
    bias = torch.from_numpy(b) if b is not None else None
    return lambda: torch.nn.functional.conv2d(data, weight, bias, stride, pad, groups=groups).relu_()


def _expected(x: Any, w: Any, b: Any, stride: int, pad: int, groups: int = 1) -> np.ndarray:
    import torch

    y = torch.nn.functional.conv2d(
        torch.from_numpy(x).permute(0, 3, 1, 2).double(), torch.from_numpy(w).double(), None, stride, pad, groups=groups
    )
    y = y.permute(0, 2, 3, 1).numpy()
    return np.maximum(y if b is None else y + b, 0)


def depthwise(size: int, c: int, k: int, stride: int) -> Case:
    """A depthwise convolution with ReLU, channels last."""
    pad, out_size = k // 2, (size + 2 * (k // 2) - k) // stride + 1
    x, w = rand(1, size, size, c), rand(c, 1, k, k)
    data, kernel = te.placeholder(x.shape, name="X"), te.placeholder((k, k, c), name="W")
    y = conv(data, kernel, stride, pad, groups=c, data_layout="NHWC", kernel_layout="HWC")
    z = te.compute(y.shape, lambda *i: tir.max(y(*i), tir.const(0, "float32")), name="Y")
    own = aligned((k, k, c))
    own[:] = w[:, 0].transpose(1, 2, 0)
    first = np.ascontiguousarray(x.transpose(0, 3, 1, 2))
    attrs = {"kernel_shape": [k, k], "strides": [stride] * 2, "pads": [pad] * 4, "group": c}
    peers = {
        "ort": lambda: onnx_call(
            [("Conv", ["x0", "w"], attrs), ("Relu", ["v0"], {})], [first], {"w": w}, aligned((1, c, out_size, out_size))
        ),
        "torch": lambda: torch_call(lambda t: _torch_convolution(t, x, w, None, stride, pad, c)),
    }
    return Case(
        f"depthwise {k}x{k}s{stride} {c} @{size}",
        te.create_prim_func([data, kernel, z]),
        [x, own, aligned((1, out_size, out_size, c))],
        2.0 * out_size**2 * c * k * k,
        lambda: _expected(x, w, None, stride, pad, c),
        peers,
    )


# --- measuring --------------------------------------------------------------------------------------------------------


def cases() -> list[Callable[[], Case]]:
    """List the makers of cases, by what they measure."""
    return [
        *(lambda s=s: gemm(*s) for s in (*SQUARES, *BERT)),
        *(lambda s=s: gemm(*s) for s in ((3136, 64, 256), (784, 128, 512), (196, 512, 1024), (49, 512, 2048))),
        *(lambda s=s: gemm(*s) for s in ((1, 4096, 4096), (1, 3072, 768))),
        *(lambda m=m, s=s: gemm(m, 768, 768, s) for m in (1, 3, 7, 16, 37, 100, 128, 511, 512) for s in (False, True)),
        *(lambda s=s, k=k: narrow(*s, k) for s in ((512, 512, 512), (128, 3072, 768)) for k in ("int8", "bf16")),
        *(lambda s=s: convolution(*s) for s in CONVOLUTIONS),
        *(lambda s=s: depthwise(*s) for s in DEPTHWISE),
    ]


def measure(case: Case, count: int, peers: bool) -> dict[str, Any]:
    """Compile, check and time one case; times are (best, 25th percentile) in microseconds by contender."""
    target = Target("llvm")
    kernel = build(default_schedule(case.func, target), target)["main"]
    kernel(*case.arguments)
    error, wanted = 0.0, np.zeros(0)
    if case.expected is not None:
        wanted = case.expected()
        error = float(np.abs(case.arguments[-1] - wanted).max() / (np.abs(wanted).max() + 1e-9))

    def weft() -> Any:
        kernel(*case.arguments)
        return case.arguments[-1]

    contenders: dict[str, Callable[[], Any]] = {"weft": weft}
    if peers:
        contenders |= {name: make() for name, make in case.peers.items()}
    errors = {n: _rms(call, wanted) for n, call in contenders.items()} if case.name in WITH_TILES else {}
    times = slices(contenders, count)
    us = {n: (min(t) * 1e6, float(np.percentile(t, 25)) * 1e6) for n, t in times.items()}
    return {"name": case.name, "us": us, "operations": case.operations, "error": error, "errors": errors}


def _rms(call: Callable[[], Any], wanted: np.ndarray) -> float:
    """The error of a contender against float64, as a share of the results' size."""
    result = call()
    kept = getattr(call, "kept", None)
    found = np.asarray(kept[1] if kept is not None else result, np.float64)
    return float(np.sqrt(((found - wanted) ** 2).mean() / (wanted**2).mean()))


def show(row: dict[str, Any], peak: float) -> str:
    """Format one result."""
    us = row["us"]
    cells = " ".join(f"{n} {b:8.1f} ({p:8.1f})" for n, (b, p) in us.items())
    rate = row["operations"] / us["weft"][0] / 1e3
    wrong = "" if row["error"] < 1e-4 else f"  WRONG BY {row['error']:.2g}"
    text = f"{row['name']:36} {cells}  {rate:6.0f} GF/s {rate / peak:4.0%}"
    others = [n for n in us if n != "weft"]
    if not others:
        return text + wrong
    ratios = [min(us[n][i] for n in others) / us["weft"][i] for i in (0, 1)]
    return f"{text}  ort/weft {us['ort'][0] / us['weft'][0]:5.2f}  best/weft {ratios[0]:5.2f} ({ratios[1]:5.2f}){wrong}"


def summary(rows: list[dict[str, Any]]) -> list[str]:
    """Geometric means by kind of kernel."""
    lines = []
    for kind in ("gemm", "gemv", "conv", "depthwise"):
        found = [r for r in rows if r["name"].startswith(kind) and "symbolic" not in r["name"] and len(r["us"]) > 1]
        if found:
            ort = [r["us"]["ort"][0] / r["us"]["weft"][0] for r in found]
            best = [min(v[0] for n, v in r["us"].items() if n != "weft") / r["us"]["weft"][0] for r in found]
            means = [float(np.exp(np.mean(np.log(x)))) for x in (ort, best)]
            lines.append(
                f"{kind}: {means[0]:.2f} against ONNX Runtime (least {min(ort):.2f}), "
                f"{means[1]:.2f} against the best peer (least {min(best):.2f})"
            )
    by_name = {r["name"]: r["us"]["weft"][0] for r in rows}
    lines += [_with_tiles(r, WITH_TILES[r["name"]]) for r in rows if r["name"] in WITH_TILES and len(r["us"]) > 1]
    for name, us in by_name.items():
        if name.endswith(" symbolic") and name.removesuffix(" symbolic") in by_name:
            lines.append(f"{name}: {us / by_name[name.removesuffix(' symbolic')]:.2f} times the static kernel")
        elif name.startswith(("int8 ", "bf16 ")) and name[5:] in by_name:
            lines.append(f"{name}: {by_name[name[5:]] / us:.2f} times the rate of float32")
    return lines


def _with_tiles(row: dict[str, Any], must: float) -> str:
    """Compare a large product with the best peer, in speed and in error; the limit holds where there are tiles."""
    us, errors = row["us"], row["errors"]
    ratio = min(t[0] for n, t in us.items() if n != "weft") / us["weft"][0]
    shown = ", ".join(f"{n} {e:.1e}" for n, e in errors.items())
    text = f"{row['name']}: {ratio:.2f} times the best peer's speed; errors against float64 {shown}"
    if not Target("llvm").tile_forms:
        return f"{text}; no limit without matrix tiles"
    good = ratio >= must and errors["weft"] <= min(e for n, e in errors.items() if n != "weft")
    return f"{text}; must be {must} at no larger error: {'reached' if good else 'MISSED'}"


def main(args: argparse.Namespace) -> None:
    """Measure and print."""
    wanted = [p.strip() for p in args.only.split(",") if p.strip()]
    peak, bandwidth = fma_peak(args.threads), read_bandwidth()
    print(f"{args.threads} threads; ceilings: {peak:.0f} GFLOP/s of float32, {bandwidth:.1f} GB/s of reading")
    rows = []
    for make in cases():
        case = make()
        if not wanted or any(w in case.name for w in wanted):
            rows.append(measure(case, args.slices, not args.no_peer))
            print(show(rows[-1], peak), flush=True)
    for line in summary(rows):
        print(line)
    for case in row_kernels.cases():
        if not wanted or any(w in case.name for w in wanted):
            rows.append(row_kernels.measure(case, args.threads, args.slices, not args.no_peer))
            print(row_kernels.show(rows[-1]), flush=True)
    if args.json:
        content = {"environment": report.environment(), "threads": args.threads, "peak_gflops": peak}
        args.json.write_text(json.dumps({**content, "bandwidth_gbs": bandwidth, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__" and ARGS is not None:
    main(ARGS)
