"""Weft from scratch: a compiler of tensor programs in one file, to be read from top to bottom.

It compiles ``relu(x @ w + b)``, where `x` has the symbolic shape ``(n, 3)``, to native code and runs it in a virtual
machine. Each section is what a directory of the real thing is about, and uses the same words. It imports nothing of
Weft: only NumPy, to compare with, and llvmlite, to turn text into machine code. ``python docs/core_from_scratch.py``.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import llvmlite.binding as llvm
import numpy as np

# --- 1. Nodes (weft/ir) -----------------------------------------------------------------------------------------------
#
# A program is a tree of nodes. A node is frozen and equal only to itself: two variables called "i" are two variables,
# and a rewrite that changes nothing can say so by returning the very same object.


class Node:
    """What everything is made of."""

    def __init_subclass__(cls) -> None:
        dataclass(frozen=True, eq=False)(cls)

    def __add__(self, other: Any) -> Node:
        return Add(self, as_node(other))

    def __mul__(self, other: Any) -> Node:
        return Mul(self, as_node(other))


class Int(Node):  # noqa: D101 - the names say it all
    value: int


class Float(Node):  # noqa: D101
    value: float


class Var(Node):  # noqa: D101
    name: str


class Binary(Node):  # noqa: D101
    a: Node
    b: Node


class Add(Binary):  # noqa: D101
    pass


class Mul(Binary):  # noqa: D101
    pass


class Max(Binary):  # noqa: D101
    pass


class Load(Node):
    """An element of a buffer, by its offset."""

    buffer: Var
    index: Node


class Store(Node):  # noqa: D101
    buffer: Var
    index: Node
    value: Node


class For(Node):
    """``for var in range(extent)``."""

    var: Var
    extent: Node
    body: Node


class Seq(Node):  # noqa: D101
    body: tuple[Node, ...]


def as_node(value: Any) -> Node:
    """Make a number a node."""
    return value if isinstance(value, Node) else Float(value) if isinstance(value, float) else Int(value)


# --- 2. Walking and rewriting (weft/ir/walk.py) -----------------------------------------------------------------------
#
# Nobody writes a visitor: one function knows how to go below any node, and keeps what did not change.


def rebuild(n: Node, f: Callable[[Node], Node]) -> Node:
    """Return `n` with `f` applied to the nodes right below; `n` itself where nothing changed."""
    changed: dict[str, Any] = {}
    for field in fields(n):  # type: ignore[arg-type]
        old = getattr(n, field.name)
        new = tuple(map(f, old)) if isinstance(old, tuple) else f(old) if isinstance(old, Node) else old
        if new is not old and (not isinstance(old, tuple) or any(x is not y for x, y in zip(new, old, strict=True))):
            changed[field.name] = new
    return replace(n, **changed) if changed else n  # type: ignore[type-var]


def substitute(n: Node, values: dict[Var, Node]) -> Node:
    """Put nodes in the place of variables."""
    return values.get(n, n) if isinstance(n, Var) else rebuild(n, lambda x: substitute(x, values))


# --- 3. Arithmetic (weft/arith) ---------------------------------------------------------------------------------------
#
# Lowering writes indices like ``(i * 1) + 0``. Rules are data: what they say is true of all numbers.


def simplify(n: Node) -> Node:
    """Fold constants and drop zeros and ones."""
    n = rebuild(n, simplify)
    match n:
        case Add(Int(x), Int(y)):
            return Int(x + y)
        case Mul(Int(x), Int(y)):
            return Int(x * y)
        case Add(x, Int(0)) | Add(Int(0), x) | Mul(x, Int(1)) | Mul(Int(1), x):
            return x
        case Mul(_, Int(0) as zero) | Mul(Int(0) as zero, _):
            return zero
    return n


# --- 4. Tensor expressions (weft/te, weft/topi) -----------------------------------------------------------------------
#
# A tensor is a shape and a function from indices to an element. Computing one from another is calling functions, so
# a chain of operations is already one: that is all that fusion is. A sum keeps its axis, for lowering to see.


@dataclass(frozen=True, eq=False)
class Tensor:
    """Elements by index; ``reduce`` is the axis and its extent where an element is a sum."""

    shape: tuple[Node, ...]
    element: Callable[..., Node]
    reduce: tuple[Var, Node] | None = None


def placeholder(name: str, shape: tuple[Node, ...]) -> tuple[Var, Tensor]:
    """A buffer in memory, rows first, as a tensor."""
    buffer = Var(name)
    return buffer, Tensor(shape, lambda *index: Load(buffer, offset(shape, index)))


def offset(shape: tuple[Node, ...], index: tuple[Node, ...]) -> Node:
    """The place of an element in memory."""
    total: Node = Int(0)
    for extent, i in zip(shape, index, strict=True):
        total = total * extent + i
    return simplify(total)


def matmul(x: Tensor, w: Tensor) -> Tensor:
    """``out[i, j] = sum over k of x[i, k] * w[k, j]``."""
    k = Var("k")
    return Tensor((x.shape[0], w.shape[1]), lambda i, j: x.element(i, k) * w.element(k, j), (k, x.shape[1]))


def add(x: Tensor, b: Tensor) -> Tensor:
    """Add a vector to each row."""
    return Tensor(x.shape, lambda i, j: x.element(i, j) + b.element(j))


def relu(x: Tensor) -> Tensor:
    """Replace what is negative by zero."""
    return Tensor(x.shape, lambda *i: Max(x.element(*i), Float(0.0)))


# --- 5. Loops (weft/tir) ----------------------------------------------------------------------------------------------
#
# Lowering makes a loop for each dimension and stores each element; a sum is set to zero and then added to.


def lower(out: Tensor, buffer: Var) -> Node:
    """Compute a tensor into a buffer."""
    index = tuple(Var(name) for name, _ in zip("ijlm", out.shape, strict=False))
    place = offset(out.shape, index)
    value = out.element(*index)
    if out.reduce is None:
        body: Node = Store(buffer, place, value)
    else:
        k, extent = out.reduce
        step = Store(buffer, place, Load(buffer, place) + value)
        body = Seq((Store(buffer, place, Float(0.0)), For(k, extent, step)))
    for var, extent in reversed(list(zip(index, out.shape, strict=True))):
        body = For(var, extent, body)
    return simplify(body)


# What loops mean is said by an interpreter. It is slow, and it is never wrong: all else is compared with it.

PYTHON: dict[type, Callable[..., Any]] = {
    Int: lambda n, env: n.value,
    Float: lambda n, env: np.float32(n.value),
    Var: lambda n, env: env[n],
    Add: lambda n, env: run(n.a, env) + run(n.b, env),
    Mul: lambda n, env: run(n.a, env) * run(n.b, env),
    Max: lambda n, env: max(run(n.a, env), run(n.b, env)),
    Load: lambda n, env: env[n.buffer][run(n.index, env)],
    Store: lambda n, env: env[n.buffer].__setitem__(run(n.index, env), run(n.value, env)),
    Seq: lambda n, env: [run(x, env) for x in n.body],
    For: lambda n, env: [run(n.body, {**env, n.var: i}) for i in range(run(n.extent, env))],
}


def run(n: Node, env: dict[Var, Any]) -> Any:
    """Interpret a node; `env` gives the variables' values and the buffers' arrays."""
    return PYTHON[type(n)](n, env)


# --- 6. Schedules (weft/tir/schedule) ---------------------------------------------------------------------------------
#
# A schedule changes the order of the work, never the result. This one writes short loops out, so that what they add
# up stays in registers; the real ones tile, vectorize, pack and share among threads by the same kind of rewrite.


def unroll(n: Node, at_most: int = 4) -> Node:
    """Write loops of few iterations out."""
    n = rebuild(n, lambda x: unroll(x, at_most))
    if isinstance(n, For) and isinstance(n.extent, Int) and n.extent.value <= at_most:
        return Seq(tuple(simplify(substitute(n.body, {n.var: Int(i)})) for i in range(n.extent.value)))
    return n


# --- 7. Code generation (weft/target) ---------------------------------------------------------------------------------
#
# One table, from the kind of a node to the text of its instructions. A buffer is a pointer, a dimension an i64.


class Emitter:
    """Writes one function of LLVM IR."""

    def __init__(self, env: dict[Var, str]) -> None:
        self.lines: list[str] = []
        self.env, self.numbers, self.block = env, itertools.count(), "entry"

    def value(self, instruction: str) -> str:
        """Write an instruction and name its result."""
        self.lines.append(f"  %v{next(self.numbers)} = {instruction}")
        return self.lines[-1].split()[0]

    def emit(self, n: Node) -> str:
        """Write a node; return its value, as text."""
        return LLVM[type(n)](n, self)

    def binary(self, n: Any, integer: str, floating: str) -> str:
        """Write an operation of two numbers."""
        a, b = self.emit(n.a), self.emit(n.b)
        return self.value(f"{floating} float {a}, {b}" if is_float(n) else f"{integer} i64 {a}, {b}")

    def pointer(self, n: Any) -> str:
        """Write the address of an element."""
        return self.value(f"getelementptr float, ptr {self.env[n.buffer]}, i64 {self.emit(n.index)}")

    def loop(self, n: For) -> str:
        """Write a loop, tested before its first iteration."""
        number, before, extent = next(self.numbers), self.block, self.emit(n.extent)
        head, body, after, i = f"head{number}", f"body{number}", f"after{number}", f"%i{number}"
        self.lines += [f"  br label %{head}", f"{head}:"]
        at = len(self.lines)
        self.lines += [f"  %go{number} = icmp slt i64 {i}, {extent}"]
        self.lines += [f"  br i1 %go{number}, label %{body}, label %{after}", f"{body}:"]
        self.env[n.var], self.block = i, body
        self.emit(n.body)
        self.lines += [f"  %next{number} = add i64 {i}, 1", f"  br label %{head}", f"{after}:"]
        self.lines.insert(at, f"  {i} = phi i64 [ 0, %{before} ], [ %next{number}, %{self.block} ]")
        self.block = after
        return ""


def is_float(n: Node) -> bool:
    """Whether a value is a float; else it is an index."""
    return is_float(n.a) if isinstance(n, Binary) else isinstance(n, (Float, Load))


def _store(n: Store, s: Emitter) -> str:
    s.lines += [f"  store float {s.emit(n.value)}, ptr {s.pointer(n)}"]
    return ""


LLVM: dict[type, Callable[..., str]] = {
    Int: lambda n, s: str(n.value),
    Float: lambda n, s: f"{float(np.float32(n.value)):e}",
    Var: lambda n, s: s.env[n],
    Add: lambda n, s: s.binary(n, "add", "fadd"),
    Mul: lambda n, s: s.binary(n, "mul", "fmul"),
    Max: lambda n, s: s.value(f"call float @llvm.maximum.f32(float {s.emit(n.a)}, float {s.emit(n.b)})"),
    Load: lambda n, s: s.value(f"load float, ptr {s.pointer(n)}"),
    Store: _store,
    Seq: lambda n, s: "".join(s.emit(x) for x in n.body),
    For: lambda n, s: s.loop(n),
}


def emit(name: str, params: tuple[Var, ...], dims: tuple[Var, ...], body: Node) -> str:
    """Write a function of buffers and dimensions."""
    emitter = Emitter({v: f"%p_{v.name}" for v in (*params, *dims)})
    emitter.emit(body)
    types = ", ".join([f"ptr noalias %p_{v.name}" for v in params] + [f"i64 %p_{v.name}" for v in dims])
    text = "\n".join([f"define void @{name}({types}) {{", "entry:", *emitter.lines, "  ret void", "}"])
    return "declare float @llvm.maximum.f32(float, float)\n" + text


def load(ir: str) -> Any:
    """Optimize LLVM IR and load it into this process."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    machine = llvm.Target.from_default_triple().create_target_machine(opt=3)
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(ir), machine)
    engine.finalize_object()
    return engine


# --- 8. The virtual machine (weft/relax/vm, native/) ------------------------------------------------------------------
#
# A program is a list of instructions over registers. Shapes are values: ``match`` reads `n` from the input, ``alloc``
# makes an output of that many rows, ``call`` passes pointers and dimensions to a kernel. Nothing else happens at run
# time, and nothing is decided there.


def execute(code: list[tuple[Any, ...]], kernels: Any, *args: np.ndarray) -> np.ndarray:
    """Run a program."""
    registers: dict[Any, Any] = dict(enumerate(args))
    for op, *operands in code:
        match op:
            case "match":
                register, shape = operands
                for found, expected in zip(registers[register].shape, shape, strict=True):
                    if isinstance(expected, Var):
                        registers[expected] = found
                    elif found != expected.value:
                        raise ValueError(f"argument {register}: expected {expected.value}, found {found}")
            case "alloc":
                register, shape = operands
                registers[register] = np.empty([run(d, registers) for d in shape], np.float32)
            case "call":
                name, buffers, dims = operands
                kernel = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers), *[ctypes.c_int64] * len(dims))
                pointers = [registers[b].ctypes.data for b in buffers]
                kernel(kernels.get_function_address(name))(*pointers, *[registers[d] for d in dims])
            case "ret":
                return registers[operands[0]]
    raise AssertionError("the program does not return")


# --- 9. All of it -----------------------------------------------------------------------------------------------------


def main() -> None:
    """Compile a linear layer, run it on several sizes, compare with NumPy and with the interpreter."""
    n = Var("n")
    shapes = ((n, Int(3)), (Int(3), Int(8)), (Int(8),), (n, Int(8)), (n, Int(8)))
    (x, tx), (w, tw), (b, tb), (product, tproduct), (out, _) = (
        placeholder(name, shape) for name, shape in zip(("x", "w", "b", "product", "out"), shapes, strict=True)
    )
    # Two groups: a sum ends one, and what follows it element by element is one function.
    first = lower(matmul(tx, tw), product)
    second = lower(relu(add(tproduct, tb)), out)
    fast = unroll(first)
    assert fast is not first and unroll(second) is second, "a schedule that has nothing to do changes nothing"
    kernels = load(emit("first", (x, w, product), (n,), fast))
    kernels.add_module(llvm.parse_assembly(emit("second", (product, b, out), (n,), second)))
    kernels.finalize_object()
    code = [
        *(("match", i, shapes[i]) for i in range(3)),
        ("alloc", 3, shapes[3]),
        ("call", "first", (0, 1, 3), (n,)),
        ("alloc", 4, shapes[4]),
        ("call", "second", (3, 2, 4), (n,)),
        ("ret", 4),
    ]
    rng = np.random.default_rng(0)
    for size in (0, 1, 5, 64):
        arrays = [rng.normal(size=s).astype(np.float32) for s in ((size, 3), (3, 8), (8,))]
        found = execute(code, kernels, *arrays)
        np.testing.assert_allclose(found, np.maximum(arrays[0] @ arrays[1] + arrays[2], 0), rtol=1e-5, atol=1e-6)
        memory = {v: a.ravel().copy() for v, a in zip((x, w, b), arrays, strict=True)}
        memory |= {product: np.empty(size * 8, np.float32), out: np.empty(size * 8, np.float32)}
        run(Seq((first, second)), {**memory, n: size})
        np.testing.assert_allclose(found.ravel(), memory[out], rtol=1e-5, atol=1e-6)
        print(f"n = {size}: as NumPy and the interpreter have it")


if __name__ == "__main__":
    main()
