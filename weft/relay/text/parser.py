"""Parsing of whole Relay texts: a module with data types and functions, or one expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from weft.error import ErrorGroup, InvalidArgument, ParseError, VerifyError, WeftError
from weft.ir import BaseFunc, Constant, Expr, ExprVar, IRModule, Op, Pass, walk
from weft.ir.deep import with_deep_stack
from weft.relay.adt import Constructor, TypeData
from weft.relay.expr import Function, GlobalVar
from weft.relay.text.expressions import ExpressionReader
from weft.relay.text.lexer import Token, Tokens
from weft.relay.types import GlobalTypeVar
from weft.spelling import also_called

R = TypeVar("R")
_DEFINES = ("def", "type", "extern")
_NAME = "from_string"


@also_called(source="text", init_module="mod")
def parse(
    text: str,
    source_name: str | None = None,
    mod: IRModule | None = None,
    init_meta_table: Mapping[str, Any] | None = None,
) -> IRModule:
    """Parse a module.

    Parameters
    ----------
    text : str
        Definitions of functions and data types, and the metadata.
    source_name : str, optional
        What error messages call the text.
    mod : IRModule, optional
        Functions and data types that the text refers to; the result has them too.
    init_meta_table : mapping of str to sequence, optional
        What ``meta[key][i]`` refers to.

    Raises
    ------
    ParseError
        When the text is no module; an ErrorGroup where several functions are wrong.
    """
    return _run(text, source_name, mod, init_meta_table, _module)


@also_called(source="text", init_module="mod")
def parse_expr(
    text: str,
    source_name: str | None = None,
    mod: IRModule | None = None,
    init_meta_table: Mapping[str, Any] | None = None,
) -> Any:
    """Parse an expression; the parameters are those of :func:`parse`."""
    return _run(text, source_name, mod, init_meta_table, _expression)


@also_called(source="text", init_module="mod")
def fromtext(
    text: str,
    source_name: str | None = None,
    mod: IRModule | None = None,
    init_meta_table: Mapping[str, Any] | None = None,
) -> Any:
    """Parse a text that ``astext`` wrote: a module where it begins with a definition, else an expression.

    The parameters are those of :func:`parse`.
    """
    return _run(text, source_name, mod, init_meta_table, _any)


def SpanCheck() -> Pass:
    """Make the pass that refuses programs with operations whose place in a text is not known (VerifyError)."""

    def run(mod: IRModule) -> IRModule:
        """Look at every operation."""
        atoms = (ExprVar, GlobalVar, Constant, Op)
        for func in (f for _, f in mod.items() if isinstance(f, Function)):
            for e in walk(func.body):
                if isinstance(e, Expr) and not isinstance(e, atoms) and getattr(e, "span", None) is None:
                    raise VerifyError("an expression has no place in a text", found=str(e), help="run AnnotateSpans")
        return mod

    return Pass("SpanCheck", run, 0, SpanCheck.__doc__)


def _run(text: Any, name: str | None, mod: IRModule | None, meta: Any, read: Callable[[ExpressionReader], R]) -> R:
    if not isinstance(text, str):
        raise InvalidArgument("Relay text is a str", found=type(text).__name__)
    tokens = Tokens(text, name or _NAME)

    def run() -> R:
        tokens.at = 0
        return read(ExpressionReader(tokens, mod.copy() if mod is not None else IRModule(), meta))

    try:
        return with_deep_stack(run)
    except RecursionError:
        raise ParseError("the text nests too deep", where=name) from None


def _any(r: ExpressionReader) -> Any:
    token = r.t.peek()
    return _module(r) if token.text in _DEFINES or token.kind == "end" else _expression(r)


def _expression(r: ExpressionReader) -> Any:
    return r.block("", "the text")


def _module(r: ExpressionReader) -> IRModule:
    """Read data types first, so that functions before them may use them; then the functions."""
    starts = _outline(r)
    errors: list[WeftError] = []
    for kinds, read in ((("type", "extern"), _type), (("def",), _def)):
        for at in (s for s in starts if r.t.tokens[s].text in kinds):
            r.t.at = at
            try:
                read(r)
                if r.t.peek().kind != "end" and not r.t.sees(*_DEFINES):
                    r.t.fail("a definition is expected", expected="def, type or extern type", found=str(r.t.peek()))
            except WeftError as e:
                errors.append(e)
                r.start_over()
    if len(errors) > 1:
        raise ErrorGroup(f"{len(errors)} definitions do not parse", errors)
    if errors:
        raise errors[0]
    for attrs in r.meta.get("IRModule.attrs", ()):
        r.mod.attrs = r.mod.attrs.with_(**dict(attrs.items))
    r.mod.global_infos |= dict(r.meta.get("IRModule.global_infos", ()))
    return r.mod


def _outline(r: ExpressionReader) -> list[int]:
    """Find where definitions begin, and make the names of the data types known."""
    starts: list[int] = []
    depth = 0
    tokens = r.t.tokens
    if tokens[0].kind != "end" and tokens[0].text not in _DEFINES:
        r.t.fail("a definition is expected", tokens[0], expected="def, type or extern type", found=str(tokens[0]))
    for i, token in enumerate(tokens):
        if token.kind == "punct":
            depth += (token.text in "([{") - (token.text in ")]}")
        if token.kind != "name" or token.text not in _DEFINES or (depth > 0 and tokens[i + 1].kind != "global"):
            continue
        if token.text == "type" and tokens[i - 1].text == "extern" and i:
            continue
        if token.text == "def" or depth <= 0:
            depth = 0
            starts.append(i)
            name = tokens[min(i + 1 + (token.text == "extern"), len(tokens) - 1)]
            if token.text != "def" and name.kind == "name":
                if name.text in r.types:
                    r.t.fail(f"data type '{name.text}' is defined twice", name)
                r.types[name.text] = GlobalTypeVar(name.text, span=r.t.span(name.start, name.end))
    return starts


def _type(r: ExpressionReader) -> None:
    start = r.t.next()
    extern = start.text == "extern"
    if extern:
        r.t.expect("type", "the declaration of a data type")
    header = r.types[r.t.expect_kind("name", "name of a data type").text]
    params = r.type_vars()
    made: list[Constructor] = []

    def one() -> None:
        token = r.t.expect_kind("name", "name of a constructor")
        if token.text in r.constructors or any(c.name_hint == token.text for c in made):
            r.t.fail(f"constructor '{token.text}' is defined twice", token)
        fields = r.t.sequence(")", r.type, "the fields of a constructor")[0] if r.t.take("(") else ()
        made.append(Constructor(token.text, tuple(fields), header, span=r.t.since(token)))

    if not extern:
        r.t.expect("{", "the definition of a data type")
        r.t.sequence("}", one, "the definition of a data type")
    else:
        r.t.take(";")
    r.leave_types()
    data = TypeData(header, params, tuple(made), span=r.t.since(start))
    r.mod.type_definitions[header] = data
    r.learn(data)


def _def(r: ExpressionReader) -> None:
    start = r.t.next()
    token: Token = r.t.expect_kind("global", "name of a function, such as @main")
    if token.name in r.mod:
        r.t.fail(f"function {token.text} is defined twice", token)
    var = r.globals.get(token.name)
    if var is None:
        var = r.globals[token.name] = GlobalVar(token.name, span=r.t.span(token.start, token.end))
    if r.t.take("="):
        r.mod[var] = r.reference(BaseFunc, "function")
    else:
        r.mod[var] = r.function(start)
