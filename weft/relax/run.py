"""What ``relax.print`` and ``relax.assert_op`` do at run time, as packed functions."""

from __future__ import annotations

from typing import Any

from weft.ffi import register_global_func

__all__: list[str] = []


def _value(x: Any) -> Any:
    return x.numpy() if hasattr(x, "numpy") else x


@register_global_func("weft.run.print", override=True)
def _print(template: str, *values: Any) -> None:
    shown = [_value(v) for v in values]
    print(template.format(*shown) if template else "\n".join(map(str, shown)))


@register_global_func("weft.run.assert_op", override=True)
def _assert_op(condition: Any, template: str, *values: Any) -> None:
    if not bool(_value(condition)):
        shown = [_value(v) for v in values]
        raise AssertionError(
            template.format(*shown) if template else "Assertion Failed" + "".join(f", {v}" for v in shown)
        )
