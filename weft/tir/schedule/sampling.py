"""Primitives that draw: a decision is checked like what would have been drawn."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Sequence

from weft import error, ir
from weft.tir.analysis.dependence import consumers_of, loop_kind
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import For

ROOT, INLINE = "root", "inline"
"""Places of a block that are no loop, -1 and -2 as decisions: where it is, and where its elements are read."""


def categorical(
    source: random.Random, candidates: Sequence[int], probs: Sequence[float], decision: int | None = None
) -> int:
    """Draw the index of a candidate, or check the one decided."""
    if len(candidates) != len(probs) or not candidates:
        raise refuse(f"{len(candidates)} candidates and {len(probs)} probabilities", help="give as many of each")
    if any(p < 0 for p in probs) or not sum(probs) > 0:
        raise refuse(f"the probabilities {list(probs)}", help="give numbers from 0 that are not all 0")
    if decision is None:
        return source.choices(range(len(candidates)), probs)[0]
    if not 0 <= decision < len(candidates):
        raise refuse(f"the decision {decision} is no candidate", help=f"an index below {len(candidates)}")
    return decision


def perfect_tile(
    source: random.Random, loop: For, n: int, max_innermost_factor: int, decision: Sequence[int | None] | None = None
) -> Sequence[int | None]:
    """Draw `n` factors whose product is the extent of a loop, or check those decided.

    Of a loop whose extent is not known the first is None, which a split takes for the rest, and the others are 1.
    """
    if n < 1:
        raise refuse(f"{n} factors", loops=loop, help="ask for one factor or more")
    if not isinstance(loop.extent, ir.IntImm):
        unknown = [None] + [1] * (n - 1)
        if decision is not None and list(decision) != unknown:
            raise refuse(f"the decision {list(decision)}", loops=loop, help=f"the only one of {loop.extent}: {unknown}")
        return unknown
    extent = loop.extent.value
    if decision is not None:
        factors = [int(f) for f in decision if f is not None]
        if not len(factors) == len(decision) == n or math.prod(factors) != extent or any(f < 0 for f in factors):
            raise refuse(
                f"the decision {list(decision)}", loops=loop, help=f"give {n} factors whose product is {extent}"
            )
        return [*factors]
    if extent == 0:
        return [0] + [1] * (n - 1)
    choices = list(_factorizations(extent, n))
    return list(source.choice([f for f in choices if f[-1] <= max_innermost_factor] or choices))


def partitioned_tile(
    source: random.Random,
    loop: For,
    n: int,
    partition_pos: int,
    innerpart_factor: int,
    decision: Sequence[int | None] | None = None,
) -> Sequence[int | None]:
    """Draw `n` factors of which those from `partition_pos` on multiply to a multiple of `innerpart_factor`."""
    if not 0 <= partition_pos <= n:
        raise refuse(f"position {partition_pos} of {n} factors", loops=loop, help=f"give a number from 0 to {n}")
    extent = ir.as_int(loop.extent)
    if extent is None or extent % innerpart_factor or partition_pos in (0, n):
        return perfect_tile(source, loop, n, 1 << 30, decision)
    if decision is not None:
        factors = perfect_tile(source, loop, n, 1 << 30, decision)
        if math.prod(f or 0 for f in factors[partition_pos:]) % innerpart_factor:
            raise refuse(f"the inner factors of {factors} do not hold {innerpart_factor}", loops=loop)
        return factors
    drawn = list(source.choice(_factorizations(extent // innerpart_factor, n)))
    drawn[-1] *= innerpart_factor
    return drawn


def compute_locations(state: ScheduleState, name: str, attempt: Callable[[ir.Var], object]) -> dict[int, ir.Var]:
    """Find the loops around the first consumer of a block at which `attempt` is not refused, by place, 0 outermost.

    Loops of one iteration, loops inside of one that sums, and those that sum without others inside are left out.
    """
    consumers = consumers_of(state.realize(name).block, state.scope_of_block(name))
    loops = state.loops_of(consumers[0].block.name_hint) if consumers else []
    last = max((i for i, f in enumerate(loops) if loop_kind(f) == "data_par"), default=-1)
    found: dict[int, ir.Var] = {}
    sums = False
    for i, loop in enumerate(loops[: last + 1]):
        if ir.as_int(loop.extent) == 1:
            continue
        if loop_kind(loop) == "data_par" and sums:
            break
        sums = loop_kind(loop) != "data_par"
        before = state.func
        try:
            attempt(loop.loop_var)
            found[i] = loop.loop_var
        except error.ScheduleError:
            pass
        finally:
            state.func = before
    return found


def location(source: random.Random, places: Iterable[int], inline: bool, decision: int | None = None) -> int:
    """Draw a place, or -1 for staying and -2 for inlining; or check the one decided."""
    choices = [*([-2] if inline else []), -1, *places]
    if decision is None:
        return source.choice(choices)
    if decision not in choices:
        raise refuse(f"the decision {decision} is no place", help=f"one of {choices}")
    return int(decision)


def _factorizations(value: int, n: int) -> list[tuple[int, ...]]:
    if n == 1:
        return [(value,)]
    return [(d, *rest) for d in range(1, value + 1) if value % d == 0 for rest in _factorizations(value // d, n - 1)]
