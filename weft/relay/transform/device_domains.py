"""On which device values are: a domain for each tensor; those that values flow between are joined.

A domain has the form of a value's type: one for a tensor, a data type or a reference with all that is in it, a tuple of
them for a tuple, a :class:`FunctionDomain` for a function. What must be on one device is joined. The arguments of
operators are only wishes: where both sides have a device in the end and it is not the same, a copy is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from weft import error, ir
from weft.relay.types import FuncType, TupleType
from weft.target import VirtualDevice

Where = int | VirtualDevice  # a place in the machine's list, or a description


class Domain:
    """Where a value is; domains that were joined have one root, which knows the device, if any is known."""

    __slots__ = ("device", "parent")

    def __init__(self, device: Any = None) -> None:
        self.parent: Domain | None = None
        self.device = device

    def root(self) -> Domain:
        """Return what stands for all domains that this one was joined with."""
        at = self
        while at.parent is not None:
            if at.parent.parent is not None:
                at.parent = at.parent.parent
            at = at.parent
        return at


class FunctionDomain:
    """Where a function takes its arguments and leaves its result."""

    __slots__ = ("args", "result")

    def __init__(self, args: tuple[Any, ...], result: Any) -> None:
        self.args, self.result = args, result


Nested = Domain | FunctionDomain | tuple["Nested", ...]
"""Where a value is: a tensor, a function, a tuple."""


def domain_of(ty: ir.Type | None) -> Any:
    """Make a domain for values of a type."""
    if isinstance(ty, (TupleType, ir.TupleType)):
        return tuple(domain_of(f) for f in ty.fields)
    if isinstance(ty, FuncType):
        return FunctionDomain(tuple(domain_of(a) for a in ty.arg_types), domain_of(ty.ret_type))
    return Domain()


def typed_domain(ty: ir.Type | None) -> Any:
    """Make a domain for values of a type that has one device, or is a function."""
    if isinstance(ty, FuncType):
        return FunctionDomain(tuple(map(typed_domain, ty.arg_types)), typed_domain(ty.ret_type))
    return Domain()


def leaves(domain: Nested) -> Iterator[Domain]:
    """Yield the domains of the tensors in a value."""
    if isinstance(domain, tuple):
        for d in domain:
            yield from leaves(d)
    elif isinstance(domain, FunctionDomain):
        yield from leaves((*domain.args, domain.result))
    else:
        yield domain


def join(a: Nested, b: Nested, where: ir.Expr | None) -> None:
    """Let values be on one device; where their forms differ, all that is in them is on one.

    Raises
    ------
    InvalidArgument
        When they are on different devices.
    """
    if isinstance(a, tuple) and isinstance(b, tuple) and len(a) == len(b):
        for x, y in zip(a, b, strict=True):
            join(x, y, where)
    elif isinstance(a, FunctionDomain) and isinstance(b, FunctionDomain) and len(a.args) == len(b.args):
        join((*a.args, a.result), (*b.args, b.result), where)
    else:
        first, *rest = [*leaves(a), *leaves(b)] or [Domain()]
        for d in rest:
            _join(first, d, where)


def fix(domain: Nested, device: Where, where: ir.Expr | None) -> None:
    """Let all of a value be on a device."""
    for d in leaves(domain):
        _join(d, Domain(device), where)


def _join(a: Domain, b: Domain, where: Any) -> None:
    x, y = a.root(), b.root()
    if x is y:
        return
    device = y.device if x.device is None else x.device if y.device is None else both(x.device, y.device)
    if device is None and x.device is not None:
        raise error.InvalidArgument(
            "a value would have to be on two devices",
            where=where,
            expected=f"device {x.device}",
            found=f"device {y.device}",
            help="compute it under relay.annotation.on_device, whose result is copied",
        )
    x.device = device
    y.parent = x


def both(a: Where, b: Where) -> Where | None:
    """Return the device that two descriptions fit, or None."""
    return a if a == b else a.join(b) if isinstance(a, VirtualDevice) and isinstance(b, VirtualDevice) else None


class Wishes:
    """Pairs of domains that should be one, and by what key a copy is asked for where they cannot."""

    def __init__(self) -> None:
        self._pairs: list[tuple[Any, Any, Any]] = []
        self._weak: list[tuple[Any, Any, Any]] = []
        self._preferred: list[tuple[Any, Domain]] = []

    def prefer(self, domain: Any, device: int) -> None:
        """Wish that a value is on a device, before all other wishes; where it must be elsewhere, nothing is copied."""
        self._preferred.append((domain, Domain(device)))

    def add(self, key: Any, have: Any, want: Any, weak: bool = False) -> None:
        """Wish that a value at `have` is at `want`; weak wishes come after all others."""
        (self._weak if weak else self._pairs).append((key, have, want))

    def grant(self, default: int) -> dict[Any, dict[int, tuple[int, int]]]:
        """Join the pairs that can be, in order; of the others, return source and destination.

        What nobody has placed is on the device `default`.

        Returns
        -------
        dict
            By key, then by number of the tensor in the value.
        """
        pairs = self._pairs + self._weak
        for have, want in (*self._preferred, *((h, w) for _, h, w in pairs)):
            for _, a, b in _matched(have, want):
                x, y = a.root(), b.root()
                if x.device is None or y.device is None or x.device == y.device:
                    _join(a, b, None)
        copies: dict[Any, dict[int, tuple[int, int]]] = {}
        for key, have, want in pairs:
            for i, a, b in _matched(have, want):
                source, target = device_of(a, default), device_of(b, default)
                if source != target:
                    copies.setdefault(key, {})[i] = source, target
        return copies


def device_of(domain: Nested, default: int) -> int:
    """Return where a value, or the first tensor in it, is."""
    first = next(leaves(domain), None)
    device = None if first is None else first.root().device
    return default if device is None else device


def _matched(have: Any, want: Any) -> list[tuple[int, Domain, Domain]]:
    """The pairs of leaves, numbered as in `have`; a single domain on one side stands against all of the other."""
    a, b = list(leaves(have)), list(leaves(want))
    if len(b) == 1:
        b *= len(a)
    elif len(a) == 1:
        return [(0, a[0], y) for y in b]
    return [(i, x, y) for i, (x, y) in enumerate(zip(a, b, strict=False))]
