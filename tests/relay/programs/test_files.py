"""Whole programs as text, run by every executor.

A line ``// run: f(2, 3) == 5`` calls a function of the program: arguments and result are Relay expressions without
variables. ``// fails: f(0): some words`` expects an error that says so. ``// uses: prelude.rly`` brings a part of the
standard library.
"""

import re
from pathlib import Path

import pytest

from tests.relay.programs.check import FIRST_ORDER, KINDS, equal, show
from weft import error, ir, relay
from weft.relay.prelude import import_std

FILES = sorted(Path(__file__).parent.glob("*.rly"))
LINE = re.compile(r"^// (run|fails|uses): (.*)$", re.M)


def read(path):
    """The module of a file, and its lines: (kind, text)."""
    text = path.read_text()
    lines = LINE.findall(text)
    mod = ir.IRModule()
    for kind, name in lines:
        if kind == "uses":
            import_std(mod, name)
    return relay.parse(text, str(path), mod=mod), [line for line in lines if line[0] != "uses"]


@pytest.fixture(scope="module", params=FILES, ids=lambda p: p.stem)
def program(request):
    mod, lines = read(request.param)
    assert lines, "a program says what it gives"
    return mod, lines


def value(mod, text):
    """The value of an expression without variables."""
    return relay.create_executor("debug", mod).evaluate(relay.parse_expr(text, mod=mod))


def call(mod, text):
    """The function's name in the text of a call, and the values of its arguments."""
    made = relay.parse_expr(f"@{text}", mod=mod)
    return made.op.name_hint, [relay.create_executor("debug", mod).evaluate(a) for a in made.args]


def compiled(executor, name, kind):
    """A function of the program; None where the executor does not take it."""
    try:
        return executor.evaluate(name)
    except error.WeftError as e:
        if kind in FIRST_ORDER and "needs the virtual machine" in str(e):
            return None
        raise


@pytest.mark.share(32, "program", "kind")
@pytest.mark.parametrize("kind", ["debug", *KINDS])
def test_program(program, kind):
    mod, lines = program
    executor, functions = relay.create_executor(kind, mod), {}
    for expectation, text in lines:
        run, message = text.rsplit(": ", 1) if expectation == "fails" else (text.split(" == ")[0], "")
        name, args = call(mod, run)
        if name not in functions:
            functions[name] = compiled(executor, name, kind)
        function = functions[name]
        if function is None:
            continue
        if expectation == "fails":
            with pytest.raises(Exception, match=message):
                function(*args)
            continue
        got, wanted = function(*args), value(mod, text.split(" == ")[1])
        assert equal(got, wanted), f"{run}: {show(got)} instead of {show(wanted)}"
