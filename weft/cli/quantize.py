"""``weft quantize model.onnx -o q.onnx``: weights of 4 or 8 bits, and activations of 8 where there is data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
from cyclopts import Parameter

from weft.cli.arguments import demand_folders
from weft.cli.screen import print_table, size_text
from weft.error import InvalidArgument, ModelImportError, require
from weft.quantize import quantize_model
from weft.runtime import finished_file, read_arrays


def quantize(
    model: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    weights: str = "int8",
    group: int | None = None,
    calibrate: Path | None = None,
    method: str = "minmax",
    max_loss: float = 0.1,
) -> None:
    """Quantise an ONNX model to one in standard QDQ form.

    Parameters
    ----------
    model : Path
        The ONNX file, with float32 weights.
    output : Path
        The file to write.
    weights : str
        int4 or int8; or uint4, with zero points, which loses less.
    group : int
        Weights along a sum that share a scale, such as 32, 64 or 128; 0 gives each output channel one. By default 32
        for 4 bits and 0 for int8.
    calibrate : Path
        An .npz file with an array for each input, samples along a new first axis, or along the first of arrays that
        have no more dimensions than the input; activations are quantised, too.
    method : str
        How ranges of activations are chosen: minmax, percentile (99.99) or entropy.
    max_loss : float
        Layers whose result would have a larger relative error stay in float.
    """
    onnx = require("onnx", extra="onnx")
    DecodeError = require("google.protobuf.message", extra="onnx").DecodeError
    demand_folders(output)
    if not model.is_file():
        raise InvalidArgument("there is no such file", found=str(model))
    size = group if group is not None else 0 if weights == "int8" else 32
    try:
        proto = onnx.load(model)
    except (OSError, ValueError, DecodeError, onnx.checker.ValidationError) as e:  # its own, or of files beside it
        raise ModelImportError(f"'{model}' is not a complete ONNX model", found=str(e)) from e
    ranks = {i.name: len(i.type.tensor_type.shape.dim) for i in proto.graph.input}
    samples = _samples(calibrate, ranks) if calibrate is not None else []
    made, layers = quantize_model(proto, weights, size, samples, method, max_loss)
    with finished_file(output) as beside:
        onnx.save(made, beside)
    rows = [
        (x.node, x.op, f"{x.error:.2%}", "-" if np.isnan(x.found) else f"{x.found:.2%}", "float" if x.kept else weights)
        for x in layers
    ]
    print_table("layers", ("layer", "operator", "estimated error", "measured error", "weights"), rows)
    kept = sum(x.kept for x in layers)
    print(f"{output}: {size_text(output.stat().st_size)}, {len(layers) - kept} of {len(layers)} layers quantised")


def _samples(path: Path, ranks: dict[str, int]) -> list[dict[str, np.ndarray]]:
    """Read feeds, a sample each index of the arrays' first axes, which may be the inputs' own."""
    arrays = read_arrays(path)
    if isinstance(arrays, np.ndarray):
        raise InvalidArgument("calibration data have no names", found=str(path), expected="an .npz file")
    counts = {len(a) if a.ndim else 0 for a in arrays.values()}
    if len(counts) != 1 or counts == {0}:
        raise InvalidArgument(
            "calibration data have no common number of samples",
            found=str(sorted(counts)),
            expected="arrays of equal first dimensions",
        )
    return [
        {name: a[i : i + 1] if a.ndim == ranks.get(name) else a[i] for name, a in arrays.items()}
        for i in range(counts.pop())
    ]
