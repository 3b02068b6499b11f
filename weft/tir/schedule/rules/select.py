"""Which rule a function gets: found by what its blocks compute, never by their names."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from weft.error import ScheduleError
from weft.ir import PrimExpr, Var, all_of, show_text, substitute
from weft.machine import TargetLike
from weft.tir.analysis.dependence import consumers_of, is_plain_store, producers_of
from weft.tir.analysis.pattern import contraction_of
from weft.tir.analysis.structure import child_realizes, clone_fresh, replace_node
from weft.tir.function import PrimFunc
from weft.tir.schedule.instruction import BlockRV
from weft.tir.schedule.rules.attention_schedule import schedule_attention
from weft.tir.schedule.rules.collapse import collapse_dims
from weft.tir.schedule.rules.computed_weights import computed_weights, schedule_computed_weights
from weft.tir.schedule.rules.context import RuleContext, is_reduction_block
from weft.tir.schedule.rules.contraction import schedule_contraction
from weft.tir.schedule.rules.depthwise import schedule_depthwise
from weft.tir.schedule.rules.generic import schedule_generic
from weft.tir.schedule.rules.grouped import is_grouped, schedule_grouped
from weft.tir.schedule.rules.inline import inline_elementwise, is_window
from weft.tir.schedule.rules.knobs import Knobs
from weft.tir.schedule.rules.matrix_tiles import schedule_matrix_tiles
from weft.tir.schedule.rules.record import AS_WRITTEN, GENERIC, ScheduleRecord, applying, note_schedule
from weft.tir.schedule.rules.row_reduce import schedule_rows
from weft.tir.schedule.rules.selecting import is_selecting, schedule_selecting
from weft.tir.schedule.rules.transposed import guarded_product, schedule_transposed
from weft.tir.schedule.rules.windows import ends_inside, schedule_windows
from weft.tir.schedule.schedule import Schedule
from weft.tir.stmt import Block, BlockRealize, IfThenElse


def schedule_func(func: PrimFunc, target: TargetLike | None, knobs: Knobs | None = None) -> PrimFunc:
    """Give a function the loop structure that the rules choose for a target.

    Parameters
    ----------
    func : PrimFunc
        In block form; a function in another form is returned as it is.
    target : Target or Machine, optional
        Which machine it is for.
    knobs : Knobs, optional
        Decides what rules leave open, and notes what they asked; by default they choose themselves.

    Raises
    ------
    InternalError
        Where a rule fails with anything but a refusal, which is a defect of the rule: see :func:`applying`.
    """
    record = ScheduleRecord(str(func.attrs.get("global_symbol") or "main"))
    scheduled = _scheduled(func, target, knobs, record)
    note_schedule(record)
    return scheduled


def _scheduled(func: PrimFunc, target: TargetLike | None, knobs: Knobs | None, record: ScheduleRecord) -> PrimFunc:
    if not isinstance(func.body, BlockRealize):
        record.take(AS_WRITTEN, {"root"})
        return func
    with applying("attention", record.function):
        attention = schedule_attention(func, target)
    if attention is not None:
        record.take("attention", {r.block.name_hint for r in child_realizes(func.root)})
        show_text(record.function, "trace.py", lambda: "# no primitives: the rule writes the loops of attention itself")
        return attention
    with applying("collapse", record.function):
        collapsed = collapse_dims(func)
    sch = schedule_of(collapsed, target, knobs, record)
    show_text(record.function, "trace.py", lambda: str(sch.trace))
    scheduled = sch.func
    if record.few_elements and set(record.taken.values()) <= {"inline", "rows", "elementwise"}:
        few = ScheduleRecord(record.function, expects_few=True)
        short = schedule_of(collapsed, target, knobs, few).func
        scheduled = _either(all_of(*(n <= most for n, most in few.few_elements)), short, scheduled)
    return scheduled.replace(buffer_map=func.buffer_map)


def _either(condition: PrimExpr, then: PrimFunc, otherwise: PrimFunc) -> PrimFunc:
    """Run one of two schedules of a function, each with buffers, loops and blocks of its own."""
    root, other = then.root, otherwise.root
    body, _, _ = clone_fresh(root.body, lambda name: f"{name}_few")
    own = {b: replace_node(b, data=Var(f"{b.name}_few", "handle"), name=f"{b.name}_few") for b in root.alloc_buffers}
    branches = IfThenElse(condition, substitute(body, own), other.body)
    whole = replace_node(other, body=branches, alloc_buffers=(*other.alloc_buffers, *own.values()))
    return otherwise.replace(body=replace_node(otherwise.body, block=whole))


def schedule_of(
    func: PrimFunc, target: TargetLike | None, knobs: Knobs | None = None, record: ScheduleRecord | None = None
) -> Schedule:
    """Return the schedule that the rules choose, whose trace lists the primitives; `record` says which took what."""
    sch = Schedule(func)
    ctx = RuleContext(sch, target, knobs, record)
    with applying("inline", ctx.record.function):
        before = {b.name_hint for b in ctx.blocks()}
        inline_elementwise(ctx)
        ctx.record.take("inline", before - {b.name_hint for b in ctx.blocks()})
    done: set[str] = set()
    for block in ctx.blocks():
        if block.name_hint in done:
            continue
        for name, rule in _product_rules(ctx, block):
            finished = _attempt(ctx, name, block.name_hint, lambda b=block, r=rule: r(ctx, b.name_hint))
            done |= finished
            if finished:
                break
    for block in reversed(ctx.blocks()):
        if block.name_hint not in done and is_selecting(block):
            done |= _attempt(
                ctx, "selecting", block.name_hint, lambda b=block, seen=done: schedule_selecting(ctx, b.name_hint, seen)
            )
    sums = [b for b in ctx.blocks() if b.name_hint not in done and is_reduction_block(b)]
    for block in sums:
        if is_window(block) or (len(sums) == 1 and ends_inside(ctx, block)):
            done |= _attempt(ctx, "windows", block.name_hint, lambda b=block: schedule_windows(ctx, b.name_hint))
    for group in _chains(ctx, done):
        done |= _attempt(ctx, "rows", group[-1].name_hint, lambda g=group: schedule_rows(ctx, g), group)
    for block in ctx.blocks():
        if block.name_hint not in done:
            ctx.scope = block.name_hint
            with applying(GENERIC, ctx.record.function, block.name_hint):
                schedule_generic(ctx, BlockRV(block.name_hint))
    return sch


def schedule_choices(func: PrimFunc, target: TargetLike | None) -> Iterator[Schedule]:
    """List the schedules that the rules have to offer: their own first, then each with one choice made otherwise."""
    knobs = Knobs()
    yield schedule_of(func, target, knobs)
    for name, knob in knobs.asked.items():
        for value in knob.candidates:
            if value == knob.chosen:
                continue
            other = Knobs({name: value})
            try:
                sch = schedule_of(func, target, other)
            except ScheduleError:
                continue
            if not other.unused():
                yield sch


Rule = Callable[[RuleContext, str], set[str]]


def _product_rules(ctx: RuleContext, block: Block) -> list[tuple[str, Rule]]:
    """List the rules that are tried for a block with a sum of products, in order."""
    c = contraction_of(block)
    if c is None:
        guarded: list[tuple[str, Rule]] = []
        if guarded_product(block) is not None:
            guarded.append(("transposed", schedule_transposed))
        c = contraction_of(block, products=False)
        fits = c is not None and c.rows and c.vector in c.columns
        return [*guarded, ("contraction", schedule_contraction)] if fits else guarded
    special: list[tuple[str, Rule]] = []
    if computed_weights(ctx, block) is not None:
        special.append(("computed weights", schedule_computed_weights))
    if ctx.machine.tile_forms:
        special.append(("matrix tiles", schedule_matrix_tiles))
    if is_grouped(c) and (c.group or 1) % ctx.lanes(c.output.buffer.dtype):
        special.append(("grouped", schedule_grouped))
    plain = ("depthwise", schedule_depthwise) if c.vector in c.batch else ("contraction", schedule_contraction)
    return [*special, plain]


def _attempt(
    ctx: RuleContext, rule: str, name: str, apply: Callable[[], set[str]], group: Sequence[Block] = ()
) -> set[str]:
    """Apply a rule, or leave the function as it was where the rule refuses it (``ctx.record`` keeps why).

    Choices of the rule are called after the block `name`, which may be the last of a group whose reductions the rule is
    for. Returns the blocks that are scheduled.
    """
    before = ctx.sch.checkpoint()
    asked = dict(ctx.knobs.asked)
    ctx.scope = name
    names = set(ctx.sch.state.block_names())
    try:
        with applying(rule, ctx.record.function, name):
            finished = apply()
    except ScheduleError as refusal:
        ctx.sch.rollback(before)
        ctx.knobs.asked = asked
        for block in [b.name_hint for b in group if is_reduction_block(b)] or [name]:
            ctx.record.refuse(rule, block, refusal)
        return set()
    ctx.record.take(rule, finished & names)
    return finished | (set(ctx.sch.state.block_names()) - names)


def _chains(ctx: RuleContext, done: set[str]) -> list[list[Block]]:
    """Group blocks with reductions.

    Each group is what leads to one last block, in order, nothing of it used outside.
    """
    root = ctx.sch.state.root
    blocks = [b for b in ctx.blocks() if b.name_hint not in done]
    known = {b.name_hint for b in blocks}
    groups: list[list[Block]] = []
    taken: set[str] = set()
    for sink in reversed(blocks):
        readers = [c.block for c in consumers_of(sink, root) if c.block.name_hint in known]
        if sink.name_hint in taken or not all(_read_by_windows(sink, r) for r in readers):
            continue
        members = _ancestors(ctx, sink, known, taken)
        ordered = [b for b in blocks if b.name_hint in members]
        if any(is_reduction_block(b) for b in ordered) and all(
            is_reduction_block(b) or is_plain_store(b) for b in ordered
        ):
            groups.append(ordered)
            taken |= members
    return groups


def _read_by_windows(producer: Block, reader: Block) -> bool:
    """Whether each result of a reduction is read by several results of another, so that it is computed beforehand."""
    sums = is_reduction_block(producer) and is_reduction_block(reader)
    return sums and any(is_window(reader, w.buffer) for w in producer.writes)


def _ancestors(ctx: RuleContext, sink: Block, known: set[str], taken: set[str]) -> set[str]:
    """Return the sink and the blocks that only lead to it."""
    root = ctx.sch.state.root
    members = {sink.name_hint}
    queue = [sink]
    while queue:
        for p in producers_of(queue.pop(0), root):
            name = p.block.name_hint
            if name in members or name not in known or name in taken or ctx.is_output(p.block):
                continue
            readers = [c.block for c in consumers_of(p.block, root)]
            if any(_read_by_windows(p.block, r) for r in readers):
                continue
            if all(r.name_hint in members for r in readers):
                members.add(name)
                queue.append(p.block)
    return members
