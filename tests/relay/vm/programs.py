"""Programs in A-normal form with types, written by hand: what comes out of the passes in front of code generation."""

from weft import ir, relay
from weft.relay import Call, GlobalVar, If, Let, Match, Var
from weft.relay.adt import Clause, Constructor, PatternConstructor, PatternVar, PatternWildcard, TypeData

I32, I64, BOOL = (relay.scalar_type(d) for d in ("int32", "int64", "bool"))


class Chain:
    """Writes a chain of lets: ``x = chain(value, type)``, then ``chain.end(x)``."""

    def __init__(self):
        self.bindings = []

    def __call__(self, value, ty=None, name="v"):
        v = Var(f"{name}{len(self.bindings)}", ty)
        self.bindings.append((v, value))
        return v

    def end(self, body):
        for v, value in reversed(self.bindings):
            body = Let(v, value, body)
        return body

    def tail(self, value, ty=None):
        return self.end(self(value, ty, "r"))


def op(name, *args):
    return Call(ir.Op.get(name), args)


def i64(value):
    return relay.const(value, "int64")


def list_type():
    """The definition of a list, with its constructors."""
    header, a = relay.GlobalTypeVar("List"), relay.TypeKind
    elem = relay.types.TypeVar("A", a.Type)
    cons = Constructor("Cons", (elem, header(elem)), header)
    return TypeData(header, (elem,), (cons, Constructor("Nil", (), header)))


LIST = list_type()
CONS, NIL = LIST.constructors
INTS = LIST.header(I64)


def module(functions, *types):
    mod = ir.IRModule(functions)
    for data in types or (LIST,):
        mod[data.header] = data
    return mod


def cons(*patterns):
    return PatternConstructor(CONS, patterns)


def counting():
    """main(n, i): i + n, by n tail calls."""
    main, n, i = GlobalVar("main"), Var("n", I64), Var("i", I64)
    c = Chain()
    done = c(op("equal", n, i64(0)), BOOL)
    step = Chain()
    call = step.tail(Call(main, (step(op("subtract", n, i64(1))), step(op("add", i, i64(1))))))
    return module({main: relay.Function([n, i], c.tail(If(done, i, call)), I64)})


def ackermann():
    main, m, n = GlobalVar("main"), Var("m", I64), Var("n", I64)
    zero = Chain()
    inner = Chain()
    one_less = inner(op("subtract", m, i64(1)))
    again = inner(Call(main, (m, inner(op("subtract", n, i64(1))))))
    first = Chain()
    then = first.tail(
        If(
            first(op("equal", n, i64(0)), BOOL),
            (o := Chain()).tail(Call(main, (o(op("subtract", m, i64(1))), i64(1)))),
            inner.tail(Call(main, (one_less, again))),
        )
    )
    body = zero.tail(If(zero(op("equal", m, i64(0)), BOOL), Chain().tail(op("add", n, i64(1))), then))
    return module({main: relay.Function([m, n], body, I64)})


def list_sum():
    """main(n): the sum of the list n, ..., 1, made by tail calls and folded by tail calls."""
    make, fold, main = GlobalVar("make"), GlobalVar("fold"), GlobalVar("main")
    i, n, acc = Var("i", I64), Var("n", I64), Var("acc", INTS)
    c, step = Chain(), Chain()
    more = step(op("add", i, i64(1)))
    grown = step(Call(CONS, (more, acc)), INTS)
    made = c.tail(If(c(op("equal", i, n), BOOL), acc, step.tail(Call(make, (more, n, grown)), INTS)), INTS)
    xs, total, head, rest = Var("xs", INTS), Var("total", I64), Var("head", I64), Var("rest", INTS)
    s = Chain()
    under = s.tail(Call(fold, (rest, s(op("add", total, head)))))
    folded = Match(
        xs, (Clause(cons(PatternVar(head), PatternVar(rest)), under), Clause(PatternConstructor(NIL), total))
    )
    k, m = Var("k", I64), Chain()
    whole = m(Call(make, (i64(0), k, m(Call(NIL, ()), INTS))), INTS)
    return module(
        {
            main: relay.Function([k], m.tail(Call(fold, (whole, i64(0)))), I64),
            make: relay.Function([i, n, acc], made, INTS),
            fold: relay.Function([xs, total], folded, I64),
        }
    )


def clauses(*pairs):
    return tuple(Clause(p, e) for p, e in pairs)


WILD = PatternWildcard()
