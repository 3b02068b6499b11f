"""Branches and loops, whose bodies are graphs."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

import numpy as np

from weft.baseline.operators import operator
from weft.baseline.refusal import NotInBaseline


class Body(Protocol):
    """A graph whose ``run(values, around)`` gives its outputs for its inputs and for names around it."""

    output_names: list[str]
    run: Callable[[Sequence[np.ndarray], Mapping[str, np.ndarray]], list[np.ndarray]]


_MOST_TRIPS = 1000
"""Beyond which the compiled program is sooner done, although it has to be waited for."""


@operator("If")
def _if(
    condition: np.ndarray,
    *values: np.ndarray,
    then_branch: Body,
    else_branch: Body,
    given: int = 1,
    names: Sequence[str] = (),
) -> tuple[Any, ...]:
    branch = then_branch if condition.item() else else_branch
    return tuple(branch.run((), dict(zip(names, values, strict=True))))


@operator("Loop")
def _loop(
    trips: np.ndarray | None,
    condition: np.ndarray | None,
    *values: np.ndarray,
    body: Body,
    given: int = 2,
    names: Sequence[str] = (),
) -> tuple[Any, ...]:
    carried, around = list(values[: given - 2]), dict(zip(names, values[given - 2 :], strict=True))
    collected: list[list[np.ndarray]] = []
    limit, goes_on = None if trips is None else max(0, trips.item()), condition is None or condition.item()
    for trip in count():
        if not goes_on or trip == limit:
            break
        if trip == _MOST_TRIPS:
            raise NotInBaseline("a loop of many trips")
        more, *made = body.run((np.array(trip), np.array(True), *carried), around)
        goes_on = more.item()
        carried = made[: len(carried)]
        collected.append(made[len(carried) :])
    if not collected and len(body.output_names) > 1 + len(carried):
        raise NotInBaseline("elements of a loop that made no trip")
    return (*carried, *map(np.stack, zip(*collected, strict=True)))


@operator("Scan")
def _scan(
    *values: np.ndarray,
    body: Body,
    num_scan_inputs: int,
    scan_input_axes: Sequence[int] = (),
    scan_input_directions: Sequence[int] = (),
    scan_output_axes: Sequence[int] = (),
    scan_output_directions: Sequence[int] = (),
    given: int = 0,
    names: Sequence[str] = (),
) -> tuple[Any, ...]:
    if any((*scan_input_axes, *scan_input_directions, *scan_output_axes, *scan_output_directions)):
        raise NotInBaseline("another axis or direction of a scan")
    first = given - num_scan_inputs
    carried, rows, around = list(values[:first]), values[first:given], dict(zip(names, values[given:], strict=True))
    collected: list[list[np.ndarray]] = []
    if not 0 < len(rows[0]) <= _MOST_TRIPS:
        raise NotInBaseline("a scan of many trips, or of none")
    for parts in zip(*rows, strict=True):
        made = body.run((*carried, *map(np.asarray, parts)), around)
        carried = made[:first]
        collected.append(made[first:])
    return (*carried, *map(np.stack, zip(*collected, strict=True)))
