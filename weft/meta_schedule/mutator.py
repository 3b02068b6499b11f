"""Mutators: traces with something decided otherwise."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from weft import ir
from weft.meta_schedule import block_facts as facts
from weft.meta_schedule.part import Part
from weft.tir import analysis
from weft.tir.schedule import Instruction, Schedule, Trace


class Mutator(Part):
    """Changes a trace: ``apply(trace, seed)`` returns another, or None; -1 takes a number from the system."""

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Change a trace."""
        raise NotImplementedError

    def _replayed(self, trace: Trace) -> Schedule:
        sch = Schedule(self._context.mod)
        trace.apply_to_schedule(sch, remove_postproc=True)
        return sch


class PyMutator(Mutator):
    """A mutator written in Python."""


class _Redraws(Mutator):
    def _draws(self, trace: Trace) -> Iterable[Instruction]:
        """List what may be drawn anew."""
        raise NotImplementedError

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Draw one thing anew; None where there is nothing else to draw."""
        source, drawn = random.Random(None if seed == -1 else seed), trace.decisions
        others = [(inst, new) for inst in self._draws(trace) if inst in drawn if (new := _others(inst, drawn[inst]))]
        if not others:
            return None
        inst, new = source.choice(others)
        decision = source.choices([d for d, _ in new], [p for _, p in new])[0]
        return trace.with_decision(inst, decision, remove_postproc=True)


def _others(inst: Instruction, decision: Any) -> list[tuple[Any, float]]:
    """List what an instruction may draw instead, with probabilities; a tile gives another one a factor."""
    if inst.kind.name == "SampleCategorical":
        return [(i, float(p)) for i, p in enumerate(inst.arguments["probs"]) if i != int(decision) and float(p) > 0]
    tiles, most = [int(t) for t in decision], int(inst.arguments["max_innermost_factor"])
    found = []
    for x, y in ((x, y) for x in range(len(tiles)) for y in range(len(tiles)) if x != y):
        for f in (f for f in range(2, tiles[x] + 1) if tiles[x] % f == 0):
            if y < len(tiles) - 1 or tiles[y] * f <= most:
                found.append(([t // f if n == x else t * f if n == y else t for n, t in enumerate(tiles)], 1.0))
    return found


def _noted(trace: Trace, *keys: str) -> list[Instruction]:
    """List the draws that are noted under one of some keys."""
    notes = (i for i in trace.insts if i.kind.name == "Annotate" and str(i.attrs[0]) in keys)
    values = {id(i.inputs[1]) for i in notes}
    return [i for i in trace.insts if i.kind.name == "SampleCategorical" and id(i.outputs[0]) in values]


class MutateTileSize(_Redraws):
    """Moves a factor from one tile of a loop to another, or copies with other vectors."""

    def _draws(self, trace: Trace) -> list[Instruction]:
        tiles = [i for i in trace.insts if i.kind.name == "SamplePerfectTile"]
        return tiles + _noted(trace, "meta_schedule.cooperative_fetch")


class MutateUnroll(_Redraws):
    """Draws another number of steps to unroll."""

    def _draws(self, trace: Trace) -> list[Instruction]:
        return _noted(trace, "meta_schedule.unroll_explicit", "meta_schedule.unroll_implicit")


class MutateThreadBinding(_Redraws):
    """Draws another number of threads."""

    def _draws(self, trace: Trace) -> list[Instruction]:
        splits = [i for i in trace.insts if i.kind.name == "Split" and len(i.inputs) == 3 and i.inputs[1] is None]
        factors = {id(i.outputs[1]): id(i.inputs[2]) for i in splits}
        binds = [i for i in trace.insts if i.kind.name == "Bind" and str(i.attrs[0]) == "threadIdx.x"]
        used = {factors.get(id(i.inputs[0])) for i in binds}
        return [i for i in trace.insts if i.kind.name == "SampleCategorical" and id(i.outputs[0]) in used]


class MutateComputeLocation(Mutator):
    """Puts a block whose place was drawn to another place."""

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Draw another place; None where there is none."""
        drawn = [i for i in trace.insts if i.kind.name == "SampleComputeLocation" and i in trace.decisions]
        deepest = len(self._replayed(trace).state.all_loops()) if drawn else 0
        places = [(i, at) for i in drawn for at in range(-2, deepest) if at != trace.decisions[i]]
        random.Random(None if seed == -1 else seed).shuffle(places)
        changed = (trace.with_decision(inst, at, remove_postproc=True) for inst, at in places)
        return next((new for new in changed if facts.attempt(self._replayed, new)), None)


@dataclass(eq=False)
class MutateParallel(Mutator):
    """Notes another number of parallel jobs, at most `max_jobs_per_core` a core: one that fuses other loops."""

    max_jobs_per_core: int

    def apply(self, trace: Trace, seed: int = -1) -> Trace | None:
        """Change the note; None where there is none, or no other number."""
        noted = [i for i in trace.insts if i.kind.name == "Annotate" and str(i.attrs[0]) == "meta_schedule.parallel"]
        if not noted:
            return None
        source, most = random.Random(None if seed == -1 else seed), self.max_jobs_per_core * self._target.num_cores
        inst = source.choice(noted)
        sch = self._replayed(trace)
        sizes = [_prefixes(sch, b.name) for b in sch.get_child_blocks(sch.get_block(inst.inputs[0].name))]
        plans = {tuple(_fused(s, jobs) for s in sizes): jobs for s in sizes for jobs in s if jobs <= most}
        plans.pop(tuple(_fused(s, int(inst.inputs[1])) for s in sizes), None)
        if not plans:
            return None
        new = inst.with_arguments({**inst.arguments, "ann_val": source.choice(list(plans.values()))})
        return Trace([new if i is inst else i for i in trace.without_postproc().insts], trace.decisions)


def _prefixes(sch: Schedule, name: str) -> list[int]:
    """Return the iterations of the outer spatial loops of a block: of the first, the first two, and so on."""
    found: list[int] = []
    for loop in sch.state.loops_of(name):
        extent = ir.as_int(loop.extent)
        if extent is None or analysis.loop_kind(loop) != "data_par":
            break
        found.append((found[-1] if found else 1) * extent)
    return found


def _fused(sizes: list[int], jobs: int) -> int:
    """Count the loops that are fused to have so many jobs."""
    return next((n for n, size in enumerate(sizes, 1) if size >= jobs), len(sizes))
