"""The blocks and loops of functions by reference, which stay good while the functions change, and how blocks depend.

``Schedule`` names blocks and loops itself; this is for programs that rewrite a function by hand: look up a reference,
``replace`` what it refers to, ask what holds of a block.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from itertools import takewhile
from typing import Any, NamedTuple

from weft.arith import Analyzer, IntervalSet, detect_iter_map, estimate_region_lower_bound, estimate_region_upper_bound
from weft.arith.int_set import intersect, union_lower_bound
from weft.error import InvalidArgument
from weft.ir import IRModule, Range, Var, is_const_int
from weft.spelling import also_called
from weft.tir.analysis import structure
from weft.tir.buffer import Buffer, BufferRegion
from weft.tir.function import PrimFunc
from weft.tir.stmt import Block, BlockRealize, For, Stmt


class ScheduleDebugMask(IntEnum):
    """What a schedule verifies after each step."""

    VERIFY_SREF_TREE = 1
    VERIFY_CACHED_FLAGS = 2


class CachedFlags(NamedTuple):
    """What holds of a block.

    ``affine_binding``: the values of its variables are independent sums of loops; ``region_cover``: what it reads has
    been written before, in the same iteration; ``stage_pipeline``: this holds of all blocks inside, and none writes
    what an earlier one reads.
    """

    affine_binding: bool
    region_cover: bool
    stage_pipeline: bool


class StmtSRef:
    """A block or loop at its place: the statement, and the reference to the next block or loop around it."""

    __slots__ = ("parent", "stmt")

    def __init__(self, stmt: Block | For | None, parent: StmtSRef | None = None) -> None:
        self.stmt, self.parent = stmt, parent

    def same_as(self, other: object) -> bool:
        """Whether both refer to the same statement."""
        return isinstance(other, StmtSRef) and other.stmt is self.stmt

    def __repr__(self) -> str:
        if self.stmt is None:
            return "StmtSRef(gone)"
        name = self.stmt.name_hint if isinstance(self.stmt, Block) else self.stmt.loop_var.name
        return f"StmtSRef({name})"


class DepKind(IntEnum):
    """Why one block has to run before another: which of the two reads and writes a buffer."""

    RAW = 0
    WAW = 1
    WAR = 2
    OPAQUE = 3


class Dependency(NamedTuple):
    """The block `src` has to run before `dst`."""

    src: StmtSRef
    dst: StmtSRef
    kind: DepKind


class BlockScope:
    """The blocks directly inside a block, in the order written, and how they depend on each other."""

    def __init__(self, blocks: Sequence[StmtSRef]) -> None:
        self.deps: list[Dependency] = []
        self.buffer_writers: dict[Buffer, list[StmtSRef]] = {}
        readers: dict[Buffer, list[StmtSRef]] = {}
        for sref in blocks:
            block: Any = sref.stmt
            for table, regions in ((readers, block.reads), (self.buffer_writers, block.writes)):
                for r in regions:
                    table.setdefault(r.buffer, []).append(sref)
            for kind, regions, before in (
                (DepKind.RAW, block.reads, self.buffer_writers),
                (DepKind.WAW, block.writes, self.buffer_writers),
                (DepKind.WAR, block.writes, readers),
            ):
                found = (Dependency(src, sref, kind) for r in regions for src in before.get(r.buffer, ()))
                self.deps += [d for d in dict.fromkeys(found) if d.src is not sref]

    def get_deps_by_src(self, block: StmtSRef) -> list[Dependency]:
        """List what has to run after a block."""
        return [d for d in self.deps if d.src.same_as(block)]

    def get_deps_by_dst(self, block: StmtSRef) -> list[Dependency]:
        """List what has to run before a block."""
        return [d for d in self.deps if d.dst.same_as(block)]


class StmtRefs:
    """The references of a module's blocks and loops.

    Parameters
    ----------
    mod : IRModule or PrimFunc
    debug_mask : str or int
        ``"all"``, ``"none"`` or :class:`ScheduleDebugMask`; references are found anew where they are asked for, so
        that there is nothing to verify.
    enable_check : bool
        Taken for TVM's programs; nothing is checked here but what :meth:`replace` may exchange.
    """

    _kinds: tuple[type[Block] | type[For], ...] = (Block, For)

    def __init__(self, mod: IRModule | PrimFunc, *, debug_mask: str | int = "none", enable_check: bool = True) -> None:
        self.mod = mod if isinstance(mod, IRModule) else IRModule({"main": mod})
        masks = {"all": sum(ScheduleDebugMask), "none": 0}
        if not isinstance(debug_mask, int) and debug_mask not in masks:
            raise InvalidArgument("unknown debug_mask", expected="'all', 'none' or a number", found=repr(debug_mask))
        self.debug_mask = debug_mask if isinstance(debug_mask, int) else masks[debug_mask]
        self.enable_check = enable_check
        self._known: dict[Stmt, StmtSRef] = {}
        self._link()

    def _link(self) -> None:
        """Make a reference of each block and loop that has none, and set what is around each."""

        def visit(stmt: Stmt, above: StmtSRef | None) -> None:
            if isinstance(stmt, self._kinds):
                sref = self._known.setdefault(stmt, StmtSRef(stmt))
                sref.parent = above
                found[stmt] = above = sref
            for child in structure.stmt_children(stmt):
                visit(child, above)

        found: dict[Stmt, StmtSRef] = {}
        for _, func in self.mod.items():
            if isinstance(func, PrimFunc):
                visit(func.body, None)
        for stmt, sref in self._known.items():
            if stmt not in found and sref.stmt is stmt:
                sref.stmt = None
        self._known = found

    @also_called(block="stmt")
    def get_sref(self, stmt: Block | For) -> StmtSRef | None:
        """Return the reference to a block or loop; None where it is not in the module."""
        return self._known.get(stmt)

    def get_block_scope(self, block_sref: StmtSRef) -> BlockScope:
        """Return how the blocks directly inside a block depend on each other."""
        return BlockScope([self._known[r.block] for r in structure.child_realizes(_block(block_sref))])

    get_sblock_scope = get_block_scope

    def replace(
        self,
        src_sref: StmtSRef,
        tgt_stmt: Block | For | BlockRealize,
        block_sref_reuse: Mapping[Block, Block] | None = None,
    ) -> None:
        """Put a statement in the place of a block or loop.

        References to loops go on to the new loop with the same variable, those to blocks as `block_sref_reuse` says,
        old to new; those to what is gone refer to None.

        Raises
        ------
        InvalidArgument
            Where a block would be replaced by anything but a block, or the reference is to nothing.
        """
        old = src_sref.stmt
        if old is None or self._known.get(old) is not src_sref:
            raise InvalidArgument("the reference is to nothing in the module", found=repr(src_sref))
        if isinstance(old, Block) != isinstance(tgt_stmt, Block):
            raise InvalidArgument(
                "a block takes the place of a block, a loop or a realization that of a loop",
                found=f"{type(old).__name__} and {type(tgt_stmt).__name__}",
            )
        where = next(
            v for v, f in self.mod.items() if isinstance(f, PrimFunc) and structure.path_to(f.body, lambda s: s is old)
        )
        reused = dict(block_sref_reuse or {})
        loops = {s.loop_var: s for s in structure.statements(tgt_stmt) if isinstance(s, For)}
        reused |= {
            s: loops[s.loop_var] for s in structure.statements(old) if isinstance(s, For) and s.loop_var in loops
        }
        if isinstance(old, For) and isinstance(tgt_stmt, For):
            reused.setdefault(old, tgt_stmt)
        for before, after in reused.items():
            sref = self._known.pop(before, None)
            if sref is not None:
                sref.stmt = after
                self._known[after] = sref
        func: Any = self.mod[where]
        around = [s for s in structure.path_to(func.body, lambda s: s is old) or [] if isinstance(s, (Block, For))][:-1]
        body = structure.replace_stmt(func.body, old, tgt_stmt)
        path: list[Stmt] = structure.path_to(body, lambda s: s is tgt_stmt) or []
        for before, after in zip(around, [s for s in path if isinstance(s, (Block, For))], strict=False):
            sref = self._known.pop(before)
            sref.stmt = after
            self._known[after] = sref
        changed = func.replace(body=body)
        self.mod = self.mod.with_functions({v: changed if v is where else f for v, f in self.mod.items()})
        self._link()

    def _get_cached_flags(self, block_sref: StmtSRef) -> CachedFlags:
        """Find what holds of a block."""
        scope = next((p for p in _outwards(block_sref.parent) if isinstance(p.stmt, Block)), None)
        affine = scope is None or self._is_affine(block_sref)
        covered = scope is None or self._is_covered(block_sref, self.get_block_scope(scope))
        inside = self.get_block_scope(block_sref)
        children = [self._known[r.block] for r in structure.child_realizes(_block(block_sref))]
        plain = all(d.kind in (DepKind.RAW, DepKind.WAW) for d in inside.deps)
        return CachedFlags(affine, covered, plain and all(self._is_covered(c, inside) for c in children))

    def _realize(self, sref: StmtSRef) -> BlockRealize:
        above: Any = sref.parent
        body = above.stmt if isinstance(above.stmt, Block) else above.stmt.body
        return next(r for r in structure.child_realizes(body) if r.block is sref.stmt)

    def _is_affine(self, sref: StmtSRef) -> bool:
        realize = self._realize(sref)
        domain = _loops_between(sref, None, "global")
        if not domain:
            return True
        sums = detect_iter_map(realize.iter_values, domain, realize.predicate, simplify_trivial_iterators=False).indices
        if not sums and realize.iter_values:
            return False
        return all(not s.args or is_const_int(s.args[-1].scale, 1) for s in sums)

    def _is_covered(self, consumer: StmtSRef, scope: BlockScope) -> bool:
        """Whether what a block reads has been written by blocks of its scope, where any writes it."""
        deps = [d for d in scope.get_deps_by_dst(consumer) if d.kind is DepKind.RAW]
        around = list(_outwards(consumer))
        by_place: dict[StmtSRef, list[StmtSRef]] = {}
        for d in deps:
            place = next(p for p in _outwards(d.src) if p in around)
            by_place.setdefault(place, []).append(d.src)
        reads = _regions(self._realize(consumer), "reads")
        return all(
            self._writes_cover(producers, consumer, r, place) for place, producers in by_place.items() for r in reads
        )

    def _writes_cover(
        self, producers: Sequence[StmtSRef], consumer: StmtSRef, read: BufferRegion, place: StmtSRef
    ) -> bool:
        """Whether the producers write, inside `place`, all of a region that the consumer reads there."""
        analyzer, made = Analyzer(), []
        scope = read.buffer.scope
        for p in producers:
            realize = self._realize(p)
            for w in _regions(realize, "writes"):
                if w.buffer is read.buffer:
                    bound = estimate_region_lower_bound(w.region, _loops_between(p, place, scope), realize.predicate)
                    made.append(bound)
        made = [b for b in made if b is not None] if made else None
        if made is None:
            return True
        if not made:
            return False
        wanted = estimate_region_upper_bound(
            read.region, _loops_between(consumer, place, scope), self._realize(consumer).predicate
        )
        for i, extent in enumerate(read.buffer.shape):
            whole = IntervalSet(extent * 0, extent - 1)
            produced = union_lower_bound([b[i] for b in made], analyzer)
            if produced.is_nothing():
                return False
            a, b = intersect([produced, whole], analyzer), intersect([wanted[i], whole], analyzer)
            if not (
                analyzer.can_prove_greater_equal(b.min_value, a.min_value)
                and analyzer.can_prove_greater_equal(a.max_value, b.max_value)
            ):
                return False
        return True


def _block(sref: StmtSRef) -> Block:
    if not isinstance(sref.stmt, Block):
        raise InvalidArgument("a reference to a block is wanted", found=repr(sref))
    return sref.stmt


def _outwards(sref: StmtSRef | None) -> Any:
    """Yield a reference and those around it."""
    while sref is not None:
        yield sref
        sref = sref.parent


def _loops_between(sref: StmtSRef, end: StmtSRef | None, scope: str) -> dict[Var, Range]:
    """Return the loops around a block up to `end` or its scope, and all over threads that share memory of `scope`."""
    near = list(takewhile(lambda p: p is not end and isinstance(p.stmt, For), _outwards(sref.parent)))
    tag = {"shared": "threadIdx", "warp": "threadIdx.x"}.get(scope.split(".")[0])
    loops: list[Any] = [p.stmt for p in near]
    for p in _outwards(sref.parent):
        s = p.stmt
        if tag is not None and isinstance(s, For) and s.thread_binding is not None and s not in loops:
            loops += [s] if s.thread_binding.thread_tag.startswith(tag) else []
    return {s.loop_var: Range.from_min_extent(s.min, s.extent) for s in loops}


def _regions(realize: BlockRealize, kind: str) -> list[BufferRegion]:
    """List the regions that an instance of a block touches, in terms of the loops around it."""
    regions = getattr(realize.block, kind)
    return list(structure.subst_regions(regions, structure.iter_values_of(realize)))


class BlockDependenceInfo(StmtRefs):
    """The references of a module's blocks alone, each with the block around it, and how the blocks depend."""

    _kinds = (Block,)
