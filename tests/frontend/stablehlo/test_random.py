"""Random bits of XLA's default generator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.frontend.stablehlo.test_stablehlo import program, run
from tests.refusals import refuses
from weft.error import UnsupportedOperator


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [
        (0, [0, 0], "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, [2**64 - 1, 2**64 - 1], "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (0x299F31D0A4093822, [0x85A308D3243F6A88, 0x0370734413198A2E], "d16cfe09 94fdcceb 5001e420 24126ea1"),
    ],
)
def test_random_bits(key: int, counter: list[int], expected: str) -> None:
    """Known answers of Random123's Philox 4x32-10; where the counter has one word, the key is its other."""

    def bits(state: list[int], shape: str, way: str = "DEFAULT") -> Any:
        ty = f"tensor<{len(state)}xui64>"
        body = f"    %s, %o = stablehlo.rng_bit_generator %x, algorithm = {way} : ({ty}) -> ({ty}, tensor<{shape}>)"
        text = program(f"%x: {ty}", f"{body}\n    return %s, %o : {ty}, tensor<{shape}>", f"{ty}, tensor<{shape}>")
        return run(text, np.array(state, np.uint64))

    words = np.array([int(w, 16) for w in expected.split()], np.uint32)
    state, found = bits([key, *counter], "7xui32", "PHILOX")
    assert found[:4].tolist() == words.tolist()
    moved = (counter[0] + (counter[1] << 64) + 2) % (1 << 128)
    assert state.tolist() == [key, moved % (1 << 64), moved >> 64]
    for shape, same_words in (("2xui64", words.view(np.uint64)), ("2x2xui8", words.astype(np.uint8)), ("0xui32", [])):
        np.testing.assert_array_equal(bits([key, *counter], shape)[1].ravel(), same_words)
    state, found = bits([key, counter[0]], "2x4xui32")
    np.testing.assert_array_equal(found[0], bits([key, counter[0], key], "4xui32")[1])
    assert state.tolist() == [key, (counter[0] + 2) % (1 << 64)]
    refuses(UnsupportedOperator, "THREE_FRY", bits, [key, *counter], "4xui32", "THREE_FRY")
