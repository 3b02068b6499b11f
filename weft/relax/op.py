"""``relax.op``.

A constructor for every operator of the registry, in TVM's namespaces (``op.add``, ``op.nn.softmax``,
``op.image.resize2d``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft import ir
from weft.op import list_ops, make_call
from weft.relax import core_ops, data_ops, inspect_ops, memory_ops
from weft.relax.ccl_ops import COLLECTIVES
from weft.topi.typing import Extent


def arange(
    start: Extent | float | ir.Expr,
    end: Extent | float | ir.Expr | None = None,
    step: Extent | float | ir.Expr = 1,
    dtype: str | None = None,
) -> Any:
    """Make evenly spaced numbers from `start` before `end`, or from 0 before the only one; floats make float32."""
    first, last = (0, start) if end is None else (start, end)
    floats = any(isinstance(x, float) for x in (first, last, step))
    return make_call("arange")(first, last, step, dtype=dtype or ("float32" if floats else "int64"))


def eye(n: Extent | ir.Expr, m: Extent | ir.Expr | None = None, k: Extent | ir.Expr = 0, dtype: str = "float32") -> Any:
    """Make an n by m matrix (n by n without `m`) with ones on the k-th diagonal."""
    return make_call("eye")(n, n if m is None else m, k, dtype=dtype)


def layout_transform(
    x: ir.Expr,
    index_map: Callable[..., object] | ir.Node | str | None = None,
    pad_value: float | str | None = None,
    axis_separators: Sequence[int] = (),
    input_axis_separators: Sequence[int] = (),
    *,
    src_layout: str = "",
    dst_layout: str = "",
) -> Any:
    """Move elements to where a function of indices says, or from one named layout (``"NCHW"``) to another.

    Places that nothing goes to hold `pad_value` or 0. The names of layouts may stand in place of the function, too.
    """
    call = make_call("layout_transform")
    if isinstance(index_map, str):
        return call(x, index_map, pad_value or dst_layout)
    return call(x, src_layout, dst_layout, index_map, pad_value, axis_separators, input_axis_separators)


def masked_fill(x: ir.Expr, mask: ir.Expr, value: ir.Expr | float) -> Any:
    """Put `value`, one number, where a mask holds; other elements stay those of `x`."""
    return make_call("where")(mask, make_call("full_like")(x, value), x)


_OF_CORE = (
    "assert_op call_builtin_with_ctx call_dps_packed call_inplace_packed call_packed call_pure_packed call_py_func "
    "call_tir call_tir_inplace call_tir_with_grad dynamic_strided_slice hint_on_device index_bounds invoke_closure "
    "invoke_pure_closure make_closure null_value shape_of shape_to_tensor tensor_to_shape to_vdevice"
)
_VISION = (
    "all_class_non_max_suppression get_valid_counts multibox_transform_loc non_max_suppression roi_align roi_pool"
).split()
_OF_MEMORY = "ensure_zero_offset kill_storage kill_tensor view"
_CORE: dict[str, Any] = {
    **COLLECTIVES,
    **inspect_ops.OPERATORS,
    **{name: getattr(core_ops, name) for name in _OF_CORE.split()},
    **{f"memory.{name}": getattr(memory_ops, name) for name in _OF_MEMORY.split()},
    "arange": arange,
    "eye": eye,
    "layout_transform": layout_transform,
    "masked_fill": masked_fill,
    "nonzero": data_ops.nonzero,
    "unique": data_ops.unique,
    "builtin.alloc_tensor": core_ops.alloc_tensor,
    "builtin.stop_lift_params": memory_ops.stop_lift_params,
    "memory.alloc_storage": core_ops.alloc_storage,
    "memory.alloc_tensor": core_ops.storage_tensor,
    "print": core_ops.print_,
    "vm.alloc_storage": memory_ops.vm_alloc_storage,
    "vm.alloc_tensor": memory_ops.vm_alloc_tensor,
    "vm.call_tir_dyn": memory_ops.vm_call_tir_dyn,
    "vm.kill_object": memory_ops.kill_object,
}


class Namespace:
    """Operators that share a prefix, as attributes."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        full = self._prefix + name
        if full in _VISION:
            full = f"vision.{name}"
        if full in _CORE:
            return _CORE[full]
        names = list_ops()
        if full in names:
            return make_call(full)
        if any(n.startswith(full + ".") for n in (*names, *_CORE)):
            return Namespace(full + ".")
        raise AttributeError(f"there is no operator 'relax.{full}'")

    def __dir__(self) -> list[str]:
        tails = [n.removeprefix(self._prefix) for n in (*list_ops(), *_CORE) if n.startswith(self._prefix)]
        return sorted({t.split(".")[0] for t in tails})


_ROOT = Namespace("")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(name)
    return getattr(_ROOT, name)


def __dir__() -> list[str]:
    return dir(_ROOT)
