"""The way from a float module to a quantized one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relay.bind import bind_params_by_name
from weft.relay.quantize.annotate import annotate
from weft.relay.quantize.calibrate import calibrate
from weft.relay.quantize.config import current_qconfig, quantize_context
from weft.relay.quantize.conversions import partition_conversions
from weft.relay.quantize.partition import partition
from weft.relay.quantize.realize import realize
from weft.relay.transform import FoldScaleAxis, canonicalize_ops, fold_constant, infer_type, simplify_inference


def prerequisite_optimize(mod: ir.IRModule, params: Mapping[str, Any] | None = None) -> ir.IRModule:
    """Bind parameters of ``main`` and write the operators of inference as those that can be quantized.

    From ``PassContext(opt_level=3)`` on scales are folded into weights, and biases are additions.
    """
    if params:
        main = next(v for v in mod.functions if v.name_hint == "main")
        mod = mod.with_functions({**mod.functions, main: bind_params_by_name(mod["main"], params)})  # type: ignore[arg-type]
    more = [FoldScaleAxis(), canonicalize_ops()] if ir.PassContext.current().opt_level >= 3 else []
    for step in (infer_type(), simplify_inference(), fold_constant(), *more, fold_constant(), infer_type()):
        mod = step(mod)
    return mod


def quantize(
    mod: ir.IRModule, params: Mapping[str, Any] | None = None, dataset: Iterable[Mapping[str, Any]] | None = None
) -> ir.IRModule:
    """Quantize ``main`` of a module, as :func:`qconfig` says.

    Parameters
    ----------
    mod : IRModule
        A network on float32.
    params : mapping of str to array, optional
        Its weights; only what is constant is quantized as a weight.
    dataset : iterable of mapping of str to array, optional
        Batches of inputs by name, for ``calibrate_mode="kl_divergence"`` and ``"percentile"``.

    Returns
    -------
    IRModule
        The same network on integers, with the same parameters but those bound and the same results.

    Raises
    ------
    InvalidArgument
        When the mode needs a data set, or conversions are to be cut out of a module of several functions.
    NotIntegral
        When ``partition_conversions="fully_integral"`` and the network has other operators on floats.
    """
    config = current_qconfig()
    mod = prerequisite_optimize(mod, params)
    with quantize_context():
        mod = calibrate(dataset)(annotate()(partition()(mod)))
    steps = (infer_type(), *(() if config.do_simulation else (realize(),)), fold_constant(), infer_type())
    for step in steps:
        mod = step(mod)
    if config.partition_conversions == "disabled":
        return mod
    if len(mod.functions) != 1:
        raise InvalidArgument(
            "partition_conversions cuts a module of one function", found=", ".join(v.name_hint for v in mod.functions)
        )
    dtypes = {config.dtype_input, config.dtype_weight, config.dtype_activation}
    return partition_conversions(mod, dtypes, config.partition_conversions == "fully_integral")
