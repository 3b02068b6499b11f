"""Whether a target's words wrap around, which random numbers depend on."""

from typing import Any

from weft import ir, runtime, te, tir
from weft.target import Target, build


def threefry_test_wrapping(target: Target | str, device: runtime.Device) -> bool:
    """Whether, on a target, 0 comes after the greatest 64-bit word."""

    def body(_: Any, outs: Any) -> Any:
        return tir.BufferStore(outs[0], ir.const((1 << 64) - 1, "uint64") + ir.const(1, "uint64"), (ir.int64(0),))

    word = te.extern((1,), [], body, name="wrapped", dtype="uint64")
    found = runtime.empty((1,), "uint64", device)
    build(te.create_prim_func([word]), target)["main"](found)
    return int(found.numpy()[0]) == 0
