"""tensorize: a block computes by an intrinsic what it computed by loops."""

from __future__ import annotations

from typing import Any

from weft import arith, error, ir
from weft.tir.analysis.structure import bind_domains, clone_fresh, replace_node
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, MatchBufferRegion
from weft.tir.function import PrimFunc
from weft.tir.schedule.state import ScheduleState, refuse
from weft.tir.stmt import Block, BlockRealize, BufferStore, For, ForKind, Stmt


class TensorIntrin:
    """What an instruction or a routine computes, and how it is called.

    Parameters
    ----------
    desc : PrimFunc
        The computation as loops over one block, in a root block.
    impl : PrimFunc
        The same with other means; parameters as those of `desc`. Strides and offsets of its buffers may be variables:
        they take their values from the place where the intrinsic is used.
    name : str
        What errors call it.
    """

    _registry: dict[str, TensorIntrin] = {}

    def __init__(self, desc: PrimFunc, impl: PrimFunc, name: str = "") -> None:
        for func, what in ((desc, "description"), (impl, "implementation")):
            if not isinstance(func.body, BlockRealize):
                raise error.InvalidArgument(f"the {what} of '{name}' has no root block", found=type(func.body).__name__)
            if any(func.buffer_of(p) is None for p in func.params):
                raise error.InvalidArgument(f"a parameter of the {what} of '{name}' is no buffer")
        if len(desc.params) != len(impl.params):
            raise error.InvalidArgument(
                f"description and implementation of '{name}' differ in parameters",
                expected=str(len(desc.params)),
                found=str(len(impl.params)),
            )
        self.name, self.desc, self.impl = name, desc, impl

    @staticmethod
    def register(name: str, desc: PrimFunc, impl: PrimFunc, override: bool = False) -> TensorIntrin:
        """Make an intrinsic known by name."""
        if name in TensorIntrin._registry and not override:
            raise error.InvalidArgument(f"there is a tensor intrinsic '{name}'", help="pass override=True")
        TensorIntrin._registry[name] = TensorIntrin(desc, impl, name)
        return TensorIntrin._registry[name]

    @staticmethod
    def get(name: str, allow_missing: bool = False) -> TensorIntrin | None:
        """Look an intrinsic up."""
        found = TensorIntrin._registry.get(name)
        if found is None and not allow_missing:
            known = ", ".join(sorted(TensorIntrin._registry)) or "none"
            raise error.InvalidArgument(f"there is no tensor intrinsic '{name}'", help=f"registered are: {known}")
        return found


def tensorize(state: ScheduleState, name: str, intrin: str | TensorIntrin) -> None:
    """Let a block be computed by an intrinsic whose description it matches.

    Raises
    ------
    ScheduleError
        When the block computes something else; the message shows both.
    """
    found = TensorIntrin.get(intrin) if isinstance(intrin, str) else intrin
    assert found is not None
    realize = state.realize(name)
    block = realize.block
    described, used = _buffers(found.desc.root.body), _buffers(block.body)
    regions = {r.buffer: r for r in (*block.reads, *block.writes)}
    if len(described) != len(used):
        raise refuse(f"the block uses {len(used)} buffers, '{found.name}' {len(described)}", block=name)
    views = {b: _view(regions[b], d, name, found.name) for b, d in zip(used, described, strict=True)}
    ours = _form(_local(block.body, regions, views))
    theirs = _form(found.desc.root.body)
    if not ir.structural_equal(ours, theirs):
        raise refuse(
            f"the block does not compute what '{found.name}' describes",
            block=name,
            help=f"it describes\n{theirs.body}\nthe block is\n{ours.body}\n"
            "where only the init differs, call decompose_reduction first",
        )
    place: dict[Buffer | None, Buffer] = dict(zip(described, used, strict=True))
    matches, fresh = [], {}
    for param, other in zip(found.desc.params, found.impl.params, strict=True):
        buffer, original = found.impl.buffer_of(other), place.get(found.desc.buffer_of(param))
        assert buffer is not None
        if original is None:
            raise refuse(f"'{found.name}' does not use its parameter '{param.name}'", block=name)
        fresh |= {v: replace_node(v) for v in ir.find(buffer, ir.Var)}
        copy = ir.substitute(buffer, fresh)
        fresh[buffer] = copy
        matches.append(MatchBufferRegion(copy, regions[original]))
    impl = found.impl.root
    body, _, _ = clone_fresh(ir.substitute(impl.body, fresh), state.fresh_name)
    new = replace_node(
        block,
        body=body,
        alloc_buffers=block.alloc_buffers + ir.substitute(impl.alloc_buffers, fresh),
        match_buffers=(*block.match_buffers, *matches),
        annotations=ir.Attrs.of({**block.annotations, **impl.annotations}),
    )
    state.replace(realize, replace_node(realize, block=new))


def _buffers(node: ir.Node) -> list[Buffer]:
    """List the buffers that are loaded and stored, in order of their first use."""
    accesses = ir.find(node, BufferLoad, BufferStore)
    return list(dict.fromkeys(n.buffer for n in accesses))


def _view(region: BufferRegion, described: Buffer, block: str, intrin: str) -> Buffer:
    """Make the buffer that a region alone would be, with as many dimensions as the description has."""
    lead = len(region.region) - len(described.shape)
    extents = [r.extent for r in region.region]
    shape = described.shape
    fits = (
        lead >= 0
        and all(ir.is_const_int(e, 1) for e in extents[:lead])
        and ir.structural_equal(tuple(_number(e) for e in extents[lead:]), tuple(_number(e) for e in shape))
    )
    if not fits or region.buffer.dtype != described.dtype:
        raise refuse(
            f"the block touches {[str(e) for e in extents]} of '{region.buffer.name}' ({region.buffer.dtype}), "
            f"'{intrin}' describes {[str(e) for e in shape]} ({described.dtype})",
            block=block,
            help="split the loops by the sizes of the intrinsic",
        )
    return Buffer(ir.Var(described.name, "handle"), described.dtype, shape, name=described.name)


def _number(extent: ir.PrimExpr) -> Any:
    return extent.value if isinstance(extent, ir.IntImm) else extent


def _local(body: Stmt, regions: dict[Buffer, BufferRegion], views: dict[Buffer, Buffer]) -> Any:
    """Address each buffer from the start of its region."""
    analyzer = arith.Analyzer()
    for n in ir.find(body, Block):
        bind_domains(analyzer, n)

    def rule(node: ir.Node) -> Any:
        if isinstance(node, (BufferLoad, BufferStore)) and node.buffer in views:
            view, ranges = views[node.buffer], regions[node.buffer].region
            lead = len(ranges) - len(view.shape)
            indices = [analyzer.simplify(i - r.min) for i, r in zip(node.indices, ranges, strict=True)]
            return replace_node(node, buffer=view, indices=tuple(indices[lead:]))
        return node

    return ir.rewrite(body, rule)


def _form(body: Stmt) -> PrimFunc:
    """Bare computation: what a block reads, its name, notes, the kind and width of loops do not count."""
    wide: dict[Any, Any] = {}
    for n in ir.walk(body):
        if isinstance(n, ir.Var) and ir.DataType(n.dtype).is_integer:
            wide[n] = replace_node(n, dtype="int64")

    def rule(node: ir.Node) -> Any:
        if isinstance(node, Block):
            return replace_node(node, name_hint="", reads=(), writes=(), annotations=ir.NO_ATTRS)
        if isinstance(node, For):
            return For(node.loop_var, _wide(node.min), _wide(node.extent), ForKind.SERIAL, node.body)
        if isinstance(node, ir.Range):
            return ir.Range.from_min_extent(_wide(node.min), _wide(node.extent))
        if isinstance(node, (BufferLoad, BufferStore)):
            return replace_node(node, indices=tuple(_wide(i) for i in node.indices))
        return node

    bare = ir.rewrite(ir.substitute(body, wide), rule)
    bare = ir.substitute(bare, {b: _bare(b) for b in _buffers(bare)})
    buffers = _buffers(bare)
    params = tuple(ir.Var(f"p{i}", "handle") for i in range(len(buffers)))
    return PrimFunc(params, bare, buffer_map=tuple(zip(params, buffers, strict=True)))


def _bare(buffer: Buffer) -> Buffer:
    return Buffer(ir.Var(buffer.name, "handle"), buffer.dtype, tuple(map(_wide, buffer.shape)), name=buffer.name)


def _wide(expr: ir.PrimExpr) -> ir.PrimExpr:
    return arith.Analyzer().simplify(expr.astype("int64"))
