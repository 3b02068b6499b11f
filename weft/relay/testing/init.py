"""Initial values of networks' parameters, and workloads: a typed module with its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, ParamSpec

import numpy as np

from weft import ir, runtime
from weft.error import InvalidArgument
from weft.relay.transform import InferType

P = ParamSpec("P")


class Initializer:
    """Fills a parameter by what the end of its name says: weight, bias, gamma, beta, mean or var."""

    def __call__(self, desc: str, arr: np.ndarray) -> None:
        """Fill an array in place.

        Parameters
        ----------
        desc : str
            The parameter's name.
        arr : numpy.ndarray
            Its value.
        """
        fixed = {"bias": 0.0, "beta": 0.0, "mean": 0.0, "gamma": 1.0, "var": 1.0, "alpha": 0.25}
        for end, value in fixed.items():
            if desc.endswith(end):
                arr[:] = value
                return
        self.init_weight(desc, arr)

    def init_weight(self, name: str, arr: np.ndarray) -> None:
        """Fill a weight."""
        raise NotImplementedError(name)


class Xavier(Initializer):
    """Random weights whose spread keeps the scale of what flows through a layer.

    Parameters
    ----------
    rnd_type : str
        ``uniform`` or ``gaussian``.
    factor_type : str
        ``avg``, ``in`` or ``out``: which number of connections counts.
    magnitude : float
        The scale.
    """

    def __init__(self, rnd_type: str = "uniform", factor_type: str = "avg", magnitude: float = 3) -> None:
        if rnd_type not in ("uniform", "gaussian") or factor_type not in ("avg", "in", "out"):
            raise InvalidArgument(
                "Xavier: unknown kind",
                expected="uniform or gaussian; avg, in or out",
                found=f"{rnd_type}; {factor_type}",
            )
        self.rnd_type, self.factor_type, self.magnitude = rnd_type, factor_type, float(magnitude)

    def init_weight(self, name: str, arr: np.ndarray) -> None:
        """Fill a weight, whose first axis counts outputs and whose second inputs."""
        if arr.ndim < 2:
            raise InvalidArgument(
                f"Xavier: '{name}' is no weight",
                expected="2 dimensions or more",
                found=str(arr.ndim),
                help="name it ..._bias, _gamma, _beta, _mean or _var",
            )
        window = float(np.prod(arr.shape[2:]))
        fan_in, fan_out = arr.shape[1] * window, arr.shape[0] * window
        factor = {"avg": (fan_in + fan_out) / 2, "in": fan_in, "out": fan_out}[self.factor_type]
        scale = float(np.sqrt(self.magnitude / factor))
        drawn = (
            np.random.uniform(-scale, scale, arr.shape)
            if self.rnd_type == "uniform"
            else (np.random.normal(0, scale, arr.shape))
        )
        arr[:] = drawn


class Constant(Initializer):
    """Every weight has one value; by default those of a parameter add up to 1."""

    def __init__(self, value: float | None = None) -> None:
        self.value = value

    def init_weight(self, name: str, arr: np.ndarray) -> None:
        """Fill a weight."""
        arr[:] = 1.0 / arr.size if self.value is None else self.value


def create_workload(
    net: ir.Expr, initializer: Callable[[str, np.ndarray], None] | None = None, seed: int = 0
) -> tuple[ir.IRModule, dict[str, Any]]:
    """Make a typed module of a network, and values of its parameters.

    Parameters
    ----------
    net : Function
        The network; the parameter called ``data`` is its input.
    initializer : callable, optional
        Fills a parameter, given its name and array; :class:`Xavier` by default.
    seed : int
        The seed of NumPy's random numbers.

    Returns
    -------
    (IRModule, dict)
        The module, and the values of all parameters but ``data`` by name.
    """
    mod = InferType()(ir.IRModule.from_expr(net))
    np.random.seed(seed)
    fill, params = initializer or Xavier(), {}
    for v in mod["main"].params:  # type: ignore[attr-defined]
        if v.name_hint != "data":
            value = np.zeros(v.ty.concrete_shape).astype(ir.numpy_dtype(v.ty.dtype))
            fill(v.name_hint, value)
            params[v.name_hint] = runtime.tensor(value)
    return mod, params


def workload_of(get_net: Callable[P, ir.Expr], **defaults: object) -> Callable[P, tuple[ir.IRModule, dict[str, Any]]]:
    """Make ``get_workload`` of the function that builds a network: it takes the same, with defaults of its own."""
    make: Callable[..., ir.Expr] = get_net
    signature = inspect.signature(get_net)

    def get_workload(*args: P.args, **kwargs: P.kwargs) -> tuple[ir.IRModule, dict[str, Any]]:
        """Make the network as a typed module, and its parameters; the arguments are those of ``get_net``."""
        return create_workload(make(**{**defaults, **signature.bind_partial(*args, **kwargs).arguments}))

    get_workload.__module__ = get_net.__module__
    return get_workload
