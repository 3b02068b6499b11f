"""Reading of types, literals, attributes and references to metadata; the ground of the parser of expressions."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from weft import error, ir
from weft.relay.adt import Constructor, TypeData
from weft.relay.op.memory import STORAGE
from weft.relay.text.lexer import Token, Tokens
from weft.relay.text.literals import NUMBER, SUFFIXES
from weft.relay.types import Any as AnyDim
from weft.relay.types import FuncType, GlobalTypeVar, IncompleteType, RefType, TensorType, TupleType, TypeCall, TypeVar

_DTYPE = re.compile(r"(?:u?int|float|bfloat)\d+(?:x\d+)?|bool")
_OF_32_BITS = {"int": "int32", "uint": "uint32", "float": "float32"}
_DEEPEST = 20_000
_OF_THE_COMPILER = {"Storage": STORAGE}  # types that no text defines


def near(name: str, known: Iterable[str]) -> str | None:
    """Return a hint that lists names like `name`, or None."""
    found = difflib.get_close_matches(name, list(known), 3)
    return f"did you mean {' or '.join(found)}?" if found else None


class Reader:
    """Tokens, and what names mean at the place of the reader.

    Parameters
    ----------
    tokens : Tokens
        The text.
    mod : IRModule
        The module that definitions go to, and that functions and data types are looked up in.
    meta : mapping of str to sequence, optional
        What ``meta[key][i]`` refers to, where the text does not say.
    """

    def __init__(self, tokens: Tokens, mod: ir.IRModule, meta: Any = None) -> None:
        self.t, self.mod = tokens, mod
        self.meta: dict[str, Any] = {**(meta or {}), **self._metadata()}
        self.types: dict[str, GlobalTypeVar] = {h.name_hint: h for h in mod.type_definitions}
        self.constructors: dict[str, Constructor] = {}
        for data in mod.type_definitions.values():
            self.learn(data)
        self._type_vars: list[dict[str, TypeVar]] = []
        self._depth = 0

    def learn(self, data: TypeData) -> None:
        """Let the constructors of a data type be used."""
        self.constructors.update((c.name_hint, c) for c in data.constructors)

    def enter(self) -> None:
        """Count how deep the text nests, so that no text exhausts the stack."""
        self._depth += 1
        if self._depth > _DEEPEST:
            self.t.fail("the text nests too deep", expected=f"at most {_DEEPEST} levels")

    def leave(self) -> None:
        """End what :meth:`enter` began."""
        self._depth -= 1

    @contextmanager
    def deeper(self) -> Generator[None, None, None]:
        """Count a level of nesting."""
        self.enter()
        yield
        self.leave()

    # --- metadata ---

    def _metadata(self) -> dict[str, Any]:
        section = self.t.metadata
        if section is None:
            return {}
        try:
            table = {str(k): tuple(v) for k, v in ir.load_json(section.text)}
            for node in ir.walk(tuple(table.values())):
                _check_loaded(node)
            return table
        except (error.WeftError, ValueError, TypeError, AttributeError) as e:
            what = e.found or e.what if isinstance(e, error.WeftError) else str(e)
            self.t.fail("the metadata section cannot be read", section, found=what)

    def reference(self, kind: type | tuple[type, ...], what: str) -> Any:
        """Read ``meta[key][index]`` and return what it refers to, which must be of a kind."""
        start = self.t.expect("meta", "a reference to metadata")
        self.t.expect("[", "a reference to metadata")
        key = self.t.expect_kind("name", "key of metadata")
        self.t.expect("]", "a reference to metadata")
        self.t.expect("[", "a reference to metadata")
        number = self.t.expect_kind("number", "index of metadata")
        self.t.expect("]", "a reference to metadata")
        entries = self.meta.get(key.text)
        if entries is None:
            known = ", ".join(self.meta) or "none: the text has no metadata section"
            self.t.fail(f"there is no metadata '{key.text}'", key, expected="a key of the metadata", found=known)
        if not number.text.isdecimal() or int(number.text) >= len(entries):
            self.t.fail(
                f"metadata '{key.text}' has no such entry",
                number,
                expected=f"an index below {len(entries)}",
                found=number.text,
            )
        value = entries[int(number.text)]
        if not isinstance(value, kind):
            self.t.fail(f"this is no {what}", start, expected=what, found=type(value).__name__)
        return value

    # --- types ---

    def type_vars(self) -> tuple[TypeVar, ...]:
        """Read ``[A, B]`` if it is next, and open a scope in which the names are known; close it by `leave_types`."""
        scope: dict[str, TypeVar] = {}
        self._type_vars.append(scope)
        if self.t.take("["):

            def one() -> None:
                token = self.t.expect_kind("name", "name of a type variable")
                if token.text in scope:
                    self.t.fail(f"type variable '{token.text}' is declared twice", token)
                scope[token.text] = TypeVar(token.text, span=self.t.since(token))

            self.t.sequence("]", one, "a list of type variables")
        return tuple(scope.values())

    def leave_types(self) -> None:
        """Forget the type variables of the innermost scope."""
        self._type_vars.pop()

    def annotation(self) -> ir.Type | None:
        """Read a type; ``_`` is none."""
        return None if self.t.take("_") else self.type()

    def type(self) -> ir.Type:
        """Read a type."""
        start = self.t.peek()
        with self.deeper():
            if self.t.take("("):
                fields, comma = self.t.sequence(")", self.type, "a tuple type")
                one = len(fields) == 1 and not comma
                return fields[0] if one else TupleType(tuple(fields), span=self.t.since(start))
            if self.t.take("fn"):
                return self._func_type(start)
            if start.kind != "name":
                self.t.fail("a type is expected", expected="a type", found=str(start))
            if start.text == "meta":
                return self.reference(ir.Type, "type")
            self.t.next()
            return self._named_type(start)

    def _func_type(self, start: Token) -> FuncType:
        params = self.type_vars()
        self.t.expect("(", "a function type")
        args, _ = self.t.sequence(")", self.type, "a function type")
        self.t.expect("->", "a function type")
        result = self.type()
        self.leave_types()
        return FuncType(tuple(args), result, params, span=self.t.since(start))

    def _named_type(self, start: Token) -> ir.Type:
        name = start.text
        var = next((s[name] for s in reversed(self._type_vars) if name in s), None)
        if var is not None:
            return self._applied(var, start) if self.t.sees("[") else var
        if name == "_":
            return IncompleteType(span=self.t.since(start))
        if name == "Tensor":
            return self._tensor_type(start)
        if name == "ref" and self.t.sees("("):
            self.t.next()
            value = self.type()
            self.t.expect(")", "a type of references")
            return RefType(value, span=self.t.since(start))
        if name in self.types:
            return self._applied(self.types[name], start)
        if name in _OF_THE_COMPILER:
            return _OF_THE_COMPILER[name]
        if name in _OF_32_BITS or _DTYPE.fullmatch(name):
            return TensorType((), self._dtype(start), span=self.t.since(start))
        known = ["Tensor", "float32", "int32", "int64", "bool", *self.types, *(n for s in self._type_vars for n in s)]
        return self.t.fail(f"'{name}' is no type", start, help=near(name, known))

    def _applied(self, head: ir.Type, start: Token) -> TypeCall:
        args = self.t.sequence("]", self.type, "a list of type arguments")[0] if self.t.take("[") else ()
        return TypeCall(head, tuple(args), span=self.t.since(start))

    def _dtype(self, token: Token) -> str:
        try:
            return ir.DataType(_OF_32_BITS.get(token.text, token.text))
        except (error.WeftError, ValueError) as e:
            self.t.fail(f"'{token.text}' is no data type", token, found=str(e).splitlines()[0])

    def _tensor_type(self, start: Token) -> TensorType:
        self.t.expect("[", "a tensor type")
        self.t.expect("(", "the shape of a tensor type")
        dims, _ = self.t.sequence(")", self._dimension, "a shape")
        self.t.expect(",", "a tensor type")
        dtype = self._dtype(self.t.expect_kind("name", "data type"))
        self.t.expect("]", "a tensor type")
        return TensorType(tuple(dims), dtype, span=self.t.since(start))

    def _dimension(self) -> ir.PrimExpr:
        if self.t.take("?"):
            return AnyDim()
        if self.t.sees("meta"):
            return self.reference(ir.PrimExpr, "dimension")
        token = self.t.expect_kind("number", "dimension")
        if not token.text.isdecimal() or len(token.text) > 18:
            self.t.fail("a dimension is a number without a suffix", token, found=token.text)
        return ir.int64(int(token.text))

    # --- numbers and attributes ---

    def number(self, token: Token, negative: bool = False) -> np.ndarray:
        """Return the value of a literal as an array of rank 0."""
        digits, _, dtype = self._parts(token)
        if dtype == "":
            fits = digits.isdecimal() and int(digits[:20]) < (1 << 31) + negative
            dtype = "int32" if fits else "int64" if digits.isdecimal() else "float32"
        if "float" in dtype:
            value: Any = -float(digits) if negative else float(digits)
            with np.errstate(over="ignore"):
                array = np.array(value, ir.numpy_dtype(dtype))
            if not np.isfinite(array) and digits not in ("inf", "nan"):
                self.t.fail(f"the number does not fit {dtype}", token, found=token.text)
            return array
        value = self._whole(token, digits)
        value = -value if negative else value
        info = np.iinfo(ir.numpy_dtype(dtype))
        if not info.min <= value <= info.max:
            bounds = f"{info.min} to {info.max}"
            self.t.fail(f"the number does not fit {dtype}", token, expected=bounds, found=str(value))
        return np.array(value, ir.numpy_dtype(dtype))

    def _parts(self, token: Token) -> tuple[str, str, str]:
        m = NUMBER.fullmatch(token.text)
        suffix = (m["suffix"] or "") if m else ""
        if m is None or suffix not in SUFFIXES:
            known = ", ".join(s for s in SUFFIXES if s)
            self.t.fail("a number of unknown kind", token, expected=f"a suffix of {known}", found=token.text)
        return m["digits"], suffix, SUFFIXES[suffix]

    def _whole(self, token: Token, digits: str) -> int:
        if not digits.isdecimal() or len(digits) > 20:
            self.t.fail("a whole number is expected", token, found=token.text)
        return int(digits)

    def read_attribute(self, into: dict[str, Any], lacks: bool = False, name: str | None = None) -> None:
        """Read one ``name=value`` into a dict, under the text's name or another one.

        `lacks` allows ``_``, which says that a default does not hold.
        """
        token = self.t.next()
        name = name or str(json.loads(token.text) if token.kind == "string" else token.text)
        if name in into:
            self.t.fail(f"attribute '{name}' is given twice", token)
        self.t.expect("=", "an attribute")
        into[name] = LEFT_OUT if lacks and self.t.take("_") else self.attribute()

    def sees_attribute(self) -> bool:
        """Whether ``name=`` is next."""
        return self.t.peek().kind in ("name", "string", "match") and self.t.peek(1).text == "="

    def attribute(self) -> Any:
        """Read the value of an attribute."""
        with self.deeper():
            token = self.t.next()
            if token.kind == "string":
                return json.loads(token.text)
            if token.kind in ("punct", "name") and token.text in _WORDS:
                return _WORDS[token.text]
            if token.kind == "punct":
                return self._compound(token)
            if token.kind == "number":
                return self._scalar(token)
            if token.text == "meta" and self.t.sees("["):
                self.t.at -= 1
                return self.reference(object, "value")
            if token.kind == "name":
                return token.text
            return self._no_attribute(token)

    def _compound(self, token: Token) -> Any:
        if token.text == "?":
            return AnyDim()
        if token.text in "[(":
            return tuple(self.t.sequence("]" if token.text == "[" else ")", self.attribute, "a list")[0])
        if token.text == "{":
            items: dict[str, Any] = {}

            def one() -> None:
                if not self.sees_attribute():
                    self.t.fail("an attribute is expected", expected="name=value", found=str(self.t.peek()))
                self.read_attribute(items)

            self.t.sequence("}", one, "a list of attributes")
            return ir.Attrs(tuple(items.items()))
        if token.text == "-" and self.t.peek().kind == "number":
            return self._scalar(self.t.next(), negative=True)
        return self._no_attribute(token)

    def _no_attribute(self, token: Token) -> NoReturn:
        self.t.fail(
            "this is no value of an attribute",
            token,
            expected="a number, a string, True, False, None, a list or metadata",
            found=str(token),
        )

    def _scalar(self, token: Token, negative: bool = False) -> Any:
        """Return a Python number, or an immediate where the suffix says a width."""
        digits, suffix, dtype = self._parts(token)
        if suffix not in ("", "f"):
            value = self.number(token, negative).item()
            return ir.FloatImm(dtype, float(value)) if "float" in dtype else ir.IntImm(dtype, value)
        if suffix == "f" or not digits.isdecimal():
            return -float(digits) if negative else float(digits)
        if len(digits) > 4000:
            self.t.fail("the number is too long", token)
        return -int(digits) if negative else int(digits)


def _check_loaded(node: ir.Node) -> None:
    """Raise a ValueError where fields of a node that a metadata section describes are of wrong kinds."""
    if isinstance(node, ir.TensorType):
        dtype: Any = node.dtype
        dims: tuple[Any, ...] = node.shape or ()
        if not isinstance(dtype, str) or not all(isinstance(d, ir.PrimExpr) for d in dims):
            raise ValueError("a tensor type is malformed")
    elif isinstance(node, ir.Constant):
        data: Any = node.data
        ty: Any = node.ty
        if not hasattr(data, "__dlpack__") or not (ty is None or isinstance(ty, ir.TensorType)):
            raise ValueError("a constant has no data, or no tensor type")
        shape = tuple(map(ir.as_int, ty.shape or ())) if ty is not None else None
        if ty is not None and (ty.dtype, shape) != (str(data.dtype), tuple(data.shape)):
            raise ValueError("a constant has not the type of its data")


LEFT_OUT = object()  # the value ``_``: the call does not have the attribute
_WORDS = {"True": True, "False": False, "None": None}
