"""The page about the text format says what is so."""

import re
from pathlib import Path

from weft import relay
from weft.relay.text.literals import SUFFIXES

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "relay-text.md").read_text()


def test_examples_are_programs():
    examples = re.findall(r"```relay\n(.*?)```", PAGE, re.S)
    assert examples
    for text in examples:
        relay.transform.InferType()(relay.parse(text))


def test_suffixes_are_listed():
    assert [s for s in SUFFIXES if s not in ("", "i", "u") and f"`{s}`" not in PAGE] == []
