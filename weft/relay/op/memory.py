"""Operators of explicit memory; ``vm`` has the table of the lowered form."""

from __future__ import annotations

from collections.abc import Sequence

from weft.ir import Attrs, Constant, Type
from weft.relay.expr import Call
from weft.relay.op.registry import declare, op_call
from weft.relay.op.vm import tensor_of
from weft.relay.types import GlobalTypeVar, TypeCall, unit_type
from weft.relay.typing import Value
from weft.spelling import also_called

ALIGNMENT = 64
"""Bytes to which storages and tensors in them are aligned."""
STORAGE = TypeCall(GlobalTypeVar("Storage"), ())
"""The type of a storage."""


def _storage(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return STORAGE


def _allocated(types: tuple[Type, ...], attrs: Attrs) -> Type:
    return tensor_of(attrs["assert_shape"] if attrs["const_shape"] is None else attrs["const_shape"], attrs["dtype"])


declare(
    "memory.alloc_storage",
    "size",
    {"alignment": ALIGNMENT, "dtype": "uint8", "device_index": 0},
    infer=_storage,
    pure=False,
    doc="Allocate `size` bytes, a scalar; ``dtype`` is a hint.",
)
declare(
    "memory.alloc_tensor",
    "storage shape",
    {"offset": 0, "dtype": "float32", "const_shape": None, "assert_shape": ()},
    infer=_allocated,
    pure=False,
    doc="""Make a tensor inside a storage, ``offset`` bytes from its start.

    ``const_shape`` is the shape where it is known, and `shape` a constant; else ``assert_shape`` is what is known of
    it, with -1 for other dimensions.
    """,
)
declare(
    "memory.kill",
    "data",
    infer=lambda types, attrs: unit_type(),
    pure=False,
    doc="A variable is not used any more; what only it held is freed.",
)


@also_called(device="device_index")
def alloc_storage(size: Value, alignment: int = ALIGNMENT, dtype_hint: str = "uint8", device_index: int = 0) -> Call:
    """Allocate a storage of `size` bytes, an int64 scalar, on a device of the program."""
    return op_call("memory.alloc_storage", size, alignment=alignment, dtype=dtype_hint, device_index=device_index)


def alloc_tensor(
    storage: Value, offset: int, shape: Value, dtype: str = "float32", assert_shape: Sequence[int] | None = None
) -> Call:
    """Make a tensor inside a storage.

    Parameters
    ----------
    storage : Expr
        What :func:`alloc_storage` gives.
    offset : int
        Bytes from its start.
    shape : Expr
        An int64 vector; the shape is known where it is a constant.
    assert_shape : sequence of int, optional
        What is known of another shape, with -1 for unknown dimensions.
    """
    known = tuple(int(d) for d in shape.data.numpy()) if isinstance(shape, Constant) else None
    return op_call(
        "memory.alloc_tensor",
        storage,
        shape,
        offset=offset,
        dtype=dtype,
        const_shape=known,
        assert_shape=tuple(assert_shape or ()),
    )
