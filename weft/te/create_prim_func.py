"""A tensor-expression graph becomes a TIR function of blocks, one loop nest a stage, ready to be scheduled.

``kernel_of_stages`` makes the form that the schedule rules know; ``create_prim_func`` makes TVM's, which has a block
for each output, nests blocks where the domain of an axis depends on another axis, and simplifies what is stored.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import Any

from weft import arith, error, ir, tir
from weft.spelling import also_called, take_name
from weft.te.tensor import BaseComputeOp, ComputeOp, ExternOp, Operation, PlaceholderOp, ScanOp, Tensor, producers
from weft.tir.analysis import block_regions, used_vars, whole_region
from weft.tir.analysis.structure import replace_node


@also_called(ops="args")
def create_prim_func(args: Sequence[Any], index_dtype_override: str | None = None) -> tir.PrimFunc:
    """Make a TIR function, in the form that TVM gives it, of the stages that compute the outputs among `args`.

    Parameters
    ----------
    args : sequence of Tensor or Var
        The parameters in order: placeholders are inputs, other tensors outputs, variables scalars.
    index_dtype_override : str, optional
        The data type of all loop variables, indices and constant extents; by default that of the extents.

    Returns
    -------
    PrimFunc
        In block form, with attributes ``tir.noalias`` and ``global_symbol`` ("main").

    Raises
    ------
    InvalidArgument
        Where a scan is among the stages, or an input that is not among `args`.
    """
    return _function(args, index_dtype_override, _nested)


def kernel_of_stages(args: Sequence[Any], index_dtype_override: str | None = None) -> tir.PrimFunc:
    """Make the same function in the form that the schedule rules know: one block for all outputs of a stage."""
    return _function(args, index_dtype_override, _compute)


def _function(
    args: Sequence[Any], index_dtype: str | None, compute_stage: Callable[[ComputeOp, _State], list[tir.Stmt]]
) -> tir.PrimFunc:
    flat = [a for arg in args for a in (arg if isinstance(arg, (list, tuple)) else (arg,))]
    state = _State(flat, index_dtype)
    order = _topological(flat)
    for op in order:
        if isinstance(op, ScanOp):
            _scan(op, state)
    stages = [s for op in order for s in (compute_stage(op, state) if isinstance(op, ComputeOp) else _STAGE(op, state))]
    params: list[ir.Var] = []
    buffer_map: list[tuple[ir.Var, tir.Buffer]] = []
    for arg in flat:
        if isinstance(arg, Tensor):
            buffer = state.buffer(arg)
            handle = ir.Var(f"var_{buffer.name}", "handle")
            params.append(handle)
            buffer_map.append((handle, buffer))
        elif isinstance(arg, ir.Var):
            params.append(arg)
        else:
            raise error.InvalidArgument("create_prim_func takes tensors and variables", found=repr(arg))
    root = tir.Block((), (), (), "root", tir.seq(*stages), None, tuple(state.intermediates))
    attrs = ir.Attrs.of({"global_symbol": "main", "tir.noalias": True, **_layout_free(flat, state)})
    return tir.PrimFunc(tuple(params), tir.BlockRealize((), ir.TRUE, root), None, tuple(buffer_map), attrs)


class _State:
    """The buffer of each tensor."""

    def __init__(self, args: Iterable[Any], index_dtype: str | None) -> None:
        self.buffers: dict[Tensor, tir.Buffer] = {}
        self.tensors: list[Tensor] = []
        self.intermediates: list[tir.Buffer] = []
        self.arguments = {a for a in args if isinstance(a, Tensor)}
        self.names: set[str] = set()
        self.blocks: dict[str, int] = {"root": 0}
        self.analyzer = arith.Analyzer()  # one, which remembers what it has simplified
        self.index_dtype = index_dtype

    def block_name(self, name: str) -> str:
        """Return a name that no other block has."""
        self.blocks[name] = n = self.blocks.get(name, -1) + 1
        return self.block_name(f"{name}_{n}") if n else name

    def buffer(self, tensor: Tensor) -> tir.Buffer:
        """Return the buffer of a tensor, allocating an intermediate where it is no argument."""
        known = self.buffers.get(tensor)
        if known is None:
            shape = [self.index(d) for d in tensor.shape]
            known = tir.decl_buffer(shape, tensor.dtype, take_name(tensor.name, self.names))
            self.buffers[tensor] = known
            self.tensors.append(tensor)
            if tensor not in self.arguments:
                self.intermediates.append(known)
        return known

    def index(self, expr: ir.PrimExpr) -> ir.PrimExpr:
        """Return an index or extent in the data type of indices."""
        return (
            expr if self.index_dtype is None or ir.DataType(expr.dtype).lanes > 1 else ir.cast(self.index_dtype, expr)
        )

    def at(self, expr: Any, env: Mapping[ir.Var, ir.PrimExpr]) -> Any:
        """Return an expression over tensors and axes as one over buffers and the variables of a block."""
        found = ir.substitute(self.loads(expr), env)
        return found if self.index_dtype is None else ir.rewrite(found, self._fitted)

    def simplified(self, expr: Any) -> Any:
        """Simplify a value; its comparisons ascend."""

        def ascending(node: Any) -> Any:
            return _ASCENDING[type(node)](node.b, node.a) if type(node) in _ASCENDING else node

        return ir.rewrite(self.analyzer.simplify(expr), ascending)

    def _fitted(self, node: Any) -> Any:
        """Let operands agree where some have taken the data type of indices."""
        if isinstance(node, tir.BufferLoad):
            return tir.BufferLoad(node.buffer, tuple(map(self.index, node.indices)), node.predicate)
        if isinstance(node, (ir.BinaryOp, ir.CmpOp)) and node.a.dtype != node.b.dtype:
            return type(node)(*ir.unify_dtypes(node.a, node.b))
        if isinstance(node, ir.Select) and node.true_value.dtype != node.false_value.dtype:
            return ir.Select(node.condition, *ir.unify_dtypes(node.true_value, node.false_value))
        if isinstance(node, ir.CallIntrin) and node.op is ir.Op.get("tir.if_then_else"):
            return ir.if_then_else(*node.args) if node.args[1].dtype != node.args[2].dtype else node
        return ir.cast(node.dtype, node.value) if isinstance(node, ir.Cast) else node

    def loads(self, expr: Any) -> Any:
        """Replace reads of tensors by reads of buffers."""

        def load(node: Any) -> Any:
            return (
                tir.BufferLoad(self.buffer(node.producer), node.indices) if isinstance(node, tir.ProducerLoad) else node
            )

        return ir.rewrite(expr, load)


def _topological(args: Sequence[Any]) -> list[Operation]:
    """List the operations behind the arguments, producers first."""
    return ir.operands_first([a.op for a in args if isinstance(a, Tensor)], producers)


_STAGE = ir.Dispatch("te stage to TIR", covers=(Operation,), leaves_out=(Operation, BaseComputeOp, ComputeOp))


@_STAGE.on(PlaceholderOp)
def _placeholder(op: PlaceholderOp, state: _State) -> list[tir.Stmt]:
    if op.output(0) not in state.arguments:
        raise error.InvalidArgument(
            f"placeholder '{op.name}' is used but is not among the arguments", help="pass it to create_prim_func"
        )
    state.buffer(op.output(0))
    return []


def _compute(op: ComputeOp, state: _State) -> list[tir.Stmt]:
    if isinstance(op.body[0], tir.Reduce):
        return [_nest(op, state, op.axis, op.body[0].axis, lambda env: _reduction(op, state, env))]
    outputs = [(state.buffer(op.output(i)), b) for i, b in enumerate(op.body)]
    for _, b in outputs:
        state.loads(b)  # inputs have their buffers, in order, before the block does

    def body(env: dict[ir.Var, ir.PrimExpr]) -> tuple[tir.Stmt, tir.Stmt | None]:
        indices = tuple(env[iv.var] for iv in op.axis)
        return tir.seq(*[tir.BufferStore(b, ir.cast(b.dtype, state.at(e, env)), indices) for b, e in outputs]), None

    _refuse_inner_reductions(op)
    return [_nest(op, state, op.axis, (), body)]


def _refuse_inner_reductions(op: ComputeOp) -> None:
    if any(isinstance(n, tir.Reduce) for b in op.body for n in ir.walk(b)):
        raise error.InvalidArgument(
            f"'{op.name}': a reduction must be the whole body of a compute",
            help="compute the reduction as a tensor of its own",
        )


def _reduction(
    op: ComputeOp,
    state: _State,
    env: dict[ir.Var, ir.PrimExpr],
    simplify: Callable[[ir.PrimExpr], ir.PrimExpr] = lambda e: e,
) -> tuple[tir.Stmt, tir.Stmt]:
    """Return the update and the initialisation of a reduction."""
    reduce: Any = op.body[0]
    buffers = [state.buffer(op.output(i)) for i in range(len(op.body))]
    indices = tuple(env[iv.var] for iv in op.axis)
    inits = reduce.init or reduce.combiner.identity_element
    init = tir.seq(
        *[tir.BufferStore(b, ir.cast(b.dtype, state.at(e, env)), indices) for b, e in zip(buffers, inits, strict=True)]
    )
    sources = [simplify(ir.cast(b.dtype, state.at(e, env))) for b, e in zip(buffers, reduce.source, strict=True)]
    values = {
        **{v: tir.BufferLoad(b, indices) for v, b in zip(reduce.combiner.lhs, buffers, strict=True)},
        **dict(zip(reduce.combiner.rhs, sources, strict=True)),
    }
    results = [ir.substitute(state.at(r, env), values) for r in reduce.combiner.result]
    if len(buffers) == 1:
        update: tir.Stmt = tir.BufferStore(buffers[0], ir.cast(buffers[0].dtype, results[0]), indices)
    else:
        # all components are computed before any is stored
        temps = [ir.Var(f"new_{i}", b.dtype) for i, b in enumerate(buffers)]
        update = tir.seq(*[tir.BufferStore(b, t, indices) for b, t in zip(buffers, temps, strict=True)])
        for t, r in reversed(list(zip(temps, results, strict=True))):
            update = tir.LetStmt(t, ir.cast(t.dtype, r), update)
    condition = state.at(reduce.condition, env)
    if condition is not ir.TRUE and not (hasattr(condition, "value") and condition.value):
        update = tir.IfThenElse(condition, update)
    return update, init


def _index_dtype(op: ComputeOp, state: _State) -> str:
    """The one data type of the loops of a stage, which rules know as one."""
    axes = (*op.axis, *op.reduce_axis)
    sizes = [iv.dom.extent.value for iv in axes if isinstance(iv.dom.extent, ir.IntImm)]  # type: ignore[union-attr]
    if math.prod(sizes) >= 1 << 63:
        found = " * ".join(map(str, sizes))
        raise error.InvalidArgument(f"'{op.name}' has too many elements", expected="fewer than 2**63", found=found)
    wide = any(e.dtype == "int64" for iv in axes for e in (iv.dom.min, iv.dom.extent))  # type: ignore[union-attr]
    return state.index_dtype or ("int64" if wide else "int32")


class _Level:
    """The loops of one level of a nest, and the axes of the block under them: its own, and those of levels above."""

    def __init__(self, above: _Level | None, new: Sequence[ir.IterVar], op: ComputeOp, state: _State) -> None:
        self.loops: list[tuple[ir.Var, ir.Range]] = []
        self.iters: list[ir.IterVar] = []
        self.values: list[ir.PrimExpr] = []
        self.env: dict[ir.Var, ir.PrimExpr] = {}
        self.cast = state.index_dtype is None
        self.dtype, self.analyzer = _index_dtype(op, state), state.analyzer
        outer = {} if above is None else above.env
        for iv in (*op.axis, *op.reduce_axis):
            if iv in new:
                self._loop(iv, outer, state)
            elif iv.var in outer:
                self._add(iv, ir.Range.from_min_extent(outer[iv.var], ir.const(1, outer[iv.var].dtype)), outer[iv.var])
        if not self.iters:
            zero, one = (ir.const(n, self.dtype) for n in (0, 1))
            self.iters.append(ir.IterVar(ir.Range.from_min_extent(zero, one), ir.Var("vi", zero.dtype), "data_par"))
            self.values.append(zero)

    def _loop(self, iv: ir.IterVar, outer: Mapping[ir.Var, ir.PrimExpr], state: _State) -> None:
        assert iv.dom is not None
        low, extent = (state.analyzer.simplify(state.at(e, outer)) for e in (iv.dom.min, iv.dom.extent))
        dtype = self.dtype
        dom = ir.Range.from_min_extent(ir.cast(dtype, low), ir.cast(dtype, extent))
        loop_var = ir.Var(iv.var.name, dtype)
        self.loops.append((loop_var, dom))
        self._add(iv, dom, loop_var)

    def _add(self, iv: ir.IterVar, dom: ir.Range, value: ir.PrimExpr) -> None:
        var = ir.Var("v_" + iv.var.name, value.dtype)
        self.iters.append(ir.IterVar(dom, var, iv.iter_type))
        self.values.append(value)
        self.env[iv.var] = ir.cast(iv.var.dtype, var) if self.cast else var

    def renewed(self) -> _Level:
        """Return the same level with block axes of its own."""
        fresh = copy(self)
        twins = {iv.var: replace_node(iv.var) for iv in self.iters}
        fresh.iters = [replace_node(iv, var=twins[iv.var]) for iv in self.iters]
        fresh.env = {k: ir.substitute(v, twins) for k, v in self.env.items()}
        return fresh

    def block(self, name: str, body: tir.Stmt, init: tir.Stmt | None, annotations: ir.Attrs) -> tir.Stmt:
        """Return the block over the axes of this level."""
        reads, writes = block_regions(init, body, analyzer=self.analyzer)
        block = tir.Block(tuple(self.iters), reads, writes, name, body, init, annotations=annotations)
        return tir.BlockRealize(tuple(self.values), ir.TRUE, block)

    def around(self, body: tir.Stmt) -> tir.Stmt:
        """Return the loops of this level around a statement."""
        for var, dom in reversed(self.loops):
            body = tir.For(var, dom.min, dom.extent, tir.ForKind.SERIAL, body)
        return body


def _levels(op: ComputeOp) -> list[list[ir.IterVar]]:
    """Sort the axes by how many others their domains depend on, one through the other."""
    axes = {iv.var: iv for iv in (*op.axis, *op.reduce_axis)}
    depth: dict[ir.Var, int] = {}

    def deep(iv: ir.IterVar) -> int:
        if iv.var not in depth:
            used = [axes[v] for v in used_vars(iv.dom) if v in axes]
            depth[iv.var] = 1 + max(map(deep, used), default=-1)
        return depth[iv.var]

    levels: list[list[ir.IterVar]] = [[] for _ in range(1 + max(map(deep, axes.values()), default=0))]
    for iv in axes.values():
        levels[depth[iv.var]].append(iv)
    return levels


def _nested(op: ComputeOp, state: _State) -> list[tir.Stmt]:
    """Make the loops and blocks of a stage as TVM does."""
    reduces = isinstance(op.body[0], tir.Reduce)
    if not reduces:
        _refuse_inner_reductions(op)
    levels: list[_Level] = []
    for new in _levels(op):
        levels.append(_Level(levels[-1] if levels else None, new, op, state))
    attrs, leaf = _block_attrs(op, state), levels[-1]
    started = _reduces_in(levels[:-1])  # a level starts the sum once: inside it, a start would forget what was summed
    buffers = [state.buffer(op.output(i)) for i in range(len(op.body))]
    blocks: list[tir.Stmt] = []
    if reduces:
        update, init = _reduction(op, state, leaf.env, state.simplified)
        blocks.append(leaf.block(state.block_name(op.name), update, None if started else init, attrs))
    else:
        for buffer, value in zip(buffers, op.body, strict=True):
            indices = tuple(leaf.env[iv.var] for iv in op.axis)
            store = tir.BufferStore(buffer, ir.cast(buffer.dtype, state.simplified(state.at(value, leaf.env))), indices)
            blocks.append(leaf.block(state.block_name(buffer.name), store, None, attrs))
            leaf = leaf.renewed()
    body = leaf.around(tir.seq(*blocks))
    for n in range(len(levels) - 1, 0, -1):
        above = levels[n - 1]
        name = state.block_name(f"{op.name}_l{n}")
        starts = _reduces_in(levels[:n]) and not _reduces_in(levels[: n - 1])
        init = _reduction(op, state, above.env)[1] if starts else None
        body = above.around(above.block(name, body, init, attrs))
    return [body]


def _reduces_in(levels: Sequence[_Level]) -> bool:
    return any(iv.iter_type == "reduce" for level in levels for iv in level.iters)


_ASCENDING: dict[type, Any] = {ir.GT: ir.LT, ir.GE: ir.LE}


def _nest(
    op: ComputeOp, state: _State, axis: Sequence[ir.IterVar], reduce_axis: Sequence[ir.IterVar], make_body: Any
) -> tir.Stmt:
    """Make the loops and the block of one stage."""
    loops: list[tuple[ir.Var, ir.PrimExpr, ir.PrimExpr]] = []
    block_vars: list[ir.IterVar] = []
    env: dict[ir.Var, ir.PrimExpr] = {}
    kinds = [*[(iv, "data_par") for iv in axis], *[(iv, "reduce") for iv in reduce_axis]]
    dtype = _index_dtype(op, state)
    for iv, kind in kinds:
        dom = ir.Range.from_min_extent(ir.cast(dtype, iv.dom.min), ir.cast(dtype, iv.dom.extent))  # type: ignore[union-attr]
        var = ir.Var("v_" + iv.var.name, dtype)
        loops.append((ir.Var(iv.var.name, dtype), dom.min, dom.extent))
        block_vars.append(ir.IterVar(dom, var, kind))
        env[iv.var] = var if state.index_dtype or iv.var.dtype == dtype else ir.cast(iv.var.dtype, var)
    body, init = make_body(env)
    writes = tuple(
        _region(state.buffer(op.output(i)), [tuple(env[iv.var] for iv in axis)]) for i in range(op.num_outputs)
    )
    reads = _reads((init, body), {r.buffer for r in writes} if init is not None else set())
    block = tir.Block(
        tuple(block_vars),
        reads,
        writes,
        take_name("B_" + op.name, state.names) if op.name == "root" else op.output(0).name,
        body,
        init,
        annotations=_block_attrs(op, state),
    )
    stmt: tir.Stmt = tir.BlockRealize(tuple(v for v, _, _ in loops), ir.TRUE, block)
    for loop_var, low, extent in reversed(loops):
        stmt = tir.For(loop_var, low, extent, tir.ForKind.SERIAL, stmt)
    return stmt


_LAYOUT_FREE = "layout_free_placeholders"


def _layout_free(args: Sequence[Any], state: _State) -> dict[str, Any]:
    """Say which arguments may have another layout: those that an operation says so of."""
    free = {t for op in _topological(args) for t in op.attrs.get(_LAYOUT_FREE, ())}
    places = tuple(i for i, a in enumerate(args) if isinstance(a, Tensor) and a in free)
    return {"layout_free_buffers": places} if places else {}


def _block_attrs(op: Operation, state: _State) -> ir.Attrs:
    """Return the annotations of a block: the intermediate tensors that may have another layout."""
    free = tuple(state.buffer(t) for t in op.attrs.get(_LAYOUT_FREE, ()) if t not in state.arguments)
    return ir.Attrs.of({_LAYOUT_FREE: free}) if free else ir.NO_ATTRS


def _reads(body: Any, exclude: set[tir.Buffer]) -> tuple[tir.BufferRegion, ...]:
    """The regions that a block body reads: exact points where all loads of a buffer agree, else whole dimensions."""
    found: dict[tir.Buffer, list[tuple[ir.PrimExpr, ...]]] = {}
    for node in ir.find(body, tir.BufferLoad):
        if node.buffer not in exclude:
            found.setdefault(node.buffer, []).append(node.indices)
    return tuple(_region(b, points) for b, points in found.items())


def _region(buffer: tir.Buffer, points: list[tuple[ir.PrimExpr, ...]]) -> tir.BufferRegion:
    ranges = []
    for d, extent in enumerate(buffer.shape):
        first = points[0][d]
        same = all(p[d] is first for p in points) and not ir.find(first, tir.BufferLoad)
        ranges.append(ir.Range.from_min_extent(first, ir.const(1, first.dtype)) if same else ir.Range(extent))
    return tir.BufferRegion(buffer, tuple(ranges))


@_STAGE.on(ExternOp)
def _extern(op: ExternOp, state: _State) -> list[tir.Stmt]:
    mapping: dict[Any, Any] = {}
    inputs = [state.buffer(t) for t in op.inputs]
    outputs = [state.buffer(op.output(i)) for i in range(op.num_outputs)]
    for declared, real in zip((*op.input_placeholders, *op.output_placeholders), (*inputs, *outputs), strict=True):
        mapping[declared] = real
        mapping[declared.data] = real.data
    assert op.body is not None
    body: tir.Stmt = ir.substitute(op.body, mapping)
    block = tir.Block(
        (),
        tuple(map(whole_region, inputs)),
        tuple(map(whole_region, outputs)),
        take_name("extern_" + op.name, state.names),
        body,
    )
    return [tir.BlockRealize((), ir.TRUE, block)]


@_STAGE.on(ScanOp)
def _scan(op: ScanOp, state: _State) -> list[tir.Stmt]:
    raise error.InvalidArgument(
        f"Unsupported Operation: te.ScanOp. The scan '{op.name}' cannot become blocks",
        help="use te.create_schedule and tvm.lower, or write the recurrence with te.extern",
    )
