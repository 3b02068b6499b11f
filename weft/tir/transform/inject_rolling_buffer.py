"""InjectRollingBuffer: regions that are marked so keep what overlapping tiles share, in a ring."""

from typing import Any

from weft import arith, error, ir
from weft.tir.analysis.rolling import NO_OVERLAP, Rolling, rolling_of
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferLoad
from weft.tir.function import PrimFunc
from weft.tir.intrin import likely
from weft.tir.stmt import AttrStmt, BufferRealize, BufferStore, For, IfThenElse, Stmt

MARK = "rolling_buffer_scope"
"""The key of the AttrStmt around what a rolling region is used in."""


@ir.function_pass(kind=PrimFunc)
def inject_rolling_buffer(func: PrimFunc, mod: ir.IRModule) -> PrimFunc:
    """Keep what a tile shares with the one before it, where a region is marked ``rolling_buffer_scope``.

    Requires: Loops over BufferRealize; the marked regions are filled by one iteration of the loops around them.
    Ensures: The same form without marks. A marked region is realized outside of the loop that it moves with, along one
        dimension as a ring, and only what no tile before had is computed.
    Before::

        @T.prim_func
        def f(A: T.Buffer((10,), "int8"), C: T.Buffer((8,), "int8"), B: T.Buffer((10,), "int8")):
            for i in range(4):
                T.realize(B[i * 2:i * 2 + 4], "")
                T.attr(B, "rolling_buffer_scope", 1)
                for k in range(4):
                    B[i * 2 + k] = A[i * 2 + k]
                for k in range(2):
                    C[i * 2 + k] = B[i * 2 + k] + B[i * 2 + k + 2]

    After::

        @T.prim_func
        def f(A: T.Buffer((10,), "int8"), C: T.Buffer((8,), "int8"), B: T.Buffer((10,), "int8")):
            T.realize(B[0:4], "")
            for i in range(4):
                for k in range(4):
                    if T.likely(i < 1 or k >= 2):
                        B[(i * 2 + k) % 4] = A[i * 2 + k]
                for k in range(2):
                    C[i * 2 + k] = B[(i * 2 + k) % 4] + B[(i * 2 + k + 2) % 4]
    Cost: Linear, times the number of marks.
    Source: TVM's ``InjectRollingBuffer``.
    """
    return func.replace(body=rolled(func.body))


def rolled(stmt: Stmt) -> Stmt:
    """Do what the pass does to a statement."""
    marked = {n.node for n in ir.find(stmt, AttrStmt) if n.attr_key == MARK}
    return _Injector(marked).visit(stmt, ()) if marked else stmt


class _Injector:
    """Visits statements with the loops around them, and collects what moves outside of a loop."""

    def __init__(self, marked: set[Buffer]) -> None:
        self.marked = marked
        self.hoisted: dict[For, list[BufferRealize]] = {}
        self.notes: dict[Buffer, list[AttrStmt]] = {}
        self.rings: set[Buffer] = set()

    def visit(self, node: ir.Node, loops: tuple[For, ...]) -> Any:
        """Rewrite a statement below `loops`."""
        if isinstance(node, For):
            body = replace_node(node, body=self.visit(node.body, (*loops, node)))
            for realize in self.hoisted.pop(node, ()):
                body = replace_node(realize, body=body)
                for note in self.notes[realize.buffer]:
                    body = replace_node(note, body=body)
            return body
        if isinstance(node, BufferRealize) and node.buffer in self.marked:
            return self.realize(node, loops)
        if isinstance(node, AttrStmt) and node.node in self.marked:
            if node.attr_key not in (MARK, "double_buffer_scope"):
                self.notes.setdefault(node.node, []).append(node)
            body = self.visit(node.body, loops)
            return body if node.node in self.rings or node.attr_key == MARK else replace_node(node, body=body)
        return ir.rebuild(node, lambda n: self.visit(n, loops)) if isinstance(node, Stmt) else node

    def realize(self, node: BufferRealize, loops: tuple[For, ...]) -> Stmt:
        """Make a ring of a region, if its tiles overlap."""
        buffer, an = node.buffer, arith.Analyzer()
        for f in loops:
            an.bind(f.loop_var, ir.Range.from_min_extent(f.min, f.extent), allow_override=True)
        rolling = rolling_of(
            [ir.Range.from_min_extent(an.simplify(r.min), _most(r.extent, an)) for r in node.bounds], loops
        )
        if isinstance(rolling, str):
            if rolling != NO_OVERLAP:
                raise error.ScheduleError(f"rolling_buffer of '{buffer.name}': {rolling}")
            return replace_node(node, body=self.visit(node.body, loops))
        self.rings.add(buffer)
        body = self.visit(ir.rewrite(node.body, lambda n: _use(n, buffer, rolling, an)), loops)
        moving = {f.loop_var for f in loops[next(i for i, f in enumerate(loops) if f is rolling.loop) :]}
        bounds = [
            r if moving.isdisjoint(ir.find(r, ir.Var)) else ir.Range(d)
            for r, d in zip(node.bounds, buffer.shape, strict=True)
        ]
        dtype = buffer.shape[rolling.axis].dtype
        bounds[rolling.axis] = ir.Range.from_min_extent(ir.const(0, dtype), ir.const(rolling.extent, dtype))
        self.notes.setdefault(buffer, [])
        self.hoisted.setdefault(rolling.loop, []).append(replace_node(node, bounds=tuple(bounds)))
        return body


def _most(extent: ir.PrimExpr, an: arith.Analyzer) -> ir.PrimExpr:
    """Return the most that an extent may be, where that is known."""
    most = an.const_int_bound(extent).max_value
    return ir.const(most, extent.dtype) if most < 1 << 31 else extent


def _use(node: ir.Node, buffer: Buffer, rolling: Rolling, an: arith.Analyzer) -> Any:
    """Wrap the indices of a load or store around; store only what is new."""
    if not isinstance(node, (BufferLoad, BufferStore)) or node.buffer is not buffer:
        return node
    if node.predicate is not None:
        raise error.ScheduleError(f"rolling_buffer of '{buffer.name}': it is used under a mask of lanes")
    used: Any = replace_node(node, indices=rolling.indices(node.indices))
    for test in rolling.is_new(node.indices, an) if isinstance(node, BufferStore) else ():
        used = IfThenElse(likely(test), used)
    return used
