"""The kinds of attributes: which values an operator's attribute may have, and the one form in which each is kept.

A declaration gives each attribute a kind, ``{"strides": sizes(1, 2), "groups": integer(1, at_least=1)}``. Constructors,
TVMScript, Relay's expansions and importers bring values into the kind's form or refuse them; type rules, computations
and passes find that form and nothing else; the documentation prints it, and the tests draw wrong values from it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

from weft.error import InvalidArgument, WeftError, WrongAttribute
from weft.ir import Attrs, DataType, IntImm, PrimExpr, PrimValue, as_int
from weft.topi.shape import normalize_axes


@dataclass(frozen=True)
class Attribute:
    """One attribute.

    ``normal(value)`` returns the form that is kept, or raises ValueError. ``says`` are the words for what it may be.
    ``optional`` attributes may be None. ``names_axes`` of those whose numbers are dimensions of the first operand says
    how: ``"one"``, ``"some"`` (their order means nothing), ``"each"`` (their order counts), or ``"pairs"`` where there
    are two numbers for each dimension in turn; ``checked`` ones must be dimensions of every such operand. ``is_layout``
    is whether it names the order of the operand's dimensions.
    """

    default: Any
    says: str
    normal: Callable[[Any], Any]
    optional: bool = False
    names_axes: str = ""
    checked: bool = True
    is_layout: bool = False

    def of(self, value: Any, where: str) -> Any:
        """Bring a value into its form.

        Raises
        ------
        InvalidArgument
            When it may not have it; `where` are words such as ``"nn.conv2d: attribute 'strides'"``.
        """
        if value is None and self.optional:
            return None
        try:
            return self.normal(value)
        except (ValueError, TypeError, WeftError):
            expected = f"{self.says}, or None" if self.optional else self.says
            raise WrongAttribute(f"{where} has a wrong value", expected=expected, found=repr(value)) from None

    def or_none(self, default: Any = None) -> Attribute:
        """The same, that may be None."""
        return replace(self, optional=True, default=default)


def normal_values(op: str, kinds: Mapping[str, Attribute], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return all attributes of an operator in their forms and their order, those that are not given by their defaults.

    Raises
    ------
    InvalidArgument
        When there is no such attribute, or a value is none that it may have.
    """
    unknown = given.keys() - kinds.keys()
    if unknown:
        raise InvalidArgument(f"{op}: unknown argument '{min(unknown)}'", expected=", ".join(kinds) or "no attributes")
    return {
        name: kind.of(given[name], f"{op}: attribute '{name}'") if name in given else kind.default
        for name, kind in kinds.items()
    }


# ---- numbers ---------------------------------------------------------------------------------------------------------


def integer(
    default: int | None = 0, at_least: int | None = None, at_most: int | None = None, symbolic: bool = False
) -> Attribute:
    """An integer; with `symbolic` it may be a scalar expression."""
    bounds = [f"at {word} {n}" for word, n in (("least", at_least), ("most", at_most)) if n is not None]

    def normal(value: Any) -> Any:
        found = _integer(value, at_least, symbolic)
        if at_most is not None and isinstance(found, int) and found > at_most:
            raise ValueError
        return found

    return Attribute(default, " of ".join(("an integer", " and ".join(bounds))) if bounds else "an integer", normal)


def integers(default: Sequence[int] | None = (), length: int | None = None, symbolic: bool = False) -> Attribute:
    """Integers, as a tuple."""
    return Attribute(default, f"{length or 'some'} integers", lambda v: _integers(v, length, None, symbolic))


def number(default: float | None = 0.0) -> Attribute:
    """A number, a float where the default is one."""
    return Attribute(default, "a number", lambda v: _number(v, float if isinstance(default, float) else None))


def numbers(default: Sequence[float] | None = None, length: int | None = None) -> Attribute:
    """Numbers as a tuple, or None without a default; where there is none for one of them, 0 stands in its place."""

    def normal(value: Any) -> Any:
        found = tuple(0 if x is None else _number(x, None) for x in _sequence(value))
        if length not in (None, len(found)):
            raise ValueError
        return found

    return Attribute(default, f"{length or 'some'} numbers", normal, optional=default is None)


def sizes(default: int, rank: int | None, at_least: int = 1) -> Attribute:
    """A number for each spatial dimension, or one for all of them."""
    return Attribute(
        default if rank is None else (default,) * rank,
        f"{'an integer' if rank in (None, 1) else f'1 or {rank} integers'} of at least {at_least}",
        lambda v: _spread(v, rank, at_least),
    )


def padding(rank: int | None) -> Attribute:
    """Padding before all spatial dimensions, then behind them; one number an axis or one in all are for both sides."""

    def normal(value: Any) -> Any:
        if rank is None or len(_sequence(value)) == 2 * rank:
            return _spread(value, None if rank is None else 2 * rank, 0)
        return _spread(value, rank, 0) * 2

    says = "integers" if rank is None else " or ".join(str(n) for n in sorted({1, rank, 2 * rank})) + " integers"
    return Attribute(0 if rank is None else (0,) * (2 * rank), f"{says} of at least 0", normal)


def _spread(value: Any, rank: int | None, at_least: int) -> Any:
    values = _integers(value, None, at_least, False)
    if rank is None:  # the operator finds out
        return values if len(values) != 1 or isinstance(value, (tuple, list)) else values[0]
    if len(values) not in (1, rank):
        raise ValueError
    return values if len(values) == rank else values * rank


def _integer(value: Any, at_least: int | None = None, symbolic: bool = False) -> Any:
    value = value.value if isinstance(value, PrimValue) else value
    if isinstance(value, PrimExpr) and not isinstance(value, IntImm):
        if not symbolic or DataType(value.dtype).is_float:
            raise ValueError
        known = as_int(value)
        if known is None:
            return value
        value = known
    found = operator.index(value.value if isinstance(value, IntImm) else value)
    if (at_least is not None and found < at_least) or not -(1 << 63) <= found < 1 << 63:
        raise ValueError
    return int(found)


def _integers(value: Any, length: int | None, at_least: int | None, symbolic: bool) -> tuple[Any, ...]:
    values = tuple(_integer(v, at_least, symbolic) for v in _sequence(value))
    if length is not None and len(values) != length:
        raise ValueError
    return values


def _sequence(value: Any) -> tuple[Any, ...]:
    if isinstance(value, (str, bytes, Mapping)):
        raise ValueError
    ndim = getattr(value, "ndim", None)
    if ndim == 0 or isinstance(value, (PrimExpr, PrimValue, Real)):
        return (value,)
    return tuple(value)


def _number(value: Any, kind: Any) -> Any:
    value = value.value if isinstance(value, PrimValue) else value
    if isinstance(value, PrimExpr):
        value = getattr(value, "value", value)
        if isinstance(value, PrimExpr):
            return value
    value = value.item() if hasattr(value, "item") else value
    if not isinstance(value, Real):
        raise ValueError
    return kind(value) if kind is not None else value


# ---- choices ---------------------------------------------------------------------------------------------------------


def flag(default: bool) -> Attribute:
    """True or false; 1 and 0 are them."""

    def normal(value: Any) -> bool:
        found = _integer(value)
        if found not in (0, 1):
            raise ValueError
        return bool(found)

    return Attribute(default, "True or False", normal)


def word(default: str, *choices: str) -> Attribute:
    """One of some words."""
    return Attribute(default, "one of " + ", ".join(map(repr, choices)), lambda v: _one_of(v, choices))


def words(default: tuple[str, ...], check: Callable[[str], object], *choices: str) -> Attribute:
    """As many of some words as the default has, or twice as many, in any letters; `check` raises ValueError if not."""

    def normal(value: Any) -> tuple[str, ...]:
        found = tuple(str(v).lower() for v in value)
        if isinstance(value, str) or len(found) not in (len(default), 2 * len(default)):
            raise ValueError
        for word in found:
            check(word)
        return found

    says = f"{len(default)} or {2 * len(default)} of " + ", ".join(map(repr, choices))
    return Attribute(default, says, normal)


def _one_of(value: Any, choices: Any) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError
    return str(value)


def text(default: str, pattern: str = ".*", says: str = "a text") -> Attribute:
    """A text of a pattern; "" and None are the default."""

    def normal(value: Any) -> str:
        if value is None or value == "":
            return default
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError
        return str(value)

    return Attribute(default, says, normal)


def dtype(default: str = "") -> Attribute:
    """A data type; "", None and ``"void"`` are the default, which may be open."""

    def normal(value: Any) -> str:
        return default if value is None or value in ("", "void") else DataType(value)

    return Attribute(default, "a data type", normal)


def data_layout(rank: int, optional: bool = False) -> Attribute:
    """The order of a tensor's dimensions: channels first or last."""
    spatial = "DHW"[3 - rank :]
    first, last = f"NC{spatial}", f"N{spatial}C"
    kind = text(first, f"{first}|{last}", f"'{first}' or '{last}'")
    if not optional:
        return replace(kind, is_layout=True)
    return replace(kind, default=None, is_layout=True, normal=lambda v: None if v in (None, "") else kind.normal(v))


# ---- dimensions ------------------------------------------------------------------------------------------------------


def axis(default: int | None = 0, *, checked: bool = True) -> Attribute:
    """A dimension of the first operand, negative ones counting from the last; None where the default is.

    One that is not `checked` may lie outside where the operator does not use it.
    """
    kind = Attribute(default, "an integer", _integer, names_axes="one", checked=checked)
    return kind.or_none() if default is None else kind


def axes(default: int | Sequence[int] | None = None, *, ordered: bool = False) -> Attribute:
    """Dimensions of the first operand; one may stand alone; None where the default is."""
    kind = Attribute(
        default, "some integers", lambda v: _integers(v, None, None, False), names_axes="each" if ordered else "some"
    )
    return kind.or_none() if default is None else kind


def each_axis(default: Sequence[int] = ()) -> Attribute:
    """Two numbers, before and behind, for each dimension of the first operand in turn; they may be expressions."""

    def normal(value: Any) -> tuple[Any, ...]:
        if len(_sequence(value)) and all(isinstance(v, (tuple, list)) for v in value):
            return tuple(x for v in value for x in _integers(v, 2, None, True))
        return _integers(value, None, None, True)

    return Attribute(default, "integers, two for each dimension", normal, names_axes="pairs")


def in_places(kinds: Mapping[str, Attribute], attrs: Attrs, places: Sequence[int], ndim: int) -> Attrs:
    """Rename the dimensions that attributes name: the operand's dimension d is now ``places[d]`` of `ndim`."""

    def renamed(kind: Attribute, value: Any) -> Any:
        if kind.names_axes == "one":
            return places[value % len(places)]
        if kind.names_axes == "pairs":
            pairs = dict(zip(places, zip(value[::2], value[1::2], strict=True), strict=True))
            return tuple(v for d in range(ndim) for v in pairs.get(d, (0, 0)))
        found = tuple(places[a % len(places)] for a in value)
        return found if kind.names_axes == "each" else tuple(sorted(found))

    named = {k: kind for k, kind in kinds.items() if kind.names_axes and attrs.get(k) is not None}
    return attrs.with_(**{k: renamed(kind, kind.of(attrs[k], k)) for k, kind in named.items()}) if named else attrs


def checked_axes(op: str, kinds: Mapping[str, Attribute], values: Mapping[str, Any], ndim: int) -> None:
    """Refuse attributes that name dimensions which an operand does not have, or one twice.

    Raises
    ------
    ShapeMismatch
        When one is out of range or repeated.
    """
    for name, kind in kinds.items():
        if kind.checked and kind.names_axes in ("one", "some", "each") and values[name] is not None:
            normalize_axes(op, values[name], ndim)
