"""``weft inspect model.onnx --stage FuseOps``: a program at any stage, its bytecode, kernels and memory."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

import weft
from weft import error, ir, runtime, tir
from weft.cli.arguments import parse_shapes
from weft.cli.screen import print_table, size_text
from weft.session import Session
from weft.tir.schedule import explain_schedule

_AFTER_PASSES = ("summary", "bytecode", "python", "kernels", "scheduled", "schedule", "memory", "statistics")
_OF_LIBRARIES = ("summary", "bytecode", "python", "schedule", "statistics")


def inspect_model(
    model: Path,
    *,
    stage: str = "summary",
    target: str = "llvm",
    schedule: bool = False,
    shape: Annotated[tuple[str, ...], Parameter(negative="")] = (),
) -> None:
    """Print a model at a stage of its compilation.

    Parameters
    ----------
    model : Path
        An ONNX file, or a library that `weft compile` wrote.
    stage : str
        "summary"; "stages" for the list of all; "import" or a pass, such as FuseOps (its second run is FuseOps:2),
        for the program after it; "kernels" and "scheduled" for TIR, "schedule" for the rules that took the kernels;
        "memory" for the storage plan; "bytecode", "python" and "statistics" for the executable.
    target : str
        What to compile for.
    schedule : bool
        Prints, in place of a stage, which schedule rule took each kernel, which rules refused it, and why.
    shape : tuple of str
        Fixes an input's shape: x=1,3,320,320.
    """
    if model.suffix != ".onnx":
        _inspect_library(model, "schedule" if schedule else stage)
        return
    mod = weft.frontend.onnx.from_onnx(model, shape_dict=parse_shapes(shape))
    chosen = weft.target.Target(target)
    stages = weft.check.Stages(mod)
    with ir.PassContext(instruments=[stages]):
        final = weft.relax.get_pipeline("default", chosen)(mod)
    known = ["stages", *_AFTER_PASSES, *stages.programs]
    name = _find("schedule" if schedule else stage, known)
    if name == "stages":
        print("\n".join(known))
    elif name in stages.programs:
        print(stages.programs[name])
    elif name == "kernels":
        _print_kernels(final)
    elif name == "scheduled":
        _print_kernels(weft.relax.transform.schedule_tir(target=chosen)(final))
    elif name == "schedule":
        print(explain_schedule(final, chosen))
    elif name == "memory":
        _print_memory(stages.programs)
    else:
        executable = weft.relax.build(mod, chosen)
        _print_executable(executable, name)
        if name == "summary":
            _print_kernel_table(final)


def _find(stage: str, known: list[str]) -> str:
    """The stage that is meant; case, ``-`` and ``_`` do not matter."""

    def plain(name: str) -> str:
        return re.sub("[-_]", "", name).lower()

    for name in known:
        if plain(name) == plain(stage):
            return name
    near = difflib.get_close_matches(stage, known, 1)
    raise error.InvalidArgument(
        f"there is no stage '{stage}'", expected=", ".join(known), help=f"did you mean '{near[0]}'?" if near else None
    )


def _inspect_library(path: Path, stage: str) -> None:
    name = _find(stage, ["stages", *_OF_LIBRARIES])
    if name == "stages":
        print("\n".join(_OF_LIBRARIES))
    else:
        _print_executable(Session(path).executable, name)


def _print_executable(executable: runtime.VMExecutable, name: str) -> None:
    if name == "bytecode":
        print(executable.as_text())
    elif name == "python":
        print(executable.as_python())
    elif name == "statistics":
        print(executable.stats())
    elif name == "schedule":
        print(Session(executable).schedule or "the library does not tell how its kernels were scheduled")
    else:
        _print_summary(executable)


def _print_summary(executable: runtime.VMExecutable) -> None:
    session = Session(executable)
    rows = [("input", i.name, i.dtype or "?", _shape(i.shape)) for i in session.inputs]
    rows += [("output", i.name, i.dtype or "?", _shape(i.shape)) for i in session.outputs]
    print_table("interface", ("", "name", "dtype", "shape"), rows)
    functions = executable.functions
    kernels = [f for f in functions if f.kind == runtime.opcodes.FuncKind.PACKED_FUNC and not f.name.startswith("vm.")]
    constants = executable.constants
    held = sum(c.nbytes for c in constants if hasattr(c, "nbytes"))
    rows = [
        ("functions", len(functions) - sum(f.kind == runtime.opcodes.FuncKind.PACKED_FUNC for f in functions)),
        ("instructions", len(executable.instr_offset)),
        ("kernels", len(kernels)),
        ("constants", f"{len(constants)}, {size_text(held)}"),
    ]
    print_table("executable", ("what", "value"), rows)


def _shape(shape: tuple[int | str, ...] | None) -> str:
    return "?" if shape is None else "(" + ", ".join(map(str, shape)) + ")"


def _kernels(mod: Any) -> list[tuple[str, tir.PrimFunc]]:
    return [(v.name_hint, f) for v, f in mod.items() if isinstance(f, tir.PrimFunc)]


def _print_kernels(mod: Any) -> None:
    for name, kernel in _kernels(mod):
        print(f"# {name}\n{kernel}\n")


def _print_kernel_table(final: Any) -> None:
    calls: dict[str, int] = {}
    for _, function in final.items():
        if isinstance(function, ir.Function):
            for node in ir.find(function, ir.Call):
                for callee in (node.op, *node.args):  # an argument in ``call_tir``
                    if isinstance(callee, ir.GlobalVar):
                        calls[callee.name_hint] = calls.get(callee.name_hint, 0) + 1
    rows = [(name, len(kernel.params), calls.get(name, 0)) for name, kernel in _kernels(final)]
    print_table("kernels", ("name", "arguments", "calls"), rows)


def _print_memory(programs: dict[str, Any]) -> None:
    """Print each storage block with its size; sizes are expressions of the symbolic dimensions."""
    planned = programs["StaticPlanBlockMemory"]
    rows: list[tuple[Any, ...]] = []
    tensors = fresh = 0
    for var, function in planned.items():
        if not isinstance(function, ir.Function):
            continue
        for node in ir.walk(function):
            if not isinstance(node, ir.Call) or not isinstance(node.op, ir.Op):
                continue
            if node.op.name.endswith("memory.alloc_storage"):
                rows.append((var.name_hint, len(rows), _storage_size(node)))
            tensors += node.op.name.endswith("memory.alloc_tensor")
            fresh += node.op.name.endswith("builtin.alloc_tensor")
    print_table("storage", ("function", "block", "size"), rows)
    print(f"{tensors} planned tensors share {len(rows)} blocks; {fresh} tensors that leave their function are fresh")


def _storage_size(call: ir.Call) -> str:
    size = call.args[0]
    values = getattr(size, "values", (size,))
    number = getattr(values[0], "value", None)
    if len(values) == 1 and isinstance(number, int):
        return size_text(float(number))
    return " * ".join(str(v) for v in values)
