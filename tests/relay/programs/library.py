"""What random programs stand on: data types, and polymorphic functions over them."""

from weft import ir, relay

INT = relay.scalar_type("int32")


class Library:
    """The data types and functions, and a module that has them.

    ``types`` maps names to (header, constructors); ``functions`` maps names to (global variable, FuncType).
    """

    def __init__(self):
        self.mod = ir.IRModule()
        self.types = {}
        self.functions = {}
        for define in (_data_types, _identity, _compose, _map, _foldl, _foldr, _append, _tree_fold, _or_else, _count):
            define(self)

    def type_of(self, name, *args):
        """Apply a data type."""
        return self.types[name][0](*args)

    def constructor(self, name):
        """Find a constructor."""
        return next(c for _, ctors in self.types.values() for c in ctors if c.name_hint == name)

    def define(self, name, type_params, constructors):
        """Define a data type; ``constructors(header)`` gives names and field types."""
        header = relay.GlobalTypeVar(name)
        made = [relay.Constructor(c, tuple(fields), header) for c, *fields in constructors(header)]
        self.mod[header] = relay.TypeData(header, tuple(type_params), tuple(made))
        self.types[name] = (header, made)

    def function(self, name, params, ret, type_params, body):
        """Define a function; ``body(itself, *params)`` makes its body."""
        gv = relay.GlobalVar(name)
        variables = [relay.var(n, t) for n, t in params]
        self.mod[gv] = relay.Function(variables, body(gv, *variables), ret, type_params)
        self.functions[name] = (gv, relay.FuncType(tuple(t for _, t in params), ret, tuple(type_params)))

    def match(self, value, *clauses):
        """Match: each clause is a constructor's name, names of its fields (``_`` for any), and what gives the value."""
        made = []
        for name, fields, rhs in clauses:
            variables = [relay.var(f) for f in fields]
            patterns = [relay.PatternWildcard() if v.name_hint == "_" else relay.PatternVar(v) for v in variables]
            named = [v for v in variables if v.name_hint != "_"]
            made.append(relay.Clause(relay.PatternConstructor(self.constructor(name), patterns), rhs(*named)))
        return relay.Match(value, made)


def _data_types(lib):
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    lib.define("List", [a], lambda h: [("Nil",), ("Cons", a, h(a))])
    lib.define("Option", [a], lambda h: [("None",), ("Some", a)])
    lib.define("Tree", [a], lambda h: [("Leaf",), ("Node", h(a), a, h(a))])
    lib.define("Rose", [a], lambda h: [("Rose", a, lib.type_of("List", h(a)))])
    lib.define("Pair", [a, b], lambda h: [("Pair", a, b)])


def _identity(lib):
    a = relay.TypeVar("A")
    lib.function("identity", [("x", a)], a, [a], lambda _, x: x)


def _compose(lib):
    a, b, c = (relay.TypeVar(n) for n in "ABC")
    f, g = relay.FuncType((b,), c), relay.FuncType((a,), b)
    lib.function("compose", [("f", f), ("g", g), ("x", a)], c, [a, b, c], lambda _, f, g, x: f(g(x)))


def _map(lib):
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    nil, cons = lib.types["List"][1]
    lib.function(
        "map",
        [("f", relay.FuncType((a,), b)), ("xs", lib.type_of("List", a))],
        lib.type_of("List", b),
        [a, b],
        lambda map_, f, xs: lib.match(
            xs, ("Nil", (), lambda: nil()), ("Cons", ("h", "t"), lambda h, t: cons(f(h), map_(f, t)))
        ),
    )


def _foldl(lib):
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    lib.function(
        "foldl",
        [("f", relay.FuncType((b, a), b)), ("acc", b), ("xs", lib.type_of("List", a))],
        b,
        [a, b],
        lambda fold, f, acc, xs: lib.match(
            xs, ("Nil", (), lambda: acc), ("Cons", ("h", "t"), lambda h, t: fold(f, f(acc, h), t))
        ),
    )


def _foldr(lib):
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    lib.function(
        "foldr",
        [("f", relay.FuncType((a, b), b)), ("acc", b), ("xs", lib.type_of("List", a))],
        b,
        [a, b],
        lambda fold, f, acc, xs: lib.match(
            xs, ("Cons", ("h", "t"), lambda h, t: f(h, fold(f, acc, t))), ("Nil", (), lambda: acc)
        ),
    )


def _append(lib):
    a = relay.TypeVar("A")
    lists, cons = lib.type_of("List", a), lib.constructor("Cons")
    lib.function(
        "append",
        [("xs", lists), ("ys", lists)],
        lists,
        [a],
        lambda append, xs, ys: lib.match(
            xs, ("Nil", (), lambda: ys), ("Cons", ("h", "t"), lambda h, t: cons(h, append(t, ys)))
        ),
    )


def _tree_fold(lib):
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    lib.function(
        "tree_fold",
        [("f", relay.FuncType((b, a, b), b)), ("acc", b), ("t", lib.type_of("Tree", a))],
        b,
        [a, b],
        lambda fold, f, acc, t: lib.match(
            t,
            ("Leaf", (), lambda: acc),
            ("Node", ("l", "x", "r"), lambda left, x, r: f(fold(f, acc, left), x, fold(f, acc, r))),
        ),
    )


def _or_else(lib):
    a = relay.TypeVar("A")
    lib.function(
        "or_else",
        [("x", a), ("o", lib.type_of("Option", a))],
        a,
        [a],
        lambda _, x, o: lib.match(o, ("Some", ("y",), lambda y: y), ("None", (), lambda: x)),
    )


def _count(lib):
    a = relay.TypeVar("A")
    n = relay.var("n", INT)

    def body(itself, xs, n):
        more = lib.match(xs, ("Cons", ("_", "t"), lambda t: itself(t, n + relay.const(1))), ("Nil", (), lambda: n))
        return relay.If(relay.less(n, relay.const(100)), more, n)

    lib.function("count", [("xs", lib.type_of("List", a)), ("n", n.ty)], INT, [a], body)
