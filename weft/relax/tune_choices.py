"""Tuning choices about operators, such as the algorithm of a convolution: whole kernels are compared."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from weft import ir, runtime, tir, tune
from weft.op import Fusion
from weft.relax import op
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Var
from weft.relax.pipeline import graph_passes
from weft.target import Target
from weft.tir.schedule import default_schedule

_MARGIN = 0.97
_ROUNDS = 3


def tune_choices(
    asked: Mapping[str, tune.Asked],
    target: Target,
    database: tune.Database,
    seconds: float,
    *,
    cold: bool = False,
    measurer: tune.Measurer | None = None,
    report: Callable[[str, tune.Trial], None] | None = None,
) -> list[tune.TuningRecord]:
    """Measure the candidates of choices about operators, those with most work first, and put the best in a database.

    Parameters
    ----------
    asked : mapping of str to Asked
        ``Database.asked`` of a compilation: what each choice is about, and the candidates.
    target : Target
        What to compile for; this machine has to run it.
    database : Database
        What is known; what is measured already is not measured again.
    seconds : float
        How long, about.
    cold : bool
        Whether no cache holds the weights.
    measurer : Measurer, optional
        Measures; by default one that lives as long as the call.
    report : callable, optional
        ``report(name, trial)``, called after each candidate.

    Returns
    -------
    list of TuningRecord
        The records of these choices.
    """
    hardware = tune.Hardware.of(target)
    deadline = time.monotonic() + seconds
    owned = measurer is None
    measurer = measurer if measurer is not None else tune.Measurer(target, hardware.threads)
    records: list[tune.TuningRecord] = []
    try:
        for subject in sorted(asked, key=lambda s: -_work(s) * asked[s].calls):
            record = _record(subject, asked[subject], hardware, database)
            records.append(record)
            waiting = [c for c in asked[subject].candidates if record.trial_of({tune.CHOICE: c}) is None]
            if waiting and time.monotonic() < deadline:
                _measure(record, subject, asked[subject].default, waiting, target, measurer, cold, report)
    finally:
        if owned:
            measurer.__exit__()
    return records


def _record(subject: str, asked: tune.Asked, hardware: tune.Hardware, database: tune.Database) -> tune.TuningRecord:
    """Take up what is known, unless it was about other candidates."""
    signature = f"{asked.candidates} {asked.default}"
    record = database.query(tune.workload_of_choice(subject), hardware)
    if record is None or record.signature != signature:
        record = tune.TuningRecord(tune.workload_of_choice(subject), hardware, subject, signature)
        record.add(tune.Trial({tune.CHOICE: asked.default}, 1.0, "measured"))
        database.commit(record)
    return record


def _measure(
    record: tune.TuningRecord,
    subject: str,
    default: Any,
    candidates: list[Any],
    target: Target,
    measurer: tune.Measurer,
    cold: bool,
    report: Callable[[str, tune.Trial], None] | None,
) -> None:
    kernels = {c: _kernel(subject, c, target, record.hardware) for c in (default, *candidates)}
    times: dict[Any, list[float]] = {c: [] for c in kernels}
    failed: dict[Any, str] = {}
    for _ in range(_ROUNDS):
        for choice, (func, case) in kernels.items():
            if choice in failed:
                continue
            arguments = tuple(a._replace(cold=cold and i == 1) for i, a in enumerate(case.arguments))
            try:
                times[choice].append(measurer.prepare(func, [tune.Case(arguments)]))
            except tune.WorkerError as e:
                failed[choice] = e.what
    if default in failed:
        return
    record.default_us = min(times[default])
    for choice in candidates:
        trial = tune.Trial({tune.CHOICE: choice}, None, "failed")
        if choice not in failed:
            taken, plain = times[choice], times[default]
            ratio = max(min(taken) / min(plain), statistics.median(taken) / statistics.median(plain))
            trial = tune.Trial({tune.CHOICE: choice}, round(ratio, 4), "confirmed" if ratio < _MARGIN else "measured")
        record.add(trial)
        if report is not None:
            report(subject, trial)


def _work(subject: str) -> float:
    about = json.loads(subject)
    return float(np.prod(about["convolution"]) * np.prod(about["channels"]))


def _kernel(subject: str, choice: Any, target: Target, hardware: tune.Hardware) -> tuple[tir.PrimFunc, tune.Case]:
    """Compile a convolution by itself, with a choice, to its scheduled kernel."""
    forced = tune.TuningRecord(
        tune.workload_of_choice(subject), hardware, trials=[tune.Trial({tune.CHOICE: choice}, 0.0, "confirmed")]
    )
    with tune.Database([forced]):
        mod = ir.Sequential(graph_passes(target))(_convolution(json.loads(subject)))
    func = next(f for _, f in mod.items() if isinstance(f, tir.PrimFunc) and f.attrs.get("op_pattern") == Fusion.ANCHOR)
    case = tune.Case.static(func)
    assert case is not None
    return default_schedule(func, target), case


def _convolution(about: Mapping[str, Any]) -> ir.IRModule:
    n, h, w = about["convolution"]
    c, o = about["channels"]
    top, left, bottom, right = about["padding"]
    rng = np.random.default_rng(0)
    x = Var("x", ir.TensorType((n, c, h + 2 - top - bottom, w + 2 - left - right), "float32"))
    weight = ir.constant(runtime.aligned(rng.standard_normal((o, c, 3, 3), np.float32)))
    script = BlockBuilder()
    with script.function("main", [x]):
        with script.dataflow():
            y = script.emit(op.nn.conv2d(x, weight, padding=(top, left, bottom, right)))
            out = script.emit_output(y)
        script.emit_func_output(out)
    return script.get()
