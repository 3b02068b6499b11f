"""Signatures of TIR functions: parameters with their types, and the variables that shapes in quotes name."""

import ast
from typing import Any

from weft import ir
from weft.ir.text.parser import Parser
from weft.tir.buffer import Buffer
from weft.tir.function import opaque_type
from weft.tir.script.language import DTypeMaker
from weft.tir.script.names import FunctionUnderWay, named_buffer


def signature(p: Parser, node: ast.FunctionDef, options: dict[str, Any]) -> FunctionUnderWay:
    """Begin a function: read its parameters, and what it returns."""
    unknown = set(options) - set("name private check_well_formed root_block s_tir tirx is_stir persistent".split())
    if unknown:
        raise p.fail(
            node, f"T.prim_func has no option '{min(unknown)}'", expected="private, check_well_formed or root_block"
        )
    state = p.state = FunctionUnderWay(node, options)
    if node.args.vararg or node.args.kwarg or node.args.defaults or node.args.kwonlyargs:
        raise p.fail(node, "parameters of a program have no defaults and are not packed")
    for arg in node.args.args:
        _param(p, arg)
    returned = None if node.returns is None else annotation(p, node.returns)
    state.ret_type = ir.PrimType(returned.dtype) if isinstance(returned, DTypeMaker) else returned
    state.ty = opaque_type(state.ret_type)
    return state


def _param(p: Parser, arg: ast.arg) -> None:
    state: FunctionUnderWay = p.state
    if arg.annotation is None:
        raise p.fail(
            arg,
            f"parameter '{arg.arg}' has no type",
            help="T.Buffer(shape, dtype), T.handle, or a data type such as T.int32",
        )
    note = annotation(p, arg.annotation, defines=True)
    known = state.symbols.get(arg.arg)
    if isinstance(note, Buffer):
        buffer = named_buffer(note, arg.arg)
        param = ir.Var(arg.arg + "_handle", ir.HandleType(buffer), span=p.span(arg))
        state.buffers[param] = buffer
        p.define(arg.arg, buffer)
    elif known is not None and known.dtype == getattr(note, "dtype", None):
        param = known  # a shape before it named it
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


def annotation(p: Parser, node: ast.expr, defines: bool = False) -> Any:
    """Evaluate an annotation; one in quotes is read as an expression, and so are the dimensions of a shape.

    With `defines`, a name in a dimension in quotes that nothing defines yet is a variable: the parameter of that name,
    if one follows.
    """
    if isinstance(node, ast.Call) and node.args and isinstance(node.args[0], (ast.Tuple, ast.List)):
        shape = node.args[0]
        for d in shape.elts:
            if isinstance(d, ast.Name):
                p.evaluate(d)  # a name without quotes is defined before the shape
        dims = [_dimension(p, d, defines) for d in shape.elts]
        if any(a is not b for a, b in zip(dims, shape.elts, strict=True)):
            shape = ast.copy_location(ast.Tuple(dims, ast.Load()), shape)
            node = ast.copy_location(ast.Call(node.func, [shape, *node.args[1:]], node.keywords), node)
    value = p.evaluate(node)
    if isinstance(value, str):
        value = p.evaluate(ast.copy_location(ast.parse(value, mode="eval").body, node))
    return value


def _dimension(p: Parser, node: ast.expr, defines: bool) -> ast.expr:
    """Return the expression that a dimension in quotes spells; anything else is left as it is."""
    if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return node
    spelled = ast.parse(node.value, mode="eval").body
    for n in ast.walk(spelled):
        ast.copy_location(n, node)
        if defines and isinstance(n, ast.Name) and not any(n.id in names for names in (*p.scopes, p.outer)):
            later = {a.arg: a.annotation for a in p.state.node.args.args}
            note = p.evaluate(later[n.id]) if n.id in later else None
            dtype = note.dtype if isinstance(note, (DTypeMaker, ir.Var)) else "int32"
            symbol = p.state.symbols[n.id] = ir.Var(n.id, ir.DataType(dtype), span=p.span(node))
            p.define(n.id, symbol)
    return spelled
