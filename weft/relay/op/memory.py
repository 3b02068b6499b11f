"""Operators of explicit memory; ``vm`` has the table of the lowered form."""

from __future__ import annotations

from weft.ir import Attrs, Type
from weft.relay.op.registry import declare
from weft.relay.op.vm import tensor_of
from weft.relay.types import GlobalTypeVar, TypeCall, unit_type

__all__ = ["ALIGNMENT", "STORAGE"]

ALIGNMENT = 64
"""Bytes to which storages and tensors in them are aligned."""
STORAGE = TypeCall(GlobalTypeVar("Storage"), ())
"""The type of a storage."""


def _storage(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return STORAGE


def _allocated(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return tensor_of(attrs["assert_shape"] if attrs["const_shape"] is None else attrs["const_shape"], attrs["dtype"])


declare(
    "memory.alloc_storage", "size",
    {"alignment": ALIGNMENT, "dtype": "uint8", "device_index": 0}, infer=_storage, pure=False,
    doc="Allocate `size` bytes, a scalar; ``dtype`` is a hint.",
)  # fmt: skip
declare(
    "memory.alloc_tensor", "storage shape",
    {"offset": 0, "dtype": "float32", "const_shape": None, "assert_shape": ()}, infer=_allocated, pure=False,
    doc="""Make a tensor inside a storage, ``offset`` bytes from its start.

    ``const_shape`` is the shape where it is known, and `shape` a constant; else ``assert_shape`` is what is known of
    it, with -1 for other dimensions.
    """,
)  # fmt: skip
declare(
    "memory.kill", "data", infer=lambda types, attrs: unit_type(), pure=False,
    doc="A variable is not used any more; what only it held is freed.",
)  # fmt: skip
