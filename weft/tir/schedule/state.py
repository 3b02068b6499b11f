"""The function being scheduled.

Looking up blocks and loops, replacing statements, and the facts that hold at a place.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import ScheduleError, UnknownHandle
from weft.spelling import take_name, unused_name
from weft.tir.analysis import structure
from weft.tir.analysis.access import access_regions, addressed
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.schedule.stmt_refs import CachedFlags, ScheduleDebugMask, StmtSRef
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, IfThenElse, LetStmt, Stmt, While

__all__ = ["CachedFlags", "ScheduleDebugMask", "ScheduleState", "check_scope", "refuse"]


def refuse(reason: str, *, loops: object = None, block: str | None = None, help: str | None = None) -> ScheduleError:
    """Make the error of a primitive that cannot be applied; the recorder writes the primitive's name before it."""
    where = f"block '{block}'" if block is not None else None
    names = (
        ", ".join(
            v.loop_var.name if isinstance(v, For) else str(v)
            for v in (loops if isinstance(loops, (list, tuple)) else [loops])
        )
        if loops is not None
        else None
    )
    return ScheduleError(reason, where=where, found=f"loops {names}" if names else None, help=help)


_SCOPES = re.compile(
    r"(global|shared|local|warp|texture|wmma\.(matrix_[ab]|accumulator)|m16n8k8\.matrix[ABC]|metal\.simdgroup|amx\.tmm)"
    r"(\..+)?"
)


def check_scope(scope: str) -> None:
    """Refuse a place for a buffer that no target has."""
    if not _SCOPES.fullmatch(scope):
        raise refuse(
            f"there is no storage scope '{scope}'",
            help="global, shared, local, warp, texture, or a part of one, as shared.dyn",
        )


class ScheduleState:
    """A PrimFunc under transformation. Blocks are known by their (unique) name, loops by their (unique) variable.

    ``renamed`` maps the old name of a block to its new one, so that handles stay good.
    """

    def __init__(self, func: PrimFunc) -> None:
        if not isinstance(func.body, BlockRealize):
            raise ScheduleError(
                "the function has no root block",
                found=type(func.body).__name__,
                help="schedules work on functions made by te.create_prim_func or TVMScript blocks",
            )
        self.func = make_unique(func)
        self._facts: list[Any] = []
        self._known_paths: structure.Paths | None = None
        self._has_jumps = any(structure.jump(s) for s in structure.statements(func.body))
        self.renamed: dict[str, str] = {}
        self.rewrite_body(_plain_indices)
        self._exact_regions()

    def _exact_regions(self) -> None:
        """Compute anew the regions of blocks that name whole dimensions where their loads are more precise."""

        def exact(s: Stmt) -> Stmt:
            if (
                isinstance(s, Block)
                and s.iter_vars
                and not addressed(s.init, s.body)
                and any(
                    not ir.is_const_int(r.extent, 1) or ir.find(r.min, ir.Cast)
                    for a in (*s.reads, *s.writes)
                    for r in a.region
                )
            ):
                analyzer = structure.bind_domains(Analyzer(), s)
                stmts = [x for x in (s.init, s.body) if x is not None]
                reads, writes = access_regions(stmts, analyzer, s.alloc_buffers, s.match_buffers)
                own = {w.buffer for w in writes} if s.init is not None else set()
                s = structure.replace_node(s, reads=tuple(r for r in reads if r.buffer not in own), writes=writes)
            return structure.map_children(s, exact)

        self.rewrite_body(exact)

    # --- reading ---

    @property
    def body(self) -> BlockRealize:
        """The realization of the root block."""
        assert isinstance(self.func.body, BlockRealize)
        return self.func.body

    @property
    def root(self) -> Block:
        """The root block."""
        return self.body.block

    def block_names(self) -> list[str]:
        """List the names of all blocks, outer ones first."""
        return [s.name_hint for s in structure.statements(self.body) if type(s) is Block]

    def all_loops(self) -> list[For]:
        """List all loops, outer ones first."""
        return [s for s in structure.statements(self.body) if type(s) is For]

    def _paths(self) -> structure.Paths:
        paths = self._known_paths
        if paths is None or paths.root is not self.func.body:
            paths = self._known_paths = structure.Paths(self.body)
        return paths

    def path_to_block(self, name: str) -> list[Stmt]:
        """Return the statements from the root realization down to the realization of a block."""
        path = self._paths().named(name)
        if path is None and name in self.renamed:
            return self.path_to_block(self.renamed[name])
        if path is None:
            raise UnknownHandle(f"there is no block '{name}'", found="blocks " + ", ".join(self.block_names()))
        return self._whole(path)

    def located(self, name: str) -> tuple[list[Stmt], Block, BlockRealize]:
        """Return the path to a block, the block around it, and its realization."""
        path = self.path_to_block(name)
        realize = path[-1]
        assert isinstance(realize, BlockRealize)
        return path, self.scope_of(path), realize

    def path_to_loop(self, var: ir.Var) -> list[Stmt]:
        """Return the statements from the root realization down to a loop."""
        path = self._paths().named(var)
        if path is None:
            raise UnknownHandle(
                f"the loop '{var.name}' is no longer in the function",
                help="a split, fused or removed loop is gone; use the loops that the primitive returned",
            )
        return self._whole(path)

    def _whole(self, path: list[Stmt]) -> list[Stmt]:
        """Refuse a place under a loop that is left early: what moves or splits it would change what runs."""
        if self._has_jumps:
            for s in path:
                if isinstance(s, (For, While)) and any(structure.jumps_out(s.body)):
                    raise ScheduleError("a loop with 'break' or 'continue' of its own cannot be scheduled", where=s)
        return path

    def realize(self, name: str) -> BlockRealize:
        """Return the realization of a block."""
        found = self.path_to_block(name)[-1]
        assert isinstance(found, BlockRealize)
        return found

    def loop(self, var: ir.Var) -> For:
        """Return a loop by its variable."""
        found = self.path_to_loop(var)[-1]
        assert isinstance(found, For)
        return found

    def get_sref(self, stmt: Block | For) -> StmtSRef | None:
        """Return a reference to a block or loop that also knows what is around it; None where it is gone."""
        above: StmtSRef | None = None
        for s in structure.path_to(self.body, lambda s: s is stmt) or ():
            if isinstance(s, (Block, For)):
                above = StmtSRef(s, above)
        return above

    def loops_of(self, name: str) -> list[For]:
        """List the loops around a block, up to the enclosing block, outermost first."""
        loops: list[For] = []
        for s in self.path_to_block(name)[:-1]:
            if isinstance(s, Block):
                loops = []
            elif isinstance(s, For):
                loops.append(s)
        return loops

    def scope_of(self, path: list[Stmt]) -> Block:
        """Return the innermost block on a path, other than its end."""
        for s in reversed(path[:-1]):
            if isinstance(s, Block):
                return s
        raise ScheduleError("the root block has no enclosing scope", help="schedule the blocks inside it")

    def scope_of_block(self, name: str) -> Block:
        """Return the block around a block."""
        return self.scope_of(self.path_to_block(name))

    def is_argument(self, buffer: Buffer) -> bool:
        """Whether a buffer is a parameter of the function."""
        return any(b is buffer for _, b in self.func.buffer_map)

    def check_loaded(self, buffer: Buffer, *users: Stmt, views: bool = False) -> None:
        """Refuse to move the elements of a buffer that statements (by default all) reach by address or `views`."""
        where = users or (self.body,)
        viewed = not views and any(m.source.buffer is buffer for b in ir.find(where, Block) for m in b.match_buffers)
        if viewed or buffer.data in addressed(*where):
            way = "match_buffer" if viewed else "its address"
            raise refuse(
                f"'{buffer.name}' is reached by {way}, not only by loads and stores",
                help="apply it before that is taken",
            )

    def allocating_block(self, buffer: Buffer) -> Block | None:
        """Return the block that allocates a buffer, or None for a parameter."""
        for s in structure.statements(self.body):
            if type(s) is Block and any(b is buffer for b in s.alloc_buffers):
                return s
        return None

    def fresh_name(self, hint: str) -> str:
        """Return a block name that is not in use."""
        return unused_name(hint, {*self.block_names(), *self.renamed})

    def analyzer_at(self, path: list[Stmt], inside: bool = False) -> Analyzer:
        """Return an analyzer that knows the loops and conditions around the end of a path (`inside`: and its own)."""
        analyzer = Analyzer()
        analyzer.mark_global_non_neg(*self._dimensions())
        for outer, inner in zip(path, [*path[1:], path[-1]] if inside else path[1:], strict=False):
            if isinstance(outer, For):
                analyzer.bind(outer.loop_var, ir.Range.from_min_extent(outer.min, outer.extent))
            elif isinstance(outer, IfThenElse):
                fact = analyzer.constraint_scope(
                    outer.condition if inner is outer.then_case else ir.logical_not(outer.condition)
                )
                fact.__enter__()
                self._facts.append(fact)  # kept alive: it holds for as long as the analyzer is used
            elif isinstance(outer, LetStmt):
                analyzer.bind(outer.var, outer.value)
            elif isinstance(outer, Block):
                structure.bind_domains(analyzer, outer)
        return analyzer

    def _dimensions(self) -> list[ir.PrimExpr]:
        """Return what is not negative: dimensions, but not each variable in one, which may be data."""
        found = (d for _, b in self.func.buffer_map for d in b.shape if ir.as_int(d) is None)
        return list(dict.fromkeys(found))  # in order: facts order the terms

    # --- changing ---

    def replace(self, old: Stmt, new: Stmt) -> None:
        """Replace a statement by another."""
        if old is not new:
            path = self._paths().to(old)
            assert path is not None, "the statement to replace is not in the function"
            self.func = structure.replace_node(self.func, body=structure.rebuild_path(path, new))

    def remove(self, old: Stmt) -> None:
        """Remove a statement, with the loops that it leaves empty."""
        self.func = structure.replace_node(self.func, body=structure.remove_stmt(self.body, old))

    def rewrite_body(self, f: Callable[[Stmt], Stmt]) -> None:
        """Replace the whole body by what `f` makes of it."""
        self.func = structure.replace_node(self.func, body=f(self.body))

    def alloc(self, scope: Block, *buffers: Buffer) -> None:
        """Allocate buffers in a block."""
        self.replace(scope, structure.replace_node(scope, alloc_buffers=scope.alloc_buffers + buffers))

    def dealloc(self, buffer: Buffer) -> None:
        """Drop the allocation of a buffer."""
        owner = self.allocating_block(buffer)
        if owner is not None:
            self.replace(
                owner,
                structure.replace_node(owner, alloc_buffers=tuple(b for b in owner.alloc_buffers if b is not buffer)),
            )


def _plain_indices(body: Stmt) -> Stmt:
    """Take conversions between integer types out of indices, so that an index is again the variable it converts."""

    def rule(node: Any) -> object:
        if ir.find(node.indices, ir.Cast):
            wide = [_widened(i) for i in node.indices]
            return structure.replace_node(
                node, indices=tuple(i if w is None else w for i, w in zip(node.indices, wide, strict=True))
            )
        return node

    return ir.rewrite(body, rule, only=(BufferLoad, BufferStore))


def _widened(expr: ir.PrimExpr) -> ir.PrimExpr | None:
    """Write an index in int64 without conversions.

    None where it holds something else than 64-bit variables and constants.
    """
    if isinstance(expr, ir.IntImm):
        return ir.int64(expr.value)
    if isinstance(expr, ir.Cast) and ir.DataType(expr.value.dtype).is_integer and ir.DataType(expr.dtype).is_integer:
        return _widened(expr.value)
    if isinstance(expr, ir.Var):
        return expr if expr.dtype == "int64" else None
    if isinstance(expr, ir.BinaryOp):
        a, b = _widened(expr.a), _widened(expr.b)
        return None if a is None or b is None else type(expr)(a, b)
    return None


def make_unique(func: PrimFunc) -> PrimFunc:
    """Give each block its own name, and each loop and block its own variables, where two share one."""
    names: set[str] = set()
    seen: set[ir.Var] = set()

    def go(s: Stmt) -> Stmt:
        if isinstance(s, For):
            if s.loop_var in seen:
                var = structure.replace_node(s.loop_var)
                s = structure.replace_node(s, loop_var=var, body=structure.subst_stmt(s.body, {s.loop_var: var}))
            seen.add(s.loop_var)
        elif isinstance(s, Block):
            repeated = {iv.var: structure.replace_node(iv.var) for iv in s.iter_vars if iv.var in seen}
            s = structure.subst_stmt(s, repeated)
            assert isinstance(s, Block)
            seen.update(iv.var for iv in s.iter_vars)
            name = take_name(s.name_hint, names)
            s = s if name == s.name_hint else structure.replace_node(s, name_hint=name)
        return structure.map_children(s, go)

    body = go(func.body)
    return func if body is func.body else structure.replace_node(func, body=body)
