"""A model becomes a package: the graph executor's or the virtual machine's."""

from __future__ import annotations

import json
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from weft import auto_scheduler, autotvm, relay
from weft.error import reading
from weft.ir import PassContext
from weft.ir.instrument import PassPrintingInstrument, PassTimingInstrument
from weft.relay.build_module import as_target
from weft.runtime import write_file
from weft.target import Target
from weft.tune import log
from weft.tvmc.model import TVMCException, TVMCModel, TVMCPackage
from weft.tvmc.transform import apply_graph_transforms, words


def compile_model(
    tvmc_model: TVMCModel,
    target: str,
    opt_level: int = 3,
    executor: Any = None,
    runtime: Any = None,
    tuning_records: str | None = None,
    package_path: str | None = None,
    cross: Any = None,
    cross_options: str | None = None,
    output_format: str = "so",
    dump_code: str | Sequence[str] | None = None,
    dump_offloads: str = "",
    target_host: str | None = None,
    disabled_pass: str | Sequence[str] | None = None,
    pass_context_configs: Sequence[str] | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    use_vm: bool = False,
    mod_name: str = "default",
    workspace_pools: Any = None,
    print_pass_times: bool = False,
    print_ir_before: str | Sequence[str] | None = None,
    print_ir_after: str | Sequence[str] | None = None,
    instruments: Sequence[Any] | None = None,
    **transforms: Any,
) -> TVMCPackage:
    """Compile a model to a package.

    Parameters
    ----------
    tvmc_model : TVMCModel
        What :func:`load_model` read.
    target, target_host : str
        As ``Target`` takes them; `additional_target_options` are more options, by the target's kind.
    opt_level : int
        Of the passes; `disabled_pass` names those that are left out, and `pass_context_configs` are options of
        ``PassContext`` as ``"name=value"``.
    executor, runtime : Executor, Runtime, optional
        As ``relay.build`` takes them; the graph executor by default.
    tuning_records : str, optional
        The log that :func:`tune_model` wrote, of ``autotvm`` or of ``auto_scheduler``.
    package_path, cross, cross_options, output_format
        Those of :meth:`TVMCModel.export_package`.
    dump_code : str or list of str, optional
        Texts to write beside the package, under its name: ``"relay"``, and what the library's ``get_source`` knows
        (``"ll"``, ``"asm"``, ``"c"``).
    use_vm : bool
        Whether the virtual machine of Relay runs the model.
    mod_name : str
        The function of the library that makes an executor.
    print_pass_times, print_ir_before, print_ir_after, instruments
        What is printed of the passes; instruments of one's own.
    dump_offloads, workspace_pools
        Must be left out: code generators of others and pools of memory are none of the driver's.
    **transforms
        Those of :func:`weft.tvmc.transform.apply_graph_transforms`.

    Raises
    ------
    TVMCException
        When an option makes no sense.
    LoweringError
        When the model needs the virtual machine.
    """
    if dump_offloads or workspace_pools is not None:
        raise TVMCException("neither offloads nor pools of memory are there to tell of", found="an option for them")
    where = target_from_cli(target, additional_target_options, target_host)
    mod = apply_graph_transforms(tvmc_model.mod, **transforms)
    clock = PassTimingInstrument()
    printing = PassPrintingInstrument(words(print_ir_before), words(print_ir_after))
    context = PassContext(
        opt_level=opt_level,
        config=_options(pass_context_configs or ()),
        disabled_pass=words(disabled_pass),
        instruments=[*(instruments or ()), printing, *([clock] if print_pass_times else [])],
    )
    with _records(tuning_records, context):
        built: Any = (
            relay.vm.compile(mod, where, params=tvmc_model.params)
            if use_vm
            else relay.build(mod, where, None, tvmc_model.params, mod_name, executor, runtime)
        )
        if print_pass_times:
            print(f"Compilation time breakdown by pass:\n{clock.render()}")
    path = tvmc_model.export_package(built, package_path, cross, cross_options, output_format)
    lib = built.lib if use_vm else built.get_lib()
    save_dumps(path, {kind: str(mod) if kind == "relay" else lib.get_source(kind) for kind in words(dump_code)})
    return TVMCPackage(path)


def target_from_cli(
    target: str, additional_target_options: Mapping[str, Mapping[str, Any]] | None = None, host: str | None = None
) -> Target:
    """The target of a command line: a string, or the options of one in JSON, with more options by its kind."""
    made = as_target(json.loads(target) if target.lstrip().startswith("{") else target, host)
    more = {k: v for k, v in (additional_target_options or {}).get(made.kind.name, {}).items() if v is not None}
    return Target({"kind": made.kind.name, **made.attrs, **more}, made.host) if more else made


def save_dumps(module_name: str, dumps: Mapping[str, str], dump_root: str = ".") -> None:
    """Write texts under a name: ``module_name.ll`` and so on."""
    for kind, text in dumps.items():
        write_file(Path(dump_root) / f"{module_name}.{kind}", text)


def _options(given: Iterable[str]) -> dict[str, Any]:
    """Options of passes from ``name=value``: each value of the type that its option has."""
    known, found = PassContext.list_configs(), {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise TVMCException("malformed --pass-config", expected="name=value", found=text)
        try:
            found[name] = value if known.get(name, {}).get("type") is str else json.loads(value.lower())
        except ValueError as e:
            raise TVMCException(f"--pass-config {name} has no value", expected="a number or true", found=value) from e
        if known.get(name, {}).get("type") is bool:
            found[name] = bool(found[name])
    return found


@contextmanager
def _records(path: str | None, context: PassContext) -> Generator[None]:
    """Compile with the records of a log: those of ``auto_scheduler`` have an input "i" on each line."""
    if path is None:
        with context:
            yield
        return
    lines = log.lines_of(path)
    with reading("this is no log of tuning", TVMCException, where=path):
        of_search = bool(lines) and "i" in json.loads(lines[0])
    if of_search:
        context.config["relay.backend.use_auto_scheduler"] = True
        with auto_scheduler.ApplyHistoryBest(path), context:
            yield
    else:
        with autotvm.apply_history_best(path), context:
            yield
