"""Walking and rewriting, generic over node fields.

``rebuild`` returns the node itself when no child changed, so untouched subtrees keep identity; ``rewrite`` maps every
shared subtree once, so that a DAG stays a DAG and a buffer that many loads share stays one buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from weft.ir.node import Node

__all__ = ["children", "post_order", "rebuild", "rewrite", "substitute", "walk"]

N = TypeVar("N")


def children(node: Any) -> Iterator[Node]:
    """Yield the nodes that are fields of `node`, or stand in tuples that are."""
    stack: list[Any] = (
        [getattr(node, f) for f in reversed(node.__struct_fields__)] if isinstance(node, Node) else [node]
    )
    while stack:
        value = stack.pop()
        if isinstance(value, Node):
            yield value
        elif type(value) is tuple:
            stack.extend(reversed(value))


def walk(node: Any) -> Iterator[Node]:
    """Yield `node` and everything below it, parents first; a shared subtree is yielded once."""
    seen: set[int] = set()
    stack: list[Any] = [node]
    while stack:
        value = stack.pop()
        if isinstance(value, Node):
            if id(value) in seen:
                continue
            seen.add(id(value))
            yield value
            stack.extend(reversed([getattr(value, f) for f in value.__struct_fields__]))
        elif type(value) is tuple:
            stack.extend(reversed(value))


def post_order(node: Any, visit: Callable[[Node], Any]) -> None:
    """Call ``visit`` on each node below `node` and on `node`, children first; a shared subtree is visited once."""
    seen: set[int] = set()

    def go(value: Any) -> None:
        if isinstance(value, Node):
            if id(value) in seen:
                return
            seen.add(id(value))
            for f in value.__struct_fields__:
                go(getattr(value, f))
            visit(value)
        elif type(value) is tuple:
            for x in value:
                go(x)

    go(node)


def _map_value(value: Any, f: Callable[[Any], Any]) -> Any:
    if isinstance(value, Node):
        return f(value)
    if type(value) is tuple and value:
        new = tuple([_map_value(x, f) for x in value])
        return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
    return value


def rebuild(node: N, f: Callable[[Any], Any]) -> N:
    """Return `node` with ``f`` applied to each child node; `node` itself if no child changed."""
    changed: dict[str, Any] | None = None
    fields = node.__struct_fields__  # type: ignore[attr-defined]
    for name in fields:
        old = getattr(node, name)
        if isinstance(old, Node):
            new = f(old)
        elif type(old) is tuple and old:
            new = _map_value(old, f)
        else:
            continue
        if new is not old:
            if changed is None:
                changed = {}
            changed[name] = new
    if changed is None:
        return node
    return type(node)(**{n: changed[n] if n in changed else getattr(node, n) for n in fields})


def rewrite(node: N, rule: Callable[[Any], Any], *, pre: Callable[[Any], Any] | None = None) -> N:
    """Rewrite bottom-up: ``rule(n)`` gets each node with rewritten children and returns its replacement.

    Parameters
    ----------
    node : Node or tuple
        What to rewrite.
    rule : callable
        Returns the replacement, or the argument (or ``None``) for no change.
    pre : callable, optional
        Asked first on each original node; a result other than ``None`` replaces the node without visiting its children.

    Notes
    -----
    Each shared node is rewritten once per call (memo by identity), so the rule must not depend on the path to a node.
    """
    memo: dict[int, tuple[Any, Any]] = {}

    def go(value: Any) -> Any:
        if not isinstance(value, Node):
            return _map_value(value, go)
        hit = memo.get(id(value))
        if hit is not None:
            return hit[1]
        new = pre(value) if pre is not None else None
        if new is None:
            new = rebuild(value, go)
            replaced = rule(new)
            new = new if replaced is None else replaced
        memo[id(value)] = (value, new)
        return new

    return go(node)


def substitute(node: N, mapping: Mapping[Any, Any]) -> N:
    """Replace nodes (usually variables) by identity, everywhere below `node`.

    Parameters
    ----------
    mapping : Mapping
        From node to its replacement.
    """
    if not mapping:
        return node
    by_id = {id(k): v for k, v in mapping.items()}
    return rewrite(node, lambda n: n, pre=lambda n: by_id.get(id(n)))
