"""UnrollLoop: loops marked unrolled, and short constant loops on request, are written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.ir.walk import substitute_each
from weft.tir.analysis.structure import jumps_out, replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.stmt import AllocBuffer, AssertStmt, AttrStmt, BufferStore, Evaluate, For, ForKind, Stmt, seq


@ir.function_pass(kind=PrimFunc, name="UnrollLoop")
def unroll_loop(
    func: PrimFunc,
    mod: ir.IRModule,
    *,
    auto_max_step: int | None = None,
    auto_max_depth: int | None = None,
    auto_max_extent: int | None = None,
    explicit_unroll: bool | None = None,
    unroll_local_access: bool | None = None,
    max_copies: int = 4096,
) -> PrimFunc:
    """Expand loops.

    Requires: No blocks.
    Ensures: The same form; no UNROLLED loop of constant extent whose expansion stays within `max_copies` statements.
    Before::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            for i in T.unroll(2):
                B[i] = A[i]

    After::

        @T.prim_func
        def f(A: T.Buffer((16,), "float32"), B: T.Buffer((16,), "float32")):
            B[0] = A[0]
            B[1] = A[1]

    Options:
        ``auto_max_step``: a serial loop is expanded when the stores and calls it makes are no more than this;
        ``auto_max_depth``: and no more loops than this are inside it; ``auto_max_extent``: or when its extent is no
        more than this; ``explicit_unroll``: whether loops are expanded here; if not, those that would be are marked,
        for LLVM, but for those within ``auto_max_extent``; ``unroll_local_access``: whether loops that run over
        elements of local memory are expanded in any case. Those that are not given come from
        ``PassContext(config={"tir.UnrollLoop": {...}})``, else they are 0, 8, 0, True and False. The pragmas
        ``auto_unroll_max_step`` and ``unroll_explicit`` of a loop, or of an AttrStmt under the names ``pragma_...``,
        hold for what is inside, and for the loop itself; such an AttrStmt is gone afterwards.
    Cost: Linear in the output.
    Source: TVM's ``UnrollLoop``, whose four limits it keeps.
    """
    given = {
        "auto_max_step": auto_max_step,
        "auto_max_depth": auto_max_depth,
        "auto_max_extent": auto_max_extent,
        "explicit_unroll": explicit_unroll,
        "unroll_local_access": unroll_local_access,
    }
    config = ir.PassContext.current().config.get("tir.UnrollLoop", {})
    chosen = {**_DEFAULTS, **config, **{k: v for k, v in given.items() if v is not None}}
    limits = (*(chosen[name] for name in given), max_copies)
    return func.replace(body=_visit(func.body, limits)[0])


_FOLDED = {ir.Add: ir.add, ir.Mul: ir.mul}
"""What indices are made of: constants that are computed here need no node, and no later pass that takes it away."""
_DEFAULTS: dict[str, Any] = {
    "auto_max_step": 0,
    "auto_max_depth": 8,
    "auto_max_extent": 0,
    "explicit_unroll": True,
    "unroll_local_access": False,
}


def _runs_over_local(loop: For) -> bool:
    """Whether a loop's variable is in an index of memory of a thread's own."""
    return any(
        n.buffer.scope.startswith("local") and any(v is loop.loop_var for i in n.indices for v in ir.walk(i))
        for n in ir.walk(loop.body)
        if isinstance(n, (BufferLoad, BufferStore))
    )


def _visit(node: ir.Node, limits: tuple[Any, ...]) -> tuple[Any, int, int]:
    """Return (statement, number of its steps, which are stores and evaluations, depth of loops in it)."""
    counts = [0, 0]
    said = node.annotations if isinstance(node, For) else {}
    if isinstance(node, AttrStmt):
        said = {node.attr_key: node.value}
    if said:
        step, explicit = (said.get(f"pragma_{n}") for n in ("auto_unroll_max_step", "unroll_explicit"))
        limits = (
            limits[0] if step is None else ir.as_int(step),
            *limits[1:3],
            limits[3] if explicit is None else bool(ir.as_int(explicit)),
            *limits[4:],
        )

    def child(n: ir.Node) -> Any:
        if not isinstance(n, Stmt):
            return n
        new, steps, depth = _visit(n, limits)
        counts[0] += steps
        counts[1] = max(counts[1], depth)
        return new

    new = ir.rebuild(node, child)
    steps, depth = counts
    if isinstance(new, AttrStmt) and new.attr_key in ("pragma_auto_unroll_max_step", "pragma_unroll_explicit"):
        return new.body, steps, depth  # it has been followed
    call = node.value if isinstance(node, Evaluate) else None
    # one instruction on cache lines or tiles: a loop of a few is written out, as it costs more
    single = isinstance(call, ir.CallIntrin) and call.op.name.startswith(("tir.prefetch", "tir.tile_"))
    if isinstance(node, (BufferStore, AssertStmt, Evaluate)) and not single:
        steps += 1
    if not isinstance(new, For) or any(jumps_out(new.body)):
        return new, steps, depth + isinstance(new, For)
    auto_step, auto_depth, auto_extent, explicit, local, max_copies = limits
    extent = new.extent.value if isinstance(new.extent, ir.IntImm) else None
    if local and new.kind == ForKind.SERIAL and extent is not None and _runs_over_local(new):
        new = replace_node(new, kind=ForKind.UNROLLED)
    marked = new.kind == ForKind.UNROLLED
    automatic = (
        new.kind == ForKind.SERIAL
        and extent is not None
        and depth < auto_depth
        and (extent <= auto_extent or extent * steps <= auto_step)
    )
    if extent is None or not (marked or automatic) or extent * max(steps, 1) > max_copies:
        return new, steps * (extent or 1), depth + 1
    if not (explicit or (automatic and extent <= auto_extent)):
        return new if marked else replace_node(new, kind=ForKind.UNROLLED), steps * extent, depth
    own = [n.buffer for n in ir.find(new.body, AllocBuffer)] if extent > 1 else []
    values = [_iteration(new, i, own if i else ()) for i in range(extent)]
    copies = [c for part in (values[:1], values[1:]) for c in substitute_each(new.body, part, _FOLDED)]
    return (seq(*copies) if copies else seq(()), steps * extent, depth)


def _iteration(loop: For, i: int, own: Sequence[Buffer]) -> dict[Any, Any]:
    """Return what nodes of a loop's body are in one iteration, with copies of the buffers that it has as its own."""
    value = loop.min + ir.const(i, loop.loop_var.dtype)
    mapping: dict[Any, Any] = {loop.loop_var: value}
    for b in own:
        data = type(b.data)(b.data.name, b.data.dtype)
        mapping[b] = Buffer(
            data, b.dtype, b.shape, b.strides, b.elem_offset, b.name, b.scope, b.data_alignment, b.offset_factor
        )
        mapping[b.data] = data
    return mapping
