"""``weft profile model.onnx``: the kernels of a model, how long they take and how near they come to the limits."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from weft.cli.arguments import demand_folders, parse_shapes, read_inputs
from weft.cli.run import random_inputs
from weft.cli.screen import print_table
from weft.error import InvalidArgument
from weft.profile import KernelProfile, profile_model, write_page
from weft.session import Session


def profile(
    model: Path,
    *,
    input: Annotated[tuple[str, ...], Parameter(name=["--input", "-i"], negative="")] = (),
    shape: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    repeat: int = 10,
    top: int = 20,
    target: str | None = None,
    json_file: Annotated[Path | None, Parameter(name="--json")] = None,
    trace: Path | None = None,
    html: Path | None = None,
    tuned: Path | None = None,
    precision: str = "float32",
) -> None:
    """Tell where a model's time goes.

    Parameters
    ----------
    model : Path
        An ONNX file.
    input : tuple of str
        Values: x=@x.npy, @all.npz with an array per input, or x=[[1, 2], [3, 4]]. Inputs that are left out are random.
    shape : tuple of str
        Shapes of random inputs: x=1,3,320,320. By default 1 for a symbolic first dimension and 64 for others.
    repeat : int
        Runs; times are medians over them.
    top : int
        Kernels to print, the longest first; 0 prints all.
    target : str
        What to compile for.
    json_file : Path
        Where to write the numbers as JSON.
    trace : Path
        Where to write the calls of the last run for Perfetto or Chrome's tracing page.
    html : Path
        Where to write them as a page.
    tuned : Path
        The database that `weft tune` wrote, to compile with.
    precision : str
        What products are computed on: float32, or bf16 with sums in float32.
    """
    if model.suffix == ".so":
        raise InvalidArgument("a compiled library cannot be profiled", help="give the ONNX file that it was made from")
    demand_folders(json_file, trace, html)
    feeds, shapes = read_inputs(input), parse_shapes(shape)

    def inputs(session: Session) -> dict[str, Any]:
        missing = [info for info in session.inputs if info.name not in feeds]
        return feeds | random_inputs(missing, shapes, feeds)

    found = profile_model(model, inputs, repeat=repeat, target=target, tuned=tuned, precision=precision)
    rows = [_cells(k) for k in found.kernels[: top or None]]
    header = ("kernel", "calls", "us", "share", "GFLOP/s", "GB/s", "roofline", "rule", "nodes")
    print_table(
        f"{found.total_us:,.0f} us a run, {found.threads} threads, limits {found.peak_gflops:.0f} GFLOP/s and "
        f"{found.peak_gbytes:.0f} GB/s",
        header,
        rows,
    )
    for k in found.kernels[: top or None]:
        if k.refused:
            print(f"{k.name}: no schedule rule suits it; {k.refused}")
    if json_file is not None:
        json_file.write_text(json.dumps(found.as_dict(), indent=1) + "\n")
    if trace is not None:
        found.last.trace(trace)
    if html is not None:
        write_page(found, html, f"{model.name}")


def _cells(k: KernelProfile) -> tuple[str, ...]:
    def text(value: float, form: str) -> str:
        return "" if math.isnan(value) else format(value, form)

    nodes = k.nodes[0] + (f" and {len(k.nodes) - 1} more" if len(k.nodes) > 1 else "") if k.nodes else ""
    return (
        k.name,
        str(k.calls),
        f"{k.us:,.1f}",
        f"{k.share:.1%}",
        text(k.gflops, ",.1f"),
        text(k.gbytes, ",.1f"),
        text(k.roofline, ".0%"),
        k.rule,
        nodes,
    )
