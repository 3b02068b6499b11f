"""What a block touches: regions read and written by a body, boxes covered while loops run, and proofs about them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft import arith, ir
from weft.tir.analysis.structure import used_vars
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, MatchBufferRegion
from weft.tir.intrin import INTRINSICS, CallEffectKind
from weft.tir.stmt import AllocBuffer, Block, BlockRealize, BufferStore, For, LetStmt, Stmt

Interval = tuple[ir.PrimExpr, ir.PrimExpr]
"""The smallest and the largest value of an integer expression."""

_Matches = Iterable[MatchBufferRegion]
_PURE = frozenset(
    (
        "tir.if_then_else",
        "tir.likely",
        "tir.reinterpret",
        "tir.call_llvm_pure_intrin",
        "tir.call_pure_extern",
        "tir.address_of",
    )
) | {f"tir.{name}" for name in INTRINSICS}


def is_pure(expr: ir.Node | tuple[Any, ...]) -> bool:
    """Whether evaluating an expression does nothing but give a value."""
    return all(has_no_effect(n.op) for n in ir.find(expr, ir.CallIntrin))


def has_no_effect(op: ir.Op | ir.GlobalVar) -> bool:
    """Whether an operator, or one that a program registered so, only gives a value; a function's call may do more."""
    if not isinstance(op, ir.Op) or op.name in _PURE:
        return isinstance(op, ir.Op)
    kind = ir.as_int(op.get_attr("TCallEffectKind"))
    return kind is not None and kind <= CallEffectKind.Pure


def is_pure_function(func: ir.BaseFunc) -> bool:
    """Whether a function writes no memory but what it allocates itself and calls nothing that has an effect."""
    own = [n.buffer for n in ir.find(func, AllocBuffer)] + [b for n in ir.find(func, Block) for b in n.alloc_buffers]
    owned = {b.data for b in own}
    calls = (n for n in ir.find(func, ir.CallIntrin) if n.op is not ir.Op.get("tir.ret"))
    return all(s.buffer.data in owned for s in stores_of(func)) and all(has_no_effect(n.op) for n in calls)


def assert_pure_function(func: ir.BaseFunc) -> bool:
    """Check that a function is pure.

    Raises
    ------
    AssertionError
        When it has an effect.
    """
    assert is_pure_function(func), f"the function writes memory that it is given or calls what has an effect:\n{func}"
    return True


def loads_of(node: ir.Node | tuple[Any, ...], buffer: Buffer | None = None) -> list[BufferLoad]:
    """List the loads below `node`, of one buffer or of all."""
    return [n for n in ir.find(node, BufferLoad) if buffer is None or n.buffer is buffer]


def stores_of(node: ir.Node | tuple[Any, ...], buffer: Buffer | None = None) -> list[BufferStore]:
    """List the stores below `node`, of one buffer or of all."""
    return [n for n in ir.find(node, BufferStore) if buffer is None or n.buffer is buffer]


def accessed_buffers(node: ir.Node | tuple[Any, ...]) -> list[Buffer]:
    """List the buffers that are loaded, stored or named in regions below `node`, each once, in order."""
    return list(dict.fromkeys(n.buffer for n in ir.find(node, BufferLoad, BufferStore, BufferRegion)))


def point_region(buffer: Buffer, indices: Iterable[ir.PrimExpr]) -> BufferRegion:
    """Return the region of one element."""
    return BufferRegion(buffer, tuple(ir.Range.from_min_extent(i, ir.const(1, i.dtype)) for i in indices))


def evaluate_interval(expr: ir.PrimExpr, domain: Mapping[ir.Var, Interval]) -> Interval | None:
    """Bound `expr` while the variables of `domain` run over theirs; other variables are constants.

    Returns None where no bound is known, as for a value loaded from memory that depends on a variable of the domain.
    """
    if isinstance(expr, ir.Var):
        return domain.get(expr, (expr, expr))
    if isinstance(expr, ir.IntImm) or not any(n in domain for n in ir.find(expr, ir.Var)):
        return (expr, expr)
    if isinstance(expr, (ir.Add, ir.Sub, ir.Mul, ir.Min, ir.Max, ir.FloorDiv, ir.FloorMod)):
        a, b = evaluate_interval(expr.a, domain), evaluate_interval(expr.b, domain)
        return None if a is None or b is None else _combine(expr, a, b)
    if isinstance(expr, ir.Cast):
        a = evaluate_interval(expr.value, domain)
        return None if a is None else (ir.Cast(expr.dtype, a[0]), ir.Cast(expr.dtype, a[1]))
    if isinstance(expr, ir.Select):
        return _hull(evaluate_interval(expr.true_value, domain), evaluate_interval(expr.false_value, domain))
    if isinstance(expr, ir.CallIntrin) and expr.op is ir.Op.get("tir.if_then_else"):
        return _hull(evaluate_interval(expr.args[1], domain), evaluate_interval(expr.args[2], domain))
    if isinstance(expr, ir.Broadcast):
        return evaluate_interval(expr.value, domain)
    if isinstance(expr, ir.Ramp) and isinstance(expr.stride, ir.IntImm) and expr.stride.value >= 0:
        a = evaluate_interval(expr.base, domain)
        return None if a is None else (a[0], a[1] + expr.stride * (expr.lanes - 1))
    return None


def _hull(a: Interval | None, b: Interval | None) -> Interval | None:
    return None if a is None or b is None else (ir.min_(a[0], b[0]), ir.max_(a[1], b[1]))


def _combine(expr: ir.BinaryOp, a: Interval, b: Interval) -> Interval | None:
    if isinstance(expr, ir.Add):
        return (a[0] + b[0], a[1] + b[1])
    if isinstance(expr, ir.Sub):
        return (a[0] - b[1], a[1] - b[0])
    if isinstance(expr, (ir.Min, ir.Max)):
        fn = ir.min_ if isinstance(expr, ir.Min) else ir.max_
        return (fn(a[0], b[0]), fn(a[1], b[1]))
    if a[0] is a[1] and isinstance(expr, ir.Mul):
        a, b = b, a
    if b[0] is not b[1]:
        return None
    c = b[0]
    if isinstance(expr, ir.Mul):
        if isinstance(c, ir.IntImm):
            return (a[0] * c, a[1] * c) if c.value >= 0 else (a[1] * c, a[0] * c)
        return (a[0] * c, a[1] * c) if _is_size(c) else None
    if not (isinstance(c, ir.IntImm) and c.value > 0):
        return None
    if isinstance(expr, ir.FloorDiv):
        return (a[0] // c, a[1] // c)
    return (ir.const(0, c.dtype), c - 1)


def _is_size(expr: ir.PrimExpr) -> bool:
    """Whether an expression is a product of dimensions, which are never negative."""
    return (
        isinstance(expr, ir.Var)
        or (isinstance(expr, ir.Mul) and _is_size(expr.a) and _is_size(expr.b))
        or (isinstance(expr, ir.IntImm) and expr.value >= 0)
    )


def relax_region(
    ranges: tuple[ir.Range, ...], domain: Mapping[ir.Var, ir.Range], analyzer: arith.Analyzer
) -> tuple[ir.Range | None, ...]:
    """Return the box that `ranges` cover while the variables of `domain` run over theirs.

    None for an unbounded dimension: what is read from memory bounds nothing, for it may be written inside.
    """
    return _relaxed(ranges, _intervals(domain), analyzer)


def _relaxed(
    ranges: tuple[ir.Range, ...], intervals: Mapping[ir.Var, Interval], analyzer: arith.Analyzer
) -> tuple[ir.Range | None, ...]:
    """Return the box that `ranges` cover while variables take the values of their intervals."""
    if not intervals:
        return tuple(_simple(r, analyzer) for r in ranges)
    result: list[ir.Range | None] = []
    for r in ranges:
        start = analyzer.simplify(r.min)
        ends = evaluate_interval(start, intervals)
        if used_vars(r.extent).isdisjoint(intervals):
            past = None if ends is None else ends[1] + r.extent
        else:
            last = evaluate_interval(analyzer.simplify(r.min + r.extent), intervals)
            past = None if last is None else last[1]
        if ends is None or past is None or loads_of((*ends, past)):
            result.append(None)
        else:
            low = analyzer.simplify(ends[0])
            result.append(ir.Range.from_min_extent(low, analyzer.simplify(past - ends[0])))
    return tuple(result)


def _simple(r: ir.Range, analyzer: arith.Analyzer) -> ir.Range | None:
    if loads_of((r.min, r.extent)):
        return None
    return ir.Range.from_min_extent(analyzer.simplify(r.min), analyzer.simplify(r.extent))


def _intervals(domain: Mapping[ir.Var, ir.Range]) -> dict[ir.Var, Interval]:
    """Bound each variable; ends that depend on variables before it, as in a triangle, are relaxed over those."""
    intervals: dict[ir.Var, Any] = {}
    for v, r in domain.items():
        low, high = r.min, r.min + r.extent - 1
        if not (isinstance(low, ir.IntImm) and isinstance(high, ir.IntImm)):
            ends = evaluate_interval(low, intervals), evaluate_interval(high, intervals)
            intervals[v] = None if ends[0] is None or ends[1] is None else (ends[0][0], ends[1][1])
        else:
            intervals[v] = (low, high)
    return intervals


def union_regions(
    a: tuple[ir.Range | None, ...], b: tuple[ir.Range | None, ...], analyzer: arith.Analyzer
) -> tuple[ir.Range | None, ...]:
    """Return the smallest box around two."""
    result: list[ir.Range | None] = []
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            result.append(None)
            continue
        if analyzer.can_prove_equal(x.min, y.min) and analyzer.can_prove_equal(x.extent, y.extent):
            result.append(x)
            continue
        low = analyzer.simplify(ir.min_(x.min, y.min))
        high = analyzer.simplify(ir.max_(x.min + x.extent, y.min + y.extent))
        result.append(ir.Range.from_min_extent(low, analyzer.simplify(high - low)))
    return tuple(result)


def region_extents(region: BufferRegion) -> tuple[int | None, ...]:
    """Return the constant extents of a region, None where symbolic."""
    return tuple(r.extent.value if isinstance(r.extent, ir.IntImm) else None for r in region.region)


def access_regions(
    stmts: Iterable[Stmt], analyzer: arith.Analyzer, skip: Iterable[Buffer] = (), matches: _Matches = ()
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Find the regions that statements read and write, relaxed over the loops inside them.

    Parameters
    ----------
    stmts : iterable of Stmt
        The init and the body of a block to be.
    skip : iterable of Buffer
        Buffers allocated inside, which do not count.
    matches : iterable of MatchBufferRegion
        Other names of regions: what is touched by one is touched of what it stands for.
    """
    found = _Accesses(analyzer, set(skip), {m.buffer: m.source for m in matches})
    for s in stmts:
        found.visit(s, {})
    return _boxes(found.reads), _boxes(found.writes)


def block_regions(
    init: Stmt | None,
    body: Stmt,
    skip: Iterable[Buffer] = (),
    analyzer: arith.Analyzer | None = None,
    matches: _Matches = (),
) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Find the regions that a block reads and writes; the value before its first step is not read from outside."""
    stmts = [x for x in (init, body) if x is not None]
    reads, writes = access_regions(stmts, analyzer or arith.Analyzer(), skip, matches)
    if init is not None:
        written = {w.buffer: w.region for w in writes}
        reads = tuple(r for r in reads if not ir.structural_equal(r.region, written.get(r.buffer)))
    return reads, writes


def get_block_access_region(block: Block, buffer_var_map: Mapping[ir.Var | Buffer, Buffer]) -> list[list[BufferRegion]]:
    """Return what a block reads, writes, and reaches by address, whole (TVM's detector of access regions).

    Parameters
    ----------
    block : Block
    buffer_var_map : mapping of Var or Buffer to Buffer
        The buffers that exist outside of the block, by their data or, as in TVM's newest release, by themselves.
    """
    buffer_var_map = {b.data: b for b in buffer_var_map.values()}
    matched = {m.buffer.data: m.source for m in block.match_buffers}
    inside = {b.data for n in ir.find(block, Block) for b in n.alloc_buffers}
    raw = [n for n in ir.walk((block.init, block.body), Buffer) if isinstance(n, ir.Var)]  # not as a buffer
    opaque: dict[Buffer, _Box] = {}
    for v in raw:
        if (v in matched or v in buffer_var_map) and v not in inside:
            r = matched[v] if v in matched else whole_region(buffer_var_map[v])
            opaque[r.buffer] = union_regions(opaque.get(r.buffer, r.region), r.region, arith.Analyzer())
    reads, writes = block_regions(block.init, block.body, block.alloc_buffers, matches=block.match_buffers)
    known = set(buffer_var_map.values())
    return [[r for r in regions if r.buffer in known] for regions in (reads, writes)] + [list(_boxes(opaque))]


def get_block_read_write_region(
    block: Block, buffer_var_map: Mapping[ir.Var | Buffer, Buffer]
) -> list[list[BufferRegion]]:
    """Return what a block reads and writes; what it reaches by address, both."""
    reads, writes, opaque = get_block_access_region(block, buffer_var_map)
    return [
        [*(r for r in regions if all(r.buffer is not o.buffer for o in opaque)), *opaque] for regions in (reads, writes)
    ]


def whole_region(buffer: Buffer) -> BufferRegion:
    """Return the region that is all of a buffer."""
    return BufferRegion(buffer, tuple(ir.Range.from_min_extent(ir.const(0, ir.dtype_of(d)), d) for d in buffer.shape))


def addressed(*nodes: Any) -> set[ir.Var]:
    """The data of buffers whose memory is reached below `nodes` other than by their own loads and stores.

    By an address, by the data variable itself, or as another buffer on the same memory: what is known of a buffer's
    elements says nothing of such an access.
    """
    found: set[ir.Var] = set()
    owner: dict[ir.Var, Buffer] = {}
    for n in ir.walk(nodes, Buffer):
        if isinstance(n, (BufferLoad, BufferStore)):
            if owner.setdefault(n.buffer.data, n.buffer) is not n.buffer:
                found.add(n.buffer.data)
        elif isinstance(n, ir.Var):
            if n.dtype == "handle":
                found.add(n)
        elif isinstance(n, ir.CallIntrin) and n.op is _ADDRESS_OF:
            found |= {load.buffer.data for load in loads_of(n.args)}
    return found


_ADDRESS_OF = ir.Op.get("tir.address_of")


_Box = tuple[ir.Range | None, ...]


class _Accesses:
    """Collects one box per buffer read, and one per buffer written."""

    def __init__(self, analyzer: arith.Analyzer, hidden: set[Buffer], sources: Mapping[Buffer, BufferRegion]) -> None:
        self.analyzer, self.hidden, self.sources = analyzer, hidden, sources
        self.inner: set[ir.Var] = set()
        self.around: tuple[dict[ir.Var, ir.Range], dict[ir.Var, Interval]] = {}, {}  # what was last noted in
        self.reads: dict[Buffer, _Box] = {}
        self.writes: dict[Buffer, _Box] = {}

    def visit(self, s: ir.Node, domain: dict[ir.Var, ir.Range]) -> None:
        """Note what a statement or an expression touches while the loops of `domain` run."""
        if isinstance(s, For):
            self.visit(s.extent, domain)
            self.visit(s.body, {**domain, s.loop_var: ir.Range.from_min_extent(s.min, s.extent)})
        elif isinstance(s, BufferStore):
            self.note(self.writes, s.buffer, point_region(s.buffer, s.indices).region, domain)
            for e in (s.value, *s.indices):
                self.visit(e, domain)
        elif isinstance(s, BlockRealize):
            from_vars = {iv.var: value for iv, value in zip(s.block.iter_vars, s.iter_values, strict=True)}
            for table, regions in ((self.reads, s.block.reads), (self.writes, s.block.writes)):
                for r in regions:
                    self.note(table, r.buffer, substitute_ranges(r.region, from_vars), domain)
        elif isinstance(s, (AllocBuffer, LetStmt)):
            self.introduce(s, domain)
        elif isinstance(s, ir.PrimExpr):
            for load in loads_of(s):
                self.note(self.reads, load.buffer, point_region(load.buffer, load.indices).region, domain)
        elif isinstance(s, Stmt):
            for v in ir.children(s):
                self.visit(v, domain)

    def introduce(self, s: AllocBuffer | LetStmt, domain: dict[ir.Var, ir.Range]) -> None:
        """Visit a statement that names memory or a value for those inside."""
        if isinstance(s, AllocBuffer):
            self.hidden.add(s.buffer)
        else:
            self.visit(s.value, domain)
            self.inner.add(s.var)
        self.visit(s.body, domain)

    def note(
        self, table: dict[Buffer, _Box], buffer: Buffer, ranges: tuple[ir.Range, ...], domain: dict[ir.Var, ir.Range]
    ) -> None:
        """Widen the box of a buffer by ranges, relaxed over the loops of `domain`."""
        while buffer in self.sources:
            ranges, buffer = source_ranges(self.sources[buffer], ranges), self.sources[buffer].buffer
        if buffer in self.hidden:
            return
        if self.around[0] is not domain:
            self.around = domain, _intervals(domain)
        box = _relaxed(ranges, self.around[1], self.analyzer)
        if self.inner:  # what is named only inside bounds nothing outside
            box = tuple(r if r is None or self.inner.isdisjoint(used_vars((r.min, r.extent))) else None for r in box)
        old = table.get(buffer)
        table[buffer] = box if old is None else union_regions(old, box, self.analyzer)


def source_ranges(source: BufferRegion, ranges: tuple[ir.Range, ...]) -> tuple[ir.Range, ...]:
    """Return where ranges of a matched buffer lie in the buffer of its source, whose first dimensions it may lack."""
    lead = len(source.region) - len(ranges)
    inner = (
        ir.Range.from_min_extent(r.min + x.min, x.extent)
        for r, x in zip(source.region[max(lead, 0) :], ranges, strict=lead >= 0)
    )
    return (*source.region[:lead], *inner) if lead >= 0 else source.region


def substitute_ranges(ranges: tuple[ir.Range, ...], mapping: Mapping[ir.Var, ir.PrimExpr]) -> tuple[ir.Range, ...]:
    """Replace variables in ranges."""
    return ir.substitute(ranges, mapping)


def _boxes(table: dict[Buffer, _Box]) -> tuple[BufferRegion, ...]:
    return tuple(
        BufferRegion(b, tuple(r if r is not None else ir.Range(d) for r, d in zip(box, b.shape, strict=True)))
        for b, box in table.items()
    )


def loads_inside(node: object, var: ir.Var, own: Buffer, analyzer: arith.Analyzer) -> bool:
    """Whether each load that moves with `var` stays inside its buffer; a load behind a condition may rely on it."""
    if isinstance(node, ir.CallIntrin) and getattr(node.op, "name", "") == "tir.if_then_else":
        with analyzer.constraint_scope(node.args[0]):
            if not loads_inside(node.args[1], var, own, analyzer):
                return False
        return loads_inside(node.args[0], var, own, analyzer) and loads_inside(node.args[2], var, own, analyzer)
    if isinstance(node, BufferLoad) and node.buffer is not own:
        for i, size in zip(node.indices, node.buffer.shape, strict=True):
            inside = ir.logical_and(i >= 0, i < size)
            if var in used_vars(i) and not analyzer.can_prove(inside):
                return False
    return all(loads_inside(c, var, own, analyzer) for c in ir.children(node) if isinstance(c, (ir.PrimExpr, Stmt)))


def is_box(region: BufferRegion) -> bool:
    """Whether a region moves, in each dimension with a variable of its own, by no more than it is long."""
    moving: list[ir.Var] = []
    for r in region.region:
        start = r.min.a if isinstance(r.min, (ir.Add, ir.Sub)) and isinstance(r.min.b, ir.IntImm) else r.min
        variable, step = start, 1
        if isinstance(start, ir.Mul):
            variable, step = start.a, ir.as_int(start.b)
        if isinstance(variable, ir.Var) and step is not None and step <= (ir.as_int(r.extent) or 1):
            moving.append(variable)
        elif not isinstance(start, ir.IntImm):
            return False
    return len(set(moving)) == len(moving)
