"""Random ONNX models of control flow in control flow: outer values, and sequences that loops carry."""

import random
from typing import Any, NamedTuple

import numpy as np
import onnxruntime
from onnx import parser
from onnxruntime.capi.onnxruntime_pybind11_state import Fail

from tests.fuzz.flows import SIZES, plain
from weft import relax, runtime
from weft.frontend.onnx import from_onnx


class Kind(NamedTuple):
    """A type as ONNX's text has it; of vectors, a name of their length, or none where any will do."""

    text: str
    length: str = ""


VECTOR, LIST = Kind("float[?]"), Kind("seq(float[?])")
NUMBER, COUNT, FLAG = Kind("float"), Kind("int64"), Kind("bool")
GIVEN = {"x": Kind("float[n]", "n"), "y": Kind("float[n]", "n"), "z": Kind("float[m]", "m"), "k": COUNT, "q": FLAG}
Scope = list[tuple[str, Kind]]


class Nest:
    """Draws a model of at most so many statements."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng, self.steps, self.depth, self.count = random.Random(seed), steps, 0, 0
        self.lines: list[str] = []
        scope = [(name, kind._replace(text=kind.text.replace(kind.length or "?", "?"))) for name, kind in GIVEN.items()]
        self.block(scope, steps)
        outs = [(self.let(scope, f"Identity({name})", kind), kind) for name, kind in scope[-3:]]
        given = [(name, kind) for name, kind in GIVEN.items()]
        self.text = f'<ir_version: 8, opset_import: ["" : 17]> {self.graph(given, outs, self.lines)}'

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def graph(self, given: Scope, outs: Scope, lines: list[str]) -> str:
        ins, results = (", ".join(f"{kind.text} {name}" for name, kind in names) for names in (given, outs))
        return f"{self.fresh()} ({ins}) => ({results}) {{\n" + "\n".join(lines) + "\n}"

    def let(self, scope: Scope, value: str, *kinds: Kind) -> str:
        """New values of kinds; vectors whose length is not said have one of their own."""
        names = [(self.fresh(), k if k != VECTOR else Kind(VECTOR.text, self.fresh())) for k in kinds]
        self.lines.append(f"{', '.join(name for name, _ in names)} = {value}")
        scope += names
        return names[0][0]

    def some(self, scope: Scope, kind: Kind) -> tuple[str, Kind]:
        """A value of a kind in scope, rather one of the last ones."""
        found = [v for v in scope if v[1] == kind or (kind == VECTOR and v[1].text == VECTOR.text)]
        return self.rng.choice(found[-4:] if self.rng.random() < 0.7 else found)

    def of(self, scope: Scope, kind: Kind) -> str:
        """A value of a kind: one in scope, or a new one."""
        number = self.rng.randint(0, 3)
        if kind.text == VECTOR.text or (kind in {k for _, k in scope} and self.rng.random() < 0.7):
            return self.some(scope, kind)[0]
        if kind == FLAG:
            operands = f"{self.of(scope, NUMBER)}, {self.let(scope, f'Constant<value_float = {number}.0>()', NUMBER)}"
            return self.let(scope, f"{self.rng.choice(('Less', 'Greater'))}({operands})", FLAG)
        if kind == NUMBER:
            return self.let(scope, f"ReduceSum<keepdims = 0>({self.some(scope, VECTOR)[0]})", NUMBER)
        made = f"Constant<value_int = {number}>()" if kind == COUNT else "SequenceEmpty<dtype = 1>()"
        return self.let(scope, made, kind)

    def block(self, scope: Scope, most: int) -> None:
        for _ in range(most):
            self.steps -= 1
            if self.steps >= 0:
                self.rng.choice(STATEMENTS if self.depth < 3 else STATEMENTS[:-4])(self, scope)

    def inner(self, scope: Scope, given: list[Kind], results: list[Kind]) -> str:
        """A graph that sees what is in scope."""
        outer, self.lines, self.depth = self.lines, list[str](), self.depth + 1
        own = [(self.fresh(), k) for k in given]
        inside = [*scope, *own]
        self.block(inside, self.rng.randint(1, 4))
        outs = [(self.let(inside, f"Identity({self.of(inside, k)})", k), k) for k in results]
        lines, self.lines, self.depth = self.lines, outer, self.depth - 1
        return self.graph(own, outs, lines)

    def unary(self, scope: Scope) -> None:
        x, kind = self.some(scope, VECTOR)
        self.let(scope, f"{self.rng.choice(('Neg', 'Abs', 'Relu', 'Sign'))}({x})", kind)

    def binary(self, scope: Scope) -> None:
        x, kind = self.some(scope, VECTOR)
        y = self.of(scope, self.rng.choice((kind, NUMBER)))
        self.let(scope, f"{self.rng.choice(('Add', 'Sub', 'Max', 'Min'))}({x}, {y})", kind)

    def concat(self, scope: Scope) -> None:
        self.let(scope, f"Concat<axis = 0>({self.of(scope, VECTOR)}, {self.of(scope, VECTOR)})", VECTOR)

    def size(self, scope: Scope) -> None:
        self.let(scope, f"Size({self.of(scope, VECTOR)})", COUNT)

    def insert(self, scope: Scope) -> None:
        held = self.let(scope, f"SequenceInsert({self.of(scope, LIST)}, {self.of(scope, VECTOR)})", LIST)
        made = (("ConcatFromSequence<axis = 0>", VECTOR), ("SequenceLength", COUNT))[self.rng.randint(0, 1)]
        self.let(scope, f"{made[0]}({held})", made[1])

    def choose(self, scope: Scope) -> None:
        kinds = self.rng.choices((VECTOR, NUMBER, COUNT, FLAG, LIST), k=self.rng.randint(1, 3))
        flag, sides = self.of(scope, FLAG), [self.inner(scope, [], kinds) for _ in range(2)]
        self.let(scope, f"If<then_branch = {sides[0]}, else_branch = {sides[1]}>({flag})", *kinds)

    def loop(self, scope: Scope) -> None:
        """States, and perhaps a number of each turn."""
        kinds = self.rng.choices((VECTOR, NUMBER, COUNT, LIST), k=self.rng.randint(1, 2))
        first = [self.of(scope, kind) for kind in (FLAG, *kinds)]
        turns = self.let(scope, f"Constant<value_int = {self.rng.randint(0, 3)}>()", COUNT)
        own = [k if k != VECTOR else Kind(VECTOR.text, self.fresh()) for k in kinds]
        each = [NUMBER] * self.rng.randint(0, 1)
        body = self.inner(scope, [COUNT, FLAG, *own], [FLAG, *kinds, *each])
        self.let(scope, f"Loop<body = {body}>({', '.join([turns, *first])})", *kinds, *(VECTOR for _ in each))

    def scan(self, scope: Scope) -> None:
        """A state that keeps its length, and a number for each element."""
        (x, kind), (start, held) = (self.some(scope, VECTOR) for _ in range(2))
        body, back = self.inner(scope, [held, NUMBER], [held, NUMBER]), self.rng.randint(0, 1)
        attrs = f"num_scan_inputs = 1, scan_input_directions = [{back}], scan_output_directions = [{1 - back}]"
        self.let(scope, f"Scan<body = {body}, {attrs}>({start}, {x})", held, kind)


STATEMENTS = (
    *(Nest.unary, Nest.binary, Nest.binary, Nest.concat, Nest.size, Nest.insert),
    *(Nest.choose, Nest.loop, Nest.loop, Nest.scan),
)


def check(seed: int, steps: int) -> None:
    """What ONNX Runtime answers, the machine answers."""
    made = parser.parse_model(Nest(seed, steps).text)
    peer = onnxruntime.InferenceSession(made.SerializeToString())
    machine = relax.VirtualMachine(relax.build(from_onnx(made), "llvm -opt-level=0"), runtime.cpu())["main"]
    rng = np.random.default_rng(seed)
    for sizes in SIZES:
        feeds: dict[str, Any] = {
            name: rng.integers(-3, 4, sizes[kind.length]).astype("f4") for name, kind in GIVEN.items() if kind.length
        }
        feeds |= {"k": rng.integers(0, 4), "q": rng.random() < 0.5}
        feeds = {name: np.array(value) for name, value in feeds.items()}
        try:
            wanted = peer.run(None, feeds)
        except Fail:  # such as a scan of no elements
            continue
        np.testing.assert_equal(plain(machine(*feeds.values())), plain(wanted), f"{sizes}\n{made}")
