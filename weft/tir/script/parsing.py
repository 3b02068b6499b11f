"""Parse rules of TIR: statements of the Python AST to TIR statements.

A sequence under construction is a list of statements and of scopes that wait for what follows them; :func:`_fold`
closes the scopes from the end.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.arith import Analyzer
from weft.error import DTypeMismatch, ParseError
from weft.ir.text.evaluate import BINARY, SUBSCRIPT, Evaluator, operator_of
from weft.ir.text.parser import Dialect, FunctionDecorator, Macro, MacroDecorator, MetaVar, Parser
from weft.ir.text.scalar import slice_of
from weft.tir.analysis.access import access_regions
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, MatchBufferRegion
from weft.tir.function import PrimFunc
from weft.tir.script.commands import (
    AllocBlockBuffer,
    Axis,
    BlockFact,
    BlockScope,
    Branch,
    IfScope,
    InitScope,
    LetAnnotation,
    Loops,
    MatchBuffer,
    Remap,
    Scope,
    WhileScope,
)
from weft.tir.script.language import DTypeMaker, serial
from weft.tir.stmt import (
    AssertStmt,
    Block,
    BlockRealize,
    BufferStore,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    seq,
)

__all__ = ["TIR", "prim_func"]

_BLOCK_WORDS = {"sblock", "block"}


class _Block:
    """What is known of the block (or function root) under way."""

    def __init__(self) -> None:
        self.iter_vars: list[ir.IterVar] = []
        self.values: list[ir.PrimExpr] = []
        self.facts: dict[str, Any] = {}
        self.allocs: list[Buffer] = []
        self.matches: list[MatchBufferRegion] = []
        self.init: Stmt | None = None
        self.depth = 0  # of sequences: allocations at the block's own level belong to it


class _State:
    """A function under way."""

    ty = None

    def __init__(self, node: ast.FunctionDef, options: dict[str, Any]) -> None:
        self.node, self.options = node, options
        self.params: list[ir.Var] = []
        self.buffers: dict[int, tuple[ir.Var, Buffer]] = {}
        self.attrs: dict[str, Any] = {}
        self.loops: dict[int, ir.Range] = {}
        self.threads: dict[int, str] = {}
        self.depth = 0
        self.blocks: list[_Block] = [_Block()]
        self.sequences: list[list[Any]] = []
        words = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        self.has_blocks = bool(words & _BLOCK_WORDS)
        self.wants_root = options.get("root_block", True)


# --- functions --------------------------------------------------------------------------------------------------------


def _signature(p: Parser, node: ast.FunctionDef, options: dict[str, Any]) -> _State:
    unknown = set(options) - {
        "name",
        "private",
        "check_well_formed",
        "root_block",
        "s_tir",
        "tirx",
        "is_stir",
        "persistent",
    }
    if unknown:
        raise p.fail(
            node, f"T.prim_func has no option '{min(unknown)}'", expected="private, check_well_formed or root_block"
        )
    state = p.state = _State(node, options)
    p.define("range", _range)
    if node.args.vararg or node.args.kwarg or node.args.defaults or node.args.kwonlyargs:
        raise p.fail(node, "parameters of a program have no defaults and are not packed")
    for arg in node.args.args:
        _param(p, arg)
    return state


def _param(p: Parser, arg: ast.arg) -> None:
    state: _State = p.state
    if arg.annotation is None:
        raise p.fail(
            arg,
            f"parameter '{arg.arg}' has no type",
            help="T.Buffer(shape, dtype), T.handle, or a data type such as T.int32",
        )
    note = _annotation(p, arg.annotation)
    if isinstance(note, Buffer):
        param = ir.Var(arg.arg + "_handle", ir.DataType("handle"), span=p.span(arg))
        buffer = _named_buffer(note, arg.arg)
        state.buffers[id(param)] = (param, buffer)
        p.define(arg.arg, buffer)
    elif isinstance(note, DTypeMaker):
        param = ir.Var(arg.arg, note.dtype, span=p.span(arg))
        p.define(arg.arg, param)
    elif isinstance(note, ir.Var):
        param = type(note)(arg.arg, note.dtype, span=p.span(arg))
        p.define(arg.arg, param)
    else:
        raise p.fail(
            arg.annotation,
            f"parameter '{arg.arg}' has no TIR type",
            expected="T.Buffer(...), T.handle or a data type",
            found=repr(note),
        )
    state.params.append(param)


def _annotation(p: Parser, node: ast.expr) -> Any:
    """Evaluate an annotation; one in quotes is read as an expression."""
    value = p.evaluate(node)
    if isinstance(value, str):
        value = p.evaluate(ast.copy_location(ast.parse(value, mode="eval").body, node))
    return value


def _body(p: Parser, state: _State) -> PrimFunc:
    node, options = state.node, state.options
    body = _sequence(p, node.body)
    root = state.blocks[0]
    wants_root = state.wants_root and (state.has_blocks or root.allocs)
    if root.allocs or (wants_root and not _is_root(body)):
        facts = root.facts
        block = Block(
            (),
            facts.get("reads", ()),
            facts.get("writes", ()),
            "root",
            body,
            root.init,
            tuple(root.allocs),
            (),
            ir.Attrs.of(facts.get("annotations")),
        )
        body = BlockRealize((), ir.TRUE, block, span=p.span(node))
    attrs = dict(state.attrs)
    if not options.get("private") and "global_symbol" not in attrs:
        attrs["global_symbol"] = options.get("name", node.name)
    ret_type = None if node.returns is None else p.evaluate(node.returns)
    buffer_map = tuple(state.buffers[id(v)] for v in state.params if id(v) in state.buffers)
    return PrimFunc(tuple(state.params), body, ret_type, buffer_map, ir.Attrs.of(attrs), span=p.span(node))


def _is_root(body: Stmt) -> bool:
    return isinstance(body, BlockRealize) and not body.iter_values and body.block.name_hint == "root"


# --- sequences --------------------------------------------------------------------------------------------------------


def _sequence(p: Parser, nodes: list[ast.stmt]) -> Stmt:
    """Read statements in a scope of their own."""
    state: _State = p.state
    state.depth += 1
    state.sequences.append([])
    p.scopes.append({})
    try:
        for n in nodes:
            _statement(p, n)
        return _fold(p, state.sequences[-1])
    finally:
        state.depth -= 1
        state.sequences.pop()
        p.scopes.pop()


def _fold(p: Parser, entries: list[Any]) -> Stmt:
    rest: list[Stmt] = []
    for e in reversed(entries):
        if isinstance(e, Stmt):
            rest.append(e)
        else:
            scope, value = e
            rest = [scope.make(value, seq(*reversed(rest)), p)]
    return seq(*reversed(rest))


def _statement(p: Parser, node: ast.stmt) -> None:
    rule = _STATEMENTS.get(type(node))
    if rule is None:
        raise p.fail(node, f"a TIR program has no '{type(node).__name__.lower()}' statement")
    with p.placed(node):
        rule(p, node)


def _emit(p: Parser, stmt: Any) -> None:
    p.state.sequences[-1].append(stmt)


def _expand(p: Parser, nodes: list[ast.stmt]) -> Any:
    """Read a macro's body into the sequence under way."""
    for n in nodes:
        _statement(p, n)
    return None


# --- names ------------------------------------------------------------------------------------------------------------


def _named_buffer(b: Buffer, name: str) -> Buffer:
    """Give a buffer that was made without a name, and its own pointer, the name it is bound to."""
    data = ir.Var(name, b.data.dtype) if b.data.name == "" else b.data
    return Buffer(data, b.dtype, b.shape, b.strides, b.elem_offset, name, b.scope, b.data_alignment, b.offset_factor)


def _axes(p: Parser, target: Any, remap: Remap) -> list[Axis]:
    kinds = {"S": "data_par"}
    return [Axis(kinds.get(k, "reduce"), _loop_domain(p, target, v), v) for k, v in _remapped(p, target, remap)]


def _assign(p: Parser, target: ast.expr, value: Any) -> None:
    """Bind the name or names of a target."""
    if isinstance(target, ast.Name):
        p.define(target.id, _bind(p, target, value))
        return
    if isinstance(target, (ast.Tuple, ast.List)):
        values = _axes(p, target, value) if isinstance(value, Remap) else list(value)
        if len(values) != len(target.elts):
            raise p.fail(
                target,
                "the number of names and of values differ",
                expected=str(len(values)),
                found=str(len(target.elts)),
            )
        for t, v in zip(target.elts, values, strict=True):
            _assign(p, t, v)
        return
    raise p.fail(target, "a name, or a buffer's element, must stand before '='")


def _remapped(p: Parser, node: ast.AST, remap: Remap) -> list[tuple[str, Any]]:
    if len(remap.kinds) != len(remap.values) or set(remap.kinds) - {"S", "R"}:
        raise p.fail(
            node,
            "T.axis.remap: one letter, S or R, for each loop variable",
            found=f"'{remap.kinds}' for {len(remap.values)} variables",
        )
    return list(zip(remap.kinds, remap.values, strict=True))


def _loop_domain(p: Parser, node: ast.AST, value: Any) -> ir.Range:
    dom = p.state.loops.get(id(value))
    if dom is None:
        raise p.fail(
            node,
            "T.axis.remap takes variables of loops around the block",
            found=str(value),
            help="use T.axis.spatial(extent, value)",
        )
    return dom


def _bind(p: Parser, target: ast.Name, value: Any) -> Any:
    """Return what `target` stands for once `value` is assigned to it."""
    rule = _BIND.get(type(value))
    if rule is not None:
        return rule(p, target, value)
    if isinstance(value, ir.Var) and value.name == "":
        return type(value)(target.id, value.dtype)
    if isinstance(value, (ir.PrimExpr, int, float)) and not isinstance(value, bool):
        return _let(p, target, ir.as_expr(value), None)
    return value


def _let(p: Parser, target: ast.Name, value: ir.PrimExpr, dtype: str | None) -> ir.Var:
    if dtype is not None and dtype != value.dtype:
        value = ir.cast(dtype, value)
    var = ir.Var(target.id, ir.DataType(value.dtype), span=p.span(target))
    span = p.span(target)
    _emit(p, (Scope(var, lambda v, body, _: LetStmt(v, value, body, span=span)), var))
    return var


def _bind_scope(p: Parser, target: ast.Name, scope: Scope) -> Any:
    state: _State = p.state
    value = _name_scope(p, target.id, scope)
    block = state.blocks[-1]
    if (
        scope.kind == "alloc"
        and state.depth == block.depth + 1
        and state.has_blocks
        and state.wants_root
        and not scope.annotations
    ):
        block.allocs.append(value)
    else:
        _emit(p, (scope, value))
    return value


def _name_scope(p: Parser, name: str, scope: Scope) -> Any:
    """Name the variable or buffer that a scope introduces."""
    value = scope.value
    if isinstance(value, Buffer):
        return _named_buffer(value, name)
    if isinstance(value, ir.Var) and value.name == "":
        return type(value)(name, value.dtype)
    return value


def _bind_axis(p: Parser, target: ast.Name, axis: Axis) -> ir.Var:
    block = p.state.blocks[-1]
    if p.state.depth != block.depth + 1 or len(p.state.blocks) == 1:
        raise p.fail(
            target, "iteration variables stand at the beginning of a block", help="open one: `with T.sblock(name):`"
        )
    dom = _domain(axis, p, target)
    dtype = axis.dtype or (axis.value.dtype if dom is None else dom.extent.dtype)
    var = ir.Var(target.id, ir.DataType(dtype), span=p.span(target))
    block.iter_vars.append(ir.IterVar(dom, var, axis.iter_type, axis.thread_tag))
    block.values.append(axis.value)
    return var


def _domain(axis: Axis, p: Parser, target: ast.Name) -> ir.Range | None:
    dom = axis.dom
    if dom is None or isinstance(dom, ir.Range):
        return dom
    like = axis.value.dtype if ir.DataType(axis.value.dtype).is_integer else None
    low, high = dom if isinstance(dom, (tuple, list)) else (0, dom)
    if isinstance(low, int) and isinstance(high, int):
        return ir.Range.from_min_extent(ir.const(low, like), ir.const(high - low, like))
    return slice_of(low, high)


def _bind_remap(p: Parser, target: ast.Name, remap: Remap) -> Any:
    ((kind, value),) = _remapped(p, target, remap) if len(remap.values) == 1 else [("", None)]
    if value is None:
        raise p.fail(target, f"T.axis.remap gives {len(remap.values)} variables to one name")
    return _bind_axis(p, target, Axis("data_par" if kind == "S" else "reduce", _loop_domain(p, target, value), value))


def _bind_alloc(p: Parser, target: ast.Name, command: AllocBlockBuffer) -> Buffer:
    buffer = _named_buffer(command.buffer, target.id)
    p.state.blocks[-1].allocs.append(buffer)
    return buffer


def _bind_match(p: Parser, target: ast.Name, command: MatchBuffer) -> Buffer:
    buffer = _named_buffer(command.buffer, target.id)
    state: _State = p.state
    if isinstance(command.source, BufferRegion):
        state.blocks[-1].matches.append(MatchBufferRegion(buffer, command.source))
    elif any(command.source is v for v in state.params):
        if id(command.source) in state.buffers:
            raise p.fail(target, f"parameter '{command.source.name}' is matched twice")
        state.buffers[id(command.source)] = (command.source, buffer)
    else:
        raise p.fail(
            target, "T.match_buffer takes a handle parameter or a region of a buffer", found=str(command.source)
        )
    return buffer


def _bind_iter_var(p: Parser, target: ast.Name, iv: ir.IterVar) -> Any:
    if iv.iter_type != "thread" or iv.var.name:
        return iv
    var = ir.Var(target.id, iv.var.dtype)
    p.state.threads[id(var)] = iv.thread_tag
    p.state.threads.setdefault(-id(var), iv.thread_tag)
    return var


_BIND: dict[type, Callable[[Parser, ast.Name, Any], Any]] = {
    MetaVar: lambda p, target, value: value.value,
    Scope: _bind_scope,
    Axis: _bind_axis,
    Remap: _bind_remap,
    AllocBlockBuffer: _bind_alloc,
    MatchBuffer: _bind_match,
    ir.IterVar: _bind_iter_var,
    Buffer: lambda p, target, value: _named_buffer(value, target.id) if value.name == "" else value,
}


# --- statements -------------------------------------------------------------------------------------------------------


def _assignment(p: Parser, node: ast.Assign) -> None:
    value = p.evaluate(node.value)
    if len(node.targets) > 1:
        raise p.fail(node, "several targets in one assignment")
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        _store(p, target, value)
    else:
        _assign(p, target, value)


def _store(p: Parser, target: ast.Subscript, value: Any) -> None:
    buffer = p.evaluate(target.value)
    if not isinstance(buffer, Buffer):
        raise p.fail(target.value, "only elements of buffers can be assigned", found=str(buffer))
    indices = p.evaluate(target.slice)
    indices = _lanes(indices if isinstance(indices, tuple) else (indices,), buffer)
    if isinstance(value, BufferRegion):  # the elements that a slice names
        value = value.asobject()
    if len(indices) != len(buffer.shape):
        raise p.fail(
            target,
            f"buffer '{buffer.name}' has another number of dimensions",
            expected=str(len(buffer.shape)),
            found=f"{len(indices)} indices",
        )
    lanes = ir.DataType(indices[-1].dtype).lanes if indices else 1
    dtype = buffer.dtype if lanes == 1 else ir.DataType(f"{buffer.dtype}x{lanes}")
    if not isinstance(value, (ir.PrimExpr, int, float, bool)):
        raise p.fail(target, "a scalar expression must stand after '='", found=repr(value))
    try:
        stored = ir.cast(dtype, value) if isinstance(value, ir.PrimExpr) else ir.const(value, dtype)
    except DTypeMismatch as e:
        raise p.fail(
            target,
            f"buffer '{buffer.name}' holds another data type",
            expected=str(dtype),
            found=str(getattr(value, "dtype", value)),
        ) from e
    _emit(p, BufferStore(buffer, stored, indices, span=p.span(target)))


def _annotated(p: Parser, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise p.fail(node.target, "only names have annotations")
    note = p.evaluate(node.annotation)
    dtype = getattr(note, "dtype", None)
    if node.value is None:
        p.define(node.target.id, ir.Var(node.target.id, ir.DataType(dtype or "int32")))
        return
    value = p.evaluate(node.value)
    if isinstance(note, (LetAnnotation, DTypeMaker, ir.Var)) or note is None or dtype is None:
        if isinstance(value, (ir.PrimExpr, int, float)):
            p.define(node.target.id, _let(p, node.target, ir.as_expr(value, dtype), dtype))
            return
    _assign(p, node.target, value)


def _augmented(p: Parser, node: ast.AugAssign) -> None:
    right = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
    value = p.evaluate(right)
    if isinstance(node.target, ast.Subscript):
        _store(p, node.target, value)
    else:
        _assign(p, node.target, value)


def _loaded(target: Any) -> Any:
    """Return the target of an assignment as an expression that reads it."""
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


def _expression(p: Parser, node: ast.Expr) -> None:
    value = p.evaluate(node.value)
    if isinstance(value, Stmt):
        _emit(p, _with_span(value, p, node))
    elif isinstance(value, Scope):
        _launch_named(p, value)
        _emit(p, (value, value.value))
    elif isinstance(value, BlockFact):
        _fact(p, node, value)
    elif isinstance(value, ir.PrimExpr):
        _emit(p, Evaluate(value, span=p.span(node)))
    elif isinstance(value, (AllocBlockBuffer, MatchBuffer, Axis, Remap, Loops, BlockScope)):
        said = node.value.func if isinstance(node.value, ast.Call) else node
        raise p.fail(node, f"the result of '{ast.unparse(said)}' is not used")
    elif value is not None and not isinstance(value, (str, MetaVar)):
        raise p.fail(node, "the statement has no effect", found=repr(value))


def _with_span(stmt: Stmt, p: Parser, node: ast.AST) -> Stmt:
    fields = {f: getattr(stmt, f) for f in stmt.__struct_fields__}
    return type(stmt)(**{**fields, "span": p.span(node)}) if stmt.span is None else stmt


def _launch_named(p: Parser, scope: Scope) -> None:
    """Refuse a thread that would stay without a name."""
    if scope.kind == "thread" and isinstance(scope.value, ir.Var) and scope.value.name == "":
        scope_name = str(scope.annotations)
        raise ParseError(f"the thread '{scope_name}' has no name", help=f'tx = T.launch_thread("{scope_name}", extent)')


_FACTS = {"reads": "T.reads", "writes": "T.writes", "where": "T.where", "annotations": "T.sblock_attr"}


def _fact(p: Parser, node: ast.AST, fact: BlockFact) -> None:
    state: _State = p.state
    if fact.kind == "func_attr":
        state.attrs.update(fact.value)
        return
    block = state.blocks[-1]
    if fact.kind in block.facts:
        raise p.fail(node, f"{_FACTS[fact.kind]} stands twice in one block")
    value = fact.value
    if fact.kind in ("reads", "writes"):
        value = tuple(_as_region(p, node, r) for r in value)
    block.facts[fact.kind] = value


def _as_region(p: Parser, node: ast.AST, value: Any) -> BufferRegion:
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, BufferLoad):
        return BufferRegion(
            value.buffer, tuple(ir.Range.from_min_extent(i, ir.const(1, i.dtype)) for i in value.indices)
        )
    if isinstance(value, Buffer):
        return BufferRegion(value, tuple(ir.Range.from_min_extent(ir.const(0, d.dtype), d) for d in value.shape))
    raise p.fail(node, "a region of a buffer is expected", found=repr(value))


def _if(p: Parser, node: ast.If) -> None:
    condition = p.evaluate(node.test)
    if not isinstance(condition, ir.PrimExpr):  # known while the program is read: only that branch is the program
        for n in node.body if condition else node.orelse:
            _statement(p, n)
        return
    then_case = _sequence(p, node.body)
    else_case = _sequence(p, node.orelse) if node.orelse else None
    _emit(p, IfThenElse(condition, then_case, else_case, span=p.span(node.test)))


def _while(p: Parser, node: ast.While) -> None:
    _emit(p, While(ir.as_expr(p.evaluate(node.test)), _sequence(p, node.body), span=p.span(node.test)))


def _for(p: Parser, node: ast.For) -> None:
    loops = p.evaluate(node.iter)
    if not isinstance(loops, Loops):
        _unrolled(p, node, loops)
        return
    targets = node.target.elts if isinstance(node.target, (ast.Tuple, ast.List)) else [node.target]
    if len(targets) != len(loops.ranges):
        raise p.fail(
            node.target,
            "the number of loop variables and of loops differ",
            expected=str(len(loops.ranges)),
            found=str(len(targets)),
        )
    variables: list[ir.Var] = []
    p.scopes.append({})
    for t, r in zip(targets, loops.ranges, strict=True):
        if not isinstance(t, ast.Name):
            raise p.fail(t, "a loop variable is a name")
        like = loops.var if loops.var is not None else None
        var = (type(like) if like is not None else ir.Var)(
            t.id, ir.DataType(like.dtype if like is not None else r.extent.dtype), span=p.span(t)
        )
        variables.append(var)
        if loops.step == 1:
            p.state.loops[id(var)] = r
        p.define(t.id, var if loops.step == 1 else r.min + var * ir.const(loops.step, var.dtype))
    body = _sequence(p, node.body)
    p.scopes.pop()
    for var, r in zip(reversed(variables), reversed(loops.ranges), strict=True):
        if loops.step != 1:  # loops count in steps of one: the name stands for where the step is
            count = ir.ceildiv(r.extent, ir.const(loops.step, r.extent.dtype))
            r = ir.Range.from_min_extent(ir.const(0, var.dtype), count)
        body = For(
            var,
            r.min,
            r.extent,
            loops.kind,
            body,
            _thread(loops, r, var),
            ir.Attrs.of(loops.annotations),
            span=p.span(node.target),
        )
    _emit(p, body)


def _thread(loops: Loops, r: ir.Range, var: ir.Var) -> ir.IterVar | None:
    if loops.binding is not None or loops.kind != ForKind.THREAD_BINDING or loops.thread is None:
        return loops.binding
    return ir.IterVar(
        ir.Range.from_min_extent(ir.const(0, var.dtype), r.extent),
        ir.Var(loops.thread, ir.DataType(var.dtype)),
        "thread",
        loops.thread,
    )


def _unrolled(p: Parser, node: ast.For, values: Any) -> None:
    """Read the body once for each element of a Python iterable."""
    try:
        items = list(values)
    except TypeError:
        raise p.fail(
            node.iter, "a loop is expected", expected="T.serial, T.grid, range or a Python iterable", found=repr(values)
        ) from None
    for item in items:
        p.scopes.append({})
        if isinstance(node.target, ast.Name):
            p.define(node.target.id, item)
        else:
            _assign(p, node.target, tuple(MetaVar(x) for x in item))
        for n in node.body:
            _statement(p, n)
        p.scopes.pop()


def _with(p: Parser, node: ast.With) -> None:
    _with_items(p, node, list(node.items))


def _with_items(p: Parser, node: ast.With, items: list[ast.withitem]) -> None:
    if not items:
        for n in node.body:
            _statement(p, n)
        return
    item, *rest = items
    command = p.evaluate(item.context_expr)
    inner: list[ast.stmt] = node.body if not rest else [ast.copy_location(ast.With(rest, node.body), node)]
    if isinstance(command, BlockScope):
        _block(p, node, command, inner)
    elif isinstance(command, InitScope):
        block = p.state.blocks[-1]
        if block.init is not None or len(p.state.blocks) == 1:
            raise p.fail(item.context_expr, "T.init stands once, inside a block")
        block.init = _sequence(p, inner)
    elif isinstance(command, Scope):
        value = command.value
        p.scopes.append({})
        if isinstance(item.optional_vars, ast.Name):
            value = _name_scope(p, item.optional_vars.id, command)
            p.define(item.optional_vars.id, value)
        elif isinstance(value, ir.Var) and value.name == "":
            value = type(value)("v", value.dtype)
        body = _sequence(p, inner)
        p.scopes.pop()
        _emit(p, command.make(value, body, p))
    elif isinstance(command, IfScope):
        _if_scope(p, node, command.condition, inner)
    elif isinstance(command, WhileScope):
        _emit(p, While(command.condition, _sequence(p, inner), span=p.span(item.context_expr)))
    elif isinstance(command, Loops):
        raise p.fail(item.context_expr, "a loop is written with 'for'")
    else:
        raise p.fail(item.context_expr, "'with' needs a block, T.init or a scope", found=repr(command))


def _if_scope(p: Parser, node: ast.With, condition: ir.PrimExpr, inner: list[ast.stmt]) -> None:
    """Read ``with T.Then():`` and, if there is one, ``with T.Else():``."""
    cases: dict[bool, Stmt] = {}
    for n in inner:
        command = p.evaluate(n.items[0].context_expr) if isinstance(n, ast.With) and len(n.items) == 1 else None
        if not isinstance(command, Branch) or command.holds in cases or (not command.holds and True not in cases):
            raise p.fail(n, "T.If holds one T.Then and after it at most one T.Else")
        cases[command.holds] = _sequence(p, n.body)  # type: ignore[attr-defined]
    if True not in cases:
        raise p.fail(node, "T.If holds no T.Then")
    _emit(p, IfThenElse(condition, cases[True], cases.get(False), span=p.span(node.items[0].context_expr)))


def _block(p: Parser, node: ast.With, command: BlockScope, inner: list[ast.stmt]) -> None:
    state: _State = p.state
    state.has_blocks = True
    block = _Block()
    block.depth = state.depth
    state.blocks.append(block)
    try:
        body = _sequence(p, inner)
    finally:
        state.blocks.pop()
    reads, writes = _regions(block, body)
    result = Block(
        tuple(block.iter_vars), reads, writes, command.name, body, block.init, tuple(block.allocs),
        tuple(block.matches), ir.Attrs.of(block.facts.get("annotations")), span=p.span(node.items[0].context_expr),
    )  # fmt: skip
    _emit(p, BlockRealize(tuple(block.values), block.facts.get("where", ir.TRUE), result, span=result.span))


def _regions(block: _Block, body: Stmt) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return what the block states to read and write, and what its statements show where it does not."""
    facts = block.facts
    if "reads" in facts and "writes" in facts:
        return facts["reads"], facts["writes"]
    found_reads, found_writes = access_regions(
        [x for x in (block.init, body) if x is not None], Analyzer(), skip=block.allocs
    )
    if block.init is not None:  # the value before the first step is not read from outside
        found_reads = tuple(r for r in found_reads if not any(ir.structural_equal(r, w) for w in found_writes))
    return facts.get("reads", found_reads), facts.get("writes", found_writes)


def _assert(p: Parser, node: ast.Assert) -> None:
    condition = ir.as_expr(p.evaluate(node.test))
    message = ir.as_expr(p.evaluate(node.msg)) if node.msg is not None else ir.as_expr(ast.unparse(node.test))
    span = p.span(node)
    _emit(p, (Scope(None, lambda _, body, __: AssertStmt(condition, message, body, span=span)), None))


def _return(p: Parser, node: ast.Return) -> None:
    if node.value is None:
        raise p.fail(node, "a function returns by writing its buffers; 'return' needs a value")
    value = ir.as_expr(p.evaluate(node.value))
    _emit(p, Evaluate(ir.CallIntrin(value.dtype, ir.Op.get("tir.ret"), (value,)), span=p.span(node)))


def _nested_function(p: Parser, node: ast.FunctionDef) -> None:
    for d in node.decorator_list:
        decorator = p.evaluate(d)
        if isinstance(decorator, MacroDecorator):
            scope = {k: v for names in p.scopes for k, v in names.items()}
            p.define(node.name, Macro(p.source, node, p.outer, scope, decorator.hygienic))
            return
    raise p.fail(node, "a TIR program has no inner functions", help="decorate it with @T.macro")


_STATEMENTS: dict[type, Callable[[Parser, Any], None]] = {
    ast.Assign: _assignment,
    ast.AnnAssign: _annotated,
    ast.AugAssign: _augmented,
    ast.Expr: _expression,
    ast.If: _if,
    ast.While: _while,
    ast.For: _for,
    ast.With: _with,
    ast.Assert: _assert,
    ast.Return: _return,
    ast.FunctionDef: _nested_function,
    ast.Pass: lambda p, node: None,
}


# --- expressions ------------------------------------------------------------------------------------------------------


class _Range:
    """``range`` inside a program: a loop in ``for``, and as ever in comprehensions over constants."""

    def __call__(self, start: Any, stop: Any = None, step: Any = None) -> Any:
        if any(isinstance(x, ir.PrimExpr) for x in (start, stop)):
            return serial(start, stop, step=step)
        if step not in (None, 1):
            return range(start, stop, step)
        return serial(start, stop)


_range = _Range()


@BINARY.on(BufferRegion)
def _slices(a: Any, b: Any, name: str, p: Evaluator) -> Any:
    """Compute with the elements that slices name."""
    a, b = (x.asobject() if isinstance(x, BufferRegion) else x for x in (a, b))
    if b is None:
        return -a if name == "negative" else ~a
    return operator_of(name)(a, b)


@SUBSCRIPT.on(Buffer)
def _element(buffer: Buffer, indices: tuple[Any, ...], p: Evaluator) -> Any:
    if len(indices) != len(buffer.shape):
        raise ParseError(
            f"buffer '{buffer.name}' has another number of dimensions",
            expected=str(len(buffer.shape)),
            found=f"{len(indices)} indices",
        )
    steps = any(isinstance(i, slice) and i.step is not None for i in indices)
    if steps or not any(isinstance(i, (slice, ir.Range)) for i in indices):
        return BufferLoad(buffer, _lanes(indices, buffer))
    return BufferRegion(buffer, tuple(_range_of(i, d) for i, d in zip(indices, buffer.shape, strict=True)))


def _lanes(indices: Any, buffer: Buffer) -> tuple[ir.PrimExpr, ...]:
    """Make vectors of slices: ``A[i : i + 8]`` and ``A[i : i + 16 : 2]`` have eight lanes."""
    out = []
    for index, dim in zip(indices, (*buffer.shape, *(ir.const(1, "int32") for _ in indices)), strict=False):
        if not isinstance(index, (slice, ir.Range)):
            out.append(ir.as_expr(index))
            continue
        step = index.step if isinstance(index, slice) and index.step is not None else 1
        r = _range_of(slice(index.start, index.stop) if isinstance(index, slice) else index, dim)
        extent, stride = ir.as_int(Analyzer().simplify(r.extent)), ir.as_int(step)
        if extent is None or stride is None or stride < 1:
            raise ParseError("a slice of elements has a constant length and step", found=f"{r.extent}, step {step}")
        count = -(-extent // stride)
        out.append(r.min if count == 1 else ir.Ramp(r.min, ir.const(stride, r.min.dtype), count))
    return tuple(out)


def _range_of(index: Any, dim: ir.PrimExpr) -> ir.Range:
    if isinstance(index, ir.Range):
        return index
    if not isinstance(index, slice):
        start = ir.as_expr(index)
        return ir.Range.from_min_extent(start, ir.const(1, start.dtype))
    if index.step is not None:
        raise ParseError("regions have no steps")
    low = index.start if index.start is not None else ir.const(0, dim.dtype)
    r = slice_of(low, index.stop if index.stop is not None else dim)
    if isinstance(r.extent, ir.IntImm) or not isinstance(r.extent, ir.Sub):
        return r
    return ir.Range.from_min_extent(r.min, Analyzer().simplify(r.extent))


def _call_global(func: ir.GlobalVar, args: list[Any], **_: Any) -> Any:
    return ir.CallIntrin(ir.DataType("void"), func, tuple(a if isinstance(a, Buffer) else ir.as_expr(a) for a in args))


TIR = Dialect("tir", _signature, _body, _expand, _call_global)
prim_func = FunctionDecorator(TIR)
