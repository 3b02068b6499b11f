"""Damaged programs give errors with a place, never anything else."""

import random
import re

import pytest

from tests.ir.programs import matmul_func, relax_module
from weft import error, script
from weft.relax.pipeline import default_passes


def texts():
    mod = relax_module()
    yield matmul_func().script()
    yield mod.script(show_meta=True)
    del mod["matmul"]
    for step in default_passes():
        mod = step(mod)
    yield mod.script(show_meta=True)


def damage(text, rng):
    tokens = re.findall(r"\w+|\s+|[^\w\s]", text)
    for _ in range(rng.randint(1, 3)):
        i, j = rng.randrange(len(tokens)), rng.randrange(len(tokens))
        kind = rng.randrange(5)
        if kind == 0:
            del tokens[i]
        elif kind == 1:
            tokens[i] = tokens[j]
        elif kind == 2:
            tokens.insert(i, tokens[j])
        elif kind == 3:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        else:
            tokens[i] = rng.choice(
                ["0", "-1", "None", "'x'", "[]", "x", "1.5", "True", "n", "cls", "T", "R", "lambda: 0"]
            )
    return "".join(tokens)


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize("seed", range(2))
def test_damaged_programs(which, seed):
    text = list(texts())[which]
    rng = random.Random(1000 * which + seed)
    failed = 0
    for _ in range(60):
        bad = damage(text, rng)
        try:
            result = script.from_source(bad)
        except error.WeftError as e:
            failed += 1
            assert str(e)
            if not isinstance(e, error.ErrorGroup):
                assert e.where is not None or "defines no function" in str(e) or "damaged" in str(e), bad
        else:
            assert str(result)
    assert failed > 10
