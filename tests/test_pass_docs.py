"""The docstring of every pass says what it needs and gives, and its example is true."""

import importlib
import inspect
import pkgutil
import re
import textwrap

import pytest

import weft
from weft import ir, relay, script
from weft.ir.passes import _PASSES

for _module in pkgutil.walk_packages(weft.__path__, "weft."):
    if not _module.name.endswith("__main__"):
        importlib.import_module(_module.name)

PASSES = {name: make for name, make in sorted(_PASSES.items()) if make.__module__.startswith("weft.")}
# What is read is brought into this form; spans, and what is shared, are not compared.
SAME_TEXT = {"ConvertSSA", "Normalize", "relay.InferType", "relay.AnnotateSpans", "relay.CanonicalizeCast"}
SECTIONS = ("Requires", "Ensures", "Example", "Cost", "Source")


def sections(doc):
    """The summary, and text by heading: ``Heading: text``, or a heading alone on its line; programs are the example."""
    summary, _, rest = inspect.cleandoc(doc).partition("\n")
    found, heading = {}, None
    for line in rest.splitlines():
        if match := re.fullmatch(r"([A-Z][a-z]+)(?::(?: (.+))?)?", line):
            heading = match[1]
            found[heading] = [match[2] or ""]
        elif re.fullmatch(r"(With .+, b|B)efore::", line):
            heading = "Example"
            found[heading] = [line]
        elif heading:
            found[heading].append(line)
    return summary, {h: textwrap.dedent("\n".join(lines)).strip("\n") for h, lines in found.items()}


def example(text):
    """Options, the program before and the program after."""
    parts = re.fullmatch(r"(?:With (?P<with>.+), before|Before)::\n(?P<before>.+)\nAfter::\n(?P<after>.+)", text, re.S)
    assert parts, f"the example reads 'Before::' (or 'With ``name=value``, before::'), then 'After::':\n{text}"
    said = re.findall(r"``(\w+)=(.+?)``", parts["with"] or "")
    words = vars(relay.dataflow_pattern)  # examples are this project's own
    return {name: eval(value, dict(words)) for name, value in said}, module(parts["before"]), module(parts["after"])


def module(text):
    if text.lstrip().startswith(("def @", "type ", "#[version")):
        return relay.transform.InferType()(relay.fromtext(textwrap.dedent(text)))
    functions = textwrap.indent(textwrap.dedent(text.strip("\n")), "    ")
    return script.from_source("@I.ir_module\nclass Module:\n" + functions)


@pytest.mark.parametrize("name", PASSES)
def test_sections(name):
    summary, found = sections(PASSES[name].__doc__ or "")
    assert summary.endswith(".") and len(summary) <= 118, summary
    assert [h for h in found if h in SECTIONS] == list(SECTIONS), f"{name} has the sections {list(found)}"
    empty = [h for h in SECTIONS if not found[h].strip()]
    assert not empty, f"{name} says nothing under {empty}"


@pytest.mark.parametrize("name", PASSES)
def test_example(name):
    options, before, after = example(sections(PASSES[name].__doc__)[1]["Example"])
    text = before.script(show_meta=True)
    result = PASSES[name](**options)(before)
    typed = relay.transform.InferType()(result) if name.startswith("relay.") else result
    ir.assert_structural_equal(typed, after, map_free_vars=True)
    assert before.script(show_meta=True) == text, "the input was changed"
    if name not in SAME_TEXT:
        with pytest.raises(ValueError, match="differ"):
            ir.assert_structural_equal(before, result, map_free_vars=True)
