"""``weft compile model.onnx -o model.so``: a model becomes a library that runs without the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

import weft
from weft.cli.arguments import parse_shapes
from weft.cli.screen import compiling, size_text
from weft.error import InvalidArgument
from weft.session import compiled

__all__ = ["compile_model"]


def compile_model(
    model: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    target: str = "llvm",
    shape: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    tuned: Path | None = None,
    precision: str = "float32",
) -> None:
    """Compile an ONNX model to a library.

    Parameters
    ----------
    model : Path
        The ONNX file.
    output : Path
        The library to write.
    target : str
        What to compile for, for example "aarch64-linux-gnu -mcpu=cortex-a76"; this machine by default.
    shape : tuple of str
        Fixes an input's shape: x=1,3,320,320. May be given for several inputs.
    tuned : Path
        The database that `weft tune` wrote.
    precision : str
        What products are computed on: float32, or bf16 with sums in float32.
    """
    shapes = parse_shapes(shape)
    if not output.parent.is_dir():
        raise InvalidArgument("the output's folder does not exist", found=str(output.parent))
    with compiling(model.name) as progress:
        if target == "llvm":
            executable = compiled(model, {
                "target": None, "shape_dict": shapes or None, "dtype_dict": None, "opset": None, "tuned": tuned,
                "precision": precision,
            }, progress)  # fmt: skip
        else:  # another machine's code cannot be placed in this process, which the cache does
            with weft.ir.compilation(model.stem):
                mod = weft.frontend.onnx.from_onnx(model, shape_dict=shapes)
                executable = weft.relax.build(mod, target, progress=progress, tuned=tuned, precision=precision)
    try:
        executable.export_library(output)
    except OSError as e:
        raise InvalidArgument(f"cannot write '{output}'", found=e.strerror or str(e)) from e
    print(f"wrote {output}, {size_text(output.stat().st_size)}")
