"""docs/reference/relay-types.md: its types are read, and its error is the one that is raised."""

import re
from pathlib import Path

import pytest

from weft import error, relay

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "reference" / "relay-types.md").read_text()


@pytest.mark.parametrize("text", re.findall(r"^\| `([^`]+)`", PAGE, re.M))
def test_types(text):
    mod = relay.fromtext(f"type List[A] {{ Nil, }}\ndef @main(%x: {text}) {{ 0 }}")
    ty = mod["main"].params[0].ty
    assert ("_" if ty is None else str(ty)) == text


def test_error():
    golden = re.search(r"```\n(argument 2.*?)\n```", PAGE, re.S).group(1)
    program = """def @f(%a: int32, %b: Tensor[(3), float32]) {
  %b
}

def @main(%x: Tensor[(4), float32]) {
  @f(1, %x)
}"""
    with pytest.raises(error.TypeInferenceError) as caught:
        relay.infer_type(relay.fromtext(program, source_name="net.rly"))
    assert re.sub(r"net.rly( \d+)?:", "net.rly:", str(caught.value)) == golden
