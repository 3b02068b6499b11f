"""What the threads of a device function are, and whether each may do what it does without the others.

A device function is one nest of loops bound to thread axes. A nest inside of a loop over the same axis is work that
the threads share: each does one iteration of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any, NamedTuple

from weft import tir
from weft.error import CodegenError
from weft.ir import EQ, LT, And, CallIntrin, DataType, Node, PrimExpr, Var, as_int, children, find, structural_equal

AXES = tuple(f"{kind}.{axis}" for kind in ("blockIdx", "threadIdx") for axis in "xyz")
"""The thread axes, in the order in which a launch takes their extents."""


class _Claim(NamedTuple):
    """Something that must belong to one thread alone, and the axes that tell its threads apart."""

    what: str
    where: Node
    axes: frozenset[str]


class _State:
    def __init__(self, func: tir.PrimFunc) -> None:
        self.extents: dict[str, PrimExpr] = {}
        self.lets: dict[Var, PrimExpr] = {}
        self.claims: list[_Claim] = []
        self.given = {b.data for _, b in func.buffer_map} | set(func.params)

    def depends(self, value: object) -> set[Var]:
        """The variables that a value depends on."""
        found: set[Var] = set()
        for v in find(value, Var):
            if v not in found:
                found |= {v} | (self.depends(self.lets[v]) if v in self.lets else set())
        return found


def launch_extents(func: tir.PrimFunc, max_threads: int = 1024) -> dict[str, PrimExpr]:
    """Return the extent of each thread axis of a device function.

    Parameters
    ----------
    func : PrimFunc
        Lowered: one nest of loops bound to thread axes.
    max_threads : int
        How many threads a block may have.

    Raises
    ------
    CodegenError
        When the outermost loop is not bound; when several threads would store to the same element or share a buffer of
        one thread; when an axis has two extents, an extent that only the device knows, or a block has too many threads.
    """
    outer = func.body
    while isinstance(outer, (tir.AttrStmt, tir.DeclBuffer)):
        outer = outer.body
    if not (isinstance(outer, tir.For) and outer.kind is tir.ForKind.THREAD_BINDING):
        raise CodegenError(
            "accesses GPU memory outside of GPU threads: did you forget to bind?",
            where=outer.span,
            expected="an outermost loop bound to blockIdx or threadIdx",
            found=type(outer).__name__,
            help="bind its loops: s[C].bind(axis, te.thread_axis('blockIdx.x'))",
        )
    s = _State(func)
    _visit(func.body, {}, frozenset(), s)
    _check_claims(s)
    _check_block(func, s.extents, max_threads)
    return {tag: s.extents[tag] for tag in AXES if tag in s.extents}


def check_allocations(func: tir.PrimFunc, shared_bytes: int) -> None:
    """Refuse a device function whose memory has no constant size, or more of it shared than a block's, `shared_bytes`.

    Raises
    ------
    CodegenError
        Which buffers those are.
    """
    buffers = [n.buffer for n in find(func.body, tir.AllocBuffer)]
    sizes = {b: [as_int(d) for d in b.shape] for b in buffers}
    for b, dims in sizes.items():
        if None in dims:
            raise CodegenError(
                f"a kernel allocates '{b.name}'",
                where=func.span,
                expected="a buffer of constant size",
                found=f"scope {b.scope}, shape {b.shape}",
                help="allocate it outside of the threads, or give it a bound",
            )
    shared = {
        b.name: prod((d or 0 for d in dims), start=DataType(b.dtype).itemsize)
        for b, dims in sizes.items()
        if b.scope == "shared"
    }
    if sum(shared.values()) > shared_bytes:
        raise CodegenError(
            "a kernel uses too much shared memory",
            where=func.span,
            expected=f"at most {shared_bytes} bytes (max_shared_memory_per_block of the target)",
            found=", ".join(f"{n} for '{name}'" for name, n in shared.items()),
            help="compute in smaller tiles, or keep some of it in memory",
        )


def _visit(node: Any, axes: Mapping[str, Var], alone: frozenset[str], s: _State) -> None:
    """Collect extents and claims; `axes` are around this place, of which one thread alone passes for `alone`."""
    if isinstance(node, tir.For) and node.kind is tir.ForKind.THREAD_BINDING:
        axes = _bound(node, axes, s)
    elif isinstance(node, tir.For) and node.kind is tir.ForKind.PARALLEL:
        raise CodegenError("a parallel loop on a GPU", where=node.span, help="bind it to threads")
    elif isinstance(node, tir.LetStmt):
        s.lets[node.var] = node.value
    elif isinstance(node, tir.AllocBuffer) and not node.buffer.scope.startswith("shared"):
        s.claims.append(_Claim(f"the buffer '{node.buffer.name}'", node, frozenset(axes) | alone))
    elif isinstance(node, tir.BufferStore) and (node.buffer.data in s.given or node.buffer.scope.startswith("shared")):
        used = s.depends(node.indices)
        own = frozenset(tag for tag, var in axes.items() if var in used)
        if node.buffer.data not in s.given:  # each block has its own
            own |= {tag for tag in AXES if tag.startswith("blockIdx")}
        s.claims.append(_Claim(f"a store to '{node.buffer.name}'", node, own | alone | _agreed(node, axes, s)))
    elif isinstance(node, tir.IfThenElse):
        _visit(node.then_case, axes, alone | _singled_out(node.condition, axes), s)
        _visit(node.else_case, axes, alone, s)
        return
    for child in children(node) if isinstance(node, tir.Stmt) else ():
        _visit(child, axes, alone, s)


def _agreed(node: tir.BufferStore, axes: Mapping[str, Var], s: _State) -> frozenset[str]:
    """The axes whose threads all store the same: a value of shared memory and of what does not tell them apart."""
    loads = find(node.value, tir.BufferLoad)
    if any(n.buffer.data is node.buffer.data or not n.buffer.scope.startswith(("shared", "global")) for n in loads):
        return frozenset()
    if any("shuffle" in str(n.op) for n in find(node.value, CallIntrin)):
        return frozenset()
    used = s.depends(node.value) | s.depends(node.indices)
    apart = {tag for tag, var in axes.items() if var in used}
    return frozenset(tag for tag in AXES if tag.startswith("threadIdx") and tag not in apart)


def _singled_out(condition: PrimExpr, axes: Mapping[str, Var]) -> frozenset[str]:
    """The axes of which a condition lets one index pass: ``t == e``, ``t < 1``."""
    if isinstance(condition, And):
        return _singled_out(condition.a, axes) | _singled_out(condition.b, axes)
    if not isinstance(condition, (EQ, LT)) or (isinstance(condition, LT) and as_int(condition.b) != 1):
        return frozenset()
    variables: dict[PrimExpr, str] = {v: tag for tag, v in axes.items()}
    sides = ((condition.a, condition.b), (condition.b, condition.a))
    return frozenset(variables[v] for v, e in sides if v in variables and not any(n in variables for n in find(e, Var)))


def _bound(node: tir.For, axes: Mapping[str, Var], s: _State) -> Mapping[str, Var]:
    tag = node.thread_binding.thread_tag if node.thread_binding is not None else ""
    if tag not in AXES:
        raise CodegenError(f"there is no thread axis '{tag}'", where=node.span, expected=", ".join(AXES))
    if tag in axes:
        _check_shared_work(node, tag, s)
        s.lets[node.loop_var] = axes[tag]  # the same thread
        return axes
    known = s.extents.setdefault(tag, node.extent)
    if not structural_equal(known, node.extent):
        raise CodegenError(f"{tag} has two extents in one kernel", where=node.span, found=f"{known}, {node.extent}")
    return {**axes, tag: node.loop_var}


def _check_shared_work(node: tir.For, tag: str, s: _State) -> None:
    """Refuse a nest inside a loop over the same axis that is not about memory that the threads share."""
    own = ("shared", "shared.dyn", "local")
    if any(n.buffer.scope not in own for n in find(node.body, tir.BufferStore)):
        raise CodegenError(f"two nested loops are bound to {tag}", where=node.span, help="fuse them, or use .y or .z")
    wanted, there = as_int(node.extent), as_int(s.extents[tag])
    if wanted is None or there is None or wanted > there:
        raise CodegenError(
            f"a nest inside of {tag} needs more threads than there are",
            where=node.span,
            expected=f"at most {s.extents[tag]}",
            found=str(node.extent),
            help="split it by the number of threads",
        )


def _check_claims(s: _State) -> None:
    needed = {tag for tag, extent in s.extents.items() if as_int(extent) != 1}
    for what, where, axes in s.claims:
        if needed - axes:
            raise CodegenError(
                f"{what} is not one thread's own",
                where=where.span,
                expected=f"a different element for each of {', '.join(sorted(needed))}",
                found=f"the same one for all of {', '.join(sorted(needed - axes))}",
                help="bind only loops over the output, and compute at the innermost bound axis",
            )


def _check_block(func: tir.PrimFunc, extents: Mapping[str, PrimExpr], max_threads: int) -> None:
    inside = {n.loop_var for n in find(func.body, tir.For)}
    threads = 1
    for tag, extent in extents.items():
        if any(isinstance(v, tir.BufferLoad) or v in inside for v in find(extent, tir.BufferLoad, Var)):
            raise CodegenError(f"the extent of {tag} is not known at launch", where=extent.span, found=str(extent))
        if tag.startswith("threadIdx"):
            threads *= as_int(extent) or 1
    if threads > max_threads:
        raise CodegenError(
            "a block has too many threads",
            where=func.span,
            expected=f"at most {max_threads}",
            found=str(threads),
            help="split the axis and bind its outer part to blockIdx",
        )
