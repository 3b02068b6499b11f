"""``weft run model.so --input x=@x.npy --output y.npz``: run a model on files, and time it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from cyclopts import Parameter

from weft.cli.arguments import parse_shapes, read_inputs
from weft.cli.screen import compiling, print_table
from weft.error import InvalidArgument
from weft.runtime import finished_file, numpy_dtype
from weft.session import Session, TensorInfo

DEFAULT_SIZE = 64


def run(
    model: Path,
    *,
    input: Annotated[tuple[str, ...], Parameter(name=["--input", "-i"], negative="")] = (),
    output: Annotated[Path | None, Parameter(name=["--output", "-o"])] = None,
    repeat: int = 1,
    shape: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    target: str | None = None,
    tuned: Path | None = None,
    precision: str = "float32",
) -> None:
    """Run a compiled library or an ONNX model.

    Parameters
    ----------
    model : Path
        A library that `weft compile` wrote, or an ONNX file.
    input : tuple of str
        Values: x=@x.npy, @all.npz with an array per input, or x=[[1, 2], [3, 4]]. Inputs that are left out are random.
    output : Path
        Where to write the outputs: an .npz file, or an .npy file when there is one output.
    repeat : int
        Runs to time; with more than one, percentiles of the latency are printed.
    shape : tuple of str
        Shapes of random inputs: x=1,3,320,320. By default 1 for a symbolic first dimension and 64 for others.
    target : str
        What to compile an ONNX model for.
    tuned : Path
        The database that `weft tune` wrote, to compile an ONNX model with.
    precision : str
        What products are computed on: float32, or bf16 with sums in float32.
    """
    if repeat < 1:
        raise InvalidArgument("--repeat counts runs", expected="at least 1", found=str(repeat))
    if output is not None and output.suffix not in (".npz", ".npy"):
        raise InvalidArgument("--output writes NumPy files", expected=".npz or .npy", found=str(output))
    feeds, shapes = read_inputs(input), parse_shapes(shape)
    with _opened(model, target, tuned, precision) as session:
        if repeat > 1:
            session.wait()
        _run(session, feeds, shapes, output, repeat)


def _run(session: Session, feeds: dict[str, Any], shapes: Any, output: Path | None, repeat: int) -> None:
    missing = [info for info in session.inputs if info.name not in feeds]
    if missing:
        feeds |= random_inputs(missing, shapes, feeds)
        made = ", ".join(f"{i.name} {i.dtype} {list(feeds[i.name].shape)}" for i in missing)
        print(f"random inputs: {made}")
    results = session.run(feeds)
    names = session.output_names or [f"output_{i}" for i in range(len(results))]
    rows = [
        (n, r.dtype, "x".join(map(str, r.shape)) or "scalar", _summary(r.numpy()))
        for n, r in zip(names, results, strict=True)
    ]
    print_table("outputs", ("name", "dtype", "shape", "values"), rows)
    if output is not None:
        _write(output, dict(zip(names, results, strict=True)))
    if repeat > 1:
        _print_latency(session, feeds, repeat)


def random_inputs(
    infos: Sequence[TensorInfo],
    shapes: Mapping[str, Sequence[int | str]],
    given: Mapping[str, Any] | None = None,
    seed: int = 0,
) -> dict[str, Any]:
    """Random values for inputs: normal floats, integers and booleans that are 0 or 1.

    Parameters
    ----------
    infos : sequence of TensorInfo
        The inputs.
    shapes : mapping of str to sequence of int
        Shapes by input name, where chosen; a symbolic dimension that one input fixes is the same in all.
    given : mapping of str to array, optional
        Values of other inputs; nothing is made for them.
    seed : int
        Decides which values.
    """
    sizes: dict[str, int] = {}
    for info in infos:
        if info.dtype is None or info.shape is None:
            raise InvalidArgument(
                f"the executable does not say what input '{info.name}' is", help=f"pass --input {info.name}=@file.npy"
            )
        chosen = shapes.get(info.name, ())
        if chosen and len(chosen) != len(info.shape):
            raise InvalidArgument(
                f"input '{info.name}' is given a wrong rank", expected=str(list(info.shape)), found=str(chosen)
            )
        for dim, size in zip(info.shape, chosen, strict=False):
            if not isinstance(size, int) or size < 0:
                raise InvalidArgument(f"the shape of random input '{info.name}' needs numbers", found=str(chosen))
            if isinstance(dim, str):
                sizes[dim] = size
    rng = np.random.default_rng(seed)
    values: dict[str, Any] = {}
    for info in infos:
        assert info.dtype is not None and info.shape is not None
        dims = [
            d if isinstance(d, int) else sizes.setdefault(d, 1 if axis == 0 else DEFAULT_SIZE)
            for axis, d in enumerate(info.shape)
        ]
        dtype = numpy_dtype(info.dtype)
        is_float = dtype.kind == "f" or dtype.name.startswith(("bfloat", "float8"))
        values[info.name] = (rng.standard_normal(dims) if is_float else rng.integers(0, 2, dims)).astype(dtype)
    return {name: value for name, value in values.items() if name not in (given or {})}


@contextmanager
def _opened(model: Path, target: str | None, tuned: Path | None, precision: str) -> Generator[Session]:
    """A session of a library, or of an ONNX model, which may still be compiled while it answers."""
    chosen: dict[str, Any] = {"tuned": tuned, "precision": None if precision == "float32" else precision}
    if model.suffix != ".onnx":
        yield Session(model, target, **chosen)
        return
    with compiling(model.name) as progress:
        session = Session(model, target, **chosen, progress=progress)
        yield session
        session.wait()


def _summary(values: np.ndarray[Any, Any]) -> str:
    """The range of an output, so that a run without files says something."""
    if values.size == 0:
        return "empty"
    numbers = values.astype(np.float64)
    return f"min {np.nanmin(numbers):.6g}, mean {np.nanmean(numbers):.6g}, max {np.nanmax(numbers):.6g}"


def _write(path: Path, outputs: Mapping[str, Any]) -> None:
    arrays = {name: value.numpy() for name, value in outputs.items()}
    if path.suffix == ".npy" and len(arrays) != 1:
        raise InvalidArgument("an .npy file holds one array", found=f"{len(arrays)} outputs", help="write an .npz file")
    try:
        with finished_file(path) as beside, beside.open("wb") as out:
            if path.suffix == ".npy":
                np.save(out, next(iter(arrays.values())))
            else:
                np.savez(out, **arrays)
    except OSError as e:
        raise InvalidArgument(f"cannot write '{path}'", found=e.strerror or str(e)) from e
    print(f"wrote {path}")


def _print_latency(session: Session, feeds: Mapping[str, Any], repeat: int) -> None:
    taken: list[float] = []
    for _ in range(repeat):
        start = time.perf_counter()
        session.run(feeds)
        taken.append(1e3 * (time.perf_counter() - start))
    ordered = sorted(taken)
    rows = [(f"p{p}", f"{ordered[min(repeat - 1, repeat * p // 100)]:.3f}") for p in (50, 90, 99)]
    rows = [
        ("min", f"{ordered[0]:.3f}"),
        *rows,
        ("max", f"{ordered[-1]:.3f}"),
        ("mean", f"{statistics.fmean(taken):.3f}"),
    ]
    print_table(f"latency of {repeat} runs, ms", ("", "ms"), rows)
