"""The parse driver: decorated functions and classes, or text, to functions and modules.

A dialect gives a :class:`Dialect`: how a signature and then a body are read. Within a module, signatures and bodies
are read when they are first referred to, so functions may call each other in any order.
"""

from __future__ import annotations

import ast
import base64
import binascii
import inspect
import linecache
import sys
import zlib
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from types import FrameType, FunctionType
from typing import Any, NamedTuple

from weft.error import ErrorGroup, InvalidArgument, ParseError, WeftError, own_errors
from weft.ir.ambient import Ambient
from weft.ir.deep import with_deep_stack
from weft.ir.diagnostics import report
from weft.ir.expr import BaseFunc, GlobalVar
from weft.ir.module import IRModule
from weft.ir.node import Attrs
from weft.ir.serialize import load_json
from weft.ir.text.evaluate import CALL, Evaluator
from weft.ir.text.source import Source, source_of_class, source_of_function, source_of_text
from weft.ir.types import VDevice
from weft.spelling import also_called

_VDEVICES: Ambient[tuple[VDevice, ...]] = Ambient("vdevice")
"""The virtual devices of the module that is being read: what their names mean in its functions."""


class Dialect(NamedTuple):
    """How functions of a dialect are read.

    ``signature(parser, definition, options)`` returns a state whose ``ty`` is the function's type, or None where its
    body decides; ``body(parser, state)`` returns the function; ``expand(parser, statements)`` reads a macro's body in
    place; ``call(var, args)`` calls a function of the module.
    """

    name: str
    signature: Callable[[Parser, ast.FunctionDef, dict[str, Any]], Any]
    body: Callable[[Parser, Any], BaseFunc]
    expand: Callable[[Parser, list[ast.stmt]], Any]
    call: Callable[..., Any]


class MetaVar:
    """A Python value that an assignment binds as it is, or its elements where several names take it apart."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __iter__(self) -> Iterator[MetaVar]:
        return map(MetaVar, self.value)


def meta_var(value: object) -> MetaVar:
    """Bind a Python value as it is, instead of a variable of the program."""
    return MetaVar(value)


class ModuleCommand(NamedTuple):
    """A statement of a module's class: ``attrs`` or ``global_infos`` with their values."""

    kind: str
    value: Mapping[str, Any]


class Parser(Evaluator):
    """Reads the functions of one source.

    Parameters
    ----------
    module : ModuleScope, optional
        The module under way, whose functions can be referred to.
    """

    def __init__(
        self, source: Source, outer: dict[str, Any], dialect: Dialect, module: ModuleScope | None = None
    ) -> None:
        super().__init__(source, outer)
        self.dialect = dialect
        self.module = module
        self.state: Any = None
        if module is not None:
            self.define("cls", module)
            self.define(module.name, module)

    def function(self, node: ast.FunctionDef, options: dict[str, Any]) -> BaseFunc:
        """Read a definition."""
        return self.dialect.body(self, self.dialect.signature(self, node, options))

    def with_scope(self, fn: Callable[[], Any]) -> Any:
        """Run ``fn()`` in a new scope of names."""
        self.scopes.append({})
        try:
            return fn()
        finally:
            self.scopes.pop()

    def expand(self, macro: Macro, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Read the body of a macro in place, its parameters bound to `args`.

        Its other names mean what they mean where it stands.
        """
        saved = self.source, self.outer, self.scopes
        bound = _bound(self, macro, args, kwargs)
        base = {} if macro.hygienic else {k: v for scope in saved[2] for k, v in scope.items()}
        self.source, self.outer, self.scopes = (
            macro.source,
            macro.outer,
            [{**saved[2][0], **base, **macro.scope, **bound}],
        )
        try:
            return self.dialect.expand(self, macro.definition.body)
        finally:
            self.source, self.outer, self.scopes = saved


# --- macros -----------------------------------------------------------------------------------------------------------


class Macro:
    """A piece of program that is read again wherever it is called."""

    def __init__(
        self, source: Source, definition: ast.FunctionDef, outer: dict[str, Any], scope: dict[str, Any], hygienic: bool
    ) -> None:
        self.source, self.definition, self.outer, self.scope, self.hygienic = source, definition, outer, scope, hygienic

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return the macro as a method, whose first parameter is the object."""
        return self if instance is None else BoundMacro(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Refuse: only a script can call a macro."""
        raise ParseError(f"macro '{self.definition.name}' can only be called inside a script")


class BoundMacro(NamedTuple):
    """A macro of an object."""

    macro: Macro
    instance: Any


def _bound(p: Parser, macro: Macro, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Return what the parameters of a macro are in one call, by Python's rules."""
    given = macro.definition.args
    kinds = inspect.Parameter
    named = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(named) - len(given.defaults)) + list(given.defaults)

    def parameter(arg: ast.arg, kind: Any, default: ast.expr | None = None) -> inspect.Parameter:
        return kinds(arg.arg, kind, default=kinds.empty if default is None else p.evaluate(default))

    parameters = [parameter(a, kinds.POSITIONAL_OR_KEYWORD, d) for a, d in zip(named, defaults, strict=True)]
    if given.vararg is not None:
        parameters.append(parameter(given.vararg, kinds.VAR_POSITIONAL))
    parameters += [
        parameter(a, kinds.KEYWORD_ONLY, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)
    ]
    if given.kwarg is not None:
        parameters.append(parameter(given.kwarg, kinds.VAR_KEYWORD))
    try:
        found = inspect.Signature(parameters).bind(*args, **kwargs)
    except TypeError as e:
        raise ParseError(f"macro '{macro.definition.name}': {e}", help=f"it takes {ast.unparse(given)}") from None
    found.apply_defaults()
    return dict(found.arguments)


class MacroDecorator:
    """``@T.macro``, ``@T.inline``, ``@R.macro``; ``hygienic=False`` lets the body see the caller's names."""

    def __init__(self, hygienic: bool = True) -> None:
        self.hygienic = hygienic

    def __call__(self, fn: Callable[..., Any] | None = None, *, hygienic: bool = True) -> Any:
        """Return the macro of `fn`, or the decorator with the option set."""
        if fn is None:
            return MacroDecorator(hygienic)
        if not callable(fn):
            raise InvalidArgument("a macro's decorator takes options by name", found=repr(fn), help="hygienic=False")
        source, definition = source_of_function(fn)
        return Macro(source, definition, _outer_of(fn, sys._getframe(1)), {}, self.hygienic)


@CALL.on(Macro)
def _call_macro(macro: Macro, args: list[Any], kwargs: dict[str, Any], p: Parser) -> Any:
    return p.expand(macro, tuple(args), kwargs)


@CALL.on(BoundMacro)
def _call_method(bound: BoundMacro, args: list[Any], kwargs: dict[str, Any], p: Parser) -> Any:
    return p.expand(bound.macro, (bound.instance, *args), kwargs)


@CALL.on(GlobalVar)
def _call_global(var: GlobalVar, args: list[Any], kwargs: dict[str, Any], p: Parser) -> Any:
    if set(kwargs) - {"ty_args"}:
        raise ParseError(f"function '{var.name_hint}' takes positional arguments", found=", ".join(kwargs))
    return p.dialect.call(var, args, **kwargs)


# --- modules ----------------------------------------------------------------------------------------------------------


class _Entry:
    """A function of a module: not begun, its signature read, or done."""

    __slots__ = ("decorator", "definition", "func", "name", "parser", "running", "state", "var")

    def __init__(self, name: str, definition: ast.FunctionDef, decorator: FunctionDecorator) -> None:
        self.name, self.definition, self.decorator = name, definition, decorator
        self.parser: Parser | None = None
        self.state: Any = None
        self.func: BaseFunc | None = None
        self.var: GlobalVar | None = None
        self.running = False


class ModuleScope:
    """What ``cls`` stands for inside a module: its functions as global variables."""

    def __init__(self, name: str, source: Source, outer: dict[str, Any]) -> None:
        self.name, self.source, self.outer = name, source, outer
        self.entries: dict[str, _Entry] = {}
        self.made: dict[str, Any] = {}

    def __getattr__(self, name: str) -> GlobalVar:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.global_var(name)

    def global_var(self, name: str) -> GlobalVar:
        """Return the global variable of a function; the first time its signature, or where needed its body, is read."""
        entry = self.entries.get(name)
        if entry is None:
            if name in self.made:
                return self.made[name][0]
            raise AttributeError(
                f"the module has no function '{name}'; it has {', '.join([*self.entries, *self.made]) or 'none'}"
            )
        if entry.var is None:
            self._signature(entry)
            if entry.var is None:
                ty = entry.state.ty
                if ty is None and not entry.running:
                    self.read(entry)
                    ty = None if entry.func is None else entry.func.ty_of_references
                if entry.var is None:
                    entry.var = GlobalVar(entry.name, ty=ty)
        return entry.var

    def _signature(self, entry: _Entry) -> None:
        if entry.state is None:
            dialect = entry.decorator.dialect
            entry.parser = Parser(self.source, self.outer, dialect, self)
            entry.state = dialect.signature(
                entry.parser, entry.definition, {"name": entry.name, **entry.decorator.options}
            )

    def read(self, entry: _Entry) -> None:
        """Read a function, unless that is done or under way."""
        if entry.func is not None or entry.running:
            return
        entry.running = True
        self._signature(entry)
        assert entry.parser is not None
        entry.func = entry.decorator.dialect.body(entry.parser, entry.state)
        entry.running = False


def _parse_class(source: Source, node: ast.ClassDef, outer: dict[str, Any]) -> IRModule:
    scope = ModuleScope(node.name, source, dict(outer))
    evaluator = Evaluator(source, scope.outer)
    attrs: dict[str, Any] = {}
    infos: dict[str, Any] = {}
    errors: list[WeftError] = []
    for statement in node.body:
        if isinstance(statement, ast.FunctionDef):
            _class_function(statement, evaluator, scope)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            _class_assign(statement, evaluator, scope)
        elif isinstance(statement, ast.Expr):
            command = evaluator.evaluate(statement.value)
            if isinstance(command, ModuleCommand):
                (attrs if command.kind == "attrs" else infos).update(command.value)
        elif not isinstance(statement, ast.Pass):
            raise evaluator.fail(statement, "a module's class holds functions and I.module_... statements only")
    devices = _VDEVICES.enter(tuple(infos.get("vdevice", ())))
    try:
        for entry in scope.entries.values():
            try:
                scope.read(entry)
            except WeftError as e:
                errors.append(e)
    finally:
        _VDEVICES.leave(devices)
    if errors:
        raise (
            errors[0]
            if len(errors) == 1
            else ErrorGroup(f"{len(errors)} functions of '{node.name}' have errors", errors)
        )
    functions: dict[Any, Any] = dict(scope.made.values())
    for key, entry in scope.entries.items():
        functions[scope.global_var(key)] = entry.func
    return IRModule(functions, Attrs.of(attrs) if attrs else None, {k: tuple(v) for k, v in infos.items()})


def _class_function(statement: ast.FunctionDef, evaluator: Evaluator, scope: ModuleScope) -> None:
    """Note a function of a module's class, to be read when all names are known."""
    decorator = _decorator_of(statement, evaluator)
    if decorator is None and any(evaluator.evaluate(d) is pyfunc for d in statement.decorator_list):
        return
    if decorator is None:
        raise evaluator.fail(
            statement,
            f"function '{statement.name}' has no decorator that names its dialect",
            help="@T.prim_func or @R.function",
        )
    if statement.name in scope.entries:
        raise evaluator.fail(statement, f"function '{statement.name}' is defined twice")
    name = decorator.options.get("name") or statement.name
    scope.entries[statement.name] = _Entry(name, statement, decorator)


def _class_assign(statement: ast.Assign, evaluator: Evaluator, scope: ModuleScope) -> None:
    """Bind a name in a module's class: to a function made elsewhere, or to a value for the functions to use."""
    target = statement.targets[0]
    assert isinstance(target, ast.Name)
    value = evaluator.evaluate(statement.value)
    if isinstance(value, BaseFunc):
        scope.made[target.id] = (GlobalVar(target.id, ty=value.ty_of_references), value)
    else:
        scope.outer[target.id] = value


def _decorator_of(node: ast.FunctionDef, evaluator: Evaluator) -> FunctionDecorator | None:
    for d in node.decorator_list:
        value = evaluator.evaluate(d)
        if isinstance(value, FunctionDecorator):
            return value
    return None


# --- entry points -----------------------------------------------------------------------------------------------------


def _outer_of(fn: Any, frame: Any) -> dict[str, Any]:
    """Return the Python values visible at a definition."""
    inner, scopes, around = frame.f_code, [frame.f_locals], frame.f_back
    while around is not None:  # functions around that are being called: annotations alone make no cells for their names
        if any(c is inner for c in around.f_code.co_consts):
            inner = around.f_code
            scopes.append(around.f_locals)
        around = around.f_back
    names = dict(ChainMap(*scopes, frame.f_globals))
    functions = (
        [fn] if callable(fn) and hasattr(fn, "__code__") else [f for f in vars(fn).values() if hasattr(f, "__code__")]
    )
    for f in functions:
        for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=False):
            try:
                names.setdefault(name, cell.cell_contents)
            except ValueError:  # not assigned yet: recursive definitions
                continue
    return names


class FunctionDecorator:
    """``@T.prim_func``, ``@R.function``: reads the function it decorates, or leaves that to the module around it."""

    def __init__(self, dialect: Dialect, options: dict[str, Any] | None = None) -> None:
        self.dialect, self.options = dialect, options or {}

    def __call__(self, fn: Any = None, **options: Any) -> Any:
        """Return the function read from `fn`, or the decorator with more options."""
        fn = options.pop("input_func", fn)  # as it was called in 0.8
        if fn is None:
            return FunctionDecorator(self.dialect, {**self.options, **options})
        if isinstance(fn, BaseFunc):
            return fn
        frame = sys._getframe(1)
        scope = fn.__qualname__.rpartition(".")[0]
        first = linecache.getline(
            frame.f_code.co_filename, frame.f_code.co_firstlineno
        )  # of a class with its decorator
        if scope and not scope.endswith("<locals>") and first.lstrip().startswith("@"):
            return fn  # inside a class: the module's decorator reads the whole
        source, definition = source_of_function(fn)
        p = Parser(source, _outer_of(fn, frame), self.dialect)
        return _told(lambda: p.function(definition, {"name": fn.__name__, **self.options}))


def ir_module(
    cls: type | IRModule | None = None,
    check_well_formed: bool = True,
    s_tir: bool = False,
    *,
    mod: type | IRModule | None = None,
    input_module: type | None = None,
    frame: FrameType | None = None,
) -> Any:
    """Read the class that it decorates as a module.

    Functions are decorated with ``@T.prim_func`` or ``@R.function`` and refer to each other as ``cls.name``. What is
    not well formed is refused where it is compiled, whatever `check_well_formed` says; blocks are read whether or not
    `s_tir` asks for them. TVM calls the class `mod` or `input_module`; `frame` is where it stands, by default where
    this is called.
    """
    cls = next((c for c in (cls, mod, input_module) if c is not None), None)
    if cls is None:
        return ir_module
    if isinstance(cls, IRModule):
        return cls
    frame = frame or sys._getframe(1)
    source, definition = source_of_class(cls, frame)
    outer = _outer_of(cls, frame)
    made = _told(lambda: _parse_class(source, definition, outer))
    complete = getattr(cls, "from_ir_module", None)
    if complete is None:
        return made
    return complete(made, {n: f for n, f in vars(cls).items() if getattr(f, "dispatch_token", None) == "pyfunc"})


def pyfunc(fn: FunctionType) -> FunctionType:
    """Mark a Python function of a module's class, which inherits from ``BasePyModule``."""
    fn.dispatch_token = "pyfunc"  # type: ignore[attr-defined]
    return fn


@own_errors("reading the program")
@also_called(input_func="program")
def from_source(
    program: str | Callable[..., Any] | type,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    s_tir: bool = False,
    *,
    tir_prefix: str = "T",
) -> Any:
    """Read a program from its text.

    Parameters
    ----------
    program : str
        One function or module, with its decorator. The names ``I``, ``T``, ``R``, ``tvm`` and ``weft`` need no import.
    extra_vars : mapping of str to value, optional
        Other names, such as ``metadata``.
    check_well_formed, s_tir : bool
        As :func:`ir_module` takes them.
    tir_prefix : str
        Another name for ``T``.

    Returns
    -------
    IRModule, PrimFunc or Function
        The last definition of the text.

    Raises
    ------
    ParseError
        With the place in the text.
    """
    if isinstance(program, type):
        return ir_module(program)
    if not isinstance(program, str):
        if not isinstance(program, (BaseFunc, IRModule)):
            raise InvalidArgument("this is no program", expected="its text, or what was read", found=repr(program))
        return program
    names = {**LANGUAGES, tir_prefix: LANGUAGES.get("T"), **(extra_vars or {})}
    return _told(lambda: _definitions(source_of_text(program), names))


def _told(read: Callable[[], Any]) -> Any:
    """Read a program; errors are shown to the renderer of diagnostics before they are raised."""
    try:
        return with_deep_stack(read)
    except WeftError as e:
        report(e.errors if isinstance(e, ErrorGroup) else [e])
        raise


def _definitions(source: Source, outer: dict[str, Any]) -> Any:
    """Read the definitions of a text, and return the last one."""
    evaluator = Evaluator(source, outer)
    result: Any = None
    for statement in source.tree.body:
        if isinstance(statement, ast.ClassDef):
            result = _parse_class(source, statement, outer)
            outer[statement.name] = result
        elif isinstance(statement, ast.FunctionDef):
            result = outer[statement.name] = _top_level_function(statement, source, evaluator, outer)
        elif isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            outer[statement.targets[0].id] = evaluator.evaluate(statement.value)
        elif not isinstance(statement, (ast.Import, ast.ImportFrom, ast.Expr)):
            raise evaluator.fail(
                statement, "a program is a class under @I.ir_module or a function under @T.prim_func or @R.function"
            )
    if result is None:
        raise ParseError(
            "the text defines no function and no module", expected="@I.ir_module, @T.prim_func or @R.function"
        )
    return result


def _top_level_function(node: ast.FunctionDef, source: Source, evaluator: Evaluator, outer: dict[str, Any]) -> Any:
    for d in node.decorator_list:
        value = evaluator.evaluate(d)
        if isinstance(value, FunctionDecorator):
            p = Parser(source, dict(outer), value.dialect)
            return p.function(node, {"name": node.name, **value.options})
        if isinstance(value, MacroDecorator):
            return Macro(source, node, outer, {}, value.hygienic)
    raise evaluator.fail(
        node, f"function '{node.name}' has no decorator that names its dialect", help="@T.prim_func or @R.function"
    )


LANGUAGES: dict[str, Any] = {}
"""Names that a text may use without an import; the package ``weft.script`` fills them in."""


def metadata(packed: str) -> dict[str, tuple[Any, ...]]:
    """Unpack the constants that ``script(show_meta=True)`` wrote at the top of a text."""
    try:
        pairs = load_json(zlib.decompress(base64.b64decode(packed, validate=True)).decode())
    except (zlib.error, binascii.Error, UnicodeDecodeError) as e:
        raise ParseError("the constants of the text are damaged", found=str(e)) from None
    return dict(pairs)
