"""The state of emitting one LLVM module, and one function of it, as text.

Values are named by registers (``%v7``) and known by their text: an instruction without effects that was emitted in a
block that dominates the present one is used again instead of being repeated, and integer arithmetic that a loop does
not change is emitted before it. Blocks open and close with :meth:`FunctionEmitter.scope`, loops with
:meth:`FunctionEmitter.loop`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from weft import arith, ir, tir
from weft.target.llvm.types import llvm_type
from weft.target.target import Target

_REGISTER = re.compile(r"%[A-Za-z_.]\w*")
_MOVABLE = re.compile(
    r"(add|sub|mul|sdiv|srem|udiv|urem|and|or|xor|shl|ashr|lshr|sext|zext|trunc|icmp|select|getelementptr)"
    r" (?!.*<\d+ x )"
)
"""Scalar integer and address arithmetic, which cannot trap and may be done ahead of a loop."""

# Text is an argument of calls only, which read it themselves; tensor expressions are gone.
EXPR = ir.Dispatch("LLVM expression", (ir.PrimExpr,), leaves_out=(*tir.TENSOR_EXPRS, ir.StringImm))
"""Node class to ``fn(expr, emitter) -> value``; the rules stand in ``expr``, ``convert``, ``memory`` and ``intrin``."""


def suffix(dtype: str) -> str:
    """The overload suffix of an intrinsic: ``v16f32``."""
    dt = ir.DataType(dtype)
    base = f"f{dt.bits}" if dt.is_float and dt.bits >= 32 else "i1" if dt.code == "bool" else f"i{dt.bits}"
    return base if dt.lanes == 1 else f"v{dt.lanes}{base}"


def condition_type(dtype: str) -> str:
    """The LLVM type of a comparison of values of `dtype`."""
    lanes = ir.DataType(dtype).lanes
    return "i1" if lanes == 1 else f"<{lanes} x i1>"


class ModuleEmitter:
    """One LLVM module: functions, declarations and constants.

    A module of another kind of machine brings rules of its own, which come before the tables.
    """

    intrinsics: Mapping[str, Callable[..., str]] = {}
    statements: Mapping[type, Callable[..., None]] = {}

    def __init__(self, target: Target, services: str = "internal", mark: str = "") -> None:
        self.target = target
        self.services, self.mark = services, mark
        self.functions: list[str] = []
        self.helpers: list[str] = []  # what serves functions, written behind them
        self.declarations: dict[str, str] = {}
        self.globals: list[str] = []
        self._strings: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._support: set[str] = set()
        self.has_scalar_loop = False
        self.imported: set[str] = set()  # functions of the modules that this one imports
        self.linked: dict[str, None] = {}  # LLVM IR that others wrote
        self.kernels: dict[str, Any] = {}
        self.siblings: dict[str, Any] = {}  # the functions of the module, which may call each other
        self.inlined: set[str] = set()

    @property
    def size_type(self) -> str:
        """The type of C's ``size_t``."""
        return f"i{self.target.pointer_bits}"

    def declare(self, name: str, signature: str) -> None:
        """Declare an external function once."""
        self.declarations[name] = signature

    def support(self, name: str, make: Callable[[], str]) -> str:
        """Define an internal helper function once and return its symbol."""
        if name not in self._support:
            self._support.add(name)
            self.helpers.append(make())
        return f"@{name}"

    def service(self, name: str, result: str, params: str, body: Callable[[], str], attributes: str = "#0") -> str:
        """Return the symbol of a helper function that all objects of a library may share.

        It is defined with the linkage that `services` says, or, where that is ``"declared"``, in another object.
        """
        symbol = f"@weft.{name}{self.mark}"
        if symbol not in self._support:
            self._support.add(symbol)
            if self.services == "declared":
                types = ", ".join(p.split()[0] for p in params.split(","))
                self.declare(symbol[1:], f"declare hidden {result} {symbol}({types})")
            else:
                text = f"define {self.services} {result} {symbol}({params}) {attributes} {{\n{body()}\n}}"
                self.helpers.append(text)
        return symbol

    def string(self, text: str) -> str:
        """Return the symbol of a zero-terminated string constant."""
        if text not in self._strings:
            name = f"@.str{len(self._strings)}"
            data = text.encode() + b"\0"
            body = "".join(chr(b) if 32 <= b < 127 and b not in (34, 92) else f"\\{b:02X}" for b in data)
            self.globals.append(f'{name} = private unnamed_addr constant [{len(data)} x i8] c"{body}"')
            self._strings[text] = name
        return self._strings[text]

    def constant(self, initial: str) -> str:
        """Return the symbol of a constant; `initial` is its type and value."""
        if initial not in self._constants:
            self._constants[initial] = f"@.constant{len(self._constants)}"
            self.globals.append(f"{self._constants[initial]} = private unnamed_addr constant {initial}, align 8")
        return self._constants[initial]

    def remainder(self, s: FunctionEmitter, dtype: str, a: str, b: str) -> str:
        """Emit the remainder of a truncating division of floats."""
        return s.value(f"frem {llvm_type(dtype)} {a}, {b}")

    def zeros(self) -> str:
        """Return the symbol of a cache line of zeros."""
        line = "@.zeros = private unnamed_addr constant [64 x i8] zeroinitializer, align 64"
        if line not in self.globals:
            self.globals.append(line)
        return "@.zeros"

    def text(self) -> str:
        """The whole module."""
        return "\n".join(
            [
                f'target triple = "{self.target.triple}"',
                *self.globals,
                *self.declarations.values(),
                *self.functions,
                *self.helpers,
                self._attributes(),
                '!0 = !{!"branch_weights", i32 2000, i32 1}',
                "!1 = !{i32 1}",
                '!2 = !{!"branch_weights", i32 1, i32 2000}\n',
                *self._flags(),
            ]
        )

    def _flags(self) -> list[str]:
        abi = self.target.abi
        flag = f'!3 = !{{i32 1, !"target-abi", !"{abi}"}}'
        return ["!llvm.module.flags = !{!3}", flag] if abi else []

    def _attributes(self) -> str:
        t = self.target
        cpu = f'"target-cpu"="{t.cpu}" ' if t.cpu else ""
        wide = ' "prefer-vector-width"="512"' if t.vector_bits == 512 else ""
        length = t.vector_bits // 128  # of scalable vectors, which LLVM counts in units of 128 bits
        scalable = f" vscale_range({length},{length})" if "sve" in t.features and length > 1 else ""
        features = f'nounwind{scalable} {cpu}"target-features"="{t.attribute_string}"{wide}'
        return (
            f"attributes #0 = {{ {features} }}\n"
            "attributes #1 = { cold }\n"
            f"attributes #2 = {{ {features} cold noinline }}"
        )


class FunctionEmitter:
    """One LLVM function: its lines, the entry block's allocas, and the values of variables."""

    def __init__(self, module: ModuleEmitter, name: str, *, is_task: bool = False) -> None:
        self.module, self.name, self.is_task = module, name, is_task
        self.lines: list[str | list[str]] = []
        self.allocas: list[str] = []
        self.env: dict[ir.Var, str] = {}
        self.pointers: dict[ir.Var, str] = {}
        self.analyzer = arith.Analyzer()
        self.block = "entry"
        self.cleanup: list[str] = []
        self.message = ""  # the pointer to where messages are written, where the function has any
        self.result = ""  # the pointer to where a returned value goes, where the function returns one
        self.noalias = True
        self.streamed: frozenset[ir.Var] = frozenset()
        self.loops = self.scalar_stores = self.vector_stores = 0
        self._versions: dict[str, int] = {}
        self._known: dict[str, str] = {}
        self._undo: list[list[str]] = []
        self._memo: dict[ir.PrimExpr, str] = {}
        self._read: dict[ir.PrimExpr, str] = {}  # what depends on memory, until that changes
        self._reads = False  # whether the expression that is being emitted does
        self._memo_undo: list[list[ir.PrimExpr]] = []
        self._n = 0
        self._depth: dict[str, int] = {}
        self._before: list[tuple[list[str], int]] = []

    # --- text ------------------------------------------------------------------------------------------------------

    def fresh(self, hint: str = "v") -> str:
        """Return a new register name."""
        self._n += 1
        name = f"%{hint}{self._n}"
        self._depth[name] = len(self._before)
        return name

    def label(self, hint: str) -> str:
        """Return a new block label."""
        self._n += 1
        return f"{hint}{self._n}"

    def emit(self, text: str) -> None:
        """Append an instruction."""
        self._reads = True
        self.lines.append("  " + text)

    def value(self, text: str, hint: str = "v") -> str:
        """Append an instruction without effects, or return the register of an equal one that dominates this place."""
        known = self._known.get(text)
        if known is not None:
            return known
        self._n += 1
        name = f"%{hint}{self._n}"
        line, depth = f"  {name} = {text}", len(self._before)
        if depth and _MOVABLE.match(text):
            depth = max((self._depth.get(r, 0) for r in _REGISTER.findall(text)), default=0)
        if depth < len(self._before):
            lines, scopes = self._before[depth]
            lines.append(line)
        else:
            self.lines.append(line)
            scopes = len(self._undo)
        self._depth[name] = depth
        self._known[text] = name
        if scopes:
            self._undo[scopes - 1].append(text)
        return name

    def once(self, key: str, make: Callable[[], str]) -> str:
        """Return what `make` emits, or what it emitted for the same key in a place that dominates this one."""
        known = self._known.get(key)
        if known is None:
            known = self._known[key] = make()
            if self._undo:
                self._undo[-1].append(key)
        return known

    def version(self, slot: str, changed: bool = False) -> int:
        """How often the value behind an address has been written so far."""
        self._reads = True
        self._versions[slot] = self._versions.get(slot, 0) + changed
        return self._versions[slot]

    def effect(self, text: str, hint: str = "v") -> str:
        """Append an instruction whose value may differ from that of an equal one: a load, a call."""
        self._reads = True
        name = self.fresh(hint)
        self.lines.append(f"  {name} = {text}")
        return name

    @contextmanager
    def loop(self, before: list[str]) -> Generator[None, None, None]:
        """Emit the body of a loop; arithmetic that it does not change goes to `before`, a place ahead of the loop."""
        self._before.append((before, len(self._undo)))
        try:
            with self.scope():
                yield
        finally:
            self._before.pop()

    def start(self, label: str) -> None:
        """Begin a block."""
        self.lines.append(f"{label}:")
        self.block = label

    @contextmanager
    def scope(self) -> Generator[None, None, None]:
        """Forget, at the end, the values that were made inside: their block does not dominate what follows."""
        self._undo.append([])
        self._memo_undo.append([])
        try:
            yield
        finally:
            for text in self._undo.pop():
                del self._known[text]
            for key in self._memo_undo.pop():
                self._memo.pop(key, None)
                self._read.pop(key, None)

    def branch(self, condition: str, then: str, otherwise: str, weights: str = "") -> None:
        """Branch on an i1."""
        self.emit(f"br i1 {condition}, label %{then}, label %{otherwise}{weights}")

    def jump(self, label: str) -> None:
        """Jump to a block."""
        self.emit(f"br label %{label}")

    def alloca(self, text: str, hint: str = "buf") -> str:
        """Allocate on the stack, once for each call of the function, and return the pointer."""
        name = self.fresh(hint)
        self._depth[name] = 0
        self.allocas.append(f"  {name} = alloca {text}")
        return name

    def leave(self, code: str) -> None:
        """Return early with an error code, giving scratch memory back."""
        for pointer in reversed(self.cleanup):
            self.emit(f"call void @weft.workspace_free{self.module.mark}(ptr {pointer})")
        self.emit(f"ret i32 {code}")

    def check(self, code: str) -> None:
        """Go on if `code` is zero, else return it."""
        good, bad = self.label("ok"), self.label("failed")
        self.branch(self.value(f"icmp eq i32 {code}, 0"), good, bad, ", !prof !0")
        self.start(bad)
        self.leave(code)
        self.start(good)

    # --- values ----------------------------------------------------------------------------------------------------

    def expr(self, e: Any) -> str:
        """Emit an expression and return its value; a node is emitted once where its first value dominates the place.

        What depends on memory is emitted again behind a statement that may change it.
        """
        hit = self._memo.get(e)
        if hit is not None:
            return hit
        hit = self._read.get(e)
        if hit is not None:
            self._reads = True
            return hit
        outer, self._reads = self._reads, False
        text = EXPR.rule[type(e)](e, self)
        (self._read if self._reads else self._memo)[e] = text
        self._reads |= outer
        if self._memo_undo:
            self._memo_undo[-1].append(e)
        return text

    def forget(self, names: bool = False) -> None:
        """Forget the values of what depends on memory, which changes; of all expressions where a variable does."""
        self._read.clear()
        if names:
            self._memo.clear()

    def splat(self, value: str, dtype: str, lanes: int) -> str:
        """Repeat a scalar value over lanes."""
        scalar = llvm_type(dtype)
        if value[0] != "%":
            return f"splat ({scalar} {value})"
        vector = f"<{lanes} x {scalar}>"
        inserted = self.value(f"insertelement {vector} poison, {scalar} {value}, i64 0")
        return self.value(
            f"shufflevector {vector} {inserted}, {vector} poison, <{lanes} x i32> zeroinitializer", "splat"
        )

    def constant(self, value: str, dtype: str) -> str:
        """A scalar constant, repeated where `dtype` has lanes."""
        dt = ir.DataType(dtype)
        return value if dt.lanes == 1 else f"splat ({llvm_type(dt.element)} {value})"

    def intrinsic(self, name: str, result: str, args: list[tuple[str, str]]) -> str:
        """Call a function without effects, declaring it."""
        types = ", ".join([t for t, _ in args])
        self.module.declare(name, f"declare {result} @{name}({types})")
        return self.value(f"call {result} @{name}({', '.join([f'{t} {v}' for t, v in args])})")

    def call(self, name: str, result: str, args: list[tuple[str, str]]) -> str:
        """Call a function that may have effects, declaring it."""
        types = ", ".join([t for t, _ in args])
        self.module.declare(name, f"declare {result} @{name}({types})")
        return self.effect(f"call {result} @{name}({', '.join([f'{t} {v}' for t, v in args])})")
