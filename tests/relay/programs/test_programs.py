"""Random programs mean the same to type inference, the text format, the passes and every executor."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.pairs import part
from tests.relay.programs.check import Disagreement, check, equal, has_type
from tests.relay.programs.draw import programs
from tests.relay.programs.kinds import scalar
from tests.relay.programs.library import Library
from weft import ir, relay, runtime
from weft.relay.backend.interpreter import ConstructorValue

PROFILE = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(PROFILE, max_examples=part(30))
@given(programs(fuel=40))
def test_random_programs(program):
    check(*program)


@settings(PROFILE, max_examples=part(15))
@given(programs(fuel=30, first_order=True))
def test_random_programs_without_control_flow(program):
    mod, args = program
    for kind in ("graph", "aot"):
        relay.create_executor(kind, mod).evaluate()(*args)  # they take such programs
    check(mod, args)


def test_a_wrong_pass_is_noticed(monkeypatch):
    def swap(mod):
        def body(e):
            return relay.subtract(e.args[1], e.args[0]) if isinstance(e, relay.Call) else e

        return ir.IRModule({v: f.replace(body=body(f.body)) for v, f in mod.items()})

    x = relay.var("x", "int32")
    mod = ir.IRModule({"main": relay.Function([x], relay.subtract(x, relay.const(1)))})
    monkeypatch.setattr(relay.transform, "Wrong", lambda: swap, raising=False)
    check(mod, [np.array(5, "int32")], passes=("ToANormalForm",), chains=(), kinds=())
    with pytest.raises(Disagreement, match=r"Wrong: int32\[\]-4 instead of int32\[\]4"):
        check(mod, [np.array(5, "int32")], passes=("Wrong",), chains=(), kinds=())


def test_values_are_compared():
    nil, cons = Library().types["List"][1]
    one = ConstructorValue(2, [1, ConstructorValue(1, [], nil)], cons)
    other = ConstructorValue(2, [2, ConstructorValue(1, [], nil)], cons)
    assert equal(one, one) and not equal(one, other) and not equal(one, ConstructorValue(1, [], nil))
    a = runtime.tensor(np.float32([1, 2]))
    assert equal(a, runtime.tensor(np.float32([1, 2.000001]))) and not equal(a, runtime.tensor(np.float32([1, 2.1])))
    assert not equal(a, runtime.tensor(np.float64([1, 2]))) and not equal(a, runtime.tensor(np.float32([[1, 2]])))
    assert not equal((a,), (a, a)) and equal((a, (a,)), (a, (a,)))


def test_values_have_types():
    lib = Library()
    nil, cons = lib.types["List"][1]
    ints = lib.type_of("List", scalar())
    good = ConstructorValue(2, [1, ConstructorValue(1, [], nil)], cons)
    bad = ConstructorValue(2, [1.5, ConstructorValue(1, [], nil)], cons)
    assert has_type(lib.mod, good, ints) and not has_type(lib.mod, bad, ints)
    x = runtime.tensor(np.zeros((2, 3), "float32"))
    assert has_type(lib.mod, x, relay.TensorType((2, relay.Any())))
    assert not has_type(lib.mod, x, relay.TensorType((3, 3))) and not has_type(lib.mod, x, relay.TensorType((2,)))
    assert not has_type(lib.mod, (x,), relay.TupleType((scalar(), scalar())))
