"""PartialEvaluate: control flow that the program itself decides is run at compile time."""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.relay import expr
from weft.relay.adt import Clause, Constructor, Match, Pattern, PatternConstructor, PatternTuple, PatternVar
from weft.relay.transform.copying import renamed_pattern, typed
from weft.relay.transform.effects import Effects
from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.known import NO, UNKNOWN, evaluate_call
from weft.relay.transform.lambda_lift import is_closure
from weft.relay.transform.residual import (
    Environment,
    KnownCall,
    KnownClosure,
    KnownRef,
    Scope,
    Value,
    arrays_of,
    signature,
)
from weft.relay.transform.to_a_normal_form import is_primitive, to_a_normal_form
from weft.relay.types import FuncType, TypeCall, TypeVar
from weft.relay.walk import pattern_vars, subexpressions


@ir.module_pass
def partial_evaluate(mod: ir.IRModule, max_steps: int = 8_000, entry: str = "") -> ir.IRModule:
    """Run what constants, constructors and closures decide: branches, matches, calls of known functions, recursion.

    Parameters
    ----------
    max_steps : int
        How many bindings may be evaluated for a function beyond four times those of the module; after that calls
        stay calls.
    entry : str
        The one function to evaluate; all, where it is empty.

    Requires: Any form.
    Ensures: Functions in which something was decided are in A-normal form; others are as they were. All have types.
        Effects are neither lost nor repeated nor put in another order; what a cell holds is known until something
        unknown may write it. A recursive function is unrolled where what is known of its arguments changes from call
        to call and decides when it ends.
    Before::

        def @power(%x: Tensor[(2), float32], %n: int32) -> Tensor[(2), float32] {
          if (equal(%n, 0)) { ones_like(%x) } else { multiply(%x, @power(%x, subtract(%n, 1))) }
        }

        def @main(%x: Tensor[(2), float32]) { @power(%x, 2) }

    After::

        def @power(%x: Tensor[(2), float32], %n: int32) -> Tensor[(2), float32] {
          if (equal(%n, 0)) { ones_like(%x) } else { multiply(%x, @power(%x, subtract(%n, 1))) }
        }

        def @main(%x: Tensor[(2), float32]) {
          let %a = ones_like(%x);
          let %b = multiply(%x, %a);
          let %c = multiply(%x, %b);
          %c
        }
    Cost: Linear in the bindings that are evaluated, which are bounded.
    Source: TVM's ``PartialEvaluate``; Jones, Gomard and Sestoft, Partial Evaluation (1993), chapter 7.
    """
    named = to_a_normal_form(bind_constants=False)(mod)
    size = sum(1 for f in named.functions.values() if type(f) is expr.Function for _ in subexpressions(f))

    def run(v: Any, f: Any) -> Any:
        if type(f) is not expr.Function or is_primitive(f) or is_closure(f) or entry not in ("", v.name_hint):
            return f
        evaluator = Evaluator(named, effects, max_steps + 4 * size)
        made = evaluator.left_of(named[v], Environment())
        return made if evaluator.decided else f

    effects = Effects(named)
    return infer_type()(mod.with_functions({v: ir.with_deep_stack(lambda v=v, f=f: run(v, f)) for v, f in mod.items()}))


class _Unbounded(Exception):
    """The calls of a function do not come to an end."""

    def __init__(self, func: expr.Function) -> None:
        super().__init__()
        self.func = func


class _Activation:
    """A call that is being run: how many undecided choices it is in, and the signatures of the calls in it."""

    __slots__ = ("choices", "seen", "steps")

    def __init__(self, choices: int, steps: int) -> None:
        self.choices, self.steps = choices, steps
        self.seen: set[Any] = set()


class Evaluator:
    """Evaluates one function of a module in A-normal form; ``decided`` counts what was not left for run time."""

    def __init__(self, mod: ir.IRModule, effects: Effects, max_steps: int) -> None:
        self.mod, self.effects, self.max_steps = mod, effects, max_steps
        self.steps = self.decided = self.choices = 0
        self.active: dict[expr.Function, _Activation] = {}
        self.left: set[expr.Function] = set()  # functions whose own bodies are being made: calls of them stay
        self.refused: set[tuple[expr.Function, tuple[bool, ...]]] = set()
        self.type_vars: frozenset[TypeVar] = frozenset()
        self.store: dict[Any, Value] = {}  # what cells hold at this point

    def left_of(self, func: expr.Function, env: Environment) -> expr.Function:
        """Return what is left of a function whose arguments are not known."""
        saved = self.active, self.choices, self.type_vars, self.store
        again = func in self.left
        self.active, self.choices, self.store = {}, 0, {}
        self.type_vars |= set(func.type_params)
        self.left.add(func)
        inner = Environment(env)
        params = tuple(expr.Var(p.name_hint, self.type_left(p.ty, env), span=p.span) for p in func.params)
        inner.values.update((p, Value(q)) for p, q in zip(func.params, params, strict=True))
        scope = Scope()
        body = scope.finish(self.value(func.body, inner, scope))
        made = expr.Function(
            params, body, self.type_left(func.ret_type, env), func.type_params, func.attrs, span=func.span
        )
        self.active, self.choices, self.type_vars, self.store = saved
        if not again:
            self.left.discard(func)
        return made

    def type_left(self, ty: ir.Type | None, env: Environment) -> Any:
        """Return a type where it means something in what is left; None where it has to be inferred anew."""
        ty = typed(ty, env.types)
        if ty is None:
            return None
        bound = {p for t in ir.find(ty, FuncType) for p in t.type_params}
        known = all(t in self.type_vars or t in bound for t in ir.walk(ty) if isinstance(t, TypeVar))
        return ty if known else None

    def value(self, e: ir.Node, env: Environment, scope: Scope) -> Value:
        """Evaluate an expression in A-normal form."""
        while type(e) is expr.Let:
            self.steps += 1
            env.values[e.var] = self.bound(e, env, scope)
            e = e.body
        return evaluate(e, self, env, scope, "x")

    def bound(self, let: expr.Let, env: Environment, scope: Scope) -> Value:
        """Evaluate the value of a let; a function may refer to itself."""
        return evaluate(let.value, self, env, scope, let.var.name_hint, let.var)

    def inlined(
        self, closure: KnownClosure, ty_args: tuple[ir.Type, ...], args: list[Value], scope: Scope
    ) -> Value | None:
        """Run a call of a known function; None where it has to stay a call."""
        func = closure.func
        known = signature(args)
        shape = (func, tuple(k is not None for k in known))
        if is_primitive(func) or is_closure(func) or func in self.left or shape in self.refused:
            return None
        outer = self.active.get(func)
        if outer is not None and (self.choices > outer.choices or known in outer.seen):
            raise _Unbounded(func)
        if self.steps > self.max_steps or (outer is not None and self.steps > outer.steps):
            if outer is not None:
                raise _Unbounded(func)
            return None
        if outer is not None:
            outer.seen.add(known)
            return self.run_body(closure, ty_args, args, scope)
        self.active[func] = made = _Activation(self.choices, self.steps + self.max_steps // 4)
        made.seen.add(known)
        start, choices, decided, store = len(scope.bindings), self.choices, self.decided, dict(self.store)
        try:
            return self.run_body(closure, ty_args, args, scope)
        except _Unbounded as e:
            if e.func is not func:
                raise
            del scope.bindings[start:]
            self.choices, self.decided, self.store = choices, decided, store
            self.refused.add(shape)
            return None
        finally:
            del self.active[func]

    def run_body(self, closure: KnownClosure, ty_args: tuple[ir.Type, ...], args: list[Value], scope: Scope) -> Value:
        """Evaluate a known function's body on arguments."""
        func = closure.func
        types = {}
        if len(ty_args) == len(func.type_params):
            types = dict(zip(func.type_params, ty_args, strict=True))
        env = Environment(closure.env, types)
        env.values.update(zip(func.params, args, strict=True))
        self.decided += 1
        return self.value(func.body, env, scope)

    def in_choice(self, e: expr.Expr, env: Environment, decider: Value, known: Any) -> tuple[Scope, Value]:
        """Evaluate what is reached only if the value that decides is what is said."""
        scope, before, unknown = Scope(), dict(self.store), decider.known
        self.choices += 1
        decider.known = known
        try:
            value = self.value(e, env, scope)
        finally:
            decider.known = unknown
        self.choices -= 1
        self.store = before
        return scope, value

    def after_choice(self, scopes: list[Scope]) -> bool:
        """Say whether branches have effects, after which nothing is known of cells."""
        effects = any(s.has_effects() for s in scopes)
        if effects:
            self.store = {}
        return effects


evaluate = ir.Dispatch(
    "value at compile time",
    covers=(
        expr.Var,
        expr.GlobalVar,
        expr.Constant,
        ir.Op,
        Constructor,
        expr.Function,
        expr.Tuple,
        expr.TupleGetItem,
        expr.If,
        Match,
        expr.Call,
        expr.RefCreate,
        expr.RefRead,
        expr.RefWrite,
    ),
)


@evaluate.on(expr.Var)
def _var(e: expr.Var, ev: Evaluator, env: Environment, scope: Scope, *_: object) -> Value:
    return env.find(e) or Value(e)


@evaluate.on(expr.GlobalVar)
def _global_var(e: expr.GlobalVar, ev: Evaluator, *_: object) -> Value:
    func = ev.mod[e] if e in ev.mod else None
    return Value(e, KnownClosure(func, Environment()) if type(func) is expr.Function else None)


@evaluate.on(ir.Op, Constructor)
def _itself(e: ir.Node, *_: object) -> Value:
    return Value(e)


@evaluate.on(expr.Constant)
def _constant(e: expr.Constant, *_: object) -> Value:
    return Value(e, e)


@evaluate.on(expr.Function)
def _function(
    e: expr.Function, ev: Evaluator, env: Environment, scope: Scope, hint: str, var: expr.Var | None = None
) -> Value:
    if is_primitive(e):
        return scope.add(hint, lambda: e, KnownClosure(e, env))
    around = env
    if var is not None:
        around = Environment(env)
    made = scope.add(hint, lambda: ev.left_of(e, around), KnownClosure(e, around))
    if var is not None:
        around.values[var] = made
    return made


@evaluate.on(expr.Tuple)
def _tuple(e: expr.Tuple, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    return known_tuple(tuple(ev.value(f, env, scope) for f in e.fields), scope, hint)


def known_tuple(fields: tuple[Value, ...], scope: Scope, hint: str) -> Value:
    """Make a tuple whose fields are known."""
    return scope.add(hint, lambda: expr.Tuple(tuple(f.atom() for f in fields)), fields)


@evaluate.on(expr.TupleGetItem)
def _item(e: expr.TupleGetItem, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    whole = ev.value(e.tuple_value, env, scope)
    if type(whole.known) is tuple:
        ev.decided += 1
        return whole.known[e.index]
    return scope.add(hint, lambda: expr.TupleGetItem(whole.atom(), e.index, span=e.span))


@evaluate.on(expr.If)
def _if(e: expr.If, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    cond = ev.value(e.cond, env, scope)
    if type(cond.known) is expr.Constant:
        ev.decided += 1
        return ev.value(e.true_branch if bool(cond.known.data.numpy()) else e.false_branch, env, scope)
    yes = ev.in_choice(e.true_branch, env, cond, expr.const(True))
    no = ev.in_choice(e.false_branch, env, cond, expr.const(False))

    def make() -> expr.If:
        return expr.If(cond.atom(), yes[0].finish(yes[1]), no[0].finish(no[1]), span=e.span)

    return scope.add(hint, make, needed=ev.after_choice([yes[0], no[0]]))


@evaluate.on(Match)
def _match(e: Match, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    data = ev.value(e.data, env, scope)
    possible: list[Clause] = []
    for clause in e.clauses:
        bound: list[tuple[expr.Var, Value]] = []
        start = len(scope.bindings)
        found = fits(clause.lhs, data, scope, bound)
        if found is True and not possible:
            ev.decided += 1
            env.values.update(bound)
            return ev.value(clause.rhs, env, scope)
        del scope.bindings[start:]
        if found != NO:
            possible.append(clause)
    ev.decided += len(possible) < len(e.clauses)
    made: list[tuple[Clause, dict[expr.Var, expr.Var], Scope, Value]] = []
    for clause in possible or e.clauses:
        new = {v: expr.Var(v.name_hint) for v in pattern_vars(clause.lhs)}
        env.values.update((v, Value(w)) for v, w in new.items())
        known = data.known or _what_matched(clause.lhs, env)
        made.append((clause, new, *ev.in_choice(clause.rhs, env, data, known)))

    def make() -> Match:
        clauses = [Clause(renamed_pattern(c.lhs, new), s.finish(v), span=c.span) for c, new, s, v in made]
        return Match(data.atom(), tuple(clauses), e.complete, span=e.span)

    return scope.add(hint, make, needed=ev.after_choice([s for _, _, s, _ in made]) or not e.complete)


def _what_matched(pattern: Pattern, env: Environment) -> KnownCall | None:
    """Return what a value is known to be where a pattern matched that names all its fields."""
    if not isinstance(pattern, PatternConstructor) or not all(isinstance(p, PatternVar) for p in pattern.patterns):
        return None
    fields = [env.values[p.var] for p in pattern.patterns if isinstance(p, PatternVar)]
    return KnownCall(pattern.constructor, tuple(fields))


def fits(pattern: Pattern, value: Value, scope: Scope, bound: list[tuple[expr.Var, Value]]) -> Any:
    """Whether a value matches a pattern: True, ``NO`` or ``UNKNOWN``; adds the values of the pattern's variables."""
    if isinstance(pattern, PatternVar):
        bound.append((pattern.var, value))
        return True
    if isinstance(pattern, PatternTuple):
        fields = value.known if type(value.known) is tuple else _items(value, len(pattern.patterns), scope)
    elif isinstance(pattern, PatternConstructor):
        if type(value.known) is not KnownCall:
            return UNKNOWN
        if value.known.constructor.tag != pattern.constructor.tag:
            return NO
        fields = value.known.fields
    else:
        return True
    found = [fits(p, f, scope, bound) for p, f in zip(pattern.patterns, fields, strict=True)]
    return NO if NO in found else UNKNOWN if UNKNOWN in found else True


def _items(value: Value, n: int, scope: Scope) -> tuple[Value, ...]:
    return tuple(scope.add("x", lambda i=i: expr.TupleGetItem(value.atom(), i)) for i in range(n))  # type: ignore[misc]


@evaluate.on(expr.RefCreate)
def _ref_create(e: expr.RefCreate, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    value, cell = ev.value(e.value, env, scope), KnownRef()
    ev.store[cell] = value
    return scope.add(hint, lambda: expr.RefCreate(value.atom(), span=e.span), cell, needed=True)


@evaluate.on(expr.RefRead)
def _ref_read(e: expr.RefRead, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    ref = ev.value(e.ref, env, scope)
    if ref.known in ev.store:
        ev.decided += 1
        return ev.store[ref.known]
    return scope.add(hint, lambda: expr.RefRead(ref.atom(), span=e.span), needed=True)


@evaluate.on(expr.RefWrite)
def _ref_write(e: expr.RefWrite, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    ref, value = ev.value(e.ref, env, scope), ev.value(e.value, env, scope)
    if type(ref.known) is KnownRef:
        ev.store[ref.known] = value
    else:
        ev.store.clear()  # it may be any of them
    return scope.add(hint, lambda: expr.RefWrite(ref.atom(), value.atom(), span=e.span), needed=True)


@evaluate.on(expr.Call)
def _call(e: expr.Call, ev: Evaluator, env: Environment, scope: Scope, hint: str, *_: object) -> Value:
    args = [ev.value(a, env, scope) for a in e.args]
    op = ev.value(e.op, env, scope)
    types = tuple(typed(t, env.types) for t in e.ty_args)
    if type(op.name) is Constructor and type(e.op) is expr.Var and isinstance(e.ty, TypeCall):
        types = tuple(typed(t, env.types) for t in e.ty.args)  # those of a constructor that was a value
    kept = types if all(ev.type_left(t, env) is not None for t in types) else ()
    if isinstance(op.name, (ir.Op, Constructor)):
        return _operation(expr.Call(op.name, e.args, e.attrs, span=e.span), kept, args, ev, scope, hint)
    closure = op.known if type(op.known) is KnownClosure else None
    if closure is not None:
        result = ev.inlined(closure, types, args, scope)
        if result is not None:
            return result

    def make() -> expr.Call:
        return expr.Call(op.atom(), tuple(a.atom() for a in args), e.attrs, kept, span=e.span)

    impure = closure is None or ev.effects.of_function(closure.func)
    if impure:
        ev.store.clear()
    flowed = type(op.name) is expr.GlobalVar and type(e.op) is expr.Var  # its type arguments are not known
    return scope.add(hint, make, needed=impure, ty=ev.type_left(e.ty, env) if flowed else None)


def _operation(
    e: expr.Call, types: tuple[ir.Type, ...], args: list[Value], ev: Evaluator, scope: Scope, hint: str
) -> Value:
    """Evaluate a call of an operator or constructor."""

    def make() -> expr.Call:
        return expr.Call(e.op, tuple(a.atom() for a in args), e.attrs, types, span=e.span)

    if isinstance(e.op, Constructor):
        return scope.add(hint, make, KnownCall(e.op, tuple(args)))
    values = dict(zip(e.args, args, strict=True))
    folded = evaluate_call(e, lambda a: arrays_of(values[a]))
    if folded is not None:
        ev.decided += 1
        return _folded(folded, scope, hint)
    return scope.add(hint, make, needed=ev.effects.any(e))


def _folded(e: Any, scope: Scope, hint: str) -> Value:
    if type(e) is expr.Constant:
        return Value(e, e)
    return known_tuple(tuple(_folded(f, scope, hint) for f in e.fields), scope, hint)
