"""Pooling over windows, over everything, and to a given size."""

from typing import Any

from weft import ir
from weft.relay.op.layouts import plain, relaid
from weft.relay.op.registry import declare, shared

_LAYOUTS = {1: "NCW", 2: "NCHW", 3: "NCDHW"}


def _in_layout(op: str, data: ir.Expr, layout: str, out_layout: str, rank: int, pool: Any) -> ir.Expr:
    """Pool in the layout where it is channels first or last, else in another and back."""
    first = _LAYOUTS[rank]
    axes = plain(op, layout, first)
    own = axes if axes in (first, first[0] + first[2:] + "C") else first
    return relaid(pool(relaid(data, layout, own), own), own, out_layout or layout)


def _windows(kind: str, rank: int) -> Any:
    op = f"nn.{kind}_pool{rank}d"

    def expand(data: ir.Expr, layout: str, out_layout: str, **attrs: Any) -> ir.Expr:
        return _in_layout(op, data, layout, out_layout, rank, lambda x, own: shared(op, x, layout=own, **attrs))

    return expand


def _to_size(op: str, kind: str, rank: int) -> Any:
    def expand(data: ir.Expr, output_size: Any = 1, layout: str = "", out_layout: str = "") -> ir.Expr:
        name = f"nn.adaptive_{kind}_pool{rank}d"
        return _in_layout(
            op, data, layout, out_layout, rank, lambda x, own: shared(name, x, output_size=output_size, layout=own)
        )

    return expand


for _rank, _layout in _LAYOUTS.items():
    for _kind in ("max", "avg"):
        declare(
            f"nn.{_kind}_pool{_rank}d",
            "data",
            {
                "pool_size": (1,) * _rank,
                "strides": (1,) * _rank,
                "dilation": (1,) * _rank,
                "padding": (0,) * _rank,
                "layout": _layout,
                "out_layout": "",
                "ceil_mode": False,
                **({"count_include_pad": False} if _kind == "avg" else {}),
            },
            expand=_windows(_kind, _rank),
            doc=f"{_kind} pooling over {_rank}-D windows.",
        )
        declare(
            f"nn.adaptive_{_kind}_pool{_rank}d",
            "data",
            {"output_size": None, "layout": _layout, "out_layout": ""},
            expand=_to_size(f"nn.adaptive_{_kind}_pool{_rank}d", _kind, _rank),
            doc="Pool to a given output size; None keeps a size.",
        )
        declare(
            f"nn.global_{_kind}_pool{_rank}d",
            "data",
            {"layout": _layout, "out_layout": ""},
            expand=_to_size(f"nn.global_{_kind}_pool{_rank}d", _kind, _rank),
            doc=f"{_kind} pooling over all positions.",
        )
