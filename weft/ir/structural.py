"""Structural equality and hashing, generic over node fields and indifferent to the names of variables.

Both rest on the same walk: parents before children, fields that introduce variables first. Variables and buffers are
numbered where they are first met, so two functions that differ in names only are equal; spans, name hints and types
that follow from a node's other fields never take part. ``fingerprint`` is that walk written as bytes and fed to
SHA-256, for keys that outlive a process. The walks keep their own stack, so that long chains cost no recursion.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tvm_ffi
from tvm_ffi.access_path import AccessPath

from weft.ir import expr as exprs
from weft.ir.module import IRModule
from weft.ir.node import Attrs, ImpliedName, Node, saved_fields
from weft.ir.scalar import Op, SizeVar, Var
from weft.ir.types import _STRUCTURE

# Fields that introduce variables, compared before the others, by class name (the classes live on higher floors), each
# with how it does: SIGHT, what is not known yet is introduced; BIND, the variable itself is new, whatever it meant
# elsewhere (passes leave variables bound in several places); MEMORY, a buffer is new together with its pointer.
# A class may say so itself: ``__binders__`` is its entry, ``__uncompared__`` names fields that never take part, and
# ``__compared_as__`` is its kind (PLAIN: field by field, NUMBERED: a variable, NAMED: by its name).
# ALIAS, a buffer that nothing introduces is one over memory that is known.
_SIGHT, _BIND, _MEMORY, _ALIAS = 1, 2, 3, 4
_BINDERS: dict[str, tuple[tuple[str, int], ...]] = {
    "Function": (("params", _BIND),),
    "PrimFunc": (("params", _BIND), ("buffer_map", _SIGHT)),
    "For": (("loop_var", _BIND),),
    "LetStmt": (("var", _BIND),),
    "Let": (("var", _BIND),),
    "IterVar": (("var", _BIND),),
    "Block": (("iter_vars", _SIGHT), ("alloc_buffers", _MEMORY), ("match_buffers", _SIGHT)),
    "MatchBufferRegion": (("buffer", _MEMORY),),
    "AllocBuffer": (("buffer", _MEMORY),),
    "DeclBuffer": (("buffer", _BIND),),
    "VarBinding": (("var", _BIND),),
    "MatchCast": (("var", _BIND), ("ty", _SIGHT)),
    "CommReducer": (("lhs", _BIND), ("rhs", _BIND)),
    "Reduce": (("axis", _SIGHT),),
    "IndexMap": (("initial_indices", _BIND),),
    "FuncType": (("params", _SIGHT),),
}
_DESCRIBED = {b"Buffer(", b"Tensor("}  # numbered by identity, but known by their fields where nothing defines them
# Classes whose type follows from their other fields.
_DERIVED_TYPE = (
    exprs.Constant,
    exprs.DataTypeImm,
    exprs.ExprStringImm,
    exprs.ExternFunc,
    exprs.Function,
    exprs.GlobalVar,
    exprs.PrimValue,
    exprs.ShapeExpr,
    exprs.Tuple,
    exprs.TupleGetItem,
)
_DERIVED_NAMES = {"SeqExpr"}

_PLAIN, _NUMBERED, _NAMED, _ATTRS, _CONSTANT, _TUPLE, _TENSOR, _SCALAR, _SEQUENCE = range(9)
BIND, PLAIN, NUMBERED, NAMED = _BIND, _PLAIN, _NUMBERED, _NAMED


class _Plan:
    """How values of one class are walked."""

    __slots__ = ("binders", "fields", "kind", "tag")

    def __init__(self, cls: type) -> None:
        self.tag = cls.__name__.encode() + b"("
        self.kind = _kind_of(cls)
        name = cls.__name__
        if not issubclass(cls, Node):
            self.binders: tuple[tuple[str, int], ...] = ()
            self.fields: tuple[str, ...] = saved_fields(cls)
            return
        skip = {"span", *getattr(cls, "__uncompared__", ())}
        if self.kind == _NUMBERED or name == "Block":
            skip |= {"name", "name_hint"}
        if issubclass(cls, _DERIVED_TYPE) or name in _DERIVED_NAMES:
            skip.add("ty")
        self.binders = getattr(cls, "__binders__", None) or _BINDERS.get(name, ())
        self.fields = tuple(f for f in cls.__struct_fields__ if f not in skip and f not in dict(self.binders))


def _kind_of(cls: type) -> int:
    if issubclass(cls, Node):
        own = getattr(cls, "__compared_as__", None)
        if own is not None:
            return own
        if issubclass(cls, (Op, exprs.GlobalVar)):
            return _NAMED
        if issubclass(cls, Attrs):
            return _ATTRS
        if issubclass(cls, (Var, exprs.Var)) or cls.__name__ == "Buffer":
            return _NUMBERED
        if cls.__name__ == "SeqStmt":
            return _SEQUENCE
        return _CONSTANT if issubclass(cls, exprs.Constant) else _PLAIN
    if issubclass(cls, tuple):
        return _TUPLE
    if saved_fields(cls):
        return _NUMBERED
    return _TENSOR if hasattr(cls, "__dlpack__") else _SCALAR


_PLANS: dict[type, _Plan] = {}


def _plan(cls: type) -> _Plan:
    plan = _PLANS[cls] = _Plan(cls)
    return plan


def _array(data: Any) -> np.ndarray:
    return np.ascontiguousarray(data.numpy() if hasattr(data, "numpy") else data)


def _flattened(stmt: Any) -> tuple[Any, ...]:
    """Return the statements of a sequence.

    One inside another, as rewriting leaves them, is the same as its statements.
    """
    out: list[Any] = []
    stack = [stmt]
    while stack:
        s = stack.pop()
        if type(s).__name__ == "SeqStmt":
            stack.extend(reversed(s.seq))
        else:
            out.append(s)
    return tuple(out)


def _name_of(node: Any) -> str:
    return node.name if isinstance(node, Op) else node.name_hint


# --- equality ---------------------------------------------------------------------------------------------------------


_NAMES = " (names of attributes)"


class _Mismatch(Exception):
    """The first difference: the path to it and both sides."""

    def __init__(self, path: Any, lhs: Any, rhs: Any, note: str = "") -> None:
        self.lhs, self.rhs, self.where, self.note = lhs, rhs, path, note
        self.path = "".join(n if isinstance(n, str) else f"[{n}]" for n in _labels(path)) + note
        super().__init__(self.path)


def _labels(path: Any) -> list[Any]:
    """List the labels of the linked path ``(parent, label)`` from its root."""
    labels: list[Any] = []
    while path is not None:
        path, label = path
        labels.append(label)
    return labels[::-1]


_SIZES = (Var, SizeVar)


class _Equal:
    """Compares two structures, mapping the variables of one to those of the other.

    If `lenient`, a variable that is known to be no less than zero may correspond to one of which that is not said, and
    a name that nobody gave (:class:`ImpliedName`) to any other such name.
    """

    def __init__(self, map_free_vars: bool | Callable[[Any, Any], bool], lenient: bool = False) -> None:
        self.map_free_vars, self.lenient = map_free_vars, lenient
        self.forward: dict[Any, Any] = {}
        self.backward: dict[Any, Any] = {}
        self.stack: list[tuple[Any, Any, Any, int]] = []

    def check(self, lhs: Any, rhs: Any, path: Any) -> None:
        """Raise :class:`_Mismatch` at the first difference."""
        stack = self.stack
        stack.append((lhs, rhs, path, 0))
        while stack:
            a, b, where, defining = stack.pop()
            cls = type(a)
            plan = _PLANS.get(cls) or _plan(cls)
            kind = plan.kind
            if kind == _SCALAR:
                if not (self.lenient and cls is type(b) is ImpliedName):
                    self._scalars(a, b, where)
            elif kind == _TUPLE:
                self._tuples(a, b, where, defining)
            elif kind == _TENSOR:
                self._tensors(a, b, where)
            elif kind == _SEQUENCE or type(b).__name__ == "SeqStmt":
                self._sequences(_flattened(a), _flattened(b), where, defining)
            elif cls is not type(b) and not (self.lenient and cls in _SIZES and type(b) in _SIZES):
                raise _Mismatch(where, a, b)
            elif kind == _PLAIN:
                self._push(plan, a, b, where, defining)
            elif kind == _NUMBERED:
                self._variables(plan, a, b, where, defining)
            else:
                self._leaf(kind, a, b, where, defining)

    def _leaf(self, kind: int, a: Any, b: Any, where: Any, defining: int) -> None:
        """Compare the kinds that are rare."""
        if kind == _NAMED:
            if _name_of(a) != _name_of(b):
                raise _Mismatch(where, _name_of(a), _name_of(b))
        elif kind == _ATTRS:
            if set(a.keys()) != set(b.keys()):
                raise _Mismatch(where, a.keys(), b.keys(), _NAMES)
            for k, v in reversed(a.pairs):
                self.stack.append((v, b[k], (where, f"[{k!r}]"), defining))
        else:
            self._tensors(a.data, b.data, (where, ".data"))

    def _tuples(self, a: Any, b: Any, where: Any, defining: int) -> None:
        if not isinstance(b, tuple) or len(a) != len(b):
            raise _Mismatch(where, a, b, " (length)" if isinstance(b, tuple) else "")
        for i in range(len(a) - 1, -1, -1):
            self.stack.append((a[i], b[i], (where, i), defining))

    def _sequences(self, a: Any, b: Any, where: Any, defining: int) -> None:
        single = (len(a), len(b)) == (1, 1)
        self.stack.append((a[0], b[0], where, defining) if single else (a, b, (where, ".seq"), defining))

    def _push(self, plan: _Plan, a: Any, b: Any, where: Any, defining: int) -> None:
        below = _SIGHT if defining else 0
        for f in reversed(plan.fields):
            inner = below
            if f == "data" and plan.tag == b"Buffer(":  # memory is new with an allocation; otherwise it is what it was
                inner = _BIND if defining == _MEMORY else 0 if defining == _ALIAS else below
            self.stack.append((getattr(a, f), getattr(b, f), (where, "." + f), inner))
        for f, how in reversed(plan.binders):
            self.stack.append((getattr(a, f), getattr(b, f), (where, "." + f), how))

    def _variables(self, plan: _Plan, a: Any, b: Any, where: Any, defining: int) -> None:
        if defining < _BIND and (a in self.forward or b in self.backward):
            if self.forward.get(a) is not b or self.backward.get(b) is not a:
                raise _Mismatch(where, a, b)
            return
        if not (defining or plan.tag in _DESCRIBED or self._may_map(a, b)):
            raise _Mismatch(where, a, b, " (a variable that neither side defines)")
        self.forward[a], self.backward[b] = b, a
        self._push(plan, a, b, where, defining or (_SIGHT if self.map_free_vars or a is b else _ALIAS))

    def _may_map(self, a: Any, b: Any) -> bool:
        free = self.map_free_vars
        return free(a, b) if callable(free) else free or a is b

    @staticmethod
    def _scalars(a: Any, b: Any, where: Any) -> None:
        if a is b:
            return
        same_type = type(a) is type(b) or (isinstance(a, str) and isinstance(b, str))
        if not same_type or not (a == b or (a != a and b != b)):
            raise _Mismatch(where, a, b)

    @staticmethod
    def _tensors(a: Any, b: Any, where: Any) -> None:
        if a is b:
            return
        if not hasattr(b, "__dlpack__"):
            raise _Mismatch(where, a, b)
        x, y = _array(a), _array(b)
        if x.dtype != y.dtype or x.shape != y.shape:
            raise _Mismatch(where, f"tensor {x.shape} {x.dtype}", f"tensor {y.shape} {y.dtype}")
        if x.tobytes() != y.tobytes():
            at = tuple(int(i[0]) for i in np.nonzero(x != y)) if x.ndim and (x != y).any() else ()
            raise _Mismatch(
                where, f"tensor {x.shape} {x.dtype} with {x[at]}", f"{y[at]}", f" at {list(at)}" if at else ""
            )


def _plain(value: Any) -> Any:
    """Lists as tuples, and mappings as attributes, or as pairs where keys are no strings."""
    if isinstance(value, (list, tuple, tvm_ffi.Array)):
        return tuple(_plain(v) for v in value)
    if isinstance(value, Mapping):
        pairs = tuple((k, _plain(v)) for k, v in value.items())
        return Attrs(pairs) if all(isinstance(k, str) for k, _ in pairs) else pairs
    return value


def _compare(lhs: Any, rhs: Any, map_free_vars: bool | Callable[[Any, Any], bool], lenient: bool = False) -> None:
    lhs, rhs = _plain(lhs), _plain(rhs)
    if isinstance(lhs, exprs.ShapeExpr) != isinstance(rhs, exprs.ShapeExpr):  # the shape of a type is its dimensions
        lhs, rhs = (x.values if isinstance(x, exprs.ShapeExpr) else x for x in (lhs, rhs))
    state = _Equal(map_free_vars, lenient)
    if not (isinstance(lhs, IRModule) or isinstance(rhs, IRModule)):
        state.check(lhs, rhs, (None, "root"))
        return
    root = (None, "module")
    if type(lhs) is not type(rhs):
        raise _Mismatch(root, type(lhs).__name__, type(rhs).__name__)
    names = [{v.name_hint for v in m.functions} for m in (lhs, rhs)]
    if names[0] != names[1]:
        only = [", ".join(sorted(a - b)) or "no other function" for a, b in (names, names[::-1])]
        raise _Mismatch(root, f"has {only[0]}", f"has {only[1]}", " (names of functions)")
    for var, func in lhs.items():  # functions are closed: what two of them share is chance
        _Equal(map_free_vars, lenient).check(func, rhs[var.name_hint], (root, f"['{var.name_hint}']"))
    _compare_types(lhs, rhs, map_free_vars, root)
    state.check(lhs.attrs, rhs.attrs, (root, ".attrs"))
    infos = [tuple(sorted(m.global_infos.items())) for m in (lhs, rhs)]
    state.check(infos[0], infos[1], (root, ".global_infos"))


def _compare_types(lhs: IRModule, rhs: IRModule, map_free_vars: Any, root: Any) -> None:
    """Compare the data types that two modules define."""
    left, right = ({h.name_hint: _definition(d) for h, d in m.type_definitions.items()} for m in (lhs, rhs))
    if left.keys() != right.keys():
        raise _Mismatch(root, f"defines {', '.join(left)}", f"defines {', '.join(right)}", " (names of data types)")
    for name, data in left.items():
        _Equal(map_free_vars).check(data, right[name], (root, f".type_definitions['{name}']"))


def _definition(data: Any) -> Any:
    """Return what is compared of a data type: expressions do not compare the fields of constructors, definitions do."""
    return data, tuple(c.inputs for c in data.constructors)


def structural_equal(lhs: object, rhs: object, map_free_vars: bool | Callable[[Any, Any], bool] = False) -> bool:
    """Whether two nodes (or modules) are the same but for the names of variables.

    Parameters
    ----------
    map_free_vars : bool or callable
        Whether variables that neither side defines may correspond, or what says of two of them whether they do;
        otherwise they must be identical.
    """
    try:
        _compare(lhs, rhs, map_free_vars)
    except _Mismatch:
        return False
    return True


_STRUCTURE.append(structural_equal)


def get_first_structural_mismatch(
    lhs: object, rhs: object, map_free_vars: bool = False
) -> tuple[AccessPath, AccessPath] | None:
    """Return where two nodes first differ, a path in each of them; None where :func:`structural_equal` holds.

    Where one sequence is longer, the path in the other ends in ``array_item_missing``; so it is with mappings.
    """
    try:
        _compare(lhs, rhs, map_free_vars)
        return None
    except _Mismatch as e:
        path, a, b, note = AccessPath.root(), e.lhs, e.rhs, e.note
        for label in _labels(e.where)[1:]:
            if isinstance(label, int):
                path = path.array_item(label)
            else:
                path = path.attr(label[1:]) if label[0] == "." else path.map_item(label[2:-2])
    if note == _NAMES:
        key = min({*a} ^ {*b})
        return tuple(path.map_item(key) if key in x else path.map_item_missing(None) for x in (a, b))  # type: ignore[return-value]
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) != len(b):
        pairs = enumerate(zip(a, b, strict=False))
        i = next((i for i, (x, y) in pairs if not structural_equal(x, y, map_free_vars=True)), min(len(a), len(b)))
        return tuple((path.array_item if i < len(x) else path.array_item_missing)(i) for x in (a, b))  # type: ignore[return-value]
    return path, path


def assert_structural_equal(lhs: object, rhs: object, map_free_vars: bool = False) -> None:
    """Raise a ValueError that shows the first difference, unless :func:`structural_equal` holds.

    Variables for sizes may correspond to any: which of them a text makes depends on where it names them first. Of
    functions from texts, names that only their ``def`` says do not count: TVM 0.9 has them not in the function.
    """
    try:
        _compare(lhs, rhs, map_free_vars, lenient=True)
    except _Mismatch as e:
        raise ValueError(
            f"the structures differ at {e.path}\n  left:  {_shown(e.lhs)}\n  right: {_shown(e.rhs)}"
        ) from None


def _shown(value: Any) -> str:
    lines = str(value).splitlines()
    return "\n         ".join(lines if len(lines) <= 12 else [*lines[:12], "..."])


# --- encoding ---------------------------------------------------------------------------------------------------------


class _New:
    """A variable, or a tuple of them, that its place introduces."""

    __slots__ = ("how", "value")

    def __init__(self, value: Any, how: int) -> None:
        self.value, self.how = value, how


def _encode(root: Any, out: list[bytes]) -> None:
    """Append the canonical encoding of a value. Prefix form: the class and the lengths say how many values follow."""
    numbers: dict[Any, int] = {}
    count = 0
    stack: list[Any] = [root]
    pop, push, write, plans = stack.pop, stack.append, out.append, _PLANS
    while stack:
        v = pop()
        cls = type(v)
        how = 0
        if cls is _New:
            how, v = v.how, v.value
            cls = type(v)
            if issubclass(cls, tuple):
                write(b"%d:" % len(v))
                stack.extend([_New(x, how) for x in reversed(v)])
                continue
        plan = plans.get(cls) or _plan(cls)
        kind = plan.kind
        if kind == _SCALAR:
            write(_scalar_bytes(v))
        elif kind == _PLAIN:
            write(plan.tag)
            stack += [getattr(v, f) for f in reversed(plan.fields)]
            for f, binds in reversed(plan.binders):
                x = getattr(v, f)
                push(x if binds == _SIGHT else _New(x, binds))
        elif kind == _TUPLE:
            write(b"%d:" % len(v))
            stack.extend(reversed(v))
        elif kind == _NUMBERED:
            known = numbers.get(v)
            if known is not None and not how:
                write(b"#%d;" % known)
                continue
            write(b"@" + plan.tag)
            numbers[v] = count
            count += 1
            bind_data = how == _MEMORY
            for f in reversed(plan.fields):
                x = getattr(v, f)
                push(_New(x, _BIND) if bind_data and f == "data" else x)
        else:
            _encode_leaf(plan, v, stack, out)


def _encode_leaf(plan: _Plan, v: Any, stack: list[Any], out: list[bytes]) -> None:
    """Encode the kinds that are rare."""
    if plan.kind == _SEQUENCE:
        flat = _flattened(v)
        if len(flat) != 1:
            out.append(b"%s%d:" % (plan.tag, len(flat)))
        stack.extend(reversed(flat))
    elif plan.kind == _NAMED:
        out.append(plan.tag + _name_of(v).encode() + b";")
    elif plan.kind == _ATTRS:
        items = sorted(v.pairs, key=lambda kv: kv[0])
        out.append(b"{%d:" % len(items))
        for k, x in reversed(items):
            stack += (x, k)
    else:
        array = _array(v.data if plan.kind == _CONSTANT else v)
        out += (f"tensor:{array.dtype}{array.shape}".encode(), array.tobytes())


def _scalar_bytes(value: Any) -> bytes:
    if isinstance(value, str):
        return b"s%d:%s" % (len(value), value.encode())
    return f"{type(value).__name__}:{value!s};".encode()


def _encoding(node: Any) -> list[bytes]:
    out: list[bytes] = []
    if not isinstance(node, IRModule):
        _encode(_plain(node), out)
        return out
    for var, func in sorted(node.items(), key=lambda vf: vf[0].name_hint):
        out.append(b"def " + var.name_hint.encode() + b";")
        _encode(func, out)
    for header, data in sorted(node.type_definitions.items(), key=lambda hd: hd[0].name_hint):
        out.append(b"type " + header.name_hint.encode() + b";")
        _encode(_definition(data), out)
    _encode((node.attrs, tuple(sorted(node.global_infos.items()))), out)
    return out


def fingerprint(node: object) -> str:
    """Return the SHA-256 of the canonical encoding, in hexadecimal.

    Equal for alpha-equivalent structures, in every process.

    Variables that nothing defines are numbered too, so fragments that differ in free variables only have one
    fingerprint.
    """
    return hashlib.sha256(b"".join(_encoding(node))).hexdigest()


def structural_hash(node: object, map_free_vars: bool = False) -> int:
    """Return a 64-bit hash that agrees with :func:`structural_equal`; free variables count unless they are mapped."""
    free: list[int] = []
    if not map_free_vars:  # compared with itself, a structure meets each variable that it does not define
        _compare(node, node, lambda a, _: free.append(id(a)) is None)
    return int(hashlib.sha256("".join([fingerprint(node), *map(str, free)]).encode()).hexdigest()[:16], 16)
