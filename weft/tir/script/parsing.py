"""Parse rules of TIR: statements of the Python AST to TIR statements.

A sequence under construction is a list of statements and of scopes that wait for what follows them; :func:`fold`
closes the scopes from the end.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from weft import ir
from weft.error import DTypeMismatch, ParseError
from weft.ir.text.evaluate import truth
from weft.ir.text.parser import Dialect, FunctionDecorator, Macro, MacroDecorator, MetaVar, Parser
from weft.tir import stmt as stmts
from weft.tir.analysis.access import block_regions
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion
from weft.tir.function import PrimFunc, dtype_of_call, signature_type
from weft.tir.script import commands as cmd
from weft.tir.script.elements import as_lanes
from weft.tir.script.language import DTypeMaker, serial
from weft.tir.script.names import BlockUnderWay, FunctionUnderWay, assign, emit, let, name_scope, preflattened
from weft.tir.script.signature import signature

# --- functions --------------------------------------------------------------------------------------------------------


def _body(p: Parser, state: FunctionUnderWay) -> PrimFunc:
    node = state.node
    return finished(p, state, _sequence(p, node.body))


def finished(p: Parser, state: FunctionUnderWay, body: stmts.Stmt) -> PrimFunc:
    """Return the function whose statements were read."""
    node, options = state.node, state.options
    root = state.blocks[0]
    wants_root = state.wants_root and (state.has_blocks or root.allocs)
    if root.allocs or (wants_root and (not isinstance(body, stmts.BlockRealize) or body.iter_values)):
        facts = root.facts
        reads, writes, notes = facts.get("reads", ()), facts.get("writes", ()), ir.Attrs.of(facts.get("annotations"))
        block = stmts.Block((), reads, writes, "root", body, root.init, tuple(root.allocs), (), notes)
        body = stmts.BlockRealize((), ir.TRUE, block, span=p.span(node))
    attrs = dict(state.attrs)
    if options.get("private") and "global_symbol" in attrs:
        raise p.fail(node, "a private function has no global symbol", found=str(attrs["global_symbol"]))
    if not options.get("private") and "global_symbol" not in attrs:
        name = options.get("name", node.name)
        attrs["global_symbol"] = ir.ImpliedName(name) if name == node.name else name
    buffer_map = tuple((v, state.buffers[v]) for v in state.params if v in state.buffers)
    func = PrimFunc(tuple(state.params), body, state.ret_type, buffer_map, ir.Attrs.of(attrs), span=p.span(node))
    return func.replace(ty=signature_type(func))


# --- sequences --------------------------------------------------------------------------------------------------------


def _sequence(p: Parser, nodes: list[ast.stmt]) -> stmts.Stmt:
    """Read statements in a scope of their own."""
    state: FunctionUnderWay = p.state
    state.depth += 1
    state.sequences.append([])
    p.scopes.append({})
    try:
        for n in nodes:
            _statement(p, n)
        return fold(p, state.sequences[-1])
    finally:
        state.depth -= 1
        state.sequences.pop()
        p.scopes.pop()


def fold(p: Parser, entries: list[Any]) -> stmts.Stmt:
    """Close the scopes of a sequence from its end."""
    rest: list[stmts.Stmt] = []
    for e in reversed(entries):
        if isinstance(e, stmts.Stmt):
            rest.append(e)
        else:
            scope, value = e
            body = (
                stmts.seq(*reversed(rest)) if rest else stmts.Evaluate(ir.const(0))
            )  # what a name is bound for may be nothing
            rest = [scope.make(value, body, p)]
    return stmts.seq(*reversed(rest))


def _statement(p: Parser, node: ast.stmt) -> None:
    rule = _STATEMENTS.get(type(node))
    if rule is None:
        raise p.fail(node, f"a TIR program has no '{type(node).__name__.lower()}' statement")
    with p.placed(node):
        rule(p, node)


def _expand(p: Parser, nodes: list[ast.stmt]) -> Any:
    """Read a macro's body into the sequence under way."""
    for n in nodes:
        _statement(p, n)
    return None


# --- statements -------------------------------------------------------------------------------------------------------


def _assignment(p: Parser, node: ast.Assign) -> None:
    value = p.evaluate(node.value)
    if len(node.targets) > 1:
        raise p.fail(node, "several targets in one assignment")
    target = node.targets[0]
    if isinstance(target, ast.Subscript):
        _store(p, target, value)
    else:
        assign(p, target, value)


def _store(p: Parser, target: ast.Subscript, value: Any) -> None:
    buffer = p.evaluate(target.value)
    buffer = p.state.memory.get(buffer, buffer) if isinstance(buffer, ir.Var) else buffer
    if not isinstance(buffer, Buffer):
        raise p.fail(target.value, "only elements of buffers can be assigned", found=str(buffer))
    indices = p.evaluate(target.slice)
    indices = as_lanes(tuple(indices) if isinstance(indices, (tuple, list)) else (indices,), buffer)
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
    if isinstance(value, ir.PrimExpr) and ir.DataType(value.dtype).lanes not in (1, ir.DataType(dtype).lanes):
        raise p.fail(target, "as many elements as a vector has must stand before '='", found=f"{dtype}, {value.dtype}")
    try:
        stored = ir.cast(dtype, value) if isinstance(value, ir.PrimExpr) else ir.exact_const(value, dtype)
    except DTypeMismatch as e:
        found = str(getattr(value, "dtype", value))
        raise p.fail(target, f"buffer '{buffer.name}' holds another data type", expected=str(dtype), found=found) from e
    emit(p, stmts.BufferStore(buffer, stored, indices, span=p.span(target)))


def _annotated(p: Parser, node: ast.AnnAssign) -> None:
    if not isinstance(node.target, ast.Name):
        raise p.fail(node.target, "only names have annotations")
    note = p.evaluate(node.annotation)
    dtype = getattr(note, "dtype", None)
    if node.value is None:
        p.define(node.target.id, ir.Var(node.target.id, ir.DataType(dtype or "int32")))
        return
    value = p.evaluate(node.value)
    if isinstance(note, (cmd.LetAnnotation, DTypeMaker, ir.Var)) or note is None or dtype is None:
        if isinstance(value, (ir.PrimExpr, int, float)):
            p.define(node.target.id, let(p, node.target, ir.as_expr(value, dtype), dtype))
            return
    assign(p, node.target, value)


def _augmented(p: Parser, node: ast.AugAssign) -> None:
    right = ast.copy_location(ast.BinOp(_loaded(node.target), node.op, node.value), node)
    value = p.evaluate(right)
    if isinstance(node.target, ast.Subscript):
        _store(p, node.target, value)
    else:
        assign(p, node.target, value)


def _loaded(target: Any) -> Any:
    """Return the target of an assignment as an expression that reads it."""
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return ast.copy_location(ast.Name(target.id, ast.Load()), target)


def _expression(p: Parser, node: ast.Expr) -> None:
    value = p.evaluate(node.value)
    if isinstance(value, stmts.Stmt):
        emit(p, replace(value, span=p.span(node)) if value.span is None else value)
    elif isinstance(value, cmd.Scope):
        _launch_named(p, value)
        emit(p, (value, value.value))
    elif isinstance(value, cmd.MatchBuffer) and isinstance(value.source, Buffer):
        preflattened(p, node, value)
    elif isinstance(value, cmd.BlockFact):
        state_fact(p, node, value)
    elif isinstance(value, ir.PrimExpr):
        emit(p, stmts.Evaluate(value, span=p.span(node)))
    elif isinstance(value, (cmd.AllocBlockBuffer, cmd.MatchBuffer, cmd.Axis, cmd.Remap, cmd.Loops, cmd.BlockScope)):
        said = node.value.func if isinstance(node.value, ast.Call) else node
        raise p.fail(node, f"the result of '{ast.unparse(said)}' is not used")
    elif value is not None and not isinstance(value, (str, MetaVar)):
        raise p.fail(node, "the statement has no effect", found=repr(value))


def _launch_named(p: Parser, scope: cmd.Scope) -> None:
    """Refuse a thread that would stay without a name."""
    if scope.kind == "thread" and isinstance(scope.value, ir.Var) and scope.value.name == "":
        scope_name = str(scope.annotations)
        raise ParseError(f"the thread '{scope_name}' has no name", help=f'tx = T.launch_thread("{scope_name}", extent)')


_FACTS = {"reads": "T.reads", "writes": "T.writes", "where": "T.where", "annotations": "T.sblock_attr"}


def state_fact(p: Parser, node: ast.AST, fact: cmd.BlockFact) -> None:
    """Note a fact about the block or function under way."""
    state: FunctionUnderWay = p.state
    if fact.kind == "func_attr":
        state.attrs.update(fact.value)
        return
    block = state.blocks[-1]
    if len(state.blocks) == 1:
        raise p.fail(node, f"{_FACTS[fact.kind]} stands in a block", help='open one: `with T.sblock("root"):`')
    if fact.kind == "annotations" and fact.kind in block.facts:
        block.facts[fact.kind] = _merged(p, node, block.facts[fact.kind], fact.value)
        return
    if fact.kind in block.facts:
        raise p.fail(node, f"{_FACTS[fact.kind]} stands twice in one block")
    value = fact.value
    if fact.kind in ("reads", "writes"):
        value = tuple(_as_region(p, node, r) for r in value)
    block.facts[fact.kind] = value


def _merged(p: Parser, node: ast.AST, a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
    """Put annotations together that two statements set."""
    result = dict(a)
    for key, value in b.items():
        if key not in result:
            result[key] = value
        elif isinstance(value, Mapping) and isinstance(result[key], Mapping):
            result[key] = _merged(p, node, result[key], value)
        elif not ir.structural_equal(result[key], value):
            raise p.fail(node, f"annotation '{key}' of the block has two values", found=f"{result[key]} and {value}")
    return result


def _as_region(p: Parser, node: ast.AST, value: ir.Node) -> BufferRegion:
    if isinstance(value, BufferRegion):
        return value
    if isinstance(value, BufferLoad):
        return BufferRegion(
            value.buffer, tuple(ir.Range.from_min_extent(i, ir.const(1, i.dtype)) for i in value.indices)
        )
    if isinstance(value, Buffer):
        return BufferRegion(value, tuple(ir.Range(d) for d in value.shape))
    raise p.fail(node, "a region of a buffer is expected", found=repr(value))


def _if(p: Parser, node: ast.If) -> None:
    condition = p.evaluate(node.test)
    if not isinstance(condition, ir.PrimExpr):  # known while the program is read: only that branch is the program
        for n in node.body if truth(condition) else node.orelse:
            _statement(p, n)
        return
    then_case = _sequence(p, node.body)
    else_case = _sequence(p, node.orelse) if node.orelse else None
    emit(p, stmts.IfThenElse(condition, then_case, else_case, span=p.span(node.test)))


def _while(p: Parser, node: ast.While) -> None:
    emit(p, stmts.While(ir.as_expr(p.evaluate(node.test)), _loop_body(p, node.body), span=p.span(node.test)))


def _loop_body(p: Parser, nodes: list[ast.stmt]) -> stmts.Stmt:
    outer, p.state.written_out = p.state.written_out, 0
    try:
        return _sequence(p, nodes)
    finally:
        p.state.written_out = outer


def _jump(p: Parser, node: ast.Break | ast.Continue) -> None:
    word = type(node).__name__.lower()
    if p.state.written_out:
        raise p.fail(
            node,
            f"'{word}' in a Python loop, which is written out while the program is read",
            expected="a loop of the program, such as T.serial or while",
        )
    emit(p, stmts.Evaluate(ir.CallIntrin("int32", ir.Op.get(f"tir.{word}_loop"), ()), span=p.span(node)))


def _for(p: Parser, node: ast.For) -> None:
    loops = p.evaluate(node.iter)
    if not isinstance(loops, cmd.Loops):
        _unrolled(p, node, loops)
        return
    targets, names = _loop_targets(node.target, len(loops.ranges))
    if len(targets) != len(loops.ranges):
        raise p.fail(
            node.target,
            "variables and loops differ in number",
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
            p.state.loops[var] = r
        p.define(t.id, var if loops.step == 1 else r.min + var * ir.const(loops.step, var.dtype))
    for name, place in names.items():
        p.define(name, tuple(variables[place]))
    body = _loop_body(p, node.body)
    p.scopes.pop()
    emit(p, nest(loops, variables, body, p.span(node.target)))


def nest(loops: cmd.Loops, variables: list[ir.Var], body: stmts.Stmt, span: ir.Span | None = None) -> stmts.Stmt:
    """Put loops with their variables around a statement."""
    for var, r in zip(reversed(variables), reversed(loops.ranges), strict=True):
        if loops.step != 1:  # loops count in steps of one: the name stands for where the step is
            count = ir.ceildiv(r.extent, ir.const(loops.step, r.extent.dtype))
            r = ir.Range.from_min_extent(ir.const(0, var.dtype), count)
        body = stmts.For(
            var, r.min, r.extent, loops.kind, body, _thread(loops, r, var), ir.Attrs.of(loops.annotations), span=span
        )
    return body


def _loop_targets(target: ast.expr, n_loops: int) -> tuple[list[ast.expr], dict[str, slice]]:
    """Return a name for each loop, and which names stand for several: ``for ij in T.grid(..)``, ``for *s, k in ..``."""
    elements = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
    if isinstance(target, ast.Name) and n_loops != 1:
        elements = [ast.copy_location(ast.Starred(target), target)]
    result: list[ast.expr] = []
    names: dict[str, slice] = {}
    for e in elements:
        if not isinstance(e, ast.Starred) or not isinstance(e.value, ast.Name) or names:
            result.append(e)
            continue
        count = max(0, n_loops - len(elements) + 1)
        names[e.value.id] = slice(len(result), len(result) + count)
        result += [ast.copy_location(ast.Name(f"{e.value.id}_{i}", ast.Store()), e) for i in range(count)]
    return result, names


def _thread(loops: cmd.Loops, r: ir.Range, var: ir.Var) -> ir.IterVar | None:
    if loops.binding is not None or loops.kind != stmts.ForKind.THREAD_BINDING or loops.thread is None:
        return loops.binding
    dom = ir.Range.from_min_extent(ir.const(0, var.dtype), r.extent)
    return ir.IterVar(dom, ir.Var(loops.thread, ir.DataType(var.dtype)), "thread", loops.thread)


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
            assign(p, node.target, tuple(MetaVar(x) for x in item))
        p.state.written_out += 1
        for n in node.body:
            _statement(p, n)
        p.state.written_out -= 1
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
    if isinstance(command, cmd.BlockScope):
        _block(p, node, command, inner)
    elif isinstance(command, cmd.InitScope):
        block = p.state.blocks[-1]
        if block.init is not None or len(p.state.blocks) == 1:
            raise p.fail(item.context_expr, "T.init stands once, inside a block")
        block.init = _sequence(p, inner)
    elif isinstance(command, cmd.Scope):
        value = command.value
        p.scopes.append({})
        if isinstance(item.optional_vars, ast.Name):
            value = name_scope(p, item.optional_vars.id, command)
            p.define(item.optional_vars.id, value)
        elif isinstance(value, ir.Var) and value.name == "":
            value = type(value)("v", value.dtype)
        body = _sequence(p, inner)
        p.scopes.pop()
        emit(p, command.make(value, body, p))
    elif isinstance(command, cmd.IfScope):
        _if_scope(p, node, command.condition, inner)
    elif isinstance(command, cmd.WhileScope):
        emit(p, stmts.While(command.condition, _loop_body(p, inner), span=p.span(item.context_expr)))
    elif isinstance(command, cmd.Loops):
        raise p.fail(item.context_expr, "a loop is written with 'for'")
    else:
        raise p.fail(item.context_expr, "'with' needs a block, T.init or a scope", found=repr(command))


def _if_scope(p: Parser, node: ast.With, condition: ir.PrimExpr, inner: list[ast.stmt]) -> None:
    """Read ``with T.Then():`` and, if there is one, ``with T.Else():``."""
    cases: dict[bool, stmts.Stmt] = {}
    for n in inner:
        command = p.evaluate(n.items[0].context_expr) if isinstance(n, ast.With) and len(n.items) == 1 else None
        if not isinstance(command, cmd.Branch) or command.holds in cases or (not command.holds and True not in cases):
            raise p.fail(n, "T.If holds one T.Then and after it at most one T.Else")
        cases[command.holds] = _sequence(p, n.body)  # type: ignore[attr-defined]
    if True not in cases:
        raise p.fail(node, "T.If holds no T.Then")
    emit(p, stmts.IfThenElse(condition, cases[True], cases.get(False), span=p.span(node.items[0].context_expr)))


def _block(p: Parser, node: ast.With, command: cmd.BlockScope, inner: list[ast.stmt]) -> None:
    state: FunctionUnderWay = p.state
    if (name := node.items[0].optional_vars) is not None:
        raise p.fail(name, "a block gives no value to a name")
    state.has_blocks = True
    block = BlockUnderWay()
    block.depth = state.depth
    state.blocks.append(block)
    try:
        body = _sequence(p, inner)
    finally:
        state.blocks.pop()
    emit(p, realized(block, command.name, body, p.span(node.items[0].context_expr)))


def realized(block: BlockUnderWay, name: str, body: stmts.Stmt, span: ir.Span | None = None) -> stmts.BlockRealize:
    """Return the block whose statements were read."""
    reads, writes = _regions(block, body)
    result = stmts.Block(
        tuple(block.iter_vars),
        reads,
        writes,
        name,
        body,
        block.init,
        tuple(block.allocs),
        tuple(block.matches),
        ir.Attrs.of(block.facts.get("annotations")),
        span=span,
    )
    return stmts.BlockRealize(tuple(block.values), block.facts.get("where", ir.TRUE), result, span=span)


def _regions(block: BlockUnderWay, body: stmts.Stmt) -> tuple[tuple[BufferRegion, ...], tuple[BufferRegion, ...]]:
    """Return what the block states to read and write, and what its statements show where it does not."""
    facts = block.facts
    if "reads" in facts and "writes" in facts:
        return facts["reads"], facts["writes"]
    found_reads, found_writes = block_regions(block.init, body, block.allocs, matches=block.matches)
    return facts.get("reads", found_reads), facts.get("writes", found_writes)


def _assert(p: Parser, node: ast.Assert) -> None:
    condition = ir.as_expr(p.evaluate(node.test))
    said, kind, span = (
        ast.unparse(node.test) if node.msg is None else p.evaluate(node.msg),
        "RuntimeError",
        p.span(node),
    )
    if isinstance(said, tuple) and len(said) == 2 and isinstance(said[1], (list, tuple)):  # its kind, and parts of it
        kind, said = str(said[0]), "".join(map(str, said[1]))
    message = ir.as_expr(said)
    emit(p, (cmd.Scope(None, lambda _, body, __: stmts.AssertStmt(condition, message, body, kind, span=span)), None))


def _return(p: Parser, node: ast.Return) -> None:
    if node.value is None:
        raise p.fail(node, "a function returns by writing its buffers; 'return' needs a value")
    found = p.evaluate(node.value)
    value = found.data if isinstance(found, Buffer) else ir.as_expr(found)
    emit(p, stmts.Evaluate(ir.CallIntrin(value.dtype, ir.Op.get("tir.ret"), (value,)), span=p.span(node)))


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
    ast.Break: _jump,
    ast.Continue: _jump,
    ast.FunctionDef: _nested_function,
    **dict.fromkeys((ast.Pass, ast.Nonlocal, ast.Global), lambda p, node: None),  # names of outside are known anyway
}


# --- expressions ------------------------------------------------------------------------------------------------------


class _Range:
    """``range`` inside a program: a loop in ``for``, and as ever in comprehensions over constants."""

    def __call__(self, start: Any, stop: Any = None, step: Any = None, *, annotations: Any = None) -> Any:
        if annotations is not None or any(isinstance(x, ir.PrimExpr) for x in (start, stop)):
            return serial(start, stop, annotations=annotations, step=step)
        if step not in (None, 1):
            return range(start, stop, step)
        return serial(start, stop)


_range = _Range()


def _call_global(func: ir.GlobalVar, args: list[Any], **_: Any) -> Any:
    values = tuple(a if isinstance(a, Buffer) else ir.as_expr(a) for a in args)
    return ir.CallIntrin(ir.DataType(dtype_of_call(func)), func, values)


def _in_function(p: Parser, node: ast.FunctionDef, options: dict[str, Any]) -> FunctionUnderWay:
    p.define("range", _range)
    return signature(p, node, options)


TIR = Dialect("tir", _in_function, _body, _expand, _call_global)
prim_func = FunctionDecorator(TIR)
