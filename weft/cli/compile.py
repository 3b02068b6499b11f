"""``weft compile model.onnx -o model.so``: a model becomes a library that runs without the compiler."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import weft
from weft import error, session
from weft.cli.arguments import demand_folders, parse_shapes
from weft.cli.screen import compiling, size_text
from weft.support.system_library import create_object


def compile_model(
    model: Path,
    *,
    output: Annotated[Path, Parameter(name=["--output", "-o"])],
    target: str = "llvm",
    shape: Annotated[tuple[str, ...], Parameter(negative="")] = (),
    tuned: Path | None = None,
    precision: str = "float32",
    system_lib: Annotated[bool, Parameter(negative="")] = False,
    prefix: str = "",
) -> None:
    """Compile an ONNX model to a library.

    Parameters
    ----------
    model : Path
        The ONNX file.
    output : Path
        The library to write; with --target c and a name that ends in .c, a source file that needs no runtime, and its
        header.
    target : str
        What to compile for, for example "aarch64-linux-gnu -mcpu=cortex-a76"; this machine by default.
    shape : tuple of str
        Fixes an input's shape: x=1,3,320,320. May be given for several inputs.
    tuned : Path
        The database that `weft tune` wrote.
    precision : str
        What products are computed on: float32, or bf16 with sums in float32.
    system_lib : bool
        Write an object file that is linked into a program, which finds the model among its own functions.
    prefix : str
        With --system-lib: tells this model apart from others in the program.
    """
    shapes = parse_shapes(shape)
    if prefix and not system_lib:
        raise error.InvalidArgument("--prefix is for models that are linked into a program", help="add --system-lib")
    demand_folders(output)
    if output.suffix == ".c":
        if weft.target.Target(target).kind.name != "c":
            raise error.InvalidArgument("a model as C is made for the target c", expected="--target c", found=target)
        with weft.ir.compilation(model.stem):
            weft.relay.plain_c(weft.frontend.onnx.from_onnx(model, shape_dict=shapes), output.stem, target).write(
                output
            )
        print(f"wrote {output} and {output.with_suffix('.h')}")
        return
    with compiling(model.name) as progress:
        if target == "llvm":
            executable = session.compiled(
                model,
                {
                    "target": None,
                    "shape_dict": shapes or None,
                    "dtype_dict": None,
                    "opset": None,
                    "tuned": tuned,
                    "precision": precision,
                },
                progress,
            )
        else:  # another machine's code cannot be placed in this process, which the cache does
            with weft.ir.compilation(model.stem):
                mod = weft.frontend.onnx.from_onnx(model, shape_dict=shapes)
                executable = weft.relax.build(mod, target, progress=progress, tuned=tuned, precision=precision)
    linked: dict[str, Any] = {"fcompile": create_object, "prefix": prefix} if system_lib else {}
    try:
        executable.export_library(output, **linked)
    except OSError as e:
        raise error.InvalidArgument(f"cannot write '{output}'", found=e.strerror or str(e)) from e
    print(f"wrote {output}, {size_text(output.stat().st_size)}")
