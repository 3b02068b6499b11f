"""Values of inputs that random numbers do not suit, such as indices."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from weft.runtime import Tensor, read_arrays, tensor

TASK_INPUT_BUFFER_TABLE: dict[str, dict[str, Tensor]] = {}
"""By the key of a workload, the values by name."""


def register_inputs(
    key: str, given: Mapping[str, Any] | Sequence[str] | None, overwrite: bool, save: bool
) -> list[str]:
    """Take up the values of a task's inputs, or their names; returns the names."""
    if given is None:
        return []
    if not isinstance(given, Mapping):
        return list(given)
    table = TASK_INPUT_BUFFER_TABLE.setdefault(key, {})
    for name, value in given.items():
        if overwrite or name not in table:
            table[name] = value
            if save:
                np.save(f"{name}.npy", value.numpy())
    return list(given)


def input_values(task: Any, case: Any) -> list[np.ndarray] | None:
    """Return the arguments of a run where some are not to be random; None where all may be."""
    table = TASK_INPUT_BUFFER_TABLE.get(task.workload_key, {})
    if not task.task_input_names:
        return None
    rng = np.random.default_rng(0)
    values = []
    for t, argument in zip(task.compute_dag.tensors, case.arguments, strict=True):
        known = table.get(t.op.name)
        if known is None and t.op.name in task.task_input_names and Path(f"{t.op.name}.npy").exists():
            known = tensor(read_arrays(f"{t.op.name}.npy"))
        drawn = rng.standard_normal(argument.shape).astype(argument.dtype)
        values.append(known.numpy() if known is not None else drawn)
    return values
