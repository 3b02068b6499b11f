"""Random Relax programs with control flow: branches, recursion, closures, tuples, and sizes of their own."""

import random
import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from weft import error, ir, relax, runtime, script
from weft.relax.interpreter import Interpreter

SIZES = ({"n": 3, "m": 3}, {"n": 2, "m": 5}, {"n": 0, "m": 1}, {"n": 1, "m": 0})


class Type(NamedTuple):
    """A tensor's dimensions, as text, and its dtype; or a tuple's fields."""

    dims: tuple[str, ...] = ()
    dtype: str = "float32"
    fields: "tuple[Type, ...] | None" = None

    def text(self, *, quoted: bool = False) -> str:
        if self.fields is not None:
            return f"R.Tuple({', '.join(f.text(quoted=quoted) for f in self.fields)})"
        dims = "".join(f'"{d}", ' if quoted and not d.isdigit() else f"{d}, " for d in self.dims)
        return f'R.Tensor(({dims}), "{self.dtype}")'

    def where(self, sizes: dict[str, str]) -> "Type":
        """With other sizes for `n` and `m`."""
        dims = tuple(re.sub(r"\b[nm]\b", lambda found: sizes[found[0]], d) for d in self.dims)
        return Type(dims, self.dtype, self.fields and tuple(f.where(sizes) for f in self.fields))

    @property
    def is_vector(self) -> bool:
        return self.fields is None and len(self.dims) == 1 and self.dtype == "float32"


FLOAT, FLAG, COUNT, N, M = Type(), Type((), "bool"), Type((), "int64"), Type(("n",)), Type(("m",))
Scope = list[tuple[str, Type]]


class Flow:
    """Draws a module: functions of vectors of `n` and `m` elements, of which `main` is the last."""

    def __init__(self, seed: int, steps: int) -> None:
        self.rng, self.steps, self.depth, self.count = random.Random(seed), steps, 1, 0
        self.lines, self.inner = ["@I.ir_module", "class Module:"], False
        self.functions: list[tuple[str, list[Type], Type]] = []
        for i in range(self.rng.randint(0, 2)):
            self.function(f"f{i}")
        self.function("main")
        self.text = "\n".join(self.lines)

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.depth + line)

    def fresh(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def let(self, scope: Scope, value: str, kind: Type) -> str:
        name = self.fresh()
        self.emit(f"{name} = {value}")
        scope.append((name, kind))
        return name

    def some(self, scope: Scope, wanted: Callable[[Type], bool]) -> tuple[str, Type]:
        """A value in scope, rather one of the last ones."""
        found = [v for v in scope if wanted(v[1])]
        return self.rng.choice(found[-4:] if self.rng.random() < 0.7 else found)

    def of(self, scope: Scope, kind: Type) -> str:
        """A value of a type: one in scope, rather a late one, or a new one."""
        found = [name for name, t in scope if t == kind]
        if found and self.rng.random() < 0.8:
            return self.rng.choice(found[-2:])
        if kind.fields is not None:
            return self.let(scope, f"({''.join(f'{self.of(scope, f)}, ' for f in kind.fields)})", kind)
        if kind == FLAG:
            limit = self.rng.randint(-3, 3)
            return self.let(scope, f'R.greater({self.of(scope, FLOAT)}, R.const({limit}.0, "float32"))', FLAG)
        if kind == FLOAT:
            return self.let(scope, f"R.sum({self.some(scope, lambda t: t.is_vector)[0]})", FLOAT)
        number = self.rng.randint(0, 3)
        if kind == COUNT:
            return self.let(scope, f'R.const({number}, "int64")', COUNT)
        dims = "".join(f"{d}, " for d in kind.dims)
        return self.let(scope, f'R.full(({dims}), R.const({number}.0, "float32"), "float32")', kind)

    def block(self, scope: Scope, most: int) -> None:
        for _ in range(self.rng.randint(0, most)):
            self.steps -= 1
            if self.steps > 0:
                self.rng.choice(STATEMENTS)(self, scope)

    def unary(self, scope: Scope) -> None:
        x, kind = self.some(scope, lambda t: t.is_vector)
        self.let(scope, f"R.{self.rng.choice(('negative', 'abs', 'nn.relu', 'sign'))}({x})", kind)

    def binary(self, scope: Scope) -> None:
        x, kind = self.some(scope, lambda t: t.is_vector)
        name = self.rng.choice(("add", "subtract", "maximum", "minimum"))
        self.let(scope, f"R.{name}({x}, {self.of(scope, kind)})", kind)

    def concat(self, scope: Scope) -> None:
        (x, a), (y, b) = (self.some(scope, lambda t: t.is_vector) for _ in range(2))
        if len(a.dims[0]) + len(b.dims[0]) < 20:
            self.let(scope, f"R.concat(({x}, {y}), axis=0)", Type((f"({a.dims[0]} + {b.dims[0]})",)))

    def unique(self, scope: Scope) -> None:
        x, size = self.some(scope, lambda t: t.is_vector)[0], f"u{self.count}"
        self.emit(f"{size} = T.int64()")
        self.let(scope, f'R.match_cast(R.unique({x}, sorted=True), R.Tensor(({size},), "float32"))', Type((size,)))

    def pair(self, scope: Scope) -> None:
        values = [self.some(scope, lambda t: True) for _ in range(self.rng.randint(1, 3))]
        self.let(scope, f"({''.join(f'{x}, ' for x, _ in values)})", Type(fields=tuple(t for _, t in values)))

    def part(self, scope: Scope) -> None:
        self.pair(scope)
        name, kind = self.some(scope, lambda t: t.fields is not None)
        place = self.rng.randrange(len(kind.fields or ()))
        self.let(scope, f"{name}[{place}]", (kind.fields or ())[place])

    def branch(self, scope: Scope, condition: str, kind: Type, then: Callable[[Scope], str] | None = None) -> str:
        result = self.fresh()
        for head in (f"if {condition}:", "else:"):
            self.emit(head)
            self.depth += 1
            inside = list(scope)
            if then is None or head == "else:":
                self.block(inside, 3)
                value = self.of(inside, kind)
            else:
                value = then(inside)
            self.emit(f"{result} = {value}")
            self.depth -= 1
        scope.append((result, kind))
        return result

    def choose(self, scope: Scope) -> None:
        self.branch(scope, self.of(scope, FLAG), self.some(scope, lambda t: True)[1])

    def call(self, scope: Scope) -> None:
        if self.functions:
            name, params, kind = self.rng.choice(self.functions)
            sizes = {n: self.some(scope, lambda t: t.is_vector)[1].dims[0] for n in "nm"}
            args = [self.of(scope, p.where(sizes)) for p in params]
            called = f"Module.{name}"
            if self.rng.random() < 0.3:  # a function is a value, too
                self.emit(f"{(held := self.fresh())} = {called}")
                called = held
            self.let(scope, f"{called}({', '.join(args)})", kind.where(sizes))

    def body(self, name: str, scope: Scope, params: list[Type], kind: Type | None) -> str:
        """Statements, or so many turns: a call of itself with the next number, and perhaps more behind it."""

        def turn(inside: Scope) -> str:
            self.block(inside, 3)
            following = self.let(inside, f'R.add({count}, R.const(1, "int64"))', COUNT)
            made = self.let(
                inside, f"{name}({', '.join([following, *(self.of(inside, p) for p in params[1:])])})", kind
            )
            self.block(inside, 2)
            return self.rng.choice((made, self.of(inside, kind)))

        if kind is None:  # main: what came last
            self.block(scope, 9)
            return self.let(scope, f"({''.join(f'{x}, ' for x, _ in scope[-4:])})", FLOAT)
        if params[0] != COUNT:
            self.block(scope, 6)
            return self.of(scope, kind)
        count = scope[-len(params)][0]
        more = self.let(scope, f'R.less({count}, R.const({self.rng.randint(0, 3)}, "int64"))', FLAG)
        return self.branch(scope, more, kind, turn)

    def closure(self, scope: Scope) -> None:
        """An inner function, which captures what it likes, and a call of it."""
        if self.inner:
            return
        name, count, kind = self.fresh(), [COUNT] * self.rng.randint(0, 1), self.some(scope, lambda t: True)[1]
        params = [*count, *(self.some(scope, lambda t: True)[1] for _ in range(self.rng.randint(1, 2)))]
        self.define(name, scope, params, kind, quoted=False)
        self.let(scope, f"{name}({', '.join(self.of(scope, p) for p in params)})", kind)

    def define(self, name: str, scope: Scope, params: list[Type], kind: Type | None, *, quoted: bool) -> None:
        own = [(self.fresh(), p) for p in params]
        takes = ", ".join(f"{x}: {t.text(quoted=quoted)}" for x, t in own)
        self.emit("@R.function")
        self.emit(f"def {name}({takes}){f' -> {kind.text(quoted=quoted)}' if kind is not None else ''}:")
        self.depth += 1
        self.inner = not quoted
        for size in "nm" if quoted else "":
            self.emit(f"{size} = T.int64()")
        self.emit(f"return {self.body(f'Module.{name}' if quoted else name, [*scope, *own], params, kind)}")
        self.inner = False
        self.depth -= 1

    def function(self, name: str) -> None:
        """A function of the module."""
        count = [COUNT] if name != "main" and self.rng.random() < 0.5 else []
        more = [self.rng.choice((N, M, FLOAT, FLAG, Type(("3",)))) for _ in range(self.rng.randint(0, 2))]
        kind = self.rng.choice((N, M, FLOAT, Type(("(n + m)",)), Type(fields=(N, COUNT))))
        params, budget = [*count, N, M, *more], self.steps
        self.steps = 1 + 3 * budget
        self.define(name, [], params, kind if name != "main" else None, quoted=True)
        self.steps = budget
        self.functions.append((name, params, kind))

    def arguments(self, sizes: dict[str, int], rng: np.random.Generator) -> list[Any]:
        """Whole numbers, so that sums are exact, for `main`."""
        made = [rng.integers(-3, 4, [sizes.get(d, 3) for d in t.dims]) for t in self.functions[-1][1]]
        return [
            np.asarray(x > 0 if t is FLAG else x, t.dtype) for x, t in zip(made, self.functions[-1][1], strict=True)
        ]


STATEMENTS = (
    *(Flow.unary, Flow.binary, Flow.binary, Flow.concat, Flow.unique, Flow.pair),
    *(Flow.part, Flow.choose, Flow.choose, Flow.call, Flow.call, Flow.closure),
)


def _outcome(run: Callable[..., Any], given: list[Any]) -> Any:
    """Arrays, in tuples, or None for a refusal."""
    try:
        return plain(run(*given))
    except error.WeftError as e:
        if error.is_defect(e):
            raise
        return None


def plain(value: Any) -> Any:
    if isinstance(value, (tuple, list, ir.Array)):
        return tuple(map(plain, value))
    return np.array(value.numpy() if hasattr(value, "numpy") else value)


def check(seed: int, steps: int) -> None:
    """A program means the same on the machine, whose code is interpreted or compiled, as on the interpreter."""
    flow = Flow(seed, steps)
    mod = script.from_source(flow.text)
    script.from_source(mod.script(show_meta=True))
    rng = np.random.default_rng(seed)
    for mode in ("bytecode", "compiled"):
        machine = relax.VirtualMachine(relax.build(mod, "llvm -opt-level=0", exec_mode=mode), runtime.cpu())
        for sizes in SIZES:
            given = flow.arguments(sizes, rng)
            wanted = _outcome(partial(Interpreter(mod).run, "main"), [x.copy() for x in given])
            found = _outcome(machine["main"], [runtime.tensor(x) for x in given])
            np.testing.assert_equal(found, wanted, f"{mode}, {sizes}\n{flow.text}")
