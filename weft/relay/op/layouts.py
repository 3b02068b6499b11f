"""Layouts by their letters: ``NCHW``, ``NHWC``, and with blocks of an axis ``NCHW8c``."""

import re

from weft import error, ir
from weft.relay.op.registry import shared


def plain(op: str, layout: str, letters: str) -> str:
    """Return a layout without its blocks.

    Raises
    ------
    InvalidArgument
        When it has other axes than `letters`.
    """
    axes = "".join(c for c in layout if c.isupper())
    if sorted(axes) != sorted(letters):
        raise error.InvalidArgument(f"{op}: unknown layout '{layout}'", expected=f"the letters {letters} in some order")
    return axes


def relaid(x: ir.Expr, have: str, want: str) -> ir.Expr:
    """Bring a tensor from one layout into another."""
    if have == want:
        return x
    if have.isalpha() and want.isalpha():
        return shared("permute_dims", x, axes=tuple(have.index(c) for c in want))
    return shared("layout_transform", x, src_layout=have, dst_layout=want)


def blocks(layout: str) -> list[tuple[str, int]]:
    """List a layout's axes: each letter with its size, which is 0 for those that are no blocks."""
    return [(letter, int(size or 0)) for size, letter in re.findall(r"(\d*)([A-Za-z])", layout)]
