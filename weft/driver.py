"""compile, build and lower.

From a model, a schedule to TIR, and from anything that holds TIR to a loaded module of native code.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft._aliases import names_of
from weft.error import InvalidArgument, own_errors
from weft.ir import Function, IRModule, Pass
from weft.ir.spec import verify
from weft.relax import build as build_relax
from weft.relax.vm_build import kernel_pass
from weft.runtime import Executable, Module
from weft.spelling import also_called
from weft.target import Target
from weft.target import build as build_target
from weft.te import Schedule, Tensor
from weft.te.schedule import schedule_to_prim_func
from weft.tir import Buffer, PrimFunc
from weft.tir.analysis import refuse_accesses_outside
from weft.tir.pipeline import lower_module


def schedule_to_module(
    sch: Schedule, args: Sequence[Any] | None = None, name: str = "main", binds: Mapping[Tensor, Buffer] | None = None
) -> IRModule:
    """Write a schedule's loops as a module of one function, as they are before any pass."""
    return _to_module(sch, args, name, binds)


@own_errors("lowering")
def lower(
    inp: Any,
    args: Sequence[Any] | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Buffer] | None = None,
    simple_mode: bool = False,
) -> IRModule:
    """Lower a schedule to a module of one TIR function.

    Parameters
    ----------
    inp : te.Schedule, PrimFunc or IRModule
        What to lower. For a schedule, bounds are inferred (``te.schedule.InferBound``) and loops written
        (``te.schedule.ScheduleOps``). Then the phases of ``weft.tir.pipeline`` run, with the passes of
        ``PassContext(config={"tir.add_lower_pass": [(phase, p)]})``; :func:`build` of the result does not repeat them.
    args : sequence of Tensor, Buffer or Var
        The parameters, for a schedule; outputs may be left out, whose memory is then the function's own.
    name : str
        The function's global symbol.
    binds : mapping of Tensor to Buffer, optional
        Buffers to use for tensors.
    simple_mode : bool
        For reading: loops keep the conditions of their boundaries (no LoopPartition).
    """
    mod = _to_module(inp, args, name, binds, to_read=True)
    return lower_module(mod, Target.current(allow_none=True), simple_mode=simple_mode, to_read=True)


def _to_module(
    inp: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Tensor, Buffer] | None, to_read: bool = False
) -> IRModule:
    if isinstance(inp, Schedule):
        if args is None:
            raise InvalidArgument(
                "lowering a schedule needs args",
                help="pass the tensors in the order of the parameters, lower(s, [A, B, C])",
            )
        inp = IRModule({name: schedule_to_prim_func(inp, args, name, binds, to_read=to_read)})
    if not isinstance(inp, (PrimFunc, IRModule)):
        raise InvalidArgument(
            "cannot lower this", expected="a te.Schedule, a PrimFunc or an IRModule", found=type(inp).__name__
        )
    verify(inp, "tir.well_formed")
    if isinstance(inp, IRModule):
        return inp
    symbol = inp.attrs.get("global_symbol") or name
    return IRModule({symbol: inp if inp.attrs.get("global_symbol") else inp.with_attr("global_symbol", symbol)})


@own_errors("compiling")
@also_called(mod="inputs")
def build(
    inputs: Any,
    args: Sequence[Any] | None = None,
    target: Any = None,
    target_host: Any = None,
    name: str = "default_function",
    binds: Mapping[Tensor, Buffer] | None = None,
    pipeline: Pass | str | None = None,
) -> Module:
    """Compile to native code.

    Parameters
    ----------
    inputs : te.Schedule, PrimFunc, IRModule, list of them, or dict from target to them
        What to compile. A list becomes one module of all its functions.
    args : sequence of Tensor, Buffer or Var
        The parameters, for a schedule. What already is a function has none, so that the target may stand here.
    target : Target, str or dict, optional
        By default the current target (``with Target(...)``), else ``"llvm"``.
    target_host : Target, str or dict, optional
        The target of host code, for kinds of devices.
    name : str
        The function's name, for a schedule.
    binds : mapping of Tensor to Buffer, optional
        Buffers to use for tensors.
    pipeline : Pass or "default", optional
        Passes of the program's own, which run before those of the target.

    Returns
    -------
    weft.runtime.Module
        Callable where it has one function; else ``module["name"](...)``.
    """
    if isinstance(args, (str, Target, dict)):
        if target is not None:
            raise InvalidArgument(
                "two targets", found=f"{args!r} and {target!r}", help="name target_host= if it is one"
            )
        args, target = None, args
    modules = [
        build_target(_through(pipeline, _merged(part, args, name, binds)), _target(t, target_host))
        for t, part in (inputs.items() if isinstance(inputs, dict) else [(target, inputs)])
    ]
    if not modules:
        raise InvalidArgument("nothing to build", found="an empty dict")
    for extra in modules[1:]:
        modules[0].import_module(extra)
    return modules[0]


def _through(pipeline: Pass | str | None, mod: IRModule) -> IRModule:
    refuse_accesses_outside(mod)
    chosen = kernel_pass(pipeline)
    return mod if chosen is None else chosen(mod)


def _target(target: Any, host: Any) -> Target:
    if target is None:
        target = Target.current(allow_none=True) or "llvm"
    return target if isinstance(target, Target) and host is None else Target(target, host)


def _merged(inputs: Any, args: Sequence[Any] | None, name: str, binds: Mapping[Tensor, Buffer] | None) -> IRModule:
    """Write one input, or several, as one module; the code generator of its target lowers it."""
    if not isinstance(inputs, (list, tuple)):
        return _to_module(inputs, args, name, binds)
    functions: dict[str, Any] = {}
    for part in inputs:
        for var, func in _to_module(part, args, name, binds).items():
            if var.name_hint in functions:
                raise InvalidArgument(
                    f"two functions are called '{var.name_hint}'", help="lower each with its own name="
                )
            functions[var.name_hint] = func
    if not functions:
        raise InvalidArgument("nothing to build", found="an empty list")
    return IRModule(functions)


def compile(mod: Any, target: Any = None, **options: Any) -> Executable:
    """Compile a module: one with Relax functions to an executable of the virtual machine, one of TIR to native code.

    Parameters
    ----------
    mod : IRModule or function
        What to compile.
    target : Target, str or dict, optional
        By default that of ``with Target(...)``, else the host's CPU.
    **options
        Those of ``relax.build`` (``relax_pipeline``, ``tir_pipeline``, ``exec_mode``, ``params``, ``progress``,
        ``tuned``, ``precision``).
    """
    mod = IRModule.from_expr(mod)
    if any(isinstance(f, Function) for _, f in mod.items()):
        return build_relax(mod, target, **options)
    return Executable(build_target(_through(options.get("tir_pipeline"), _to_module(mod, None, "main", None)), target))


__getattr__ = names_of("weft.driver")
