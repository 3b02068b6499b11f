"""Names in TIR programs: what an assignment or a parameter makes of a value, in the function and block under way."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from weft import ir
from weft.ir.text.parser import MetaVar, Parser
from weft.ir.text.scalar import slice_of
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer, BufferRegion, MatchBufferRegion
from weft.tir.script.commands import AllocBlockBuffer, Axis, MatchBuffer, Remap, Scope
from weft.tir.stmt import LetStmt, Stmt

_BLOCK_WORDS = {"sblock", "block"}


class BlockUnderWay:
    """What is known of the block (or function root) under way."""

    def __init__(self) -> None:
        self.iter_vars: list[ir.IterVar] = []
        self.values: list[ir.PrimExpr] = []
        self.facts: dict[str, Any] = {}
        self.allocs: list[Buffer] = []
        self.matches: list[MatchBufferRegion] = []
        self.init: Stmt | None = None
        self.depth = 0  # of sequences: allocations at the block's own level belong to it


class FunctionUnderWay:
    """A function under way."""

    ret_type: ir.Type | str | None = None
    ty: ir.Type | None = None

    def __init__(self, node: ast.FunctionDef, options: dict[str, Any]) -> None:
        self.node, self.options = node, options
        self.params: list[ir.Var] = []
        self.buffers: dict[ir.Var, Buffer] = {}
        self.attrs: dict[str, Any] = {}
        self.memory: dict[ir.Var, Buffer] = {}  # that pointers of T.allocate name
        self.symbols: dict[str, ir.Var] = {}  # that shapes in quotes named
        self.loops: dict[ir.Var, ir.Range] = {}
        self.threads: dict[ir.Var, str] = {}
        self.depth = 0
        self.written_out = 0  # Python loops around the statement, inside the innermost loop of the program
        self.blocks: list[BlockUnderWay] = [BlockUnderWay()]
        self.sequences: list[list[Any]] = []
        words = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        self.has_blocks = bool(words & _BLOCK_WORDS)
        self.wants_root = options.get("root_block", True)


def emit(p: Parser, stmt: object) -> None:
    """Add a statement, or a scope with its value, to the sequence under way."""
    p.state.sequences[-1].append(stmt)


def named_buffer(b: Buffer, name: str) -> Buffer:
    """Give a buffer that was made without a name, and its own pointer, the name it is bound to."""
    data = ir.Var(name, b.data.dtype) if b.data.name == "" else b.data
    return replace_node(b, data=data, name=name)


def axes(p: Parser, target: ast.expr, remap: Remap) -> list[Axis]:
    """List the axes that run over whole loops."""
    kinds = {"S": "data_par", "R": "reduce"}
    if len(remap.kinds) != len(remap.values) or set(remap.kinds) - kinds.keys():
        raise p.fail(
            target,
            "T.axis.remap: one letter, S or R, for each loop variable",
            found=f"'{remap.kinds}' for {len(remap.values)} variables",
        )
    pairs = zip(remap.kinds, remap.values, strict=True)
    return [Axis(kinds[kind], _loop_domain(p, target, value), value) for kind, value in pairs]


def assign(p: Parser, target: ast.expr, value: Any) -> None:
    """Bind the name or names of a target."""
    if isinstance(target, ast.Name):
        p.define(target.id, bind(p, target, value))
        return
    if isinstance(target, (ast.Tuple, ast.List)):
        values = axes(p, target, value) if isinstance(value, Remap) else list(value)
        if len(values) != len(target.elts):
            raise p.fail(
                target, "names and values differ in number", expected=str(len(values)), found=str(len(target.elts))
            )
        for t, v in zip(target.elts, values, strict=True):
            assign(p, t, v)
        return
    raise p.fail(target, "a name, or a buffer's element, must stand before '='")


def _loop_domain(p: Parser, node: ast.AST, value: ir.PrimExpr) -> ir.Range:
    dom = p.state.loops.get(value) if isinstance(value, ir.Var) else None
    if dom is None:
        raise p.fail(
            node, "T.axis.remap takes loops around the block", found=str(value), help="T.axis.spatial(extent, value)"
        )
    return dom


def bind(p: Parser, target: ast.Name, value: object) -> Any:
    """Return what `target` stands for once `value` is assigned to it."""
    rule = _BIND.get(type(value))
    if rule is not None:
        return rule(p, target, value)
    if isinstance(value, ir.Var) and value.name == "":
        if target.id in p.state.symbols:
            raise p.fail(target, f"'{target.id}' is defined already, by a shape of the signature")
        return type(value)(target.id, value.dtype)
    if isinstance(value, (ir.PrimExpr, int, float)) and not isinstance(value, bool):
        return let(p, target, ir.as_expr(value), None)
    return value


def let(p: Parser, target: ast.Name, value: ir.PrimExpr, dtype: str | None) -> ir.Var:
    """Open the scope of a variable with a value, and return the variable."""
    if dtype is not None and dtype != value.dtype:
        value = ir.cast(dtype, value)
    var = ir.Var(target.id, ir.DataType(value.dtype), span=p.span(target))
    span = p.span(target)
    emit(p, (Scope(var, lambda v, body, _: LetStmt(v, value, body, span=span)), var))
    return var


def _bind_scope(p: Parser, target: ast.Name, scope: Scope) -> Any:
    state: FunctionUnderWay = p.state
    value = name_scope(p, target.id, scope)
    block = state.blocks[-1]
    if (
        scope.kind == "alloc"
        and state.depth == block.depth + 1
        and state.has_blocks
        and state.wants_root
        and not scope.annotations
    ):
        _check_new(p, target, [b.name for b in block.allocs])
        block.allocs.append(value)
    else:
        emit(p, (scope, value))
    return value


def name_scope(p: Parser, name: str, scope: Scope) -> Any:
    """Name the variable or buffer that a scope introduces."""
    value = scope.value
    if isinstance(value, Buffer):
        return named_buffer(value, name)
    if isinstance(value, ir.Var) and value.name == "":
        value = type(value)(name, value.dtype)
        if scope.kind == "memory":
            p.state.memory[value] = scope.annotations(value)
    return value


def _bind_axis(p: Parser, target: ast.Name, axis: Axis) -> ir.Var:
    block = p.state.blocks[-1]
    if p.state.depth != block.depth + 1 or len(p.state.blocks) == 1:
        raise p.fail(
            target, "iteration variables stand at the beginning of a block", help="open one: `with T.sblock(name):`"
        )
    _check_new(p, target, [iv.var.name for iv in block.iter_vars])
    if not ir.DataType(axis.value.dtype).is_integer:
        raise p.fail(target, f"'{target.id}' is no integer", found=f"{axis.value}: {axis.value.dtype}")
    dom = _domain(axis, p, target)
    dtype = axis.dtype or (axis.value.dtype if dom is None else dom.extent.dtype)
    var = ir.Var(target.id, ir.DataType(dtype), span=p.span(target))
    block.iter_vars.append(ir.IterVar(dom, var, axis.iter_type, axis.thread_tag))
    block.values.append(axis.value)
    return var


def _check_new(p: Parser, target: ast.Name, taken: list[str]) -> None:
    if target.id in taken and getattr(p, "source", None) is not None:  # calls that build name things later
        raise p.fail(target, f"the block has a '{target.id}' already", help="give it another name")


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
    if len(remap.values) != 1:
        raise p.fail(target, f"T.axis.remap gives {len(remap.values)} variables to one name")
    return _bind_axis(p, target, axes(p, target, remap)[0])


def _bind_alloc(p: Parser, target: ast.Name, command: AllocBlockBuffer) -> Buffer:
    buffer, allocs = named_buffer(command.buffer, target.id), p.state.blocks[-1].allocs
    _check_new(p, target, [b.name for b in allocs])
    allocs.append(buffer)
    return buffer


def _bind_match(p: Parser, target: ast.Name, command: MatchBuffer) -> Buffer:
    buffer = named_buffer(command.buffer, target.id)
    state: FunctionUnderWay = p.state
    if isinstance(command.source, BufferRegion):
        pairs = zip(reversed(command.source.region), reversed(buffer.shape), strict=False)
        sizes = [(ir.as_int(r.extent), ir.as_int(d)) for r, d in pairs]
        if any(a != b for a, b in sizes if a is not None and b is not None):
            raise p.fail(
                target,
                "T.match_buffer: the region has another shape",
                found=str(command.source),
                expected=str(buffer.shape),
            )
        state.blocks[-1].matches.append(MatchBufferRegion(buffer, command.source))
    elif any(command.source is v for v in state.params):
        if command.source in state.buffers:
            raise p.fail(target, f"parameter '{command.source.name}' is matched twice")
        state.buffers[command.source] = buffer
    else:
        raise p.fail(
            target, "T.match_buffer takes a handle parameter or a region of a buffer", found=str(command.source)
        )
    return buffer


def preflattened(p: Parser, node: ast.AST, command: MatchBuffer) -> None:
    """Give a parameter the shape that callers see; the text names its memory as one row."""
    flat, buffers = command.source, p.state.buffers
    param = next((v for v, b in buffers.items() if b is flat), None)
    if param is None:
        raise p.fail(node, "T.preflattened_buffer takes a parameter's buffer", found=flat.name)
    if not ir.structural_equal(command.buffer.shape, flat.shape, map_free_vars=True):
        buffers[param] = named_buffer(command.buffer, flat.name)


def _bind_iter_var(p: Parser, target: ast.Name, iv: ir.IterVar) -> Any:
    if iv.iter_type != "thread" or iv.var.name:
        return iv
    var = ir.Var(target.id, iv.var.dtype)
    p.state.threads[var] = iv.thread_tag
    return var


_BIND: dict[type, Callable[[Parser, ast.Name, Any], Any]] = {
    MetaVar: lambda p, target, value: value.value,
    Scope: _bind_scope,
    Axis: _bind_axis,
    Remap: _bind_remap,
    AllocBlockBuffer: _bind_alloc,
    MatchBuffer: _bind_match,
    ir.IterVar: _bind_iter_var,
    Buffer: lambda p, target, value: named_buffer(value, target.id) if value.name == "" else value,
}
