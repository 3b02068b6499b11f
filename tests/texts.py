"""Programs of a table, which are one text."""

import re

FUNCTIONS = r"(?=def (\w+)\()"


def named(text: str, heading: str = r"# (.*)\n") -> dict[str, str]:
    """Programs by their names: a line ``# name`` stands above each, or, with `FUNCTIONS`, each begins with its own."""
    _, *parts = re.split(f"^ *{heading}", text, flags=re.M)
    programs = dict(zip(parts[::2], parts[1::2], strict=True))
    assert len(programs) == len(parts[::2]), f"a name stands above two programs: {sorted(parts[::2])}"
    return programs
