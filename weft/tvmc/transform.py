"""What the driver does to a program before it is compiled or tuned: layouts and narrower numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.ir import IRModule, PassContext, Sequential
from weft.relay import transform
from weft.tvmc.model import TVMCException

__all__ = ["apply_graph_transforms", "convert_graph_layout", "convert_to_mixed_precision"]


def words(given: str | Sequence[str] | None) -> list[str]:
    """The names in a list, or in a text, ``"a,b"`` or ``"[a,b]"``."""
    return [w for w in (given.strip("[]").split(",") if isinstance(given, str) else given or ()) if w]


def convert_graph_layout(
    mod: IRModule, desired_layouts: str | Sequence[str], ops: str | Sequence[str] | None = None
) -> Any:
    """Bring operators into layouts.

    Parameters
    ----------
    mod : IRModule
        The program.
    desired_layouts : str or list of str
        ``"NHWC"``, or ``"NHWC:HWIO"`` with the kernel's; one for all operators, or one for each.
    ops : list of str, optional
        Which operators: by default convolutions.
    """
    names = words(ops) or ["nn.conv2d", "nn.conv2d_transpose", "qnn.conv2d"]
    layouts = words(desired_layouts)
    if len(layouts) not in (1, len(names)):
        raise TVMCException(
            "layouts do not match the operators", expected=f"1 or {len(names)}", found=str(len(layouts))
        )
    pairs = ((f"{layout}:default").split(":")[:2] for layout in layouts * (len(names) // len(layouts)))
    wanted = dict(zip(names, pairs, strict=True))
    passes = [transform.RemoveUnusedFunctions(), transform.ConvertLayout(wanted), transform.FoldConstant()]
    with PassContext(opt_level=3):
        return Sequential(passes)(mod)


def convert_to_mixed_precision(
    mod: IRModule, ops: Sequence[str] | None = None, calculation_type: str = "float16", acc_type: str = "float16"
) -> Any:
    """Let a program compute in a narrower type, where that is worth it and safe: ``ToMixedPrecision`` decides where."""
    if ops is not None or acc_type != calculation_type:
        raise TVMCException(
            "operators and accumulators of narrow types are chosen for all alike",
            expected="neither mixed_precision_ops nor another mixed_precision_acc_type",
            help="register FTVMMixedPrecisionConversionType for an operator",
        )
    return Sequential([transform.InferType(), transform.ToMixedPrecision(calculation_type), transform.FoldConstant()])(
        mod
    )


def apply_graph_transforms(
    mod: IRModule,
    desired_layout: str | Sequence[str] | None = None,
    desired_layout_ops: str | Sequence[str] | None = None,
    mixed_precision: bool = False,
    mixed_precision_ops: Sequence[str] | None = None,
    mixed_precision_calculation_type: str | None = None,
    mixed_precision_acc_type: str | None = None,
) -> Any:
    """Apply what a compilation or tuning asks for; nothing by default."""
    if mixed_precision:
        narrow = mixed_precision_calculation_type or "float16"
        mod = convert_to_mixed_precision(mod, mixed_precision_ops, narrow, mixed_precision_acc_type or narrow)
    if desired_layout:
        mod = convert_graph_layout(mod, desired_layout, desired_layout_ops)
    return mod
