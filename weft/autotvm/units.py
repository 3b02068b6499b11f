"""Numbers with prefixes of units."""

from weft.error import InvalidArgument

_EXPONENTS = dict(zip("yzafpnum kMGTPEZY", range(-24, 25, 3), strict=True))


def format_si_prefix(x: float, si_prefix: str) -> float:
    """Return a number in the unit of a prefix.

    Examples
    --------
    >>> format_si_prefix(2.5e9, "G")
    2.5
    """
    exponent = {**_EXPONENTS, "": 0, "μ": -6}.get(si_prefix)
    if exponent is None:
        raise InvalidArgument(f"unknown prefix '{si_prefix}'", expected=", ".join(_EXPONENTS))
    return float(x) / 10**exponent
