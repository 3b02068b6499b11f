"""Any text gives a module or an error of Weft, never another exception; what parses survives printing."""

import random
import re

import numpy as np
import pytest

from tests.refusals import refusals
from tests.relay.text.programs import PROGRAMS
from weft import error, ir, relay

WITH_META = relay.Function(
    [x := relay.var("x", shape=(2, 3))], x + relay.const(np.arange(6, dtype="float32").reshape(2, 3))
).astext()
TEXTS = [*PROGRAMS.values(), *(relay.parse(t).astext() for t in PROGRAMS.values()), WITH_META]
WORD = re.compile(r"[%@.]?\w+|[-+*/<>]")
PIECES = r"""( ) { } [ ] %0 %x @main let fn if else match match? => -> = ; , .0 - 1 1f inff True _ ref(
    meta[relay.Constant][0] Cons Nil Tensor[( ? " /* */ // #[metadata] é type def extern""".split()
PIECES += ['#[version = "0.0.5"]', "\x00"]


def mutate(rng, text):
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(text) + 1)
        match rng.randrange(12):
            case 0:
                text = text[:at] + rng.choice(PIECES) + text[at:]
            case 1:
                text = text[:at] + text[at + rng.randint(1, 8) :]
            case 2:
                text = text[:at] + chr(rng.choice([rng.randint(1, 126), rng.randint(128, 0x2FFF)])) + text[at + 1 :]
            case 3:
                end = rng.randrange(len(text) + 1)
                text = text[:at] + text[end : end + 40] + text[at:]
            case 4:
                text = text[:at]
            case _:  # a word in the place of another
                words = list(WORD.finditer(text))
                if words:
                    old, new = rng.choice(words), rng.choice(words)
                    text = text[: old.start()] + new.group() + text[old.end() :]
        if not text:
            return "x"
    return text


@pytest.mark.parametrize("seed", range(8))
def test_mutated_texts(seed):
    rng = random.Random(seed)
    accepted = 0
    for _ in range(250):
        text = mutate(rng, rng.choice(TEXTS))
        try:
            made = relay.fromtext(text)
        except error.WeftError as e:
            assert str(e)
            continue
        accepted += 1
        assert ir.structural_equal(relay.fromtext(made.astext()), made, map_free_vars=True), text
    assert accepted > 5


def test_random_words():
    rng = random.Random(7)
    texts = (" ".join(rng.choices(PIECES, k=rng.randint(1, 25))) for _ in range(800))
    assert refusals(error.WeftError, relay.fromtext, texts)
