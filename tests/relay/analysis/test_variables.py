"""Free and bound variables, type variables and data types of programs."""

from hypothesis import given, settings
from hypothesis import strategies as st

from weft import relay
from weft.relay.expr import lets

INT = relay.scalar_type("int32")


def variables(*names):
    return [relay.Var(n, INT) for n in names]


def test_free_variables_stand_in_the_order_of_their_use():
    x, y, z = variables("x", "y", "z")
    assert relay.analysis.free_vars(y + x * y) == [y, x]
    assert relay.analysis.free_vars(relay.Let(z, x + y, z * z)) == [x, y]
    assert relay.analysis.bound_vars(relay.Let(z, x + y, z * z)) == [z]
    assert relay.analysis.all_vars(relay.Let(z, x + y, z)) == [z, x, y]
    assert relay.analysis.all_vars(relay.Function([x], relay.Tuple([y, z]))) == [x, y, z]


def test_parameters_and_patterns_bind():
    x, y = variables("x", "y")
    f = relay.Function((x,), x + y)
    assert relay.analysis.free_vars(f) == [y]
    assert relay.analysis.bound_vars(f) == [x]
    match = relay.Match(y, (relay.Clause(relay.PatternTuple((relay.PatternVar(x), relay.PatternWildcard())), x),))
    assert relay.analysis.free_vars(match) == [y]
    assert relay.analysis.bound_vars(match) == [x]
    assert relay.analysis.all_vars(match) == [y, x]


def test_a_long_chain_of_lets():
    xs = [relay.Var(f"x{i}", INT) for i in range(20_000)]
    chain = lets([(b, a + a) for a, b in zip(xs, xs[1:], strict=False)], xs[-1])
    assert relay.analysis.free_vars(chain) == [xs[0]]
    assert relay.analysis.bound_vars(chain) == xs[1:]
    assert relay.analysis.well_formed(chain)
    assert relay.infer_type(chain).ty == INT


def test_type_variables():
    a, b = relay.TypeVar("A"), relay.TypeVar("B")
    x = relay.Var("x", relay.TupleType((a, b)))
    f = relay.Function((x,), x, None, (a,))
    assert relay.analysis.bound_type_vars(f) == [a]
    assert relay.analysis.free_type_vars(f) == [b]
    assert set(relay.analysis.all_type_vars(f)) == {a, b}
    t = relay.FuncType((a,), b, (a,))
    assert (relay.analysis.bound_type_vars(t), relay.analysis.free_type_vars(t)) == ([a], [b])


def test_data_types():
    x = relay.Var("x", relay.TensorType((2,), "float16"))
    f = relay.infer_type(relay.Function((x,), relay.Tuple((x < x, x.astype("float64")))))
    assert relay.analysis.all_dtypes(f) == {"float16", "bool", "float64"}


def test_operands_are_visited_first_and_once():
    (x,) = variables("x")
    y = x + x
    seen = []
    relay.analysis.post_order_visit(y * y, seen.append)
    assert [type(e).__name__ for e in seen] == ["Op", "Op", "Var", "Call", "Call"]
    assert seen[3] is y


def test_alpha_equal():
    x, y, z = variables("x", "y", "z")
    assert relay.analysis.alpha_equal(relay.Function((x,), x + x), relay.Function((y,), y + y))
    assert not relay.analysis.alpha_equal(relay.Function((x, z), x), relay.Function((y, z), z))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12), st.data())
def test_free_variables_of_random_programs(edges, data):
    """Each binding adds two of what is bound before it or of the inputs: the inputs that are used are free."""
    inputs = variables(*"abcdefghij")
    bound, used = [], set()
    known = list(inputs)
    for i, (p, q) in enumerate(edges):
        v = relay.Var(f"v{i}", INT)
        operands = [known[p % len(known)], known[-1 - q % len(known)]]
        used.update(operands)
        bound.append((v, operands[0] + operands[1]))
        known.append(v)
    tail = data.draw(st.sampled_from(known))
    chain = lets(bound, tail)
    free = relay.analysis.free_vars(chain)
    assert set(free) == ({*used, tail} & set(inputs))
    assert len(free) == len(set(free))
    assert relay.analysis.well_formed(relay.Function(tuple(free), chain))
    if free:
        assert not relay.analysis.well_formed(relay.Function(tuple(free[1:]), chain))
