"""The text of StableHLO programs: operations with operands, attributes, regions and types.

Source: the assembly format of MLIR's language reference and of the StableHLO dialect, version 1. Every operation has
the generic form ``"name"(operands) <{properties}> ({regions}) {attributes} : types`` or one of its own; those differ
little enough that one reader takes all: operands, words, and values with names, in the order in which they stand.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import numpy as np

from weft import error, ir

_TOKEN = re.compile(
    r"""(?P<space>\s+|//[^\n]*)|(?P<string>"(?:[^"\\]|\\.)*")|(?P<value>%[\w$.-]+(?:\#\d+)?)|(?P<block>\^[\w$.-]+)
    |(?P<symbol>@(?:[\w$.-]+|"[^"]*"))|(?P<type>tensor<(?:[^<>]|<[^<>]*>)*>|!\w+(?:\.\w+)*)
    |(?P<hash>\#[A-Za-z_][\w$.]*)|(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][-+]?\d+)?))
    |(?P<word>[A-Za-z_][\w$.]*)|(?P<mark>->|\{-\#|\#-\}|.)""",
    re.VERBOSE,
)
_DTYPES = {"i1": "bool", "bf16": "bfloat16", "f8E4M3FN": "float8_e4m3fn", "f8E5M2": "float8_e5m2"}


class Type(msgspec.Struct, frozen=True):
    """A tensor's type: dimensions, -1 for an open one, and Weft's name of the element type, or of complex parts."""

    shape: tuple[int, ...]
    dtype: str
    is_complex: bool = False

    @property
    def stored(self) -> tuple[int, ...]:
        """The dimensions in memory, where both parts of a complex number are the last one."""
        return (*self.shape, 2) if self.is_complex else self.shape


class Region(msgspec.Struct):
    """Operations with the names and types of what they are given."""

    params: list[tuple[str, Type]]
    body: list[Operation]


class Operation(msgspec.Struct):
    """One operation: ``results = name(operands) {attrs}``, with the line where it stands."""

    name: str
    results: list[str]
    operands: list[str]
    attrs: dict[str, Any]
    words: list[str]
    regions: list[Region]
    types: list[Type]
    line: int


class Func(msgspec.Struct):
    """A function: its name, and the region that it runs."""

    name: str
    region: Region


def parse(text: str) -> dict[str, Func]:
    """Read a module's functions by name.

    Raises
    ------
    ParseError
        At the line and column that does not read as StableHLO.
    """
    return _Reader(text).module()


def tensor_type(text: str) -> Type:
    """Read ``tensor<2x3xf32>``.

    Raises
    ------
    UnsupportedOperator
        For dimensions or element types that Weft does not have here.
    """
    body = text[len("tensor<") : -1].split(",")[0].strip()
    real = re.sub(r"complex<(f32|f64)>$", r"\1", body)
    *dims, element = re.sub("index$", "i64", real).split("x")  # of layouts, which are read over
    match = re.fullmatch(r"(f|i|ui|si)(\d+)", element)
    names = {"f": "float", "i": "int", "ui": "uint", "si": "int"}
    dtype = _DTYPES.get(element) or (names[match[1]] + match[2] if match else "")
    if dtype in ("", "int2", "uint2") or not text.startswith("tensor<"):
        raise error.UnsupportedOperator("a type of StableHLO is not supported", found=text)
    return Type(tuple(-1 if d == "?" else int(d) for d in dims), dtype, real != body)


class _Reader:
    """A cursor over the tokens of a text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = [(m.lastgroup, m.group(), m.start()) for m in _TOKEN.finditer(text) if m.lastgroup != "space"]
        self.at = 0
        self.aliases: dict[str, Any] = {}
        self.dense_type: Any = None  # of the constant that was read last
        self.starts = [0, *(m.end() for m in re.finditer("\n", text))]

    # --- tokens -------------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> str:
        return str(self.tokens[self.at][0]) if self.at < len(self.tokens) else "end"

    @property
    def word(self) -> str:
        return self.tokens[self.at][1] if self.at < len(self.tokens) else ""

    @property
    def line(self) -> int:
        place = self.tokens[min(self.at, len(self.tokens) - 1)][2] if self.tokens else 0
        return int(np.searchsorted(self.starts, place, side="right"))

    def take(self) -> str:
        found = self.word
        self.at += 1
        return found

    def accept(self, word: str) -> bool:
        if self.word != word:
            return False
        self.at += 1
        return True

    def expect(self, word: str) -> None:
        if not self.accept(word):
            self.fail(f"'{word}'")

    def fail(self, expected: str) -> Any:
        line = self.line
        place = self.tokens[self.at][2] if self.at < len(self.tokens) else len(self.text)
        where = ir.Span("StableHLO", line, column=int(place - self.starts[line - 1]) + 1)
        raise error.ParseError("this is not StableHLO", where=where, expected=expected, found=self.word or "the end")

    # --- the module ---------------------------------------------------------------------------------------------------

    def module(self) -> dict[str, Func]:
        funcs: dict[str, Func] = {}
        while self.kind != "end":
            if self.word == "{-#":  # the data of constants: `resource` looks for them when one is read
                break
            if self.kind == "hash":
                name = self.take()
                self.expect("=")
                self.aliases[name] = self.value()
            elif self.word in ("module", "builtin.module"):
                self.at += 1
                self.accept(self.word) if self.kind == "symbol" else None
                if self.accept("attributes"):
                    self.dictionary("{", "}")
                self.expect("{")
            elif self.word in ("func.func", "func"):
                func = self.function()
                funcs[func.name] = func
            elif self.word == "loc":
                self.value()
            else:
                self.expect("}")
        return funcs

    def function(self) -> Func:
        self.at += 1
        if self.word in ("public", "private"):
            self.at += 1
        name = self.take()[1:].strip('"')
        self.expect("(")
        params = self.parameters()
        if self.accept("->"):
            if not self.accept("("):
                self.type()
            else:
                self.parameters(named=False)
        if self.accept("attributes"):
            self.dictionary("{", "}")
        return Func(name, Region(params, self.block()))

    def parameter_type(self) -> Type:
        self.accept(":")
        ty = self.type()
        if self.word == "{":
            self.dictionary("{", "}")
        self.location()
        return ty

    def location(self) -> None:
        if self.word == "loc":
            self.value()

    def type(self) -> Type:
        return tensor_type(self.take()) if self.kind == "type" else self.fail("a type")

    def types(self) -> list[Type]:
        many = self.accept("(")
        found = []
        while self.kind == "type":
            found.append(self.type())
            if not self.accept(","):
                break
        if many:
            self.expect(")")
        return found

    # --- operations ---------------------------------------------------------------------------------------------------

    def region(self) -> Region:
        """Read ``{ ^block(%a: type, …): operations }``."""
        self.expect("{")
        params = []
        if self.kind == "block":
            self.at += 1
            if self.accept("("):
                params = self.parameters()
            self.expect(":")
        self.at -= 1
        self.tokens[self.at] = ("mark", "{", self.tokens[self.at][2])
        return Region(params, self.block())

    def parameters(self, named: bool = True) -> list[tuple[str, Type]]:
        """Read names with types up to a closing parenthesis, or types alone."""
        params = []
        while not self.accept(")"):
            params.append((self.take() if named else "", self.parameter_type()))
            self.accept(",")
        return params

    def block(self) -> list[Operation]:
        self.expect("{")
        body = []
        while not self.accept("}"):
            if self.kind == "end":
                self.fail("'}'")
            body.append(self.operation())
        return body

    def operation(self) -> Operation:
        op = Operation("", [], [], {}, [], [], [], self.line)
        while self.kind == "value":
            name, count = self.take(), 1
            if self.accept(":"):
                count = int(self.take())
            op.results += [name] if count == 1 else [f"{name}#{i}" for i in range(count)]
            self.accept(",")
        if op.results:
            self.expect("=")
        op.name = self.take().strip('"')
        if not re.fullmatch(r"[A-Za-z_][\w.$]*", op.name):
            self.at -= 1
            self.fail("an operation")
        while self.word != ":" and self.word != "}" and self.kind != "end":
            self.part(op)
            if op.name == "stablehlo.constant" and op.types:
                break
        if self.accept(":"):
            before = self.types()
            op.types = self.types() if self.accept("->") else before[-max(len(op.results), 1) :]
        self.trailing_regions(op)
        self.location()
        return op

    def part(self, op: Operation) -> None:
        """Read what comes next before the types: an operand, a region, a dictionary, a value with or without a name."""
        following = self.tokens[self.at + 1][1] if self.at + 1 < len(self.tokens) else ""
        if self.kind == "value":
            name = self.take()
            if self.accept("="):  # while: the name inside, then what it begins with
                op.words.append(name)
                name = self.take()
            op.operands.append(name)
        elif self.word == "(" and following in ("{", "^"):
            self.at += 1
            while not self.accept(")"):
                op.regions.append(self.region())
                self.accept(",")
        elif self.word in ("(", ")", ","):
            self.at += 1
        elif self.word == "{" or self.accept("<"):
            op.attrs |= self.dictionary("{", "}")
            self.accept(">")
        else:
            self.description(op, following)

    def description(self, op: Operation, following: str) -> None:
        """Read a word, or a value with or without a name."""
        if self.kind == "word" and following == "=":
            name = self.take()
            self.at += 1
            op.attrs[name] = self.joined()
        elif self.word in ("dense", "dense_resource"):
            op.attrs["value"] = self.value()
            op.types = [self.dense_type]
        elif self.kind in ("word", "string"):
            op.words.append(self.take().strip('"'))
            self.accept(":") if op.words[-1] == "init" else None
        elif self.kind == "symbol":
            op.attrs["callee"] = self.take()[1:].strip('"')
        elif self.word == "[":
            op.attrs["ranges"] = self.value()
        else:
            self.fail("an operand, an attribute or ':'")

    def joined(self) -> Any:
        """Read a value, or several with an ``x`` or an arrow between them."""
        found = [self.value()]
        while self.word in ("x", "->"):
            self.at += 1
            found.append(self.value())
        return found[0] if len(found) == 1 else found

    def trailing_regions(self, op: Operation) -> None:
        """Read the regions of loops and reductions, which stand behind the types."""
        if op.name == "stablehlo.while":
            for word in ("attributes", "cond", "do"):
                if word == "attributes" and self.accept(word):
                    self.dictionary("{", "}")
                elif word != "attributes":
                    self.expect(word)
                    op.regions.append(Region([(n, t) for n, t in zip(op.words, op.types, strict=True)], self.block()))
        elif op.name == "stablehlo.reduce" and self.accept("reducer"):
            pairs = []
            while self.accept("("):
                pairs.append(self.parameters())
            op.regions.append(Region([p[0] for p in pairs] + [p[1] for p in pairs], self.block()))

    # --- values -------------------------------------------------------------------------------------------------------

    def dictionary(self, opening: str, closing: str) -> dict[str, Any]:
        """Read ``{name = value, …}``; a name alone is true."""
        self.expect(opening)
        found = {}
        while not self.accept(closing):
            if self.kind not in ("word", "string"):
                self.fail("a name")
            name = self.take().strip('"')
            found[name] = self.joined() if self.accept("=") else True
            self.accept(",")
        return found

    def value(self) -> Any:
        """Read an attribute's value: a number, a list, an array, text, a dictionary."""
        if self.kind == "number":
            return self.number()
        if self.kind == "string":
            return self.take()[1:-1]
        if self.word == "[":
            return self.sequence("[", "]")
        if self.word == "(":  # the parts of a complex number
            return self.sequence("(", ")")
        if self.word == "{":
            return self.dictionary("{", "}")
        if self.kind == "hash":
            name = self.take()
            if self.word == "<":
                return self.custom()
            return self.aliases.get(name, name)
        if self.word in ("dense", "dense_resource"):
            return self.dense(self.take())
        if self.word == "array":
            self.at += 1
            self.expect("<")
            self.take()
            self.accept(":")
            return self.sequence("", ">")
        if self.word == "loc":
            self.at += 1
            return self.balanced("(", ")")
        if self.kind in ("word", "symbol", "type"):
            found = self.take()
            return {"true": True, "false": False}.get(found, found)
        return self.fail("a value")

    def custom(self) -> Any:
        """Read what stands in the brackets of a dialect's attribute: words, or a dictionary."""
        self.expect("<")
        if self.kind == "word" and self.tokens[self.at + 1][1] == "=":
            self.at -= 1
            return self.dictionary("<", ">")
        if self.word == "[":
            found = self.joined()
        else:
            found = []
            while self.word != ">" and self.kind != "end":
                found.append(self.take())
        self.expect(">")
        return found[-1] if isinstance(found, list) and found and isinstance(found[-1], str) else found

    def number(self) -> Any:
        text = self.take()
        if self.word == ":" and self.tokens[self.at + 1][0] == "word":
            self.at += 2
        if text.startswith(("0x", "-0x")):
            return text
        return float(text) if re.search(r"[.eE]", text) else int(text)

    def sequence(self, opening: str, closing: str) -> list[Any]:
        """Read values with commas between them; those with colons between them are ranges."""
        if opening:
            self.expect(opening)
        found = []
        while not self.accept(closing):
            value = self.value()
            if self.word == ":":
                value = [value]
                while self.accept(":"):
                    value.append(self.value())
            found.append(value)
            self.accept(",")
        return found

    def balanced(self, opening: str, closing: str) -> None:
        self.expect(opening)
        depth = 1
        while depth:
            if self.kind == "end":
                self.fail(f"'{closing}'")
            word = self.take()
            depth += (word == opening) - (word == closing)

    def dense(self, form: str) -> np.ndarray:
        """Read ``dense<elements> : type``: nested lists, one value for all, or bytes as hexadecimal text."""
        self.expect("<")
        if form == "dense_resource":
            name = self.take()
            data: Any = '"0x' + self.resource(name)[8:]  # behind the alignment, which takes four bytes
        else:
            data = '""' if self.word == ">" else self.tokens[self.at][1] if self.kind == "string" else self.value()
            if self.kind == "string":
                self.at += 1
        self.expect(">")
        self.expect(":")
        self.dense_type = ty = self.type()
        dtype, count, each = ir.numpy_dtype(ty.dtype), int(np.prod(ty.stored)), 1 + ty.is_complex
        if isinstance(data, str) and data.startswith('"'):
            raw = np.frombuffer(bytes.fromhex(data.strip('"')[2:]), np.uint8)
            if ty.dtype == "bool" and len(raw) * 8 >= count > len(raw):
                found = np.unpackbits(raw, bitorder="little")[:count].astype(bool)
            else:
                found = raw.view(dtype)
        else:
            found = _elements(data, dtype)
        if found.size not in (each, count):
            self.fail(f"{count} elements before this")
        return (found if found.size == count else np.resize(found, count)).reshape(ty.stored)

    def resource(self, name: str) -> str:
        """Find a large constant's data, which may stand behind all that has been read."""
        match = re.search(rf"\b{re.escape(name)}\s*:\s*\"0x([0-9A-Fa-f]*)\"", self.text)
        return match[1] if match else self.fail("a constant whose data are in the text")


def _elements(data: Any, dtype: np.dtype) -> np.ndarray:
    """Elements in reading order; bit patterns stand for floats that have no decimal form."""
    flat: list[Any] = []
    stack = [data]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack += reversed(item)
        else:
            flat.append(item)
    if not any(isinstance(v, str) for v in flat):
        return np.array(flat).astype(dtype)
    bits = np.dtype(f"u{dtype.itemsize}")
    return np.concatenate(
        [np.array([int(v, 16)], bits).view(dtype) if isinstance(v, str) else np.array([v]).astype(dtype) for v in flat]
    )
