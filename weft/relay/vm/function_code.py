"""The code of one function of the Relay machine while it is made, and what it refers to.

A function becomes an :class:`Assembly` of values, then instructions on registers. An expression is emitted in one
of two ways: for its value, or in tail position, where each of its ends returns and a call is a tail call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from weft import error, ir
from weft.relay.adt import Constructor, Match, type_data
from weft.relay.expr import Function, Let, Var, let_chain
from weft.relay.scalars import is_scalar
from weft.relay.transform.device_constraints import PARAM_DEVICES
from weft.relay.vm.assembly import Assembly
from weft.relay.vm.constants import ConstantPool
from weft.relay.vm.liveness import assemble
from weft.relay.vm.match_tree import Fail, Leaf, Place, Switch, Tree, decision_tree
from weft.runtime.relay_vm import Instruction, VMFunction

CLOSURE = "Closure"
"""The attribute of a function whose body is a function: it makes closures of what it takes."""

I = Instruction  # noqa: E741 - what the code is written in
Rules = Callable[[ir.Expr, "FunctionCode", "int | None"], int]


class ModuleCode:
    """What the code of a module refers to: its functions, constants and primitives as numbers, as they are found.

    Parameters
    ----------
    mod : IRModule
        Lowered Relay functions and the TIR functions that they call.
    """

    def __init__(self, mod: ir.IRModule) -> None:
        self.mod = mod
        self.constants = ConstantPool()
        self.primitives: dict[str, int] = {}
        self.functions: dict[str, Function] = {v.name_hint: f for v, f in mod.items() if isinstance(f, Function)}
        self._index = {name: i for i, name in enumerate(self.functions)}
        self._wrapped: dict[str, Constructor] = {}

    def function(self, var: ir.GlobalVar) -> tuple[int, Function]:
        """Return the index of a function of the module, and the function."""
        found = self.functions.get(var.name_hint)
        if found is None:
            raise error.InvalidArgument(
                f"the module has no Relay function '{var.name_hint}'", where=var.span, found=", ".join(self.functions)
            )
        return self._index[var.name_hint], found

    def constructor_function(self, c: Constructor) -> int:
        """Return the index of a function that makes a constructor's values."""
        name = f"{c.belong_to.name_hint}.{c.name_hint}"
        self._wrapped.setdefault(name, c)
        return self._index.setdefault(name, len(self._index))

    def primitive(self, var: ir.GlobalVar) -> int:
        """Return the index of a TIR function."""
        name = var.name_hint
        if var.name_hint in self.mod:
            name = self.mod[var.name_hint].attrs.get("global_symbol") or name  # type: ignore[attr-defined]
        return self.primitives.setdefault(str(name), len(self.primitives))


class FunctionCode:
    """Code of one function.

    Parameters
    ----------
    unit : CodeUnit
        The module.
    name : str
        The function's name.
    func : Function
        The function; one that makes closures takes what they capture, then what they are called with.
    rules : callable
        ``rules(expr, code, dst)`` emits an expression for its value.
    """

    def __init__(self, unit: ModuleCode, name: str, func: Function, rules: Rules) -> None:
        self.unit, self.name, self.rules = unit, name, rules
        self.params, self.body = _flattened(name, func)
        planned = func.attrs.get(PARAM_DEVICES, ())
        self.devices = [d[0] if d else 0 for d in planned] if len(planned) == len(self.params) else []
        self.asm = Assembly(len(self.params))
        self.env: dict[Var, int] = {}
        for i, p in enumerate(self.params):
            self.env[p] = i
            if is_scalar(p.ty):
                self.asm.scalars.add(i)
        self.tuples: dict[int, list[int]] = {}  # values of tuples made here
        self.closures: dict[int, tuple[int, list[int]]] = {}  # values of closures made here
        self.loaded: dict[Any, int] = {}  # values of constants that were loaded on every way to here

    def compile(self) -> VMFunction:
        """Return the function's code."""
        self.tail(self.body)
        registers, code = assemble(self.asm)
        return VMFunction(self.name, [p.name_hint for p in self.params], registers, code, self.devices)

    # ---- values ------------------------------------------------------------------------------------------------------

    def emit(self, instruction: Instruction) -> None:
        """Append an instruction."""
        self.asm.emit(instruction)

    def new(self, like: ir.Expr | None = None) -> int:
        """Make a value for an expression."""
        return self.asm.value(like is not None and is_scalar(like.ty))

    def value(self, expr: ir.Expr, dst: int | None = None) -> int:
        """Emit an expression for its value, in `dst` where that is given, and return the value."""
        expr = self.bind_lets(expr)
        return self.rules(expr, self, dst)

    def bind_lets(self, expr: ir.Expr) -> ir.Expr:
        """Emit the values of a chain of lets, and return its body; the last value, where it is the body."""
        while isinstance(expr, Let):
            if expr.body is expr.var:
                return self.bind_lets(expr.value)
            self.env[expr.var] = self.value(expr.value)
            expr = expr.body
        return expr

    def values(self, exprs: Iterable[ir.Expr]) -> list[int]:
        """Emit expressions for their values."""
        return [self.value(e) for e in exprs]

    def number(self, value: int) -> int:
        """Return an int64 scalar."""
        return self.load(("number", value), lambda dst: I.load_consti(value, dst))

    def load(self, key: Any, instruction: Callable[[int], Instruction], dst: int | None = None) -> int:
        """Return a constant; it is loaded once on a way through the function, in `dst` where that is given."""
        known = self.loaded.get(key)
        if known is not None:
            return self.into(known, dst)
        value = self.asm.value() if dst is None else dst
        self.emit(instruction(value))
        if dst is None:
            self.loaded[key] = value
        return value

    def arm(self, run: Callable[..., None], *args: Any) -> None:
        """Emit one of several ways: what it loads is not there on the others."""
        outer, self.loaded = self.loaded, dict(self.loaded)
        run(*args)
        self.loaded = outer

    def into(self, value: int, dst: int | None) -> int:
        """Let `dst`, where it is given, be a value that there is."""
        if dst is None or dst == value:
            return value
        self.emit(I.move(value, dst))
        return dst

    # ---- tail position -----------------------------------------------------------------------------------------------

    def tail(self, expr: ir.Expr) -> None:
        """Emit an expression whose value the function returns."""
        expr = self.bind_lets(expr)
        if isinstance(expr, ir.If):
            self.branch(expr, self.tail)
        elif isinstance(expr, Match):
            self.match(expr, self.tail)
        else:
            self.emit(I.ret(self.value(expr)))

    # ---- control -----------------------------------------------------------------------------------------------------

    def branch(self, expr: ir.If, end: Any, join: int | None = None) -> None:
        """Emit both branches by `end`; the first then goes to the label `join`."""
        asm = self.asm
        then, other = asm.label(), asm.label()
        test = self.value(expr.cond)
        self.emit(I.if_(test, self.number(1), then, other))
        asm.place(then)
        self.arm(self.finish, expr.true_branch, end, join)
        asm.place(other)
        self.arm(end, expr.false_branch)

    def match(self, expr: Match, end: Any, join: int | None = None) -> None:
        """Emit a match as a tree of tests; clauses that several of its leaves reach stand behind it, once."""
        places = {(): self.value(expr.data)}
        tree = decision_tree(expr.clauses, self.siblings)
        shared = {i: self.asm.label() for i, n in _leaves(tree).items() if n > 1}
        self.arm(self.grow, tree, places, set(places), expr, (end, join), shared)
        for i, label in shared.items():
            self.asm.place(label)
            self.arm(self.finish, expr.clauses[i].rhs, end, join)

    def grow(
        self, tree: Tree, places: dict[Place, int], here: set[Place], expr: Match, then: Any, shared: dict[int, int]
    ) -> None:
        """Emit a tree; `places` are values by place, and those in `here` have been fetched on the way."""
        if isinstance(tree, Fail):
            where = f" at {expr.span}" if expr.span is not None else ""
            text = f"no clause of the match in '{self.name}'{where} takes {tree.missing}"
            self.emit(I.fatal(self.unit.constants.add(text)))
        elif isinstance(tree, Leaf):
            for var, place in tree.bindings:
                self.env[var] = self.fetch(place, places, here, var)
            if tree.clause in shared:
                self.emit(I.goto(shared[tree.clause]))
            else:
                self.finish(expr.clauses[tree.clause].rhs, *then)
        else:
            tag = self.asm.value(scalar=True)
            self.emit(I.get_tag(self.fetch(tree.place, places, here), tag))
            cases = list(tree.cases)
            last = cases.pop()[1] if tree.default is None else tree.default
            for constructor, under in cases:
                yes, no = self.asm.label(), self.asm.label()
                self.emit(I.if_(tag, self.number(constructor.tag), yes, no))
                self.asm.place(yes)
                self.arm(self.grow, under, places, set(here), expr, then, shared)
                self.asm.place(no)
            self.grow(last, places, here, expr, then, shared)

    def fetch(self, place: Place, places: dict[Place, int], here: set[Place], var: Var | None = None) -> int:
        """Return the value at a place; its fields are read at most once on a path."""
        if place in here:
            return places[place]
        parent = self.fetch(place[:-1], places, here)
        fields = self.tuples.get(parent)
        here.add(place)
        if fields is not None:
            places[place] = fields[place[-1]]
            return places[place]
        if place not in places:
            places[place] = self.new(var)
        self.emit(I.get_field(parent, place[-1], places[place]))
        return places[place]

    def finish(self, expr: ir.Expr, end: Any, join: int | None) -> None:
        """Emit what an end of control does."""
        end(expr)
        if join is not None:
            self.emit(I.goto(join))

    def siblings(self, constructor: Constructor) -> tuple[Constructor, ...]:
        """Return all constructors of a constructor's type."""
        data = type_data(self.unit.mod, constructor)
        if data is None:
            raise error.InvalidArgument(f"the module does not define the type '{constructor.belong_to.name_hint}'")
        return data.constructors


def _flattened(name: str, func: Function) -> tuple[list[Var], ir.Expr]:
    if not func.attrs.get(CLOSURE):
        return list(func.params), func.body
    bindings, code = let_chain(func.body)
    if len(bindings) == 1 and code is bindings[0][0]:
        code = bindings[0][1]
    elif bindings:
        code = None
    if not isinstance(code, Function):
        raise error.LoweringError(f"the body of '{name}', which makes closures, is not a function", where=func.span)
    return [*func.params, *code.params], code.body


def _leaves(tree: Tree) -> dict[int, int]:
    counts: dict[int, int] = {}
    rest = [tree]
    while rest:
        t = rest.pop()
        if isinstance(t, Leaf):
            counts[t.clause] = counts.get(t.clause, 0) + 1
        elif isinstance(t, Switch):
            rest += [u for _, u in t.cases] + ([] if t.default is None else [t.default])
    return counts
