"""Whether a target's words wrap around, which random numbers depend on."""

from __future__ import annotations

from typing import Any

from weft import te, tir
from weft.ir import const, int64
from weft.runtime import empty
from weft.target import build


def threefry_test_wrapping(target: Any, device: Any) -> bool:
    """Whether, on a target, 0 comes after the greatest 64-bit word."""

    def body(_: Any, outs: Any) -> Any:
        return tir.BufferStore(outs[0], const((1 << 64) - 1, "uint64") + const(1, "uint64"), (int64(0),))

    word = te.extern((1,), [], body, name="wrapped", dtype="uint64")
    found = empty((1,), "uint64", device)
    build(te.create_prim_func([word]), target)["main"](found)
    return int(found.numpy()[0]) == 0
