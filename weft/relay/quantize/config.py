"""How a network is quantized: the configuration of a ``with`` block, and what annotating it counts."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from typing import Any

from weft.error import InvalidArgument


class QAnnotateKind:
    """What a quantized tensor is to the operator that reads it."""

    IDENTITY, INPUT, WEIGHT, ACTIVATION = range(4)


_KINDS = ("identity", "input", "weight", "activation")


def kind2str(kind: int) -> str:
    """Return the name of a kind, as the fields of :class:`QConfig` have it: ``"input"``."""
    return _KINDS[kind]


@dataclass(frozen=True)
class QConfig:
    """A configuration, made by :func:`qconfig`, current within a ``with`` block."""

    nbit_input: int = 8
    nbit_weight: int = 8
    nbit_activation: int = 32
    dtype_input: str = "int8"
    dtype_weight: str = "int8"
    dtype_activation: str = "int32"
    calibrate_mode: str = "global_scale"
    global_scale: float = 8.0
    weight_scale: str = "power2"
    skip_dense_layer: bool = True
    skip_conv_layers: Sequence[int] | None = field(default_factory=lambda: [0])
    do_simulation: bool = False
    round_for_shift: bool = True
    debug_enabled_ops: Sequence[str] | None = None
    rounding: str = "UPWARD"
    calibrate_chunk_by: int = -1
    partition_conversions: str = "disabled"

    def guard(self, ref_call: Any) -> bool:
        """Whether calls of the operator may be quantized at all."""
        return self.debug_enabled_ops is None or ref_call.op.name in self.debug_enabled_ops

    def get_nbit_by_kind(self, kind: int) -> int:
        """Return the number of bits, the sign among them, of a kind of tensor."""
        return getattr(self, f"nbit_{kind2str(kind)}")

    def get_dtype_by_kind(self, kind: int) -> str:
        """Return the data type of a kind of tensor."""
        return getattr(self, f"dtype_{kind2str(kind)}")

    def __enter__(self) -> QConfig:
        _ENTERED.set((*_ENTERED.get(), self))
        return self

    def __exit__(self, *_: object) -> None:
        _ENTERED.set(_ENTERED.get()[:-1])


_ENTERED: ContextVar[tuple[QConfig, ...]] = ContextVar("qconfigs", default=())
_DEFAULT = QConfig()
_CHOICES = {
    "calibrate_mode": ("global_scale", "kl_divergence", "percentile"),
    "weight_scale": ("power2", "max"),
    "rounding": ("UPWARD", "TONEAREST"),
    "partition_conversions": ("disabled", "enabled", "fully_integral"),
}


def current_qconfig() -> QConfig:
    """Return the configuration of the innermost block, or the default."""
    return (_ENTERED.get() or (_DEFAULT,))[-1]


def qconfig(**kwargs: Any) -> QConfig:
    """Make a configuration; ``with qconfig(skip_conv_layers=[0, 1]):`` makes it current.

    Parameters
    ----------
    nbit_input, nbit_weight, nbit_activation : int
        Bits, the sign among them, of the operands and results of products.
    dtype_input, dtype_weight, dtype_activation : str
        Their data types.
    calibrate_mode : str
        Where ranges of activations come from: ``"global_scale"``, or a data set, of which ``"kl_divergence"`` and
        ``"percentile"`` leave out what is rare.
    global_scale : float
        The largest magnitude of activations under ``"global_scale"``.
    weight_scale : str
        ``"max"``: the largest magnitude; ``"power2"``: the power of two above it.
    skip_dense_layer : bool
        Whether ``nn.dense`` stays as it is.
    skip_conv_layers : list of int, optional
        Which ``nn.conv2d`` stay as they are, by their place in the program.
    do_simulation : bool
        Whether to round as integers would, and compute with floats.
    round_for_shift : bool
        Whether shifts to the right round to nearest instead of down.
    debug_enabled_ops : list of str, optional
        The only operators that are quantized.
    rounding : str
        How products with fixed-point factors round halves: ``"UPWARD"`` or ``"TONEAREST"``.
    calibrate_chunk_by : int
        Accepted as TVM's; calibration keeps one batch's activations at a time.
    partition_conversions : str
        ``"enabled"`` gives a module of four functions: ``quantize_inputs``, ``quantized_main``, ``dequantize_outputs``
        and ``main``, which calls them; ``"fully_integral"`` refuses a network that has other operators on floats.

    Raises
    ------
    InvalidArgument
        When an option has none of its values. Unknown options are warned of and left out, as TVM leaves them out.
    """
    known = {f.name for f in fields(QConfig)}
    for name in sorted(kwargs.keys() - known):
        warnings.warn(f"qconfig has no option '{name}'; it has {', '.join(sorted(known))}", stacklevel=2)
    for name, choices in _CHOICES.items():
        if kwargs.get(name, choices[0]) not in choices:
            raise InvalidArgument(
                f"qconfig: '{name}' is unknown", expected=" or ".join(map(repr, choices)), found=repr(kwargs[name])
            )
    return QConfig(**{k: v for k, v in kwargs.items() if k in known})


class QuantizeContext:
    """What annotating has met: the convolutions so far, and whether to quantize no more."""

    Current: QuantizeContext | None = None

    def __init__(self) -> None:
        self.reset()

    def check_to_skip(self, ref_call: Any) -> bool:
        """Count a convolution; return whether the configuration leaves the call alone."""
        if self._stopped:
            return True
        if ref_call.op.name != "nn.conv2d":
            return False
        self._convolutions += 1
        return self._convolutions - 1 in [int(i) for i in current_qconfig().skip_conv_layers or ()]

    def stop_quantize(self) -> None:
        """Leave all that follows as it is."""
        self._stopped = True

    def reset(self) -> None:
        """Forget what was met."""
        self._convolutions, self._stopped = 0, False
        self.qnode_map: dict[Any, Any] = {}

    def __enter__(self) -> QuantizeContext:
        self.reset()
        return self

    def __exit__(self, *_: object) -> None:
        self.reset()  # it holds the program


def quantize_context() -> QuantizeContext:
    """Return the one context, whose ``with`` block is one program's annotation."""
    if QuantizeContext.Current is None:
        QuantizeContext.Current = QuantizeContext()
    return QuantizeContext.Current
