"""Walking and rewriting, generic over node fields.

``rebuild`` returns the node itself when no child changed, so untouched subtrees keep identity; ``rewrite`` maps every
shared subtree once, so that a DAG stays a DAG and a buffer that many loads share stays one buffer. What was visited is
known by ``id``, since any node may come: ``==`` of some dialects' types compares structure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from operator import attrgetter, is_, itemgetter
from typing import Any, TypeVar

from msgspec.structs import replace

from weft.ir.node import Node

N = TypeVar("N")


class _ChildFields(dict[type, "tuple[str, ...] | None"]):
    """The fields of each class of nodes that may hold nodes; None for any other class. Asked once per class."""

    def __missing__(self, cls: type) -> tuple[str, ...] | None:
        found = None
        if issubclass(cls, Node):
            kinds = {
                f: str(a) for base in reversed(cls.__mro__) for f, a in vars(base).get("__annotations__", {}).items()
            }
            found = tuple(f for f in cls.__struct_fields__ if kinds.get(f) not in _PLAIN)
        self[cls] = found
        return found


_PLAIN = frozenset(("str", "int", "float", "bool", "str | None", "Span | None", "ForKind"))
CHILD_FIELDS = _ChildFields()


class _BelowBackwards(dict[type, "Callable[[Any], tuple[Any, ...]] | None"]):
    """What gets the values of :data:`CHILD_FIELDS` of a node at once, the last first; None where it has none."""

    def __missing__(self, cls: type) -> Callable[[Any], tuple[Any, ...]] | None:
        fields = (CHILD_FIELDS[cls] or ())[::-1]
        found: Any = attrgetter(*fields) if fields else None
        if len(fields) == 1:
            found = lambda node, get=found: (get(node),)  # noqa: E731
        self[cls] = found
        return found


_BELOW_BACKWARDS = _BelowBackwards()


def children(node: object) -> Iterator[Node]:
    """Yield the nodes that are fields of `node`, or stand in tuples that are."""
    fields = CHILD_FIELDS[type(node)]
    stack: list[Any] = [node] if fields is None else [getattr(node, f) for f in fields[::-1]]
    while stack:
        value = stack.pop()
        if CHILD_FIELDS[type(value)] is not None:
            yield value
        elif isinstance(value, tuple):
            stack.extend(value[::-1])


def walk(node: object, leaf: type | None = None) -> Iterator[Node]:
    """Yield `node` and everything below it but what is below nodes of the class `leaf`, parents first.

    A shared subtree is yielded once.
    """
    known, getters = CHILD_FIELDS, _BELOW_BACKWARDS
    seen: set[int] = set()
    stack: list[Any] = [node]
    while stack:
        value = stack.pop()
        kind = type(value)
        if known[kind] is None:
            if issubclass(kind, tuple):
                stack += value[::-1]
            continue
        key = id(value)
        if key in seen:
            continue
        seen.add(key)
        yield value
        get = getters[kind]
        if get is not None and kind is not leaf:
            stack += get(value)


class _Steps(dict[type, "tuple[bool, Callable[[Any], tuple[Any, ...]] | None]"]):
    """For each class: whether :func:`find` looks for it, and what gets what may hold some, the last first."""

    def __init__(self, wanted: tuple[type, ...]) -> None:
        super().__init__()
        self.wanted = wanted
        self.statements = all(getattr(w, "_is_statement", False) for w in wanted)

    def __missing__(self, cls: type) -> tuple[bool, Callable[[Any], tuple[Any, ...]] | None]:
        below = None if self.statements and getattr(cls, "_holds_no_statement", False) else _BELOW_BACKWARDS[cls]
        if below is None and issubclass(cls, tuple):
            below = itemgetter(slice(None, None, -1))
        step = self[cls] = issubclass(cls, self.wanted), below
        return step


_steps = cache(_Steps)


def find(node: object, *wanted: type) -> list[Any]:
    """List what :func:`walk` yields of some classes, in its order; several times as fast, as it stops nowhere."""
    steps = _steps(wanted)
    seen: set[int] = set()
    found: list[Any] = []
    stack: list[Any] = [node]
    while stack:
        value = stack.pop()
        is_wanted, below = steps[type(value)]
        if is_wanted or below is not None:
            key = id(value)
            if key not in seen:
                seen.add(key)
                if is_wanted:
                    found.append(value)
                if below is not None:
                    stack += below(value)
    return found


def post_order(node: object, visit: Callable[[Node], Any]) -> None:
    """Call ``visit`` on each node below `node` and on `node`, children first; a shared subtree is visited once."""
    seen: set[int] = set()

    def go(value: Any) -> None:
        fields = CHILD_FIELDS[type(value)]
        if fields is not None:
            if id(value) in seen:
                return
            seen.add(id(value))
            for f in fields:
                go(getattr(value, f))
            visit(value)
        elif isinstance(value, tuple):
            for x in value:
                go(x)

    go(node)


def _map_value(value: Any, f: Callable[[Any], Any]) -> Any:
    if not isinstance(value, tuple):
        return value if CHILD_FIELDS[type(value)] is None else f(value)
    if not value:
        return value
    new = [_map_value(x, f) if CHILD_FIELDS[type(x)] is None else f(x) for x in value]
    for a, b in zip(new, value, strict=True):
        if a is not b:
            return tuple(new)
    return value


class _Rebuilders(dict[type, Callable[[Any, Callable[[Any], Any]], Any]]):
    """What :func:`rebuild` does for each class, written out over its fields: it is what compiling does most."""

    def __missing__(self, cls: type) -> Callable[[Any, Callable[[Any], Any]], Any]:
        fields = CHILD_FIELDS[cls] or ()
        lines = ["def made(node, f):"]
        for n in fields:
            lines.append(f"    old_{n} = node.{n}")
            lines.append(f"    new_{n} = f(old_{n}) if known[type(old_{n})] is not None else mapped(old_{n}, f)")
        same = " and ".join(f"new_{n} is old_{n}" for n in fields) or "True"
        lines.append(f"    return node if {same} else replace(node, {', '.join(f'{n}=new_{n}' for n in fields)})")
        names: dict[str, Any] = {"known": CHILD_FIELDS, "mapped": _map_value, "replace": replace}
        exec("\n".join(lines), names)  # of nothing but the names of fields
        made: Callable[[Any, Callable[[Any], Any]], Any] = names["made"]
        self[cls] = made
        return made


_REBUILDERS = _Rebuilders()


def rebuild(node: N, f: Callable[[Any], Any]) -> N:
    """Return `node` with ``f`` applied to each child node; `node` itself if no child changed."""
    return _REBUILDERS[type(node)](node, f)


def with_fields(node: N, **fields: Any) -> N:
    """Return `node` with other values in some fields; itself where they are the same, or tuples of the same."""
    same = all(_is_same(getattr(node, f), new) for f, new in fields.items())
    return node if same else replace(node, **fields)  # type: ignore[arg-type]


def _is_same(old: Any, new: Any) -> bool:
    return old is new or (type(old) is type(new) is tuple and len(old) == len(new) and all(map(is_, old, new)))


def rewrite(
    node: N, rule: Callable[[Any], Any], *, pre: Callable[[Any], Any] | None = None, only: tuple[type, ...] = (Node,)
) -> N:
    """Rewrite bottom-up: ``rule(n)`` gets each node with rewritten children and returns its replacement.

    Parameters
    ----------
    node : Node or tuple
        What to rewrite.
    rule : callable
        Returns the replacement, or the argument (or ``None``) for no change.
    pre : callable, optional
        Asked first on each original node; a result other than ``None`` replaces the node without visiting its children.
    only : tuple of types
        The classes of nodes that `rule` may change; what cannot hold any is not visited.

    Notes
    -----
    Each shared node is rewritten once per call (memo by identity), so the rule must not depend on the path to a node.
    """
    memo: dict[int, tuple[Any, Any]] = {}
    rebuilders, steps = _REBUILDERS, _steps(only)

    def go(value: Any) -> Any:
        hit = memo.get(id(value))
        if hit is not None:
            return hit[1]
        new = pre(value) if pre is not None else None
        if new is None:
            is_wanted, below = steps[type(value)]
            new = value if below is None else rebuilders[type(value)](value, go)
            replaced = rule(new) if is_wanted else None
            new = new if replaced is None else replaced
        memo[id(value)] = (value, new)
        return new

    result = _map_value(node, go)
    memo.clear()  # `go` refers to itself and would keep what is there until the next garbage collection
    return result


def substitute(node: N, mapping: Mapping[Any, Any]) -> N:
    """Replace nodes (usually variables) by identity, everywhere below `node`.

    Parameters
    ----------
    mapping : Mapping
        From node to its replacement.
    """
    return substitute_each(node, (mapping,))[0] if mapping else node


_NOTHING: Mapping[type, Any] = {}


def substitute_each(
    node: N, mappings: Sequence[Mapping[Any, Any]], build: Mapping[type, Callable[[Any, Any], Any]] = _NOTHING
) -> list[N]:
    """List `node` under mappings of the same nodes; what holds none of these is visited once for all.

    `build` makes binary nodes of the classes in it, where an operand has changed.
    """
    fields, rebuilders = CHILD_FIELDS, _REBUILDERS
    made: list[N] = []
    kept: dict[int, Any] = {}
    done: dict[int, Any] = {}

    def go(value: Any) -> Any:
        key = id(value)
        new = done.get(key)
        if new is None:
            kind = type(value)
            if kind in build:
                a, b = go(value.a), go(value.b)
                new = value if a is value.a and b is value.b else build[kind](a, b)
            else:
                new = rebuilders[kind](value, go) if fields[kind] else value
            done[key] = new
        return new

    for n, mapping in enumerate(mappings):
        if n == 1:
            kept = {key: value for key, value in done.items() if id(value) == key}
        done = kept | {id(k): v for k, v in mapping.items()}
        made.append(_map_value(node, go))
    done.clear()  # as in `rewrite`
    return made
