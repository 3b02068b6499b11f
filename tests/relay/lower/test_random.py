"""Random first-order programs of static and unknown dimensions give what the interpreter gives."""

import numpy as np
import pytest

from tests.relay.lower.machine import check
from weft import relay

UNARY = ("tanh", "exp", "negative", "sigmoid", "abs", "nn.relu", "copy")
BINARY = ("add", "multiply", "subtract", "maximum")


class Program:
    """A program under construction: its values have shape (n, width), n unknown or not."""

    def __init__(self, seed, unknown):
        self.rng = np.random.default_rng(seed)
        self.unknown = unknown
        self.params = [relay.var(f"x{i}", shape=(relay.Any() if unknown else 4, 6)) for i in range(2)]
        self.values = [(p, 6, i) for i, p in enumerate(self.params)]  # expression, width, whose rows it has

    def pick(self, wanted=lambda v: True):
        found = [v for v in self.values[-8:] if wanted(v)]
        return found[self.rng.integers(len(found))] if found else None

    def step(self):
        x, width, rows = self.pick()
        kind = self.rng.integers(9)
        if kind < 2:
            self.values.append((relay.op.op_call(self.rng.choice(UNARY), x), width, rows))
        elif kind < 4:
            y, *_ = self.pick(lambda v: v[1:] == (width, rows))
            self.values.append((relay.op.op_call(self.rng.choice(BINARY), x, y), width, rows))
        elif kind == 4:
            out = int(self.rng.integers(1, 9))
            weight = (self.rng.standard_normal((out, width)) * 0.5).astype("float32")
            self.values.append((relay.nn.dense(x, relay.const(weight)), out, rows))
        elif kind == 5:
            self.values.append((relay.nn.softmax(x, axis=int(self.rng.integers(2))), width, rows))
        elif kind == 6 and width % 2 == 0:
            parts = relay.split(x, 2, axis=1)
            self.values += [(parts[i], width // 2, rows) for i in range(2)]
        elif kind == 7:
            y, other, _ = self.pick(lambda v: v[2] == rows)
            self.values.append((relay.concatenate((x, y), axis=1), width + other, rows))
        else:
            flat = relay.reshape(relay.transpose(x, (1, 0)), (-1,))
            self.values.append((relay.reshape(relay.tanh(flat), (-1, width)), width, rows))

    def choose(self):
        """A choice between two values of equal shapes."""
        x, width, rows = self.pick()
        y, *_ = self.pick(lambda v: v[1:] == (width, rows))
        test = relay.less(relay.sum(x), relay.const(0.0))
        self.values.append((relay.If(test, relay.exp(relay.negative(relay.abs(x))), relay.tanh(y)), width, rows))

    def function(self):
        for i in range(14):
            self.choose() if i == 8 else self.step()
        return relay.Function(self.params, relay.Tuple([v[0] for v in self.values[-3:]]))

    def arguments(self):
        rows = [(3, 3), (1, 1), (5, 5)] if self.unknown else [(4, 4)]
        return [tuple(self.rng.standard_normal((n, 6)).astype("float32") for n in r) for r in rows]


@pytest.mark.parametrize("unknown", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_random_program(seed, unknown):
    program = Program(seed, unknown)
    check(program.function(), *program.arguments(), rtol=1e-3)
