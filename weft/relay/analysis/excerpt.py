"""Programs in one line, for messages about places that have no source text."""

import re

from weft import ir


def excerpt(node: ir.Node, width: int = 100) -> str:
    """Return the beginning of a node's text in one line."""
    text = re.sub(r"^(free_var [^;]*; )+", "", " ".join(str(node).split()))
    return text if len(text) <= width else text[: width - 3] + "..."
