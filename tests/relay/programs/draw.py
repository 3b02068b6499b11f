"""Random well-typed Relay programs that end, and arguments for them, drawn from numbers.

The numbers are those of Hypothesis (the strategy ``programs``), or of :class:`.Choices`, which takes less time.
An expression of a given type is drawn top-down, from rules that fit the type. The simplest rules come first, so that
programs shrink to what fails. All recursion counts down or follows a value of a data type; cells hold only data.
"""

from hypothesis import strategies as st

from tests.relay.programs import control, kinds, tensors
from tests.relay.programs.library import Library
from tests.relay.programs.scope import Scope
from weft import ir, relay

MAX_DEPTH = 7
NAMES = ("x", "y", "z", "a", "b")


class Drawer:
    """Draws one program. ``fuel`` is how many more expressions it may have; ``number(low, high)`` gives numbers.

    ``first_order`` leaves out what needs the virtual machine.
    """

    def __init__(self, number, fuel, first_order):
        self.number, self.fuel, self.depth, self.loops, self.first_order = number, fuel, 0, 2, first_order
        self.lib = Library()
        self.functions = [] if first_order else list(self.lib.functions.values())
        self.counters = []
        self.dynamic = []

    def chance(self, n):
        """True once in `n` times; False is simpler."""
        return self.number(0, n - 1) == n - 1

    def pick(self, items):
        """One of several; the first is simplest."""
        return items[self.number(0, len(items) - 1)]

    def name(self, ty=None):
        """A variable; names repeat, as in programs."""
        return relay.var(self.pick(NAMES), ty)

    def leaf_type(self, scope):
        """A type that stands where one may be any: tensors, and what the scope has."""
        return kinds.tensor_type(self, scope.types, self.dynamic)

    def data_type(self, scope):
        """A type of values that can be compared."""
        return (kinds.tuple_type if self.first_order else kinds.data_type)(self, lambda: self.leaf_type(scope))

    def any_type(self, scope):
        """A type of any values."""
        return self.data_type(scope) if self.first_order else kinds.any_type(self, lambda: self.leaf_type(scope))

    def expr(self, ty, scope):
        """An expression of a type."""
        self.fuel -= 1
        if self.fuel <= 0 or self.depth > MAX_DEPTH or self.number(0, 24) == 0:
            return self.leaf(ty, scope)
        old = [e for e, t in scope.shared if kinds.same(t, ty)]
        if old and self.chance(5):
            return self.pick(old)
        self.depth += 1
        made = self.pick(self.rules(ty, scope))(self, ty, scope)
        self.depth -= 1
        if not isinstance(made, (relay.Var, relay.Constant)):
            scope.shared.append((made, ty))
        return made

    def rules(self, ty, scope):
        """The rules that fit a type, simplest first."""
        out = []
        if kinds.is_tensor(ty):
            out += [tensors.operation] * 5
        elif not isinstance(ty, relay.TypeVar):
            out += [Drawer.composed] * 4
        out += [control.let, control.let, control.element, control.call_literal]
        if control.callable_functions(self, ty):
            out += [control.call_library]
        if self.first_order:
            return out
        out += [control.choice, control.local_polymorphic]
        if isinstance(ty, relay.FuncType) and self.function_values(ty):
            out += [control.named_function] * 3
        out += [control.match, control.match]
        if kinds.is_data(ty):
            out.append(control.through_cell)
        if scope.find(lambda t: isinstance(t, relay.FuncType) and kinds.same(t.ret_type, ty)):
            out += [control.call_variable] * 4
        if scope.find(lambda t: isinstance(t, relay.RefType)):
            out.append(control.write_first)
        if scope.find(lambda t: isinstance(t, relay.RefType) and kinds.same(t.value, ty)):
            out += [control.read] * 2
        if self.loops > 0:
            out += [control.loop, control.loop_over_list]
        if any(kinds.same(t, ty) for _, t in self.counters):
            out += [control.call_counter] * 3
        return out

    def leaf(self, ty, scope):
        """A variable of the type, else the simplest value."""
        found = scope.find(lambda t: kinds.same(t, ty))
        if found and (not kinds.is_tensor(ty) or not self.chance(4) or ty in self.dynamic):
            return found[-1 - self.number(0, len(found) - 1)][0]
        if kinds.is_tensor(ty):
            return tensors.constant(self, ty)
        if isinstance(ty, relay.TupleType):
            return relay.Tuple(tuple(self.leaf(t, scope) for t in ty.fields))
        if isinstance(ty, relay.RefType):
            return relay.RefCreate(self.leaf(ty.value, scope))
        if isinstance(ty, relay.FuncType):
            return self.function(ty, scope, Drawer.leaf)
        return self.construct(ty, scope, self.lib.types[ty.func.name_hint][1][0], self.leaf)

    def composed(self, ty, scope):
        """A value of a type that has parts."""
        if isinstance(ty, relay.TupleType):
            return relay.Tuple(tuple(self.expr(t, scope) for t in ty.fields))
        if isinstance(ty, relay.RefType):
            return relay.RefCreate(self.expr(ty.value, scope))
        if isinstance(ty, relay.FuncType):
            return self.function(ty, scope, Drawer.expr)
        return self.construct(ty, scope, self.pick(self.lib.types[ty.func.name_hint][1][::-1]), self.expr)

    def construct(self, ty, scope, constructor, draw_field):
        """A value made by a constructor. Its type arguments stand there where the fields may not tell them."""
        known = self.parameters_of(ty)
        fields = [draw_field(kinds.replace(t, known), scope) for t in constructor.inputs]
        explicit = ty.args if not fields or any(map(kinds.holds_function, ty.args)) or self.chance(3) else ()
        return relay.Call(constructor, tuple(fields), ty_args=tuple(explicit))

    def parameters_of(self, ty):
        """The type parameters of a data type's definition, and what they stand for."""
        definition = self.lib.mod.type_definitions[self.lib.types[ty.func.name_hint][0]]
        return list(zip(definition.type_vars, ty.args, strict=True))

    def function_values(self, ty):
        """Functions of the module and constructors that are of a function type.

        A constructor without fields is none: nothing at a call of it would tell the type arguments.
        """
        found = [gv for gv, t in self.functions if not t.type_params and kinds.same(t, ty)]
        if isinstance(ty.ret_type, relay.TypeCall):
            known = self.parameters_of(ty.ret_type)
            for c in self.lib.types[ty.ret_type.func.name_hint][1]:
                types = [kinds.replace(t, known) for t in c.inputs]
                if types and len(types) == len(ty.arg_types) and all(map(kinds.same, types, ty.arg_types)):
                    found.append(c)
        return found

    def function(self, ty, scope, draw_body):
        """A function, which sees the variables around it."""
        params = [self.name(t) for t in ty.arg_types]
        body = draw_body(self, ty.ret_type, scope.with_(*zip(params, ty.arg_types, strict=True)))
        return relay.Function(params, body, ty.ret_type if self.chance(2) else None)


@st.composite
def programs(draw, fuel=60, first_order=False):
    """Draw a program as a strategy of Hypothesis, which makes a failing one small."""
    return program(lambda low, high: draw(st.integers(low, high)), fuel, first_order)


def program(number, fuel=60, first_order=False):
    """Draw ``(mod, args)``: a module whose ``main`` takes the arguments and returns data.

    Parameters
    ----------
    number : callable
        ``number(low, high)`` gives a number from `low` to `high`.
    fuel : int
        About how many expressions the program has.
    first_order : bool
        Leave out what needs the virtual machine.
    """
    d = Drawer(number, max(number(0, fuel // 2) for _ in range(2)), first_order)
    for i in range(number(0, 2)):
        _global_function(d, f"f{i}")
    if not first_order and d.chance(3):
        control.mutual(d)
    d.fuel = max(number(0, fuel) for _ in range(2))
    params = [relay.var(f"p{i}", d.data_type(Scope())) for i in range(number(0, 3))]
    if not first_order and d.chance(3):
        shape = d.pick(((relay.Any(),), (relay.Any(), 3), (2, relay.Any()), (relay.Any(), relay.Any())))
        d.dynamic = [relay.TensorType(shape, "float32")]
        params.append(relay.var("dyn", d.dynamic[0]))
    scope = Scope.of(params)
    ret = d.data_type(scope)
    if d.chance(2):
        ret = relay.TupleType((ret, *(d.data_type(scope) for _ in range(number(1, 2)))))
    body = d.expr(ret, scope)
    d.lib.mod["main"] = relay.Function(params, body, ret if d.chance(2) else None)
    _drop_unused(d.lib.mod)
    return d.lib.mod, [kinds.value(d, p.ty) for p in params]


def _global_function(d, name):
    """A function of the module, often polymorphic."""
    variables = [relay.TypeVar(n) for n in "AB"[: d.number(0, 2)]]
    empty = Scope(types=tuple(variables))
    params = [relay.var(f"v{i}", v) for i, v in enumerate(variables)]
    params += [d.name(d.any_type(empty)) for _ in range(d.number(0, 2))]
    ret, gv = d.data_type(empty), relay.GlobalVar(name)
    d.lib.mod[gv] = relay.Function(params, d.expr(ret, Scope.of(params, variables)), ret, variables)
    d.functions.append((gv, relay.FuncType(tuple(p.ty for p in params), ret, tuple(variables))))


def _drop_unused(mod):
    """Leave out functions that ``main`` does not reach, so that what is shown is what matters."""
    reached, work = set(), ["main"]
    while work:
        name = work.pop()
        if name not in reached:
            reached.add(name)
            work += [n.name_hint for n in ir.walk(mod[name]) if isinstance(n, ir.GlobalVar)]
    for gv in mod.get_global_vars():
        if gv.name_hint not in reached:
            del mod[gv]
