"""The state of emission, and a language's tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from weft import error, ir, tir
from weft.spelling import take_name


class Emitter:
    """Lines, names of variables and element types of pointers; what a language calls things is in class variables."""

    target: ClassVar[str]
    """The kind of target, for errors."""
    expressions: ClassVar[ir.Dispatch]
    statements: ClassVar[ir.Dispatch]
    types: ClassVar[Mapping[str, str]]
    memory_types: ClassVar[Mapping[str, str]] = {}
    """Where elements in memory have another type than values."""
    loads: ClassVar[Mapping[str, str]] = {}
    """By dtype, the value of an element ``{0}`` in memory, where it is not the element itself."""
    stores: ClassVar[Mapping[str, str]] = {}
    """By dtype, the element that a value ``{0}`` becomes in memory, where it is not the value itself."""
    conversions: ClassVar[Mapping[str, str]] = {}
    """By dtype, the function that makes a value of it, where a cast to its type does not."""
    libm: ClassVar[frozenset[str]] = frozenset(
        (
            "exp exp2 exp10 log log2 log10 log1p sqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh "
            "erf floor ceil trunc nearbyint fabs pow atan2 hypot fmod copysign nextafter ldexp fma"
        ).split()
    )
    """Functions of floats under the names of ``<math.h>``; those of float32 end in `float32_suffix`."""
    renamed: ClassVar[Mapping[str, str]] = {}
    """What the language calls some of them."""
    float32_suffix: ClassVar[str] = "f"
    long_suffix: ClassVar[str] = "LL"
    nan: ClassVar[str] = "NAN"
    infinity: ClassVar[str] = "INFINITY"
    forms: ClassVar[Mapping[str, str]] = {"likely": "{0}", "if_then_else": "({0} ? {1} : {2})"}
    """Intrinsics by name: the text with ``{0}``, ``{1}`` … for the arguments and ``{t}`` for the result's type."""
    special: ClassVar[Mapping[str, Callable[[ir.CallIntrin, Any], str]]] = {}
    """Intrinsics with arguments that are no values, by name: what writes them."""
    computed_as: ClassVar[Mapping[str, str]] = {}
    """Float types of memory alone, and the type that is computed with."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.depth = 1
        self.names: dict[ir.Var, str] = {}
        self.taken: set[str] = set()
        self.pointers: dict[ir.Var, str] = {}
        self.stored: set[ir.Var] = set()
        self.spaces: dict[ir.Var, str] = {}  # what stands before the type of a pointer

    def expr(self, e: ir.PrimExpr) -> str:
        """The text of an expression."""
        return self.expressions(e, self)

    def stmt(self, node: tir.Stmt) -> None:
        """Emit a statement."""
        self.statements(node, self)

    def emit(self, line: str) -> None:
        """Add a line."""
        self.lines.append("  " * self.depth + line)

    def nested(self, opening: str, body: tir.Stmt) -> None:
        """Emit a statement in braces."""
        self.emit(f"{opening} {{" if opening else "{")
        self.depth += 1
        self.stmt(body)
        self.depth -= 1
        self.emit("}")

    def fresh(self, var: ir.Var, prefix: str = "v_") -> str:
        """Name a variable."""
        name = take_name(prefix + re.sub(r"[^A-Za-z0-9_]", "_", var.name), self.taken)
        self.names[var] = name
        return name

    def name(self, var: ir.Var) -> str:
        """Return the name of a variable."""
        if var not in self.names:
            raise error.CodegenError(f"variable '{var.name}' has no value", where=var.span, help="make it a parameter")
        return self.names[var]

    def define(self, var: ir.Var, value: str) -> None:
        """Declare a variable with its value."""
        self.emit(f"{self.type_of(var.dtype, var)} {self.fresh(var)} = {value};")

    def type_of(self, dtype: str, at: ir.Node) -> str:
        """The type of a value."""
        if str(dtype) not in self.types:
            raise error.CodegenError(
                f"target {self.target} has no code for '{dtype}'",
                where=at.span,
                expected=f"one of {', '.join(self.types)}",
            )
        return self.types[str(dtype)]

    def memory_type(self, dtype: str, at: ir.Node) -> str:
        """The type of an element in memory."""
        return self.memory_types.get(str(dtype)) or self.type_of(dtype, at)

    def convert(self, dtype: str, text: str, at: ir.Node) -> str:
        """A value of another type as one of `dtype`."""
        of = self.type_of(dtype, at)
        return f"{self.conversions[str(dtype)]}({text})" if str(dtype) in self.conversions else self.cast(of, text)

    def cast(self, of: str, text: str) -> str:
        """A value as one of a type of the language."""
        return f"(({of})({text}))"

    def element(self, buffer: tir.Buffer, indices: Sequence[ir.PrimExpr]) -> str:
        """An element of a flat buffer, to read or to assign."""
        if len(indices) != 1:
            raise error.CodegenError(f"buffer '{buffer.name}' is not flat", found=f"{len(indices)} indices")
        of, name = self.memory_type(buffer.dtype, buffer), self.name(buffer.data)
        pointer = name if self.pointers.get(buffer.data) == of else f"(({self.spaces.get(buffer.data, '')}{of}*){name})"
        return f"{pointer}[{self.expr(indices[0])}]"

    def refuse(self, node: ir.Node) -> error.CodegenError:
        """The error of a node that the language has no code for."""
        return error.CodegenError(
            f"target {self.target} has no code for {type(node).__name__}", where=node.span, found=str(node)
        )


def string(text: str) -> str:
    """A string literal."""
    plain = {ord('"'): '\\"', ord("\\"): "\\\\"}
    return '"' + "".join(plain.get(b) or (chr(b) if 32 <= b < 127 else f"\\{b:03o}") for b in text.encode()) + '"'
