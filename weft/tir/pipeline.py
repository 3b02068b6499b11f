"""Lowering: one straight list from scheduled blocks to what code is generated from."""

from __future__ import annotations

from typing import Any

from weft.ir import IRModule, Pass, PassContext, Sequential
from weft.tir import custom_datatype
from weft.tir import transform as t
from weft.tir.function import PrimFunc

__all__ = ["custom_types", "lower", "lowering_passes", "requested_checks"]


def requested_checks() -> list[Pass]:
    """List the passes that add run-time checks, of those that the current context asks for."""
    asked = PassContext.current().config.get("tir.instrument_bound_checkers")
    return [t.instrument_bound_checkers()] if asked else []


def custom_types(target: str) -> list[Pass]:
    """List the pass that lowers registered types of numbers, where there are any."""
    return [t.lower_custom_datatypes(target=target)] if custom_datatype.registered() else []


def lowering_passes(target: Any = None) -> list[Pass]:
    """List the passes of lowering in order, with those that the current context asks for."""
    kind = getattr(getattr(target, "kind", None), "name", "llvm")
    return [
        t.lower_blocks(),
        *custom_types(kind),
        t.simplify(),
        *requested_checks(),
        t.inject_prefetch(),
        t.inject_double_buffer(),
        t.relax_guards(),
        t.hoist_if_then_else(),
        t.compact_buffer(),
        t.loop_partition(),
        t.storage_rewrite(),
        t.lower_intrin(target=kind),
        t.flatten_buffer(),
        t.transpose_tiles(),
        t.dot_product(forms=getattr(target, "dot_forms", ())),
        t.vectorize_loop(),
        t.unroll_loop(),
        t.simplify(),
        t.lower_math(scaled_lanes=getattr(target, "scaled_lanes", ())),
    ]


def lower(func: PrimFunc, target: Any = None) -> PrimFunc:
    """Lower one function."""
    name = func.attrs.get("global_symbol") or "main"
    lowered = Sequential(lowering_passes(target), name="tir.lower")(IRModule({name: func}))[name]
    assert isinstance(lowered, PrimFunc)
    return lowered
