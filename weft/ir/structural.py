"""Structural equality and hashing, generic over node fields and indifferent to the names of variables.

Both rest on one canonical walk. Variables and buffers are numbered where they are first met, so two functions that differ in names
only are equal; spans and name hints never take part. ``fingerprint`` is the same walk fed to SHA-256, for keys that outlive a process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft.ir.expr import Constant, GlobalVar
from weft.ir.expr import Var as ExprVar
from weft.ir.module import IRModule
from weft.ir.node import Attrs, Node
from weft.ir.scalar import Op, Var

__all__ = ["assert_structural_equal", "fingerprint", "structural_equal", "structural_hash"]

_HINTS = {"name", "name_hint"}
_NUMBERED = (Var, ExprVar)


def _is_numbered(node: Any) -> bool:
    """Whether identity, not content, distinguishes a node: variables and buffers."""
    return isinstance(node, _NUMBERED) or type(node).__name__ == "Buffer"


def _fields(node: Node) -> Iterator[tuple[str, Any]]:
    skip_hints = _is_numbered(node) or type(node).__name__ in ("Block",)
    for f in node.__struct_fields__:
        if f != "span" and not (skip_hints and f in _HINTS):
            yield f, getattr(node, f)


def _array(data: Any) -> np.ndarray:
    return np.asarray(data.numpy() if hasattr(data, "numpy") else data)


class _Mismatch(Exception):
    """The first difference: the path to it and both sides."""

    def __init__(self, path: str, lhs: Any, rhs: Any) -> None:
        self.path, self.lhs, self.rhs = path, lhs, rhs
        super().__init__(path)


class _Equal:
    """Compares two structures, mapping the variables of one to those of the other."""

    def __init__(self, map_free_vars: bool) -> None:
        self.map_free_vars = map_free_vars
        self.forward: dict[int, Any] = {}
        self.backward: dict[int, Any] = {}
        self.keep: list[Any] = []

    def check(self, a: Any, b: Any, path: str, defining: bool = False) -> None:
        """Raise :class:`_Mismatch` at the first difference."""
        if isinstance(a, Node) or isinstance(b, Node):
            self._nodes(a, b, path, defining)
        elif isinstance(a, tuple) and isinstance(b, tuple):
            if len(a) != len(b):
                raise _Mismatch(f"{path} (length)", a, b)
            for i, (x, y) in enumerate(zip(a, b, strict=True)):
                self.check(x, y, f"{path}[{i}]", defining)
        elif hasattr(a, "__dlpack__") and hasattr(b, "__dlpack__"):
            x, y = _array(a), _array(b)
            if x.dtype != y.dtype or x.shape != y.shape or x.tobytes() != y.tobytes():
                raise _Mismatch(path, f"tensor {x.shape} {x.dtype}", f"tensor {y.shape} {y.dtype}")
        elif a is not b and (type(a) is not type(b) and not (isinstance(a, str) and isinstance(b, str)) or not _same_scalar(a, b)):
            raise _Mismatch(path, a, b)

    def _nodes(self, a: Any, b: Any, path: str, defining: bool) -> None:
        if type(a) is not type(b):
            raise _Mismatch(path, a, b)
        if isinstance(a, (Op, GlobalVar)):
            name = "name" if isinstance(a, Op) else "name_hint"
            if getattr(a, name) != getattr(b, name):
                raise _Mismatch(path, getattr(a, name), getattr(b, name))
            return
        if isinstance(a, Attrs):
            self._attrs(a, b, path)
            return
        if _is_numbered(a) or type(a).__name__ == "Buffer":
            self._variables(a, b, path, defining)
            return
        binders = _BINDERS.get(type(a).__name__, ())
        for f in binders:
            self.check(getattr(a, f), getattr(b, f), f"{path}.{f}", defining=True)
        for f, x in _fields(a):
            if f not in binders:
                self.check(x, getattr(b, f), f"{path}.{f}", defining)

    def _attrs(self, a: Attrs, b: Attrs, path: str) -> None:
        if set(a.keys()) != set(b.keys()):
            raise _Mismatch(path, a.keys(), b.keys())
        for k, v in a.items:
            self.check(v, b[k], f"{path}[{k!r}]")

    def _variables(self, a: Any, b: Any, path: str, defining: bool) -> None:
        if id(a) in self.forward or id(b) in self.backward:
            if self.forward.get(id(a)) is not b or self.backward.get(id(b)) is not a:
                raise _Mismatch(path, a, b)
            return
        if a is not b and not (defining or self.map_free_vars or type(a).__name__ == "Buffer"):
            raise _Mismatch(f"{path} (a variable that neither side defines)", a, b)
        self.forward[id(a)], self.backward[id(b)] = b, a
        self.keep += [a, b]
        for f, x in _fields(a):
            self.check(x, getattr(b, f), f"{path}.{f}", defining=True)


def _same_scalar(a: Any, b: Any) -> bool:
    return a == b or (isinstance(a, float) and isinstance(b, float) and a != a and b != b)


# Fields that introduce variables, compared before the others.
_BINDERS: dict[str, tuple[str, ...]] = {
    "Function": ("params",),
    "PrimFunc": ("params", "buffer_map"),
    "For": ("loop_var",),
    "LetStmt": ("var",),
    "Let": ("var",),
    "IterVar": ("var",),
    "Block": ("iter_vars", "alloc_buffers", "match_buffers"),
    "AllocBuffer": ("buffer",),
    "DeclBuffer": ("buffer",),
    "VarBinding": ("var",),
    "MatchCast": ("var", "ty"),
    "CommReducer": ("lhs", "rhs"),
    "FuncType": ("params",),
}


def _compare(lhs: Any, rhs: Any, map_free_vars: bool) -> None:
    state = _Equal(map_free_vars)
    if isinstance(lhs, IRModule) or isinstance(rhs, IRModule):
        if type(lhs) is not type(rhs):
            raise _Mismatch("module", type(lhs).__name__, type(rhs).__name__)
        names = [{v.name_hint for v in m.functions} for m in (lhs, rhs)]
        if names[0] != names[1]:
            raise _Mismatch("module (function names)", sorted(names[0] - names[1]), sorted(names[1] - names[0]))
        for var, func in lhs.items():
            state.check(func, rhs[var.name_hint], f"module['{var.name_hint}']")
        state.check(lhs.attrs, rhs.attrs, "module.attrs")
        return
    state.check(lhs, rhs, "root")


def structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> bool:
    """Whether two nodes (or modules) are the same but for the names of variables.

    Parameters
    ----------
    map_free_vars : bool
        Whether variables that neither side defines may correspond; otherwise they must be identical.
    """
    try:
        _compare(lhs, rhs, map_free_vars)
    except _Mismatch:
        return False
    return True


def assert_structural_equal(lhs: Any, rhs: Any, map_free_vars: bool = False) -> None:
    """Raise a ValueError that shows the first difference, unless :func:`structural_equal` holds."""
    try:
        _compare(lhs, rhs, map_free_vars)
    except _Mismatch as e:
        raise ValueError(f"the structures differ at {e.path}\n  left:  {e.lhs}\n  right: {e.rhs}") from None


def _encode(node: Any, write: Callable[[bytes], Any]) -> None:
    """Feed the canonical encoding to ``write``."""
    numbers: dict[int, int] = {}
    keep: list[Any] = []

    def number(value: Any) -> None:
        known = numbers.get(id(value))
        if known is not None:
            write(b"#%d" % known)
            return
        numbers[id(value)] = len(numbers)
        keep.append(value)
        write(b"@%d" % numbers[id(value)])
        content(value)

    def content(value: Node) -> None:
        write(type(value).__name__.encode() + b"(")
        names = _BINDERS.get(type(value).__name__, ())
        for f in names:
            go(getattr(value, f))
        for f, x in _fields(value):
            if f not in names:
                write(b",")
                go(x)
        write(b")")

    def go(value: Any) -> None:
        if isinstance(value, Node):
            if isinstance(value, Op):
                write(b"op:" + value.name.encode())
            elif isinstance(value, GlobalVar):
                write(b"global:" + value.name_hint.encode())
            elif isinstance(value, Attrs):
                write(b"{")
                for k, v in sorted(value.items, key=lambda kv: kv[0]):
                    write(k.encode() + b"=")
                    go(v)
                write(b"}")
            elif _is_numbered(value):
                number(value)
            elif isinstance(value, Constant):
                array = _array(value.data)
                write(f"constant:{array.dtype}{array.shape}".encode())
                write(np.ascontiguousarray(array).tobytes())
            else:
                content(value)
        elif isinstance(value, tuple):
            write(b"(%d:" % len(value))
            for x in value:
                go(x)
            write(b")")
        elif hasattr(value, "__dlpack__"):
            array = _array(value)
            write(f"tensor:{array.dtype}{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
        else:
            write(f"{type(value).__name__ if not isinstance(value, str) else 'str'}:{value!s};".encode())

    if isinstance(node, IRModule):
        for var, func in sorted(node.items(), key=lambda vf: vf[0].name_hint):
            write(var.name_hint.encode())
            go(func)
        go(node.attrs)
    else:
        go(node)


def fingerprint(node: Any) -> str:
    """Return the SHA-256 of the canonical encoding, in hexadecimal: equal for alpha-equivalent structures, in every process."""
    chunks: list[bytes] = []
    _encode(node, chunks.append)
    return hashlib.sha256(b"".join(chunks)).hexdigest()


def structural_hash(node: Any, map_free_vars: bool = False) -> int:
    """Return a 64-bit hash that agrees with :func:`structural_equal`."""
    return int(fingerprint(node)[:16], 16)
