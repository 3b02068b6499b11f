"""Branches and loops, whose bodies are graphs: called with values of their inputs, they return their outputs."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

from weft.baseline.operators import operator
from weft.baseline.refusal import NotInBaseline

Body = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
_MOST_TRIPS = 1000
"""Beyond which the compiled program is sooner done, although it has to be waited for."""


@operator("If")
def _if(condition: np.ndarray, *, then_branch: Body, else_branch: Body) -> tuple[Any, ...]:
    return tuple((then_branch if condition.item() else else_branch)(()))


@operator("Loop")
def _loop(
    trips: np.ndarray | None = None, condition: np.ndarray | None = None, *carried: np.ndarray, body: Body
) -> tuple[Any, ...]:
    collected: list[Sequence[np.ndarray]] = []
    limit, goes_on = None if trips is None else max(0, trips.item()), condition is None or condition.item()
    for trip in count():
        if not goes_on or trip == limit:
            break
        if trip == _MOST_TRIPS:
            raise NotInBaseline("a loop of many trips")
        more, *made = body((np.array(trip), np.array(True), *carried))
        goes_on, carried = more.item(), tuple(made[: len(carried)])
        collected.append(made[len(carried) :])
    return (*carried, *map(np.stack, zip(*collected, strict=True)))  # fewer than the outputs after no trip


@operator("Scan")
def _scan(
    *values: np.ndarray,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
) -> tuple[Any, ...]:
    if any((*scan_input_axes, *scan_input_directions, *scan_output_axes, *scan_output_directions)):
        raise NotInBaseline("another axis or direction of a scan")
    first = len(values) - num_scan_inputs
    carried, rows = values[:first], values[first:]
    if not 0 < len(rows[0]) <= _MOST_TRIPS:
        raise NotInBaseline("a scan of many trips, or of none")
    collected: list[Sequence[np.ndarray]] = []
    for parts in zip(*rows, strict=True):
        made = body((*carried, *map(np.asarray, parts)))
        carried = tuple(made[:first])
        collected.append(made[first:])
    return (*carried, *map(np.stack, zip(*collected, strict=True)))
