"""What printing, ``relax.assert_op`` and the debugging functions of ``nn`` do at run time, as packed functions."""

from math import prod
from typing import Any

import numpy as np
import tvm_ffi

from weft.error import InvalidArgument
from weft.ffi import get_global_func, register_global_func
from weft.runtime import Tensor, constant_view, numpy_dtype, tensor
from weft.runtime.host import unique_rows as _unique_rows

__all__: list[str] = []


def _value(x: Any) -> Any:
    return x.numpy() if hasattr(x, "numpy") else x


def _shown(x: Any) -> Any:
    """Give what a value is printed as; tuples of values are written out."""
    if isinstance(x, (tuple, list, tvm_ffi.Array)):
        return f"({', '.join(str(_shown(v)) for v in x)})"
    return _value(x)


def _text(template: str, values: tuple[Any, ...]) -> str:
    """A format with what its values are printed as; an InvalidArgument where it asks for others."""
    try:
        return template.format(*map(_shown, values))
    except (IndexError, KeyError, ValueError, TypeError, AttributeError) as e:
        what = f"the format {template!r} does not fit its {len(values)} values: {e}"
        raise InvalidArgument(what, help="write {} or {0:.3f} for a value, {{ and }} for braces") from e


@register_global_func("weft.run.print", override=True)
def _print(template: str, *values: Any) -> None:
    print(_text(template, values) if template else " ".join(str(_shown(v)) for v in values))


@register_global_func("weft.run.view", override=True)
def _view(x: Tensor, shape: Any, dtype: Any, offset: Any) -> Tensor:
    """See the bytes of a tensor as another one; an empty text stands for what stays as it is."""
    kind = numpy_dtype(str(x.dtype if dtype == "" else dtype))
    dims = x.shape if isinstance(shape, str) else tuple(shape)
    start = 0 if offset == "" else int(offset)
    size = prod(dims) * kind.itemsize
    if not 0 <= start <= x.nbytes - size:
        raise InvalidArgument(
            "view: it does not lie inside of the tensor",
            expected=f"at most {x.nbytes} bytes",
            found=f"{size} bytes behind the first {start}",
        )
    data = np.ascontiguousarray(x.numpy()).reshape(-1).view("uint8")
    return constant_view(data[start : start + size].view(kind).reshape(dims))


@register_global_func("weft.run.unique", override=True)
def _unique(
    x: Tensor, in_order: int, index: int = 0, inverse: int = 0, counts: int = 0, axis: int | None = None
) -> Any:
    values, *rest = _unique_rows(x.numpy(), axis, bool(in_order))
    found = [values, *(r for r, wanted in zip(rest, (index, inverse, counts), strict=True) if wanted)]
    results = [tensor(np.ascontiguousarray(f)) for f in found]
    return results[0] if len(results) == 1 else tuple(results)


@register_global_func("weft.run.shape_to_tensor", override=True)
def _shape_to_tensor(shape: Any) -> Tensor:
    return tensor(np.array(tuple(shape), "int64"))


@register_global_func("weft.run.nonzero", override=True)
def _nonzero(x: Tensor) -> Tensor:
    return tensor(np.stack(np.nonzero(np.atleast_1d(x.numpy()))).astype("int64"))


@register_global_func("vm.builtin.invoke_debug_func", override=True)
def _invoke_debug_func(state: Any, name: str, line_info: str, *values: Any) -> Any:
    function: Any = get_global_func(name)
    function(line_info, *values)
    return state


@register_global_func("vm.builtin.debug_print", override=True)
def _debug_print(line_info: str, value: Any) -> None:
    print(f"{line_info}: shape = {tuple(value.shape)}, dtype = {value.dtype}, data =\n{_value(value)}")


@register_global_func("weft.run.assert_op", override=True)
def _assert_op(condition: Any, template: str, *values: Any) -> None:
    if not bool(_value(condition)):
        raise AssertionError(
            _text(template, values) if template else "Assertion Failed" + "".join(f", {_shown(v)}" for v in values)
        )
