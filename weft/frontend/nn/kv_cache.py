"""The effect of a growing cache of keys or values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import error, ir, op
from weft.frontend.nn.effect import Effect
from weft.frontend.nn.tensor import Tensor, caller, emit, get_default_dtype
from weft.relax import BlockBuilder, call_inplace_packed, call_pure_packed
from weft.relax import Var as RelaxVar
from weft.spelling import also_called


class KVCache(Effect):
    """Rows that a model appends to from call to call, and reads back.

    Parameters
    ----------
    init_seq_len : int
        How many rows there is room for before the memory grows.
    unit_shape : sequence of int
        The shape of a row, such as (heads, size).
    dtype : str, optional
        The data type of the elements.
    """

    cache: Any

    def __init__(self, init_seq_len: int, unit_shape: Sequence[int], dtype: str | None = None) -> None:
        if init_seq_len < 1 or any(d < 0 for d in unit_shape):
            raise error.InvalidArgument("sizes of a KVCache are positive", found=f"{init_seq_len}, {list(unit_shape)}")
        self.init_seq_len, self.unit_shape = init_seq_len, list(unit_shape)
        self.dtype = str(ir.DataType(dtype or get_default_dtype()))
        self.cache = None

    @also_called(bb="builder")
    def emit_init(self, name_hint: str, builder: BlockBuilder) -> list[Any]:
        """Emit an empty cache."""
        shape = ir.shape_expr([self.init_seq_len, *self.unit_shape])
        like = builder.emit(op.make_call("zeros")(shape, dtype=self.dtype))
        create = "vm.builtin.attention_kv_cache_create"
        return [builder.emit(call_pure_packed(create, like, shape, ir.prim_value(0), ty_args=ir.AnyType()), name_hint)]

    def create(self, name_hint: str) -> list[RelaxVar]:
        """Make one variable."""
        self.cache = RelaxVar(name_hint, ir.AnyType())
        return [self.cache]

    def set_state(self, state_vars: list[Any]) -> None:
        """Use this variable."""
        (self.cache,) = state_vars

    def finalize(self) -> list[Any]:
        """Return the variable."""
        state, self.cache = self.cache, None
        return [state]

    def to(self, dtype: str | None = None) -> None:
        """Change the data type."""
        if dtype is not None:
            self.dtype = str(ir.DataType(dtype))

    def view(self, seq_len: Any) -> Tensor:
        """Read the first `seq_len` rows, an int or symbolic number: (seq_len, ...)."""
        shape = [seq_len, *self.unit_shape]
        call = call_pure_packed(
            "vm.builtin.attention_kv_cache_view",
            self._state(),
            ir.shape_expr(shape),
            ty_args=ir.tensor_type(shape, self.dtype),
        )
        return Tensor(_expr=emit(call, "view"))

    def append(self, new_element: Tensor) -> None:
        """Add rows, (n, ...), or one row."""
        one = [ir.as_int(d) for d in new_element.shape] == self.unit_shape
        if new_element.dtype != self.dtype or not (one or new_element.ndim == len(self.unit_shape) + 1):
            raise error.ShapeMismatch(
                "the rows are not those of the KVCache",
                expected=f"(n, {', '.join(map(str, self.unit_shape))}) {self.dtype}",
                found=f"{tuple(new_element.shape)} {new_element.dtype}",
                where=caller(),
            )
        append = "vm.builtin.attention_kv_cache_append"
        call = call_inplace_packed(append, self._state(), new_element._expr, inplace_indices=0, ty_args=ir.AnyType())
        self.cache = emit(call, "cache")

    def _state(self) -> Any:
        if self.cache is None:
            raise error.InvalidArgument(
                "this function does not get the KVCache", where=caller(), help="use effect_mode 'plain' or 'packed'"
            )
        return self.cache
