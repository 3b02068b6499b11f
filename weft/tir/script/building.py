"""TIR built by calls, in the words of ``T``: ``with prim_func(): a = arg("a", T.handle()); ... evaluate(0)``.

The commands of ``T`` are those that the parser reads: here a frame of a ``with`` acts on them, or the call itself.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from types import FunctionType
from typing import Any

from weft import error, ir
from weft.ir.text.building import IRBuilder
from weft.tir import stmt as stmts
from weft.tir.analysis.structure import replace_node
from weft.tir.buffer import Buffer
from weft.tir.function import PrimFunc
from weft.tir.script import commands, language
from weft.tir.script.names import BlockUnderWay, FunctionUnderWay, axes, bind, emit, name_scope, named_buffer
from weft.tir.script.parsing import finished, fold, nest, realized, state_fact

_UNNAMED = ast.Name("v", ast.Store())
_FLAT = {"alloc_buffer", "bind", "decl_buffer"}
"""Words that hold for the rest of the sequence; other scopes are opened by ``with``."""


class _Place:
    """What stands for the parser, and for the source, of statements that calls make."""

    source: Any = None
    frame: Any = None

    def __init__(self) -> None:
        self.state = FunctionUnderWay(ast.parse("def main(): pass").body[0], {"root_block": True})  # type: ignore[arg-type]
        self.state.sequences.append([])
        self.state.depth = 1

    def define(self, name: str, value: Any) -> None:
        """Names are those of Python."""

    def span(self, node: ir.Node) -> None:
        """Return the place in the text, of which there is none."""

    def fail(self, node: ir.Node, what: str, **facts: Any) -> error.InvalidArgument:
        """Make an error."""
        return error.InvalidArgument(what, **facts)


_PLACES: dict[IRBuilder, Any] = {}


def _place() -> Any:
    """Return where statements go: the function under construction, or the builder itself."""
    builder = IRBuilder.current()
    found = _PLACES.get(builder)
    if found is None:
        found = _PLACES[builder] = _Place()
        builder.loose = lambda: _loose(builder)
    return found


def _loose(builder: IRBuilder) -> Any:
    place = _PLACES.pop(builder)
    entries = place.state.sequences[0]
    return _named(fold(place, entries), builder) if entries else None


def _named(node: ir.Node, builder: IRBuilder) -> Any:
    """Give variables and buffers the names that the builder was told."""
    known: dict[Any, Any] = {}

    def rename(n: Any) -> Any:
        if isinstance(n, (ir.Var, Buffer)):
            if n not in known:
                known[n] = n
                name = builder.names.get(n)
                if isinstance(n, ir.Var):
                    known[n] = n if name is None else type(n)(name, n.dtype)
                else:
                    if name is not None and n.data not in builder.names:
                        known[n.data] = ir.Var(name, n.data.dtype)
                    new = ir.rebuild(n, rename)
                    known[n] = new if name is None else replace_node(new, name=name)
            return known[n]
        return ir.rebuild(n, rename)

    return rename(node) if builder.names else node


class Frame:
    """A statement that holds those of its ``with``."""

    def __init__(self, command: Any) -> None:
        self.command, self.place = command, _place()
        self.cases: dict[bool, stmts.Stmt] = {}

    def __enter__(self) -> Any:
        state, command = self.place.state, self.command
        value: Any = self
        if isinstance(command, commands.BlockScope):
            state.has_blocks = True
            state.blocks.append(BlockUnderWay())
            state.blocks[-1].depth = state.depth
        elif isinstance(command, commands.Loops):
            likes = [r.extent.dtype for r in command.ranges]
            self.variables = [ir.Var("v", d) for d in likes]
            state.loops.update(zip(self.variables, command.ranges, strict=True))
            value = self.variables if len(self.variables) > 1 else self.variables[0]
        elif isinstance(command, commands.Scope):
            value = self.value = name_scope(self.place, "v", command)
        elif isinstance(command, commands.IfScope):
            state.conditions = [*getattr(state, "conditions", ()), self]
        state.sequences.append([])
        state.depth += 1
        return value

    def __exit__(self, kind: object, *exc: object) -> None:
        place, state, command = self.place, self.place.state, self.command
        state.depth -= 1
        entries = state.sequences.pop()
        if kind is not None:
            return
        if isinstance(command, commands.IfScope):
            state.conditions.pop()
            if True not in self.cases:
                raise error.InvalidArgument("T.If holds no T.Then")
            emit(place, stmts.IfThenElse(command.condition, self.cases[True], self.cases.get(False)))
            return
        body = fold(place, entries)
        if isinstance(command, commands.BlockScope):
            emit(place, realized(state.blocks.pop(), command.name, body))
        elif isinstance(command, commands.InitScope):
            state.blocks[-1].init = body
        elif isinstance(command, commands.Branch):
            state.conditions[-1].cases[command.holds] = body
        elif isinstance(command, commands.WhileScope):
            emit(place, stmts.While(command.condition, body))
        elif isinstance(command, commands.Loops):
            emit(place, nest(command, self.variables, body))
        else:
            emit(place, command.make(self.value, body, place))


class PrimFuncFrame:
    """A function under construction."""

    def __init__(self, is_private: bool = False, s_tir: bool = True, persistent: bool = False) -> None:
        self.place: Any = _Place()
        self.place.state.options["private"] = is_private
        self.name = ""
        self.ret_type: ir.Type | str | None = None

    def __enter__(self) -> PrimFuncFrame:
        self.builder = IRBuilder.current()
        self.outside = _PLACES.get(self.builder)
        _PLACES[self.builder] = self.place
        self.place.frame = self
        return self

    def __exit__(self, kind: object, *exc: object) -> None:
        if self.outside is None:
            del _PLACES[self.builder]
        else:
            _PLACES[self.builder] = self.outside
        if kind is not None:
            return
        state = self.place.state
        state.options.update({"private": True} if not self.name else {"name": self.name})
        func = finished(self.place, state, fold(self.place, state.sequences[0]))
        if self.ret_type is not None:
            func = func.replace(ret_type=self.ret_type)
        built = _named(func, self.builder)
        assert isinstance(built, PrimFunc)
        self.builder.add(self.name or "main", built)


def _frame() -> PrimFuncFrame:
    frame = getattr(_place(), "frame", None)
    if frame is None:
        raise error.InvalidArgument("there is no function under construction", help="use `with T.prim_func():`")
    return frame


def arg(name: str, obj: Buffer | ir.Var) -> Any:
    """Add a parameter to the function: a buffer, or a variable of the type of `obj`."""
    state = _frame().place.state
    if isinstance(obj, Buffer):
        param = ir.Var(name + "_handle", ir.HandleType(obj))
        state.buffers[param] = obj = named_buffer(obj, name) if obj.name in ("", "v") else obj
    else:
        param = obj = type(obj)(name, obj.dtype)
    state.params.append(param)
    return obj


def func_name(name: str) -> None:
    """Set the name of the function; without one it is private."""
    _frame().name = name


def func_ret(ret_type: ir.Type | str | None) -> None:
    """Set the type of what the function returns."""
    _frame().ret_type = ret_type


def _act(name: str, value: Any) -> Any:
    """Do what a command says, or open it where it holds others."""
    if isinstance(value, stmts.Stmt):
        return emit(_place(), value)
    if isinstance(value, commands.BlockFact):
        return state_fact(_place(), _UNNAMED, value)
    if isinstance(value, commands.Remap):
        place = _place()
        bound = [bind(place, _UNNAMED, a) for a in axes(place, _UNNAMED, value)]
        return bound if len(bound) > 1 else bound[0]
    if isinstance(value, commands.Scope) and name not in _FLAT:
        return Frame(value)
    if isinstance(value, (commands.Axis, commands.AllocBlockBuffer, commands.MatchBuffer, commands.Scope, ir.IterVar)):
        return bind(_place(), _UNNAMED, value)
    if isinstance(value, _OPENED):
        return Frame(value)
    if isinstance(value, Buffer) and value.name == "":
        return named_buffer(value, "buffer")
    return ir.Var("v", value.dtype) if type(value) is ir.Var and value.name == "" else value


_OPENED = (
    commands.BlockScope,
    commands.InitScope,
    commands.IfScope,
    commands.Branch,
    commands.WhileScope,
    commands.Loops,
)


class _Axes:
    """``T.axis``."""

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return acting(name, getattr(language.axis, name))


WORDS: dict[str, Any] = {
    "arg": arg,
    "axis": _Axes(),
    "func_name": func_name,
    "func_ret": func_ret,
    "prim_func": PrimFuncFrame,
}
"""The names of ``T`` that mean something else where programs are built."""


def acting(name: str, made: Any) -> Any:
    """Return the word of ``T`` that acts when it is called."""

    def act(*args: Any, **options: Any) -> Any:
        return _act(name, made(*args, **options))

    words = isinstance(made, (FunctionType, language.DTypeMaker, type(language.Buffer), type(language.let)))
    return act if words and not isinstance(made, type) else made
