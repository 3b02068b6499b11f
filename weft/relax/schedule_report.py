"""What the schedule rules decided about the kernels of a model, wherever those were compiled, and which are slow."""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from weft import error, ir, tir
from weft.target import Target
from weft.tir.schedule import KernelReport, ScheduleRecord, ScheduleReport, report_of

_SHARE = 0.1
"""The part of a model's time from which on a kernel that no rule suits is worth a warning."""

_LEAST_CYCLES = 300_000
"""A tenth of a millisecond of one core, below which none is: such a model is as long in its calls as in its kernels."""

_NODES = 3
"""Of the nodes of a kernel, so many are named."""


def schedule_report(kernels: ir.IRModule, noted: Mapping[str, str], target: Target) -> ScheduleReport:
    """Put the records of kernels together, which came from this process, one beside it or the cache.

    Parameters
    ----------
    kernels : IRModule
        The TIR functions, in block form.
    noted : mapping of str to str
        Their records by name, as :meth:`ScheduleRecord.as_json` wrote them.
    target : Target
        What they were compiled for.
    """
    found: list[KernelReport] = []
    for var, func in kernels.items():
        name = str(func.attrs.get("global_symbol") or var.name_hint) if isinstance(func, tir.PrimFunc) else ""
        if isinstance(func, tir.PrimFunc) and name in noted:
            found.append(report_of(name, func, ScheduleRecord.from_json(noted[name]), target))
    return ScheduleReport(found)


def slow_kernels(mod: ir.IRModule, report: ScheduleReport) -> tuple[str, ...]:
    """Say of each kernel that no rule suits and that is estimated to cost more than a tenth of a model, what to do.

    Parameters
    ----------
    mod : IRModule
        The model's functions, which call the kernels; what a loop repeats counts once.
    report : ScheduleReport
        Of its kernels.
    """
    if not any(k.slow for k in report.kernels):
        return ()
    calls, nodes = _calls(mod)
    costs = {k.name: k.estimate.cycles * calls[k.name] for k in report.kernels if k.estimate is not None}
    total = sum(costs.values())
    messages: list[str] = []
    for k in report.kernels:
        generic = k.estimate.generic * calls[k.name] if k.slow and k.estimate is not None else 0.0
        if generic >= max(_LEAST_CYCLES, _SHARE * total):
            messages.append(_message(k, generic / total, list(nodes[k.name])))
    return tuple(messages)


def warn_of_slow_kernels(messages: Iterable[str]) -> None:
    """Warn of what :func:`slow_kernels` found."""
    for message in messages:
        warnings.warn(message, error.ScheduleWarning, stacklevel=4)


def _calls(mod: ir.IRModule) -> tuple[Counter[str], dict[str, dict[str, None]]]:
    """Count the calls of each kernel, and list the nodes of the model that they compute."""
    calls: Counter[str] = Counter()
    nodes: dict[str, dict[str, None]] = defaultdict(dict)
    for _, function in mod.items():
        for node in ir.walk(function) if isinstance(function, ir.Function) else ():
            for kernel in (node.op, *node.args) if isinstance(node, ir.Call) else ():
                if isinstance(kernel, ir.GlobalVar):
                    calls[kernel.name_hint] += 1
                    if node.span is not None:
                        nodes[kernel.name_hint][str(node.span)] = None
    return calls, nodes


def _message(kernel: KernelReport, share: float, nodes: list[str]) -> str:
    more = f" and {len(nodes) - _NODES} more" if len(nodes) > _NODES else ""
    where = f" ({', '.join(nodes[:_NODES])}{more})" if nodes else ""
    return (
        f"kernel '{kernel.name}'{where} may take {share:.0%} of the model's time: no schedule rule suits it\n"
        f"  refused: {kernel.reasons()}\n"
        "  help: give the operator a shape or layout that a rule takes, schedule the kernel yourself, or add a rule "
        "(docs/add-a-schedule-rule.md); `weft inspect --schedule` and `weft profile` tell more"
    )
