"""Tasks: templates, the spaces they define, and the contexts that decide.

Read in this order: ``knobs``, ``space``, ``dispatcher``, ``task``, ``history``.
"""

from weft.autotvm.task import space
from weft.autotvm.task.dispatcher import (
    ApplyConfig,
    ApplyFixedConfig,
    DispatchContext,
    FallbackContext,
    clear_fallback_cache,
)
from weft.autotvm.task.space import ConfigEntity, ConfigSpace
from weft.autotvm.task.task import (
    Task,
    args_to_workload,
    create,
    deserialize_args,
    get_config,
    serialize_args,
    template,
)

from weft.autotvm.task.history import ApplyGraphBest, ApplyHistoryBest  # isort: skip  # reads records, which need Task

from weft._aliases import names_of  # isort: skip
from weft.autotvm.task import kernels  # isort: skip

__all__ = [
    "ApplyConfig",
    "ApplyFixedConfig",
    "ApplyGraphBest",
    "ApplyHistoryBest",
    "ConfigEntity",
    "ConfigSpace",
    "DispatchContext",
    "FallbackContext",
    "Task",
    "args_to_workload",
    "clear_fallback_cache",
    "create",
    "deserialize_args",
    "get_config",
    "serialize_args",
    "space",
    "template",
]

_RELAY = {n: "weft.relay.autotvm" for n in ("extract_from_multiple_program", "extract_from_program")}
__getattr__ = names_of("weft.autotvm.task", _RELAY, listed=True)
