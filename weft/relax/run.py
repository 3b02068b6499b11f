"""What printing, ``relax.assert_op`` and the debugging functions of ``nn`` do at run time, as packed functions."""

from __future__ import annotations

from typing import Any

from weft.ffi import get_global_func, register_global_func

__all__: list[str] = []


def _value(x: Any) -> Any:
    return x.numpy() if hasattr(x, "numpy") else x


@register_global_func("weft.run.print", override=True)
def _print(template: str, *values: Any) -> None:
    shown = [_value(v) for v in values]
    print(template.format(*shown) if template else "\n".join(map(str, shown)))


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
        shown = [_value(v) for v in values]
        raise AssertionError(
            template.format(*shown) if template else "Assertion Failed" + "".join(f", {v}" for v in shown)
        )
