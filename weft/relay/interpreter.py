"""The interpreter: evaluates Relay expressions as they stand. It is the definition of what Relay programs mean.

Form in: any Relay expression, typed or not. Form out: values (``weft.relay.values``). Operators are computed by the
NumPy references of the shared registry.

It is a machine with two stacks. ``todo`` holds what is still to be done: rules with an expression and the variables
around it; rules that run later take finished values from ``values``. Nothing stays on ``todo`` for a call whose value
is the caller's own value, except one mark, which such calls share: tail calls need no space, and the depth of other
calls is the number of marks. Python's stack is never used for the program's recursion.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from weft import ir
from weft.error import EvaluationError, InvalidArgument, WeftError
from weft.ir import BaseFunc, Dispatch, Expr, IRModule, Node, Op
from weft.relay import expr as nodes
from weft.relay.adt import Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar, PatternWildcard
from weft.relay.operate import operate
from weft.relay.sharing import Sharing
from weft.relay.values import Closure, ConstructorValue, RefValue, inward, outward

MAX_DEPTH = 1 << 18


class RecursionTooDeep(EvaluationError, RecursionError):
    """Calls that are not tail calls are nested deeper than the interpreter allows."""


class Env:
    """The variables and shared nodes of one call, and those of the function's surroundings."""

    __slots__ = ("outer", "sharing", "values")

    def __init__(self, outer: Env | None, sharing: Sharing) -> None:
        self.outer, self.sharing = outer, sharing
        self.values: dict[Node, Any] = {}

    def find(self, node: Node) -> Any:
        """Return the value of a variable or shared node; None where it has none yet."""
        env = self
        while env is not None:
            if node in env.values:
                return env.values[node]
            env = env.outer
        return None


class Interpreter:
    """Evaluates expressions and calls functions of a module.

    Parameters
    ----------
    mod : IRModule, optional
        The functions and data types that expressions refer to.
    max_depth : int
        How deep calls that are not tail calls may be nested.
    """

    def __init__(self, mod: IRModule | None = None, max_depth: int = MAX_DEPTH) -> None:
        self.mod = mod if mod is not None else IRModule()
        self.max_depth = max_depth
        self._globals: dict[BaseFunc, Closure] = {}

    def evaluate(self, expr: Expr) -> Any:
        """Evaluate an expression.

        Returns
        -------
        Tensor, tuple, ConstructorValue, RefValue or Closure
            A function's value is a closure, which can be called.

        Raises
        ------
        WeftError
            When the program cannot go on; the error says where.
        """
        machine = _Machine(self)
        machine.later(step, expr, Env(None, Sharing(expr)))
        return outward(machine.run())

    def function(self, name: str) -> Closure:
        """Return a function of the module as a closure."""
        func: BaseFunc = self.mod[name]
        made = self._globals.get(func)
        if made is None:
            if not isinstance(func, nodes.Function):
                raise InvalidArgument(f"'{name}' is no Relay function", found=type(func).__name__)
            made = self._globals[func] = Closure(func, Env(None, Sharing(func)), name, self.call)
        return made

    def call(self, func: Closure, args: tuple[Any, ...]) -> Any:
        """Call a closure with values of any form that a program takes."""
        params = func.func.params
        if len(params) != len(args):
            raise InvalidArgument(
                f"'{func.name}' takes other arguments", expected=f"{len(params)}", found=f"{len(args)}"
            )
        machine = _Machine(self)
        machine.values += [func, *(inward(a, p.ty) for a, p in zip(args, params, strict=True))]
        machine.later(apply, nodes.Call(nodes.Var(func.name), params), None)
        return outward(machine.run())


Rule = Callable[[Any, "_Machine", Any], None]


class _Machine:
    """One evaluation."""

    __slots__ = ("depth", "interpreter", "todo", "values")

    def __init__(self, interpreter: Interpreter) -> None:
        self.interpreter = interpreter
        self.todo: list[tuple[Rule, Any, Any]] = []
        self.values: list[Any] = []
        self.depth: int = 0

    def run(self) -> Any:
        """Do what there is to do and return the value that is left."""
        todo = self.todo
        node: Any = None
        try:
            while todo:
                rule, node, env = todo.pop()
                rule(node, self, env)
        except WeftError as e:
            if e.where is None:
                e.where = getattr(node, "span", None)
            raise
        return self.values.pop()

    def later(self, rule: Rule, node: Any, env: Any) -> None:
        """Do something before all that is still to be done."""
        self.todo.append((rule, node, env))

    def take(self, n: int) -> list[Any]:
        """Take the last `n` values."""
        start = len(self.values) - n
        taken = self.values[start:]
        del self.values[start:]
        return taken

    def enter(self, name: str) -> None:
        """Begin a call; a caller that has nothing left to do gives it its mark."""
        if self.todo and self.todo[-1][0] is leave:
            return
        self.depth += 1
        if self.depth > self.interpreter.max_depth:
            raise RecursionTooDeep(
                f"{name}: more than {self.interpreter.max_depth} nested calls of functions",
                help="only a call whose value is all that its caller returns needs no space",
            )
        self.later(leave, None, None)


def leave(_node: ir.Node, m: _Machine, _env: object) -> None:
    """End a call."""
    m.depth -= 1


def step(node: Expr, m: _Machine, env: Env) -> None:
    """Evaluate an expression, or take its value where it is shared and has one."""
    if node in env.sharing.shared:
        found = env.find(node)
        if found is not None:
            m.values.append(found)
            return
        m.later(remember, node, env)
    evaluate(node, m, env)


def remember(node: Expr, m: _Machine, env: Env) -> None:
    """Keep the value of a shared expression."""
    env.values[node] = m.values[-1]


def shared_first(node: Expr, m: _Machine, env: Env) -> None:
    """Evaluate the shared expressions in the parts of a choice, match or function that belong outside."""
    for inner in reversed(env.sharing.before.get(node, ())):
        m.later(drop, None, None)
        m.later(step, inner, env)


def drop(_node: ir.Node, m: _Machine, _env: object) -> None:
    """Forget the last value."""
    m.values.pop()


evaluate = Dispatch(
    "Relay value",
    covers=(
        nodes.Var,
        nodes.GlobalVar,
        nodes.Constant,
        Op,
        Constructor,
        nodes.Function,
        nodes.Tuple,
        nodes.Let,
        nodes.TupleGetItem,
        nodes.If,
        Match,
        nodes.Call,
        nodes.RefCreate,
        nodes.RefRead,
        nodes.RefWrite,
    ),
)


@evaluate.on(nodes.Var)
def _var(node: nodes.Var, m: _Machine, env: Env) -> None:
    value = env.find(node)
    if value is None:
        raise EvaluationError(f"the variable '{node.name_hint}' is not bound")
    m.values.append(value)


@evaluate.on(nodes.GlobalVar)
def _global_var(node: nodes.GlobalVar, m: _Machine, _env: Env) -> None:
    m.values.append(m.interpreter.function(node.name_hint))


@evaluate.on(nodes.Constant)
def _constant(node: nodes.Constant, m: _Machine, _env: Env) -> None:
    m.values.append(node.data.numpy())


@evaluate.on(Op, Constructor)
def _itself(node: Expr, m: _Machine, _env: Env) -> None:
    m.values.append(node)


@evaluate.on(nodes.Function)
def _function(node: nodes.Function, m: _Machine, env: Env) -> None:
    m.later(close, node, env)
    shared_first(node, m, env)


def close(node: nodes.Function, m: _Machine, env: Env) -> None:
    """Make a closure."""
    m.values.append(Closure(node, env, str(node.attrs.get("global_symbol") or "fn"), m.interpreter.call))


@evaluate.on(nodes.Tuple)
def _tuple(node: nodes.Tuple, m: _Machine, env: Env) -> None:
    m.later(gather, node, env)
    for field in reversed(node.fields):
        m.later(step, field, env)


def gather(node: nodes.Tuple, m: _Machine, _env: Env) -> None:
    """Make a tuple."""
    m.values.append(tuple(m.take(len(node.fields))))


@evaluate.on(nodes.TupleGetItem)
def _tuple_get_item(node: nodes.TupleGetItem, m: _Machine, env: Env) -> None:
    m.later(project, node, env)
    m.later(step, node.tuple_value, env)


def project(node: nodes.TupleGetItem, m: _Machine, _env: Env) -> None:
    """Take an element of a tuple."""
    m.values.append(_expect(m.values.pop(), tuple, "a tuple")[node.index])


@evaluate.on(nodes.Let)
def _let(node: nodes.Let, m: _Machine, env: Env) -> None:
    m.later(bind, node, env)
    m.later(step, node.value, env)


def bind(node: nodes.Let, m: _Machine, env: Env) -> None:
    """Name the value of a let, and go on with its body."""
    value = m.values.pop()
    if type(value) is Closure and value.name == "fn":
        value.name = node.var.name_hint
    env.values[node.var] = value
    m.later(step, node.body, env)


@evaluate.on(nodes.If)
def _if(node: nodes.If, m: _Machine, env: Env) -> None:
    m.later(choose, node, env)
    shared_first(node, m, env)
    m.later(step, node.cond, env)


def choose(node: nodes.If, m: _Machine, env: Env) -> None:
    """Go on with one branch."""
    cond = m.values.pop()
    if not isinstance(cond, np.ndarray) or cond.ndim or cond.dtype != np.bool_:
        raise EvaluationError("a condition is a scalar bool", found=describe(cond))
    m.later(step, node.true_branch if cond else node.false_branch, env)


@evaluate.on(Match)
def _match(node: Match, m: _Machine, env: Env) -> None:
    m.later(select, node, env)
    shared_first(node, m, env)
    m.later(step, node.data, env)


def select(node: Match, m: _Machine, env: Env) -> None:
    """Go on with the first clause whose pattern matches."""
    value = m.values.pop()
    for clause in node.clauses:
        bound: dict[Node, Any] = {}
        if matches(clause.lhs, value, bound):
            env.values.update(bound)
            m.later(step, clause.rhs, env)
            return
    raise EvaluationError("no clause of the match takes the value", found=describe(value))


matches = Dispatch("Relay pattern", covers=(Pattern,))
"""Whether a value matches a pattern; puts the variables that it names into a dict."""


@matches.on(PatternWildcard)
def _wildcard(_pattern: PatternWildcard, _value: object, _bound: dict[Node, Any]) -> bool:
    return True


@matches.on(PatternVar)
def _pattern_var(pattern: PatternVar, value: Any, bound: dict[Node, Any]) -> bool:
    bound[pattern.var] = value
    return True


@matches.on(PatternConstructor)
def _pattern_constructor(pattern: PatternConstructor, value: Any, bound: dict[Node, Any]) -> bool:
    _expect(value, ConstructorValue, "a value of a data type")
    if value.tag != pattern.constructor.tag:
        return False
    return all(matches(p, v, bound) for p, v in zip(pattern.patterns, value.items, strict=True))


@matches.on(PatternTuple)
def _pattern_tuple(pattern: PatternTuple, value: Any, bound: dict[Node, Any]) -> bool:
    return all(matches(p, v, bound) for p, v in zip(pattern.patterns, _expect(value, tuple, "a tuple"), strict=True))


@evaluate.on(nodes.RefCreate)
def _ref_create(node: nodes.RefCreate, m: _Machine, env: Env) -> None:
    m.later(create, node, env)
    m.later(step, node.value, env)


def create(_node: nodes.RefCreate, m: _Machine, _env: Env) -> None:
    """Make a cell."""
    m.values.append(RefValue.of(m.values.pop()))


@evaluate.on(nodes.RefRead)
def _ref_read(node: nodes.RefRead, m: _Machine, env: Env) -> None:
    m.later(read, node, env)
    m.later(step, node.ref, env)


def read(_node: nodes.RefRead, m: _Machine, _env: Env) -> None:
    """Read a cell."""
    m.values.append(_expect(m.values.pop(), RefValue, "a reference").item)


@evaluate.on(nodes.RefWrite)
def _ref_write(node: nodes.RefWrite, m: _Machine, env: Env) -> None:
    m.later(write, node, env)
    m.later(step, node.value, env)
    m.later(step, node.ref, env)


def write(_node: nodes.RefWrite, m: _Machine, _env: Env) -> None:
    """Write a cell."""
    ref, value = m.take(2)
    _expect(ref, RefValue, "a reference").item = value
    m.values.append(())


@evaluate.on(nodes.Call)
def _call(node: nodes.Call, m: _Machine, env: Env) -> None:
    m.later(apply, node, env)
    for arg in reversed(node.args):
        m.later(step, arg, env)
    m.later(step, node.op, env)


def apply(node: nodes.Call, m: _Machine, _env: object) -> None:
    """Call an operator, constructor or closure with finished arguments."""
    func, *args = m.take(len(node.args) + 1)
    if type(func) is Closure:
        params = func.func.params
        _check_count(func.name, len(params), len(args))
        m.enter(func.name)
        env = Env(func.env, func.env.sharing)
        env.values.update(zip(params, args, strict=True))
        m.later(step, func.func.body, env)
    elif isinstance(func, Op):
        m.values.append(operate(func, node.attrs, args))
    elif isinstance(func, Constructor):
        _check_count(func.name_hint, len(func.inputs), len(args))
        m.values.append(ConstructorValue.of(func.tag, tuple(args), func))
    else:
        raise EvaluationError("only a function can be called", found=describe(func))


def _check_count(name: str, wanted: int, given: int) -> None:
    if wanted != given:
        raise EvaluationError(f"'{name}' is called with other arguments", expected=f"{wanted}", found=f"{given}")


def _expect(value: Any, kind: type, name: str) -> Any:
    """Return a value that must be of a kind."""
    if not isinstance(value, kind):
        raise EvaluationError(f"this is not {name}", found=describe(value))
    return value


def describe(value: object) -> str:
    """Say in a few words what a value is."""
    if isinstance(value, np.ndarray):
        return f"Tensor[{tuple(value.shape)}, {value.dtype}]"
    if isinstance(value, tuple):
        return f"({', '.join(map(describe, value))})"
    return repr(value) if isinstance(value, (ConstructorValue, RefValue, Closure)) else str(value)
