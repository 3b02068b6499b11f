"""What some things lead to, and an order in which they come; without recursion, because graphs may be deep."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")


def reached(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> dict[T, None]:
    """List `roots` and what `below` leads to from them, each once, depth first, and the last of several first."""
    found: dict[T, None] = {}
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found[node] = None
            waiting += below(node)
    return found


def operands_first(roots: Iterable[T], below: Callable[[T], Iterable[T]]) -> list[T]:
    """List the same, each behind all that it leads to, the first of several first; `below` is asked once for each."""
    order: list[T] = []
    found: set[T] = set()
    waiting = [(root, False) for root in list(roots)[::-1]]
    while waiting:
        node, is_ready = waiting.pop()
        if is_ready:
            order.append(node)
        elif node not in found:
            found.add(node)
            waiting.append((node, True))
            waiting += [(n, False) for n in list(below(node))[::-1]]
    return order
