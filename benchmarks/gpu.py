"""Kernels and models on a GPU with the default schedules: whether they agree with the host's, and how long they take.

``python -m benchmarks.gpu --check`` runs the models of one operator (``benchmarks.operators``) on the device and on the
host; without it, operators and networks are timed beside PyTorch on CUDA, in float32 without TF32.
"""

import argparse
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import weft
from benchmarks import operators, zoo
from weft import relax, runtime
from weft.frontend.onnx import from_onnx

_CASES = operators.selected([])
NETWORKS = ("mobilenet_v3", "resnet50", "vit_b16")
_OP = relax.op
_Function = Callable[..., Any]


def machine(mod: weft.IRModule, kind: str) -> tuple[relax.VirtualMachine, Any]:
    """Compile a module for a kind of device; returns the machine and the device."""
    dev = runtime.device(kind, 0)
    return relax.VirtualMachine(weft.compile(mod, target="llvm" if kind == "cpu" else kind), dev), dev


def outputs(mod: weft.IRModule, feeds: dict[str, np.ndarray], kind: str) -> list[np.ndarray]:
    """What a model computes on the first device of a kind."""
    vm, dev = machine(mod, kind)
    names = vm.executable.function("main").param_names
    found = vm["main"](*(runtime.tensor(np.array(feeds[n], order="C"), device=dev) for n in names))
    return [v.numpy() for v in ([found] if hasattr(found, "numpy") else found)]


def differs(expected: np.ndarray, found: np.ndarray) -> str | None:
    """Say how two results differ by more than rounding."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return f"{found.dtype}{found.shape} for {expected.dtype}{expected.shape}"
    a, b = expected.astype("float64"), found.astype("float64")
    tolerance = 0.0 if expected.dtype.kind in "iub" else 2e-3 * np.abs(a[np.isfinite(a)]).max(initial=1e-6)
    same = (np.abs(a - b) <= tolerance) | (a == b) | (np.isnan(a) & np.isnan(b))
    return None if same.all() else f"{np.count_nonzero(~same)} of {same.size} {expected.dtype} differ"


def check(task: tuple[int, str]) -> tuple[str, str | None]:
    """Compare one case of ``operators``; every third with symbolic dimensions."""
    index, kind = task
    case = _CASES[index]
    try:
        mod, feeds = from_onnx(case.model(symbolic=index % 3 == 0)), case.feeds()
        pairs = zip(*(outputs(mod, feeds, k) for k in ("cpu", kind)), strict=True)
        return case.name, next((d for a, b in pairs if (d := differs(a, b))), None)
    except Exception as e:  # whatever stands in the way of one case is its result
        return case.name, f"{type(e).__name__}: {str(e)[:200]}"


def fastest(call: Callable[[], object], sync: Callable[[], object], calls: int = 20) -> float:
    """The least mean time of a call, in seconds, of five blocks."""
    call()
    sync()
    times = []
    for _ in range(5):
        start = time.perf_counter()
        for _ in range(calls):
            call()
        sync()
        times.append((time.perf_counter() - start) / calls)
    return min(times)


def _operators(torch: Any) -> list[tuple[str, _Function, list[tuple[int, ...]], _Function]]:
    f = torch.nn.functional
    square = [(4096, 4096)]
    return [
        ("product 1024", _OP.matmul, [(1024, 1024)] * 2, torch.matmul),
        ("product 4096", _OP.matmul, square * 2, torch.matmul),
        ("row times matrix", _OP.matmul, [(1, 4096), *square], torch.matmul),
        ("12 products 128x64x128", _OP.matmul, [(12, 128, 64), (12, 64, 128)], torch.matmul),
        ("softmax", lambda x: _OP.nn.softmax(x, -1), square, lambda x: f.softmax(x, -1)),
        (
            "layer norm",
            lambda *x: _OP.nn.layer_norm(*x, axes=-1),
            [(4096, 1024), (1024,), (1024,)],
            lambda x, g, b: f.layer_norm(x, (1024,), g, b),
        ),
        ("GELU", _OP.nn.gelu, square, f.gelu),
        ("sum of all", _OP.sum, square, torch.sum),
        ("sums of rows", lambda x: _OP.sum(x, 1), square, lambda x: x.sum(1)),
        ("sums of columns", lambda x: _OP.sum(x, 0), square, lambda x: x.sum(0)),
        ("transpose", _OP.permute_dims, square, lambda x: x.T.contiguous()),
        (
            "convolution 3x3, 64 channels, 56x56, batch of 8",
            lambda x, w: _OP.nn.conv2d(x, w, padding=1),
            [(8, 64, 56, 56), (64, 64, 3, 3)],
            lambda x, w: f.conv2d(x, w, padding=1),
        ),
        (
            "convolution 1x1, 1024 to 256 channels, 14x14, batch of 8",
            _OP.nn.conv2d,
            [(8, 1024, 14, 14), (256, 1024, 1, 1)],
            f.conv2d,
        ),
        (
            "depthwise 3x3, 256 channels, 56x56, batch of 8",
            lambda x, w: _OP.nn.conv2d(x, w, padding=1, groups=256),
            [(8, 256, 56, 56), (256, 1, 3, 3)],
            lambda x, w: f.conv2d(x, w, padding=1, groups=256),
        ),
        (
            "max pooling 3x3, stride 2",
            lambda x: _OP.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1)),
            [(8, 64, 112, 112)],
            lambda x: f.max_pool2d(x, 3, 2, 1),
        ),
    ]


def _module(op: _Function, shapes: Sequence[tuple[int, ...]]) -> weft.IRModule:
    bb = relax.BlockBuilder()
    xs = [relax.Var(f"x{i}", relax.TensorStructInfo(s, "float32")) for i, s in enumerate(shapes)]
    with bb.function("main", xs), bb.dataflow():
        bb.emit_func_output(bb.emit_output(op(*xs)))
    return bb.get()


def measure(name: str, mod: weft.IRModule, feeds: Sequence[np.ndarray], reference: _Function, torch: Any) -> None:
    """Print the time of a module on CUDA beside that of a function of PyTorch."""
    start = time.perf_counter()
    vm, dev = machine(mod, "cuda")
    compiled = time.perf_counter() - start
    own = [runtime.tensor(np.array(x, order="C"), device=dev) for x in feeds]
    given = [torch.from_numpy(x).cuda() for x in feeds]
    with torch.no_grad():
        peer = fastest(lambda: reference(*given), torch.cuda.synchronize)
        expected = reference(*given)
    main = vm["main"]
    ours, found = fastest(lambda: main(*own), dev.sync), main(*own)
    expected = next(iter(expected.values())) if isinstance(expected, dict) else expected
    first = [(x if hasattr(x, "numpy") else x[0]) for x in (found, expected)]
    error = np.abs(first[0].numpy() - first[1].cpu().numpy()).max() / np.abs(first[0].numpy()).max()
    print(
        f"{name}: {ours * 1e6:.1f} us, PyTorch {peer * 1e6:.1f} us, times {peer / ours:.2f}; "
        f"error {error:.0e}, compiled in {compiled:.1f} s",
        flush=True,
    )


def main() -> int:
    """Check or measure; the exit status is 1 where a check failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare all single operators with the host's results")
    parser.add_argument("--kind", default="cuda", help="cuda, opencl or vulkan, for --check")
    parser.add_argument("networks", nargs="*", default=NETWORKS, help="which to time after the operators")
    args = parser.parse_args()
    if args.check:
        tasks = [(i, args.kind) for i in range(len(_CASES))]
        with multiprocessing.get_context("spawn").Pool(min(14, os.cpu_count() or 1)) as pool:
            bad = [r for r in pool.imap_unordered(check, tasks, chunksize=2) if r[1]]
        print(*(f"{name}: {why}" for name, why in bad), f"{len(tasks)} cases, {len(bad)} differ or fail", sep="\n")
        return int(bool(bad))
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rng = np.random.default_rng(0)
    for name, op, shapes, reference in _operators(torch):
        feeds = [rng.standard_normal(s, np.float32) for s in shapes]
        measure(name, _module(op, shapes), feeds, reference, torch)
    for name in args.networks:
        given = zoo.inputs(name, 0)
        mod = from_onnx(str(zoo.onnx_path(name)), shape_dict={k: list(v.shape) for k, v in given.items()})
        measure(name, mod, list(given.values()), zoo.network(name).eval().cuda(), torch)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
