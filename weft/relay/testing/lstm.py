"""A long short-term memory, unrolled: a function for each step, called in a chain of lets."""

from typing import Any

from weft.ir import as_shape
from weft.relay.expr import Function, Tuple, TupleGetItem, TupleWrapper, Var, lets
from weft.relay.op import constructor, nn
from weft.relay.testing.init import workload_of
from weft.relay.types import TensorType, TupleType


class _Lets:
    """Collects bindings; each gives its variable."""

    def __init__(self) -> None:
        self.bindings: list[tuple[Var, Any]] = []

    def let(self, name: str, value: Any) -> Var:
        made = Var(name)
        self.bindings.append((made, value.astuple() if isinstance(value, TupleWrapper) else value))
        return made


def _types(num_hidden: int, batch_size: int, dtype: str) -> tuple[TensorType, TensorType, TensorType]:
    """The types of a state, a weight and a bias."""
    shapes = ((batch_size, num_hidden), (4 * num_hidden, num_hidden), (4 * num_hidden,))
    state, weight, bias = (TensorType(as_shape(s), dtype) for s in shapes)
    return state, weight, bias


def lstm_cell(num_hidden: int, batch_size: int = 1, dtype: str = "float32", name: str = "") -> Function:
    """Make the function of one step.

    It takes (inputs, (h, c), i2h_weight, i2h_bias, h2h_weight, h2h_bias) and returns (output, (h, c)).
    """
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    states = TupleType((state, state))
    inputs, previous = Var("inputs", state), Var("states", states)
    i2h_weight, i2h_bias = Var("i2h_weight", weight), Var("i2h_bias", bias)
    h2h_weight, h2h_bias = Var("h2h_weight", weight), Var("h2h_bias", bias)
    sigmoid, tanh, add, multiply = (constructor(n) for n in ("sigmoid", "tanh", "add", "multiply"))
    b = _Lets()

    def dense(x: Any, w: Var, v: Var, prefix: str) -> Var:
        product = b.let(f"{name}{prefix}_dense", nn.dense(x, w, units=4 * num_hidden))
        return b.let(f"{name}{prefix}", nn.bias_add(product, v, axis=-1))

    i2h = dense(inputs, i2h_weight, i2h_bias, "i2h")
    h2h = dense(TupleGetItem(previous, 0), h2h_weight, h2h_bias, "h2h")
    gates = b.let(f"{name}gates", add(i2h, h2h))
    parts = b.let(f"{name}slice", constructor("split")(gates, indices_or_sections=4, axis=1))
    in_gate = b.let(f"{name}in_gate", sigmoid(TupleGetItem(parts, 0)))
    forget = b.let(f"{name}forget_gate", sigmoid(TupleGetItem(parts, 1)))
    change = b.let(f"{name}in_transform", tanh(TupleGetItem(parts, 2)))
    out_gate = b.let(f"{name}out_gate", sigmoid(TupleGetItem(parts, 3)))
    kept = b.let(f"{name}kept", multiply(forget, TupleGetItem(previous, 1)))
    next_c = b.let(f"{name}next_c", add(kept, multiply(in_gate, change)))
    next_h = b.let(f"{name}next_h", multiply(out_gate, tanh(next_c)))
    body = lets(b.bindings, Tuple((next_h, Tuple((next_h, next_c)))))
    params = (inputs, previous, i2h_weight, i2h_bias, h2h_weight, h2h_bias)
    return Function(params, body, TupleType((state, states)))


def get_net(iterations: int, num_hidden: int, batch_size: int = 1, dtype: str = "float32") -> Function:
    """Make the unrolled network, with an input ``data`` and weights of their own for each step."""
    state, weight, bias = _types(num_hidden, batch_size, dtype)
    zeros, b = constructor("zeros"), _Lets()
    states: Any = Tuple(tuple(zeros((batch_size, num_hidden), dtype) for _ in range(2)))
    params: list[Var] = []
    out: Any = None
    for i in range(iterations):
        own = [Var("data", state)]
        for kind in ("i2h", "h2h"):
            own += [Var(f"{kind}_{i}_weight", weight), Var(f"{kind}_{i}_bias", bias)]
        params += own
        cell = lstm_cell(num_hidden, batch_size, dtype, f"lstm_{i}_")
        step = b.let(f"call_{i}", cell(own[0], states, *own[1:]))
        out = b.let(f"out_{i}", TupleGetItem(step, 0))
        states = b.let(f"states_{i}", TupleGetItem(step, 1))
    return Function(tuple(params), lets(b.bindings, out), state)


get_workload = workload_of(get_net)
