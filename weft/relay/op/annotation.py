"""Operators that say where and how an expression is computed: ``relay.annotation.on_device``, ``relay.device_copy``.

All of them are the identity. Devices stand in attributes as texts, ``"cuda:0"``; after PlanDevices they are the places
of devices in the machine's list. ``device_copy`` is made by PlanDevices, or written by hand.
"""

from __future__ import annotations

import functools
from typing import Any

from weft import ir, runtime
from weft.relay.expr import Call
from weft.relay.op.construct import constructs
from weft.relay.op.registry import REQUIRED, declare, op_call, shared
from weft.relay.typing import Value
from weft.runtime import Device
from weft.runtime import device as as_device
from weft.spelling import also_called
from weft.target import VirtualDevice


def _identity(data: ir.Expr, **attrs: Any) -> ir.Expr:
    return data


def _same(types: tuple[ir.Type, ...], attrs: ir.Attrs) -> ir.Type:
    return types[0]


declare(
    "on_device",
    "data:any",
    {"device": "cpu:0", "constrain_result": False, "constrain_body": True},
    expand=_identity,
    infer=_same,
    doc="""Compute an expression on a device.

    ``constrain_body``: it is computed there; ``constrain_result``: it is needed there. Where it is needed on another
    device, it is copied.
    """,
)
declare(
    "device_copy",
    "data:any",
    {"src_device": "cpu:0", "dst_device": "cpu:0"},
    expand=_identity,
    infer=_same,
    doc="A copy of a tensor on another device.",
)
for _end, _what in (("begin", "is given to"), ("end", "comes from")):
    declare(
        f"annotation.compiler_{_end}",
        "data:any",
        {"compiler": REQUIRED},
        expand=_identity,
        infer=_same,
        doc=f"What {_what} an external compiler; regions between are cut out by PartitionGraph.",
    )
declare(
    "annotation.checkpoint",
    "data:any",
    expand=_identity,
    infer=_same,
    doc="What adjoints may compute again instead of keeping it.",
)
declare(
    "annotation.stop_fusion",
    "data:any",
    expand=_identity,
    infer=_same,
    doc="Keep an expression and what uses it in kernels apart.",
)

declare(
    "annotation.cast_hint",
    "data:any",
    {"dtype": REQUIRED},
    expand=_identity,
    infer=_same,
    doc="What quantization keeps in a data type between kernels.",
)


def _simulated(
    data: ir.Expr, dom_scale: ir.Expr, clip_min: ir.Expr, clip_max: ir.Expr, kind: int, sign: bool, rounding: str
) -> ir.Expr:
    if kind == 0:
        return data
    steps = shared("minimum", shared("divide", data, dom_scale), clip_max)
    return shared("multiply", shared("round", shared("maximum", steps, clip_min)), dom_scale)


_SIMULATED = "relay.op.annotation.simulated_quantize"
declare(
    _SIMULATED,
    "data dom_scale clip_min clip_max",
    {"kind": REQUIRED, "sign": True, "rounding": "round"},
    expand=_simulated,
    doc="The multiple of a scale next to each number, within limits in steps.",
)

BARRIERS = frozenset(("on_device", "device_copy", "annotation.stop_fusion"))
"""Operators that no kernel contains and none goes beyond."""


def device_name(device: runtime.Device | str) -> str:
    """Return the text that stands for a device, given as one, as a text or as its type's number."""
    return str(Device(device) if isinstance(device, int) else as_device(device))


def _place(device: Any) -> str | VirtualDevice:
    return device if isinstance(device, VirtualDevice) else device_name(device)  # with its target and memory scope


def _described(name: str, attrs: ir.Attrs) -> VirtualDevice:
    device = attrs[name]
    if isinstance(device, VirtualDevice):
        return device
    return VirtualDevice(device if attrs.get("constrain_result", True) or attrs["constrain_body"] else None)


for _which in ("", "src_", "dst_"):
    _named = f"{_which}device"
    ir.DERIVED[f"{_which}virtual_device"] = (_named, functools.partial(_described, _named))


@constructs("on_device")
@also_called(body="data")
def on_device(
    data: Value, device: runtime.Device | str, constrain_result: bool = False, constrain_body: bool = True
) -> Call:
    """Compute an expression on a device.

    Parameters
    ----------
    data : Expr
        The expression.
    device : Device, VirtualDevice, str or int
        The device, such as ``weft.cuda(0)`` or ``"cuda:0"``.
    constrain_result : bool
        Whether the result is needed on that device.
    constrain_body : bool
        Whether the expression is computed there.
    """
    return op_call(
        "on_device", data, device=_place(device), constrain_result=constrain_result, constrain_body=constrain_body
    )


@constructs("device_copy")
@also_called(src_dev="src_device", dst_dev="dst_device")
def device_copy(data: Value, src_device: runtime.Device | str, dst_device: runtime.Device | str) -> Call:
    """Copy a tensor from one device to another."""
    return op_call("device_copy", data, src_device=_place(src_device), dst_device=_place(dst_device))


@constructs("annotation.compiler_begin")
def compiler_begin(data: Value, compiler: str) -> Call:
    """Mark an argument of what an external compiler is given."""
    return op_call("annotation.compiler_begin", data, compiler=compiler)


@constructs("annotation.compiler_end")
def compiler_end(data: Value, compiler: str) -> Call:
    """Mark a result of what an external compiler is given."""
    return op_call("annotation.compiler_end", data, compiler=compiler)


def stop_fusion(data: Value) -> Call:
    """Keep an expression and what uses it in kernels apart."""
    return op_call("annotation.stop_fusion", data)


def cast_hint(data: ir.Expr, dtype: str) -> Call:
    """Say what data type quantization keeps an expression in between kernels."""
    return op_call("annotation.cast_hint", data, dtype=dtype)


def simulated_quantize(
    data: ir.Expr,
    dom_scale: ir.Expr,
    clip_min: ir.Expr,
    clip_max: ir.Expr,
    kind: int,
    sign: bool = True,
    rounding: str = "round",
) -> Call:
    """Round an expression as its quantization would; `kind` is a ``QAnnotateKind``."""
    return op_call(_SIMULATED, data, dom_scale, clip_min, clip_max, kind=kind, sign=sign, rounding=rounding)


def checkpoint(data: Value) -> Call:
    """Mark what adjoints may compute again instead of keeping it; the value is the expression's."""
    return op_call("annotation.checkpoint", data)
