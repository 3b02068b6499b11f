"""Trainer: runs a module made by SetupTrainer and keeps parameters, states and the optimizer's state."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import ir
from weft.error import EvaluationError, InvalidArgument
from weft.relax.training.setup_trainer import ADJOINT_FUNC, BACKBONE_FUNC, OPTIMIZER_FUNC
from weft.runtime import Tensor, VirtualMachine, tensor


class Trainer:
    """A model under training.

    Parameters
    ----------
    train_mod : IRModule
        What ``SetupTrainer`` made.
    vm : VirtualMachine
        That runs it.
    device : Device
        Where parameters and states lie.
    zero_init_param_state : bool
        Whether they begin as zeros; otherwise they must be given before use.
    """

    def __init__(
        self, train_mod: ir.IRModule, vm: VirtualMachine, device: Any, zero_init_param_state: bool = True
    ) -> None:
        self.mod, self.vm, self.device = train_mod.without_attr("optim_state"), vm, device
        inputs, params, states = (_number(train_mod, k) for k in ("input_num", "param_num", "state_num"))
        variables: Any = train_mod[ADJOINT_FUNC].params[inputs : inputs + params + states]  # type: ignore[attr-defined]
        self._inputs, self._param_vars, self._state_vars = inputs, variables[:params], variables[params:]
        self._optimizer_state = [self._tensor(s) for s in train_mod.attrs["optim_state"]]
        self._params: list[Any] = [None] * params
        self._states: list[Any] = [None] * states
        if zero_init_param_state:
            self.zero_init_params()
            self.zero_init_states()

    def _tensor(self, value: Any) -> Tensor:
        return tensor(value.numpy() if isinstance(value, Tensor) else np.asarray(value), self.device)

    def xaiver_uniform_init_params(self) -> None:
        """Draw parameters as in Glorot and Bengio, 2010: uniformly, in ``sqrt(6 / sum(shape))`` around 0."""
        for i, p in enumerate(self._param_vars):
            shape = _shape(p)
            drawn = np.sqrt(6.0 / sum(shape)) * np.random.uniform(-1.0, 1.0, shape)
            self._params[i] = self._tensor(drawn.astype(ir.numpy_dtype(p.ty.dtype)))

    def zero_init_params(self) -> None:
        """Make all parameters zero."""
        self._params = [self._tensor(np.zeros(_shape(p), ir.numpy_dtype(p.ty.dtype))) for p in self._param_vars]

    def zero_init_states(self) -> None:
        """Make all states zero."""
        self._states = [self._tensor(np.zeros(_shape(s), ir.numpy_dtype(s.ty.dtype))) for s in self._state_vars]

    def load_params(self, params: Any) -> None:
        """Take parameters, a list of all of them or a dict by name."""
        self._load(self._params, self._param_vars, params, "parameter")

    def load_states(self, states: Any) -> None:
        """Take states, a list of all of them or a dict by name."""
        self._load(self._states, self._state_vars, states, "state")

    def _load(self, held: list[Any], variables: Any, given: Any, what: str) -> None:
        names = [v.name_hint for v in variables]
        if isinstance(given, dict):
            for name, value in given.items():
                if name not in names:
                    raise InvalidArgument(f"the model has no {what} '{name}'", expected=", ".join(names) or "none")
                held[names.index(name)] = self._tensor(value)
        elif isinstance(given, (list, tuple)) and len(given) == len(names):
            held[:] = [self._tensor(v) for v in given]
        else:
            raise InvalidArgument(
                f"one value for each {what}, or a dict", expected=str(len(names)), found=repr(given)[:80]
            )

    def export_params(self) -> dict[str, Tensor]:
        """Return parameters by name."""
        return {v.name_hint: p for v, p in zip(self._param_vars, self._params, strict=True)}

    def export_states(self) -> dict[str, Tensor]:
        """Return states by name."""
        return {v.name_hint: s for v, s in zip(self._state_vars, self._states, strict=True)}

    def predict(self, *input_instances: Any) -> Any:
        """Run the model; its new states are dropped."""
        result = self.vm[BACKBONE_FUNC](*self._arguments(input_instances))
        if not self._states:
            return result
        rest = list(result)[: -len(self._states)]
        return rest[0] if len(rest) == 1 else rest

    def update(self, input_instances: Any, targets: Any) -> Tensor:
        """Train one step and return the loss; several inputs or targets are a list."""
        inputs = input_instances if isinstance(input_instances, list) else [input_instances]
        wanted = targets if isinstance(targets, list) else [targets]
        loss, gradients = self.vm[ADJOINT_FUNC](*self._arguments(inputs), *map(self._tensor, wanted))
        if self._states:
            loss, *self._states = list(loss)
        params, state = self.vm[OPTIMIZER_FUNC](tuple(self._params), gradients, tuple(self._optimizer_state))
        self._params, self._optimizer_state = list(params), list(state)
        return loss

    def _arguments(self, inputs: Any) -> list[Any]:
        if any(v is None for v in (*self._params, *self._states)):
            raise EvaluationError("a parameter or state has no value yet", help="call load_params or zero_init_params")
        if len(inputs) != self._inputs:
            raise InvalidArgument("the model takes other inputs", expected=str(self._inputs), found=str(len(inputs)))
        return [*map(self._tensor, inputs), *self._params, *self._states]


def _number(mod: ir.IRModule, key: str) -> int:
    value = mod.attrs[key]
    return int(getattr(value, "value", value))


def _shape(var: Any) -> list[int]:
    return [int(d.value) for d in var.ty.shape]
