"""A model's kernels are tuned: by templates (``autotvm``) or by search without any (``auto_scheduler``)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from weft import auto_scheduler, autotvm
from weft.relay.auto_scheduler import extract_tasks
from weft.relay.autotvm import extract_from_program
from weft.tvmc.compiler import target_from_cli
from weft.tvmc.model import TVMCException, TVMCModel
from weft.tvmc.transform import apply_graph_transforms

_TUNERS: dict[str, Any] = {
    "ga": lambda task: autotvm.tuner.GATuner(task, pop_size=50),
    "gridsearch": autotvm.tuner.GridSearchTuner,
    "random": autotvm.tuner.RandomTuner,
    "xgb": autotvm.tuner.XGBTuner,
    **{f"xgb_{features}": autotvm.tuner.XGBTuner for features in ("curve", "itervar", "knob", "rank")},
}


def tune_model(
    tvmc_model: TVMCModel,
    target: str,
    tuning_records: str | None = None,
    prior_records: str | None = None,
    enable_autoscheduler: bool = False,
    rpc_key: str | None = None,
    hostname: str | None = None,
    port: int | str | None = 9090,
    trials: int = 10000,
    target_host: str | None = None,
    tuner: str = "xgb",
    min_repeat_ms: int | None = None,
    early_stopping: int | None = None,
    timeout: int = 10,
    repeat: int = 1,
    number: int = 10,
    parallel: int = 4,
    hardware_params: auto_scheduler.HardwareParams | None = None,
    include_simple_tasks: bool = False,
    log_estimated_latency: bool = False,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
    tasks_filter: str = "all",
    **transforms: Any,
) -> str | None:
    """Tune a model and write what was measured.

    Parameters
    ----------
    tvmc_model : TVMCModel
        What :func:`load_model` read.
    target, target_host, additional_target_options
        Those of :func:`compile_model`.
    tuning_records : str, optional
        The log to write; by default it is kept with the model.
    prior_records : str, optional
        An earlier log to begin from.
    enable_autoscheduler : bool
        Whether ``auto_scheduler`` tunes, for which `hardware_params`, `include_simple_tasks` and
        `log_estimated_latency` (a file ``total_latency.tsv``) are.
    hostname, port, rpc_key : str and int, optional
        The tracker of the devices to measure on, and their key; by default this machine is measured.
    trials : int
        Configurations to measure, of all tasks together.
    tuner : str
        Of ``autotvm``: ``"ga"``, ``"gridsearch"``, ``"random"``, ``"xgb"``.
    min_repeat_ms, timeout, repeat, number, parallel
        Those of the runners.
    early_stopping : int, optional
        End a task after so many without a better one.
    tasks_filter : str
        ``"all"``, ``"list"`` to print them only, or their places, ``"0,3"``.
    **transforms
        Those of :func:`weft.tvmc.transform.apply_graph_transforms`.

    Returns
    -------
    str or None
        The log, which :func:`compile_model` takes; None where there is nothing to tune.

    Raises
    ------
    TVMCException
        When an option makes no sense.
    """
    if tuner not in _TUNERS:
        raise TVMCException(f"unknown tuner '{tuner}'", expected=", ".join(_TUNERS))
    if (hostname is None) != (rpc_key is None):
        raise TVMCException("a tracker and a key go together", expected="hostname and rpc_key", found="one of them")
    where = target_from_cli(target, additional_target_options, target_host)
    mod = apply_graph_transforms(tvmc_model.mod, **transforms)
    log = tuning_records or tvmc_model.default_tuning_records_path()
    timing: dict[str, Any] = {
        "number": number,
        "repeat": repeat,
        "timeout": timeout,
        "min_repeat_ms": min_repeat_ms or 0,
    }
    far: tuple[Any, ...] = () if rpc_key is None else (rpc_key, hostname, int(port or 9090))
    tasks: list[Any]
    weights: list[int] = []
    if enable_autoscheduler:
        found = extract_tasks(mod, tvmc_model.params, where, None, hardware_params, include_simple_tasks)
        tasks, weights = found
    else:
        tasks = extract_from_program(mod, tvmc_model.params, where)
    if tasks_filter == "list":
        print("\n".join(f"{i}. {getattr(t, 'desc', None) or t}" for i, t in enumerate(tasks)))
        return None
    if tasks_filter != "all":
        chosen = _places(tasks_filter, len(tasks))
        tasks, weights = [tasks[i] for i in chosen], [weights[i] for i in chosen] if weights else []
    if not tasks:
        return None
    if enable_autoscheduler:
        runner = (auto_scheduler.RPCRunner if far else auto_scheduler.LocalRunner)(*far, **timing)
        callbacks: list[Any] = [auto_scheduler.task_scheduler.PrintTableInfo()]
        if log_estimated_latency:
            callbacks.append(auto_scheduler.task_scheduler.LogEstimatedLatency("total_latency.tsv"))
        scheduler = auto_scheduler.TaskScheduler(tasks, weights, load_log_file=prior_records, callbacks=callbacks)
        to_file = auto_scheduler.RecordToFile(log)
        options = auto_scheduler.TuningOptions(trials, early_stopping, runner=runner, measure_callbacks=[to_file])
        scheduler.tune(options)
    else:
        runner = (autotvm.RPCRunner if far else autotvm.LocalRunner)(*far, **timing)
        measure = autotvm.measure_option(autotvm.LocalBuilder(n_parallel=parallel), runner)
        _tune_templates(tasks, log, measure, tuner, max(1, trials // len(tasks)), early_stopping, prior_records)
    return log


def _tune_templates(
    tasks: list[Any], log: str, measure: Any, tuner: str, trials: int, early_stopping: int | None, prior: str | None
) -> None:
    known = list(autotvm.record.load_from_file(prior)) if prior and Path(prior).exists() else []
    for i, task in enumerate(tasks):
        chosen = _TUNERS[tuner](task)
        if known:
            chosen.load_history(known)
        most = min(trials, len(task.config_space))
        bar = autotvm.callback.progress_bar(most, prefix=f"[Task {i + 1:2d}/{len(tasks):2d}] ")
        chosen.tune(most, measure, early_stopping, [bar, autotvm.callback.log_to_file(log)])


def _places(text: str, count: int) -> list[int]:
    words = text.split(",")
    if not all(w.strip().isdigit() and int(w) < count for w in words):
        raise TVMCException("malformed --tasks", expected=f"all, list, or numbers below {count}", found=text)
    return [int(w) for w in words]
