"""How TVM 0.9 tuned Relay programs: by one configuration, and with the compiled program as the answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft import ir, meta_schedule
from weft.relay import meta_schedule as now
from weft.target import Target


def extract_task_from_relay(
    mod: ir.IRModule | ir.BaseFunc, target: Target | str, params: Mapping[str, Any] | None = None, **options: Any
) -> list[Any]:
    """List the kernels of a program; see :func:`weft.relay.meta_schedule.extract_tasks`."""
    options.pop("te_filter_func", None)
    return now.extract_tasks(mod, target, params, **options)


def tune_relay(
    mod: ir.IRModule | ir.BaseFunc,
    target: Target | str,
    config: meta_schedule.TuneConfig,
    work_dir: str,
    *,
    params: Mapping[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Tune the kernels of a program, and compile it with what was found.

    Returns
    -------
    GraphExecutorFactoryModule
        What :func:`weft.relay.build` gives.
    """
    database = now.tune_relay(mod, params, target, work_dir, **config.options(options))
    return now.compile_relay(database, mod, target, params)
