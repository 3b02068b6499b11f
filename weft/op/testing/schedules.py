"""Schedules and computations for a target, and whether what is built of them gives what it should."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from weft import runtime, te
from weft.op.testing.displaced import Array
from weft.target import Target, TargetLike, build
from weft.te.schedule import schedule_to_prim_func
from weft.topi import nn
from weft.topi.schedules import default_schedule


def get_injective_schedule(target: object) -> Callable[..., Any]:
    """Return the schedule of a kind of operators for a target; it asks ``with Target(...)`` which that is."""
    return default_schedule


def dispatch(target: TargetLike, dispatch_map: Mapping[str, Any]) -> Any:
    """Return what a table has for the first of a target's keys that it knows, else for ``"generic"``."""
    return dispatch_map[next((key for key in Target(target).keys if key in dispatch_map), "generic")]


def get_conv2d_nchw_implement(target: object) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the computation and the schedule of convolutions, channels first."""
    return nn.conv2d_nchw, default_schedule


def compare_numpy_tvm(
    inputs: Sequence[Array],
    output: Array,
    target: TargetLike,
    device: runtime.Device,
    compute: Callable[..., te.Tensor],
    schedule: Callable[..., te.Schedule],
) -> None:
    """Build an operator for a target, run it, and raise an AssertionError unless it gives `output`, to 1e-4."""
    given = [te.placeholder(i.shape, str(i.dtype)) for i in inputs]
    with Target(target) as made:
        out = compute(*given)
        func = build(schedule_to_prim_func(schedule([out]), [*given, out]), made)["main"]
    found = runtime.tensor(np.zeros(output.shape, output.dtype), device=device)
    func(*(runtime.tensor(i, device=device) for i in inputs), found)
    np.testing.assert_allclose(found.numpy(), output, atol=1e-4, rtol=1e-4)


get_broadcast_schedule = get_elemwise_schedule = get_reduce_schedule = get_injective_schedule
