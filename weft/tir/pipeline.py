"""Lowering: one straight list of (phase, pass) from loops over blocks to what code is generated from.

The phases are those of TVM's ``lower``. Passes of the user's own, ``PassContext(config={"tir.add_lower_pass":
[(phase, pass)]})``, run behind those of their phase:

- 0: the loops as they were written; nothing of the list runs before,
- 1: where things lie: blocks dissolve, buffers get their places and become flat,
- 2: how loops run: as vectors, written out,
- 3: tidying up.

What depends on the target's instructions comes last (:func:`finishing_passes`) and is no part of ``weft.lower``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.ir import IRModule, Pass, PassContext, Sequential, walk
from weft.machine import TargetLike, machine_of
from weft.tir import custom_datatype
from weft.tir import transform as t
from weft.tir.function import PrimFunc
from weft.tir.stmt import For, ForKind
from weft.tir.transform.inject_virtual_thread import is_virtual

_DONE = "tir.lowered"  # the attribute of functions that the phases have run on
Phases = list[tuple[int, Pass]]


def host_phases(target: TargetLike | None = None, *, simple_mode: bool = False) -> Phases:
    """List (phase, pass) for functions that run on the CPU.

    Parameters
    ----------
    target : Target, optional
        What the code is for; without it, the passes that ask for its instructions are left out.
    simple_mode : bool
        Whether to leave conditions of boundaries where they are, for reading.

    Notes
    -----
    ``tir.disable_vectorize`` and ``tir.disable_storage_rewrite`` in the context's config leave those passes out;
    ``tir.disable_cse_tir: False`` adds CommonSubexprElim, which code generators here do without: they number values.
    """
    config = PassContext.current().config
    kind, machine = _kind(target), machine_of(target)
    return [
        (1, t.import_llvm()),
        (1, t.lower_blocks()),
        (1, t.lower_loop_jumps()),
        (1, t.legalize_dtypes.fp8_compute_legalize(rounded=True)),
        *[(1, p) for p in custom_types(kind)],
        (1, t.simplify()),
        *[(1, p) for p in requested_checks()],
        (1, t.inject_virtual_thread()),
        (1, t.inject_prefetch(line_bytes=machine.cache_line_bytes)),
        (1, t.inject_double_buffer()),
        (1, t.relax_guards()),
        (1, t.hoist_if_then_else()),
        (1, t.compact_buffer()),
        (1, t.inject_software_pipeline(strict=False)),
        *([] if simple_mode else [(1, t.loop_partition())]),
        *([] if config.get("tir.disable_storage_rewrite") else [(1, t.storage_rewrite())]),
        *([(1, t.lower_intrin(target=kind))] if target is not None else []),
        (1, t.flatten_buffer()),
        (2, t.transpose_tiles()),
        (2, t.dot_product(forms=machine.dot_forms)),
        (2, t.vectorize_loop(enable_vectorize=not config.get("tir.disable_vectorize"))),
        *([(2, t.skip_empty_loops())] if target is not None else []),  # while bodies are short
        (2, t.unroll_loop()),
        (2, t.prefetch_streams(line_bytes=machine.cache_line_bytes)),
        (3, t.simplify()),
        (3, t.remove_no_op()),
        *([] if config.get("tir.disable_cse_tir", True) else [(3, t.common_subexpr_elim())]),
    ]


def device_phases(target: TargetLike | None = None) -> Phases:
    """List (phase, pass) for functions with loops bound to device threads: all threads meet the same conditions."""
    kind = _kind(target)
    return [
        (1, t.lower_blocks()),
        (1, t.lower_loop_jumps()),
        (1, t.legalize_dtypes.fp8_compute_legalize(rounded=True)),
        *[(1, p) for p in custom_types(kind)],
        (1, t.simplify()),
        (1, t.lower_cross_thread_reduction()),
        (1, t.compact_buffer()),
        (1, t.inject_virtual_thread()),
        (1, t.inject_prefetch(line_bytes=0)),
        (1, t.inject_software_pipeline(strict=False)),
        *([(1, t.lower_intrin(target=kind))] if target is not None else []),
        (1, t.flatten_buffer()),
        (2, t.vectorize_loop(enable_vectorize=False)),  # a device's threads are its lanes
        (2, t.unroll_loop()),
        (3, t.simplify()),
        (3, t.remove_no_op()),
    ]


def finishing_passes(target: TargetLike | None = None) -> list[Pass]:
    """List what follows the phases on a CPU, as its instructions want it."""
    return [
        t.skip_empty_loops(),
        t.lower_intrin(target=_kind(target)),
        t.lower_math(scaled_lanes=machine_of(target).scaled_lanes),
    ]


def requested_checks() -> list[Pass]:
    """List the passes that add run-time checks, of those that the current context asks for."""
    asked = PassContext.current().config.get("tir.instrument_bound_checkers")
    return [t.instrument_bound_checkers()] if asked else []


def custom_types(target: str) -> list[Pass]:
    """List the pass that lowers registered types of numbers, where there are any."""
    return [t.lower_custom_datatypes(target=target)] if custom_datatype.registered() else []


def with_own_passes(phases: Phases) -> list[Pass]:
    """List the passes of all phases in order, with those of ``tir.add_lower_pass`` in the current context.

    Raises
    ------
    InvalidArgument
        When an entry is no pair of a phase and a pass (or function from PrimFunc to PrimFunc).
    """
    entries = [(n, 0, p) for n, p in phases]
    for entry in PassContext.current().config.get("tir.add_lower_pass", ()):
        if not (
            isinstance(entry, (tuple, list)) and len(entry) == 2 and entry[0] in (0, 1, 2, 3) and callable(entry[1])
        ):
            raise InvalidArgument(
                "tir.add_lower_pass holds pairs of a phase, 0 to 3, and a pass",
                found=repr(entry),
                expected="such as (1, my_pass)",
            )
        entries.append((entry[0], 1, _as_pass(entry[1])))
    return [p for _, _, p in sorted(entries, key=lambda e: e[:2])]


def _as_pass(given: Any) -> Pass:
    """Return a pass; a plain function from PrimFunc to PrimFunc becomes one of its name."""
    if isinstance(given, Pass):
        return given
    name = getattr(given, "__name__", type(given).__name__)
    return Pass(
        name, lambda mod: mod.with_functions({v: given(f) if isinstance(f, PrimFunc) else f for v, f in mod.items()})
    )


def is_lowered(func: PrimFunc) -> bool:
    """Whether the phases have run on a function."""
    return bool(func.attrs.get(_DONE))


def runs_on_device(func: PrimFunc) -> bool:
    """Whether a function has loops bound to threads of a device."""
    return any(isinstance(n, For) and n.kind == ForKind.THREAD_BINDING and not is_virtual(n) for n in walk(func.body))


def lower_module(
    mod: IRModule, target: TargetLike | None = None, *, simple_mode: bool = False, to_read: bool = False
) -> IRModule:
    """Run the phases on the TIR functions of a module, each once: those that they have run on are passed on.

    For people `to_read`, offsets have 32 bits again where that is enough.
    """
    last = [t.NarrowDataType(32)] if to_read else []
    todo = {v: f for v, f in mod.items() if isinstance(f, PrimFunc) and not is_lowered(f)}
    device = {v for v, f in todo.items() if runs_on_device(f)}
    groups = [
        ({v: f for v, f in todo.items() if v not in device}, host_phases(target, simple_mode=simple_mode)),
        ({v: f for v, f in todo.items() if v in device}, device_phases(target)),
    ]
    functions: dict[Any, Any] = dict(mod.items())
    for part, phases in groups:
        if not part:
            continue
        lowered = _run(mod.with_functions(part), [*with_own_passes(phases), *last])
        functions = {v: f for v, f in functions.items() if v not in part}
        functions |= {v: f.with_attr(_DONE, True) if isinstance(f, PrimFunc) else f for v, f in lowered.items()}
    order = {v.name_hint: i for i, (v, _) in enumerate(mod.items())}
    return mod.with_functions(dict(sorted(functions.items(), key=lambda e: order.get(e[0].name_hint, len(order)))))


def _run(mod: IRModule, passes: Sequence[Pass]) -> IRModule:
    return Sequential(passes, name="tir.lower")(mod)


def lowering_passes(target: TargetLike | None = None) -> list[Pass]:
    """List all passes on the way of a CPU function to code, with those that the current context asks for."""
    last = finishing_passes(target)
    return [*with_own_passes(host_phases(target)), *(last if target is None else last[2:])]


def lower(func: PrimFunc, target: TargetLike | None = None) -> PrimFunc:
    """Lower one function to what code for a CPU is generated from; one that is lowered already is finished."""
    name = func.attrs.get("global_symbol") or "main"
    passes = finishing_passes(target) if is_lowered(func) else lowering_passes(target)
    lowered = _run(IRModule({name: func}), passes)[name]
    assert isinstance(lowered, PrimFunc)
    return lowered


def _kind(target: TargetLike | None) -> str:
    return str(getattr(target, "kind", "llvm"))
