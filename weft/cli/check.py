"""``weft check model.onnx``: whether a model computes what it means, and who is the first that does not."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import weft  # the compiler is reached through it, so that other commands load none of it
from weft.cli.arguments import parse_shapes, read_inputs
from weft.cli.run import random_inputs
from weft.error import InvalidArgument, WeftError
from weft.session import TensorInfo

_SHAPE = re.compile(r"[^=@]+=\d+(,\d+)*")


class WrongResults(WeftError):
    """A model computes something else than it means."""


def check(
    model: Path,
    *,
    input: Annotated[tuple[str, ...], Parameter(name=["--input", "-i"], negative="")] = (),
    rtol: float = 1e-3,
    atol: float = 1e-5,
    seed: int = 0,
    each: bool = False,
    target: str = "llvm",
    precision: str = "float32",
) -> None:
    """Compare every node, pass and kernel of a model with what it means, and name the first that differs.

    Parameters
    ----------
    model : Path
        An ONNX file.
    input : tuple of str
        Shapes of random inputs, x=1,3,320,320; or values, x=@x.npy, @all.npz or x=[[1, 2], [3, 4]].
    rtol : float
        How far a value may be off, as a part of the largest of its tensor.
    atol : float
        How far it may be off besides; all that is allowed for integers.
    seed : int
        Another one draws other inputs.
    each : bool
        Look at everything and name all that differs, not the first of each kind.
    target : str
        What to compile for; this machine has to run it.
    precision : str
        What products are computed on: float32, or bf16 with sums in float32.
    """
    if model.suffix == ".so":
        raise InvalidArgument("a compiled library cannot be checked", help="give the ONNX file that it was made from")
    shapes = parse_shapes(o for o in input if _SHAPE.fullmatch(o))
    values = read_inputs(o for o in input if not _SHAPE.fullmatch(o))

    def feeds(infos: Sequence[TensorInfo]) -> dict[str, Any]:
        missing = [i for i in infos if i.name not in values]
        return values | random_inputs(missing, shapes, values, seed)

    tolerance = weft.check.Tolerance(rtol, atol)
    report = weft.check.check_model(model, feeds, tolerance=tolerance, target=target, each=each, precision=precision)
    print("\n".join(report.lines))
    for reason in report.left_out:
        print(f"not compared: {reason}")
    if report.findings:
        raise WrongResults("\n".join(_text(f, model) for f in report.findings))
    print("nothing differs")


def _text(finding: Any, model: Path) -> str:
    lines = [f"{finding.kind} {finding.name} is wrong", f"  {finding.value}: {finding.difference}"]
    lines += [f"  {detail}" for detail in finding.details]
    if finding.files:
        lines.append(
            f"  see: WEFT_DUMP_DIR=dump weft compile {model} -o {model.stem}.so, then "
            f"dump/0001-{model.stem}/{finding.files}"
        )
    return "\n".join(lines)
