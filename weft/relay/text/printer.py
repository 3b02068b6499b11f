"""Printing of Relay: expressions, functions, data types and modules as text that :mod:`weft.relay.text.parser` reads.

A node that is used once and ends a block, is bound by a let or is no operation is written in its place; every other one
gets a number: ``%0 = add(%x, %y);``. Each node is written once, in the block that :class:`Scopes` finds for it.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from typing import Any

from weft import ir
from weft.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from weft.relay.expr import Function, Let, RefCreate, RefRead, RefWrite, Var
from weft.relay.op import registry
from weft.relay.text.literals import Names, identifier, scalar_text
from weft.relay.text.scopes import Block, Scopes, is_atom
from weft.relay.text.types import TypePrinter, attributes

_IN, _OUT = "\x0e", "\x0f"


def indented(lines: list[str]) -> str:
    """Write each line as deep as the marks before it say, and without them."""
    depths = accumulate((x.count(_IN) - x.count(_OUT) for x in lines), initial=0)
    return "\n".join("  " * d + x for d, x in zip(depths, lines, strict=False)).replace(_IN, "").replace(_OUT, "")


class _Open:
    """A block under way: its lines, and the names of the nodes that it has written."""

    __slots__ = ("block", "defined", "lines", "names")

    def __init__(self, block: Block) -> None:
        self.block = block
        self.lines: list[str] = []
        self.names: dict[ir.Expr, str] = {}
        self.defined: list[ir.Expr] = []


class Printer(TypePrinter):
    """State of one rendering.

    Parameters
    ----------
    annotate : callable, optional
        Gives the comment that is written behind an expression, instead of its type.
    type_definitions : iterable of str
        Names of data types, which type variables must not have.
    """

    def __init__(self, annotate: Callable[[Any], str] | None = None, type_definitions: Any = ()) -> None:
        super().__init__(type_definitions)
        self.annotate = annotate
        self.reset()

    def reset(self) -> None:
        """Forget names and numbers, as between two functions."""
        super().reset()
        self.free: list[Any] = []
        self._names = Names()
        self._vars: dict[ir.Expr, str] = {}
        self._known: dict[ir.Expr, int] = {}  # how many binders of a variable are open
        self._rebound = False  # whether a variable was introduced where it was known
        self._open: list[_Open] = []
        self._count = 0
        self.scopes: Scopes = Scopes(ir.Tuple(()))

    # --- pieces ---

    def name_of(self, var: Any) -> str:
        """Return the name of a variable with its sigil."""
        known = self._vars.get(var)
        if known is None:
            known = self._vars[var] = "%" + identifier(self._names.fresh(var.name_hint))
        return known

    def define(self, var: Var) -> str:
        """Write the place that introduces a variable: its name and type."""
        self._known[var] = self._known.get(var, 0) + 1
        self._rebound |= self._known[var] > 1
        if self._open:
            self._open[-1].defined.append(var)
        return self.name_of(var) + (f": {self.type(var.ty)}" if var.ty is not None else "")

    def comment(self, node: Any) -> str:
        """Write what is said behind an expression."""
        if self.annotate is not None:
            text = self.annotate(node).strip().removeprefix("/*").removesuffix("*/").strip()
        else:
            text = f"ty={self.type(node.ty)}" if getattr(node, "ty", None) is not None else ""
        return f" /* {text.replace('*/', '* /')} */" if text else ""

    # --- blocks ---

    def block(self, body: Any, block: Block, params: Any = (), free: bool = False) -> list[str]:
        """Write the lines between two braces, without indentation; `params` are patterns that hold inside."""
        under_way = _Open(block)
        self._open.append(under_way)
        header = [pattern(x, self) if isinstance(x, Pattern) else self.define(x) for x in params]
        while self.scopes.is_chained(body):
            self.name_of(body.var)  # names are given in the order of the lines
            value = self.binding_value(body)
            under_way.lines.append(f"let {self.define(body.var)} = {value};")
            body = body.body
        under_way.lines.append(self.expr(body, inline=True))
        self._open.pop()
        for v in under_way.defined:
            self._known[v] -= 1
        if free:
            under_way.lines[:0] = self.free_lines()
        return [*header, *under_way.lines] if params else under_way.lines

    def binding_value(self, let: Let) -> str:
        """Write what a let binds. Functions may refer to their own variable."""
        if isinstance(let.value, Function):
            self._known[let.var] = self._known.get(let.var, 0) + 1
            text = self.expr(let.value, inline=True)
            self._known[let.var] -= 1
            return text
        return self.expr(let.value, inline=True, said=let.var.ty)

    def free_lines(self) -> list[str]:
        """Declare the variables that nothing introduces."""
        lines = [f"free_var {self.name_of(v)}{f': {self.type(v.ty)}' if v.ty is not None else ''};" for v in self.free]
        self.free = []
        return lines

    def braces(self, lines: list[str]) -> str:
        """Put lines between braces, and marks that :func:`indented` reads: moving them at each level would be cubic."""
        return "\n".join((f"{{{_IN}", *lines)) + f"{_OUT}\n}}"

    # --- expressions ---

    def expr(self, node: Any, inline: bool = False, said: Any = None) -> str:
        """Write an operand: an atom, the name of what is written above, or where `inline` allows the node itself.

        Parameters
        ----------
        said : Type, optional
            A type that stands beside it already and is not repeated.
        """
        if is_atom(node):
            return EXPR(node, self)
        for i in range(len(self._open) - 1, -1, -1):
            if node in self._open[i].names and not (self._rebound and self._hangs_on(node, i)):
                return self._open[i].names[node]
        if inline and self.scopes.uses.get(node, 1) == 1:
            return self._written(node, said)
        at = self._place(node)
        inner = self._open[at + 1 :]
        del self._open[at + 1 :]
        text = self._written(node)
        name = f"%{self._count}"
        self._count += 1
        self._open[-1].lines.append(f"{name} = {text};")
        self._open[-1].names[node] = name
        self._open += inner
        return name

    def _written(self, node: Any, said: Any = None) -> str:
        text = EXPR(node, self)
        if self.annotate is None and (isinstance(node, (Function, Let)) or (said is not None and node.ty == said)):
            return text
        return text + self.comment(node)

    def _place(self, node: Any) -> int:
        """Which of the open blocks a node is named in: its home, unless a variable is not known there."""
        home = self.scopes.home.get(node)
        for i, under_way in enumerate(self._open[:-1]):
            if under_way.block is home:
                return len(self._open) - 1 if self._hangs_on(node, i) else i
        return len(self._open) - 1

    def _hangs_on(self, node: ir.Node, at: int) -> bool:
        """Whether a node uses variables that blocks inside of the one with a number introduce, perhaps once more."""
        later = {v for o in self._open[at + 1 :] for v in o.defined}
        return bool(later) and any(n in later for n in ir.walk(node))

    def operand(self, node: ir.Node, around: ir.Expr) -> str:
        """Write an operand; a constant says its type where the expression around it does."""
        text = self.expr(node)
        if isinstance(node, ir.Constant) and (self.annotate or getattr(around, "ty", None) is not None):
            text += self.comment(node)
        return text

    def operands(self, nodes: Any, around: ir.Expr) -> list[str]:
        """Write several operands."""
        return [self.operand(n, around) for n in nodes]

    def root(self, node: Any) -> list[str]:
        """Write an expression that stands alone, below its free variables."""
        self.scopes = Scopes(node)
        return self.block(node, self.scopes.root, free=True)

    def definition(self, func: Function, name: str) -> str:
        """Write a function of the module."""
        self.scopes = Scopes(func)
        return self.function(func, f"def @{identifier(name)}", self.scopes.inner[func][0], free=True)

    def function(self, func: Function, prefix: str, params_block: Block, free: bool = False) -> str:
        """Write a function behind `fn` or its name."""
        types = f"[{', '.join(map(self.type_names, func.type_params))}]" if func.type_params else ""
        lines = self.block(func.body, params_block, func.params, free)
        n = len(func.params)
        params = ", ".join([*lines[:n], *attributes(func.attrs, self)])
        result = f" -> {self.type(func.ret_type)}" if func.ret_type is not None else ""
        return f"{prefix}{types}({params}){result} {self.braces(lines[n:])}"


EXPR = ir.Dispatch("print a Relay expression", (ir.Expr, ir.Op), default=lambda node, p: p.foreign(node))


@EXPR.on(ir.Op)
def _op(node: ir.Op, p: Printer) -> str:
    return node.name


@EXPR.on(ir.GlobalVar)
def _global_var(node: ir.GlobalVar, p: Printer) -> str:
    return "@" + identifier(node.name_hint)


@EXPR.on(Constructor)
def _constructor(node: Constructor, p: Printer) -> str:
    return node.name_hint if node.inputs else f"meta[relay.Constructor][{node.name_hint}]"  # its name is a call of it


@EXPR.on(ir.ExprVar)
def _var(node: ir.ExprVar, p: Printer) -> str:
    if not p._known.get(node):
        p.free.append(node)
        p._known[node] = 1
    return p.name_of(node)


@EXPR.on(ir.Constant)
def _constant(node: ir.Constant, p: Printer) -> str:
    text = scalar_text(node.data.numpy(), str(node.data.dtype)) if tuple(node.data.shape) == () else None
    return p.meta(node) if text is None else text


@EXPR.on(ir.Tuple)
def _tuple(node: ir.Tuple, p: Printer) -> str:
    return f"({', '.join(p.operands(node.fields, node))}{',' if len(node.fields) == 1 else ''})"


@EXPR.on(ir.TupleGetItem)
def _item(node: ir.TupleGetItem, p: Printer) -> str:
    whole = p.expr(node.tuple_value)
    plain = isinstance(node.tuple_value, ir.ExprVar) or not is_atom(node.tuple_value)
    return f"{whole}.{node.index}" if plain else f"({whole}).{node.index}"  # 64.0 is a number, @main.0 a name


@EXPR.on(ir.Call)
def _call(node: ir.Call, p: Printer) -> str:
    args = p.operands(node.args, node)
    callee = node.op.name_hint if isinstance(node.op, Constructor) else p.expr(node.op)
    if isinstance(node.op, Constructor) and not (node.args or node.op.inputs):
        return callee
    known = isinstance(node.op, ir.Op) and registry.has(node.op.name)
    defaults = registry.get(node.op).attrs if known else None  # type: ignore[arg-type]
    args += attributes(node.attrs, p, defaults)
    return f"{callee}({', '.join(args)})"


@EXPR.on(ir.If)
def _if(node: ir.If, p: Printer) -> str:
    cond = p.expr(node.cond)
    branches = zip((node.true_branch, node.false_branch), p.scopes.inner[node], strict=True)
    then, other = (p.braces(p.block(e, b)) for e, b in branches)
    return f"if ({cond}) {then} else {other}"


@EXPR.on(Let)
def _let(node: Let, p: Printer) -> str:
    (block,) = p.scopes.inner.pop(node)  # a let that opens a block is chained inside
    lines = p.block(node, block)
    p.scopes.inner[node] = [block]
    return p.braces(lines)


@EXPR.on(Function)
def _function(node: Function, p: Printer) -> str:
    return p.function(node, "fn ", p.scopes.inner[node][0])


@EXPR.on(Match)
def _match(node: Match, p: Printer) -> str:
    rows = []
    data = p.expr(node.data)
    for clause, block in zip(node.clauses, p.scopes.inner[node] if node.clauses else (), strict=True):
        lhs, *lines = p.block(clause.rhs, block, (clause.lhs,))
        short = len(lines) == 1 and "\n" not in lines[0]
        rows.append(f"{lhs} => {lines[0] if short else p.braces(lines)},")
    return f"match{'' if node.complete else '?'} ({data}) {p.braces(rows)}"


@EXPR.on(RefCreate)
def _ref_create(node: RefCreate, p: Printer) -> str:
    return f"ref({p.operand(node.value, node)})"


@EXPR.on(RefRead)
def _ref_read(node: RefRead, p: Printer) -> str:
    return f"ref_read({p.expr(node.ref)})"


@EXPR.on(RefWrite)
def _ref_write(node: RefWrite, p: Printer) -> str:
    return f"ref_write({p.expr(node.ref)}, {p.operand(node.value, node)})"


def pattern(node: Pattern, p: Printer) -> str:
    """Write a pattern; its variables are new."""
    match node:
        case PatternVar():
            return p.define(node.var)
        case PatternConstructor():
            inner = ", ".join(pattern(x, p) for x in node.patterns)
            return node.constructor.name_hint + (f"({inner})" if node.patterns else "")
        case PatternTuple():
            return f"({', '.join(pattern(x, p) for x in node.patterns)}{',' if len(node.patterns) == 1 else ''})"
        case PatternWildcard():
            return "_"
        case _:
            return p.foreign(node)
