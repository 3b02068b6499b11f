"""Expressions of any type in random programs: lets, choices, matches, calls, cells and loops."""

from tests.relay.programs.kinds import fit, holds_function, replace, same, scalar
from tests.relay.programs.scope import Scope
from weft import relay

INT = scalar("int32")


def let(d, ty, scope):
    """``let x = value; body``, annotated or not."""
    functions = [t for _, t in d.functions if not t.type_params]
    inner = d.pick(functions) if functions and d.chance(4) else d.any_type(scope)
    value = d.expr(inner, scope)
    v = d.name(inner if d.chance(2) else None)
    return relay.Let(v, value, d.expr(ty, scope.with_((v, inner))))


def choice(d, ty, scope):
    """A choice between two expressions."""
    return relay.If(d.expr(scalar("bool"), scope), d.expr(ty, scope), d.expr(ty, scope))


def element(d, ty, scope):
    """An element of a tuple."""
    types = [d.data_type(scope) for _ in range(d.number(0, 2))]
    index = d.number(0, len(types))
    types.insert(index, ty)
    return relay.TupleGetItem(d.expr(relay.TupleType(tuple(types)), scope), index)


def call_literal(d, ty, scope):
    """A call of a function expression."""
    func = relay.FuncType(tuple(d.any_type(scope) for _ in range(d.number(0, 2))), ty)
    callee = type(d).expr if not d.first_order else lambda d, ty, scope: d.function(ty, scope, type(d).expr)
    return relay.Call(callee(d, func, scope), tuple(d.expr(t, scope) for t in func.arg_types))


def call_variable(d, ty, scope):
    """A call of a variable that is a function."""
    f, func = d.pick(scope.find(lambda t: isinstance(t, relay.FuncType) and same(t.ret_type, ty)))
    return relay.Call(f, tuple(d.expr(t, scope) for t in func.arg_types))


def callable_functions(d, ty):
    """Functions of the module whose result may be of the type, each with what that tells of its type parameters."""
    fitting = []
    for gv, signature in d.functions:
        known = []
        if fit(signature.ret_type, ty, signature.type_params, known):
            fitting.append((gv, signature, known))
    return fitting[::-1]


def call_library(d, ty, scope):
    """A call of a function of the module, at the types that its result asks for.

    Types that have functions in them are written: an argument that is polymorphic would remain so.
    """
    gv, signature, known = d.pick(callable_functions(d, ty))
    for v in signature.type_params:
        if not any(k is v for k, _ in known):
            known.append((v, d.data_type(scope)))
    args = [d.expr(replace(t, known), scope) for t in signature.arg_types]
    given = [next(t for k, t in known if k is v) for v in signature.type_params]
    explicit = given if any(map(holds_function, given)) or d.chance(4) else []
    return relay.Call(gv, tuple(args), ty_args=tuple(explicit))


def named_function(d, ty, scope):
    """A function of the module or a constructor, as a value."""
    return d.pick(d.function_values(ty))


def local_polymorphic(d, ty, scope):
    """A polymorphic function of a let, called at two types."""
    a, b = relay.TypeVar("T"), d.data_type(scope)
    f, x, y = d.name(), relay.var("x", a), relay.var("y")
    inner = scope.with_((x, a))
    inner.types = (*scope.types, a)
    func = relay.Function([x], d.expr(a, inner), a, [a])
    first = d.expr(ty, scope)
    second = d.expr(b, scope)
    rest = d.expr(ty, scope.with_((y, ty)))
    return relay.Let(
        f, func, relay.Let(y, relay.Call(f, (first,)), relay.Let(d.name(), relay.Call(f, (second,)), rest))
    )


def match(d, ty, scope):
    """A match of a value whose patterns cover all values, after some that may not."""
    inner = d.lib.type_of(d.pick(("Option", "List", "Tree", "Rose")), d.data_type(scope))
    if d.chance(3):
        inner = d.lib.type_of("Pair", d.data_type(scope), inner) if d.chance(2) else relay.TupleType((inner, inner))
    data = d.expr(inner, scope)
    clauses = [_clause(d, ty, scope, pattern(d, inner, 2)) for _ in range(d.number(0, 2))]
    if isinstance(inner, relay.TypeCall) and not d.chance(3):
        for c in d.lib.types[inner.func.name_hint][1]:
            clauses.append(_clause(d, ty, scope, _constructor(d, inner, c, 0)))
    else:
        clauses.append(_clause(d, ty, scope, pattern(d, inner, 0)))
    return relay.Match(data, clauses)


def _clause(d, ty, scope, made):
    lhs, bound = made
    return relay.Clause(lhs, d.expr(ty, scope.with_(*bound)))


def pattern(d, ty, depth):
    """A pattern for values of a type, and the variables that it names."""
    if depth > 0 and isinstance(ty, relay.TypeCall):
        return _constructor(d, ty, d.pick(d.lib.types[ty.func.name_hint][1]), depth - 1)
    if depth > 0 and isinstance(ty, relay.TupleType):
        return _joined(relay.PatternTuple, [pattern(d, t, depth - 1) for t in ty.fields])
    if d.chance(3):
        return relay.PatternWildcard(), ()
    v = d.name(ty if d.chance(3) else None)
    return relay.PatternVar(v), ((v, ty),)


def _constructor(d, ty, constructor, depth):
    known = d.parameters_of(ty)
    inner = [pattern(d, replace(t, known), depth if d.chance(2) else 0) for t in constructor.inputs]
    return _joined(lambda patterns: relay.PatternConstructor(constructor, patterns), inner)


def _joined(make, made):
    return make([p for p, _ in made]), tuple(b for _, bound in made for b in bound)


def through_cell(d, ty, scope):
    """A value that was put into a cell; maybe another one replaced it."""
    r = d.name()
    inner = scope.with_((r, relay.RefType(ty)))
    body = write_first(d, ty, inner) if d.chance(2) else relay.RefRead(r)
    return relay.Let(r, relay.RefCreate(d.expr(ty, scope)), body)


def write_first(d, ty, scope):
    """Something behind a write to a cell."""
    r, cell = d.pick(scope.find(lambda t: isinstance(t, relay.RefType))[::-1])
    write = relay.RefWrite(r, d.expr(cell.value, scope))
    return relay.Let(d.name(), write, d.expr(ty, scope))


def read(d, ty, scope):
    """What a cell holds."""
    r, _ = d.pick(scope.find(lambda t: isinstance(t, relay.RefType) and same(t.value, ty))[::-1])
    return relay.RefRead(r)


def loop(d, ty, scope):
    """A function that calls itself while it counts down, at the end of its body or not."""
    d.loops -= 1
    again, n, acc = d.name(), relay.var("n", d.pick((INT, scalar("int64")))), relay.var("acc", ty)
    scope_in = scope.with_((n, n.ty), (acc, ty))
    less = n - relay.const(1, n.ty.dtype)
    if d.chance(2):
        rest = relay.Call(again, (less, d.expr(ty, scope_in)))
    else:
        r = relay.var("r")
        rest = relay.Let(r, relay.Call(again, (less, acc)), d.expr(ty, scope_in.with_((r, ty))))
    body = relay.If(relay.less_equal(n, relay.const(0, n.ty.dtype)), acc, rest)
    start = relay.Call(again, (relay.const(d.number(0, 4), n.ty.dtype), d.expr(ty, scope)))
    return relay.Let(again, relay.Function([n, acc], body, ty), start)


def loop_over_list(d, ty, scope):
    """A function that calls itself for the rest of a list, from among variables of its surroundings."""
    d.loops -= 1
    item = d.data_type(scope)
    lists = d.lib.type_of("List", item)
    again, xs, acc, h, t = d.name(), relay.var("xs", lists), relay.var("acc", ty), d.name(), relay.var("t")
    step = d.expr(ty, scope.with_((xs, lists), (acc, ty), (h, item)))
    body = d.lib.match(xs, ("Nil", (), lambda: acc))
    cons = relay.PatternConstructor(d.lib.constructor("Cons"), [relay.PatternVar(h), relay.PatternVar(t)])
    body = relay.Match(xs, (*body.clauses, relay.Clause(cons, relay.Call(again, (t, step)))))
    start = relay.Call(again, (d.expr(lists, scope), d.expr(ty, scope)))
    return relay.Let(again, relay.Function([xs, acc], body, ty), start)


def mutual(d):
    """Two functions of the module that call each other while they count down."""
    ty = d.data_type(Scope())
    ping, pong = relay.GlobalVar("ping"), relay.GlobalVar("pong")
    for gv, other in ((ping, pong), (pong, ping)):
        n, acc = relay.var("n", INT), relay.var("acc", ty)
        rest = relay.Call(other, (n - relay.const(1), d.expr(ty, Scope.of((n, acc)))))
        d.lib.mod[gv] = relay.Function([n, acc], relay.If(relay.less_equal(n, relay.const(0)), acc, rest), ty)
    d.counters.append((ping, ty))


def call_counter(d, ty, scope):
    """A call of one of two functions that count down together."""
    gv, _ = d.pick([c for c in d.counters if same(c[1], ty)])
    return relay.Call(gv, (relay.const(d.number(0, 4)), d.expr(ty, scope)))
