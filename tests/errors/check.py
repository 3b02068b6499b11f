"""Programs that must fail, with the place and the message."""

import textwrap

from tests.refusals import refuses
from weft.error import WeftError
from weft.script import from_source


def check_error(program, line, column, message, error=WeftError):
    """Read `program`, which must fail at a line and column (both from 1) with `message` in its text."""
    caught = refuses(error, "", from_source, textwrap.dedent(program).strip("\n"))
    span, text = caught.where, str(caught)
    assert message in text, text
    assert (span.line, span.column) == (line, column), text
    source = textwrap.dedent(program).strip("\n").splitlines()[line - 1]
    assert f"   |  {source}\n   |  {' ' * (column - 1)}^" in text, text
    return text
