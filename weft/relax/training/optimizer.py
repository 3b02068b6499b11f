"""Optimizers: each makes a function of parameters, gradients and its own state that returns new ones of both.

Source: Robbins and Monro, 1951 (SGD); Sutskever et al., 2013 (momentum); Kingma and Ba, 2015 (Adam).
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np

from weft import ir
from weft.error import DTypeMismatch, EvaluationError, InvalidArgument
from weft.op import make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Var
from weft.runtime import tensor


class Optimizer:
    """The base of optimizers.

    Attributes
    ----------
    state : tuple of Tensor
        The number of steps, then what the optimizer remembers of each parameter; the last argument of its function.
    param_list : list of Var
        The parameters, set by :meth:`init`.
    dtype : str
        Their data type.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.param_list: list[Any] | None = None
        self.state: Any = None
        self.dtype: str | None = None

    def init(self, params: Any) -> Any:
        """Take the parameters, one float type all, and make the state that training begins with."""
        variables: list[Any] = [params] if isinstance(params, ir.ExprVar) else list(params)
        for i, p in enumerate(variables):
            ty = getattr(p, "ty", None)
            if not isinstance(p, ir.ExprVar) or not isinstance(ty, ir.TensorType):
                raise InvalidArgument("an optimizer takes variables that are tensors", found=f"{p}: {ty}")
            if not ty.dtype or not ir.DataType(ty.dtype).is_float:
                raise DTypeMismatch(f"'{p.name_hint}' is no float tensor", expected="a float type", found=ty.dtype)
            if ty.dtype != variables[0].ty.dtype:
                raise DTypeMismatch(
                    "parameters have different data types", expected=variables[0].ty.dtype, found=ty.dtype
                )
            if any(p is q for q in variables[:i]):
                raise InvalidArgument(f"parameter '{p.name_hint}' appears twice")
        self.param_list, self.dtype = variables, str(variables[0].ty.dtype)
        self.state = (tensor(np.zeros((), "int64")), *self._first_state())
        return self

    def get_function(self) -> ir.Function:
        """Make ``fn(params, gradients, optim_states) -> (params, optim_states)``, all of them tuples.

        Raises
        ------
        EvaluationError
            Before :meth:`init`.
        """
        if self.param_list is None or self.dtype is None or self.state is None:
            raise EvaluationError("the optimizer has no parameters yet", help="call init(params) first")
        types = tuple(p.ty for p in self.param_list)
        states = tuple(ir.tensor_type(tuple(int(d) for d in s.shape), str(s.dtype)) for s in self.state)
        given = {"params": types, "gradients": types, "optim_states": states}
        variables = [Var(n, ir.TupleType(t)) for n, t in given.items()]
        bb = BlockBuilder()
        with bb.function(self.name, variables):
            with bb.dataflow():
                new = _Step(self, bb, *variables).run()
                outs = [bb.emit_output(ir.Tuple(tuple(f)), n) for f, n in zip(new, _RESULTS, strict=True)]
            bb.emit_func_output(ir.Tuple(tuple(outs)))
        made = bb.get()[self.name]
        assert isinstance(made, ir.Function)
        return made

    def _first_state(self) -> list[Any]:
        """Make the state besides the number of steps."""
        return []

    def _begin(self, step: Any) -> None:
        """Emit what is the same for all parameters."""

    def _update(self, step: Any, i: int, p: Any, g: Any) -> Any:
        """Emit the new value of one parameter."""
        raise NotImplementedError

    def _zeros(self) -> list[Any]:
        return [
            tensor(np.zeros([int(d.value) for d in p.ty.shape], ir.numpy_dtype(str(self.dtype))))
            for p in self.param_list or ()
        ]


_RESULTS = ("params_new", "optim_states_new")


class _Step:
    """The function of an optimizer under construction; ``states[i]`` is the new state i."""

    def __init__(self, optimizer: Any, bb: BlockBuilder, params: ir.Expr, gradients: ir.Expr, state: ir.Expr) -> None:
        self.optimizer, self.bb, self.dtype = optimizer, bb, optimizer.dtype
        self.params, self.gradients, self.state = params, gradients, state
        self.names = [p.name_hint for p in optimizer.param_list]
        self.states: list[Any] = [None] * len(optimizer.state)

    def run(self) -> tuple[list[Any], list[Any]]:
        steps = self.bb.emit(ir.TupleGetItem(self.state, 0), "num_steps")
        self.states[0] = self.bb.emit(make_call("add")(steps, ir.constant(1, "int64")), "num_steps_new")
        self.optimizer._begin(self)
        return [self.parameter(i) for i in range(len(self.names))], self.states

    def parameter(self, i: int) -> Any:
        p = self.bb.emit(ir.TupleGetItem(self.params, i), self.names[i])
        g = self.bb.emit(ir.TupleGetItem(self.gradients, i), f"{self.names[i]}_grad")
        return self.optimizer._update(self, i, p, g)

    def remembered(self, i: int, at: int, name: str) -> Any:
        """Emit the state of a parameter."""
        return self.bb.emit(ir.TupleGetItem(self.state, at), f"{self.names[i]}_{name}")

    def number(self, value: float) -> ir.Constant:
        return ir.constant(value, self.dtype)

    def emit(self, i: int, name: str, value: ir.Expr) -> Any:
        return self.bb.emit(value, f"{self.names[i]}_{name}")

    def decayed(self, i: int, p: ir.Expr, g: ir.Expr, weight_decay: float) -> Any:
        """Emit a gradient with that of the penalty of large parameters."""
        if not weight_decay:
            return g
        return self.emit(i, "grad_new", _add(_multiply(self.number(weight_decay), p), g))

    def moved(self, i: int, p: ir.Expr, by: ir.Expr) -> Any:
        """Emit the parameter less the step."""
        return self.emit(i, "new", make_call("subtract")(p, _multiply(self.number(self.optimizer.lr), by)))


def _add(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return make_call("add")(a, b)


def _multiply(a: ir.Expr, b: ir.Expr) -> ir.Expr:
    return make_call("multiply")(a, b)


def _one_less(value: float) -> float:
    """``1 - value`` in decimal digits, so that 1 - 0.9 is 0.1."""
    return float(Decimal("1") - Decimal(str(value)))


class SGD(Optimizer):
    """``param -= lr * (gradient + weight_decay * param)``."""

    def __init__(self, lr: float, weight_decay: float = 0) -> None:
        super().__init__("SGD")
        self.lr, self.weight_decay = float(lr), float(weight_decay)

    def _update(self, step: Any, i: int, p: ir.Expr, g: ir.Expr) -> Any:
        return step.moved(i, p, step.decayed(i, p, g, self.weight_decay))


class MomentumSGD(Optimizer):
    """``velocity = momentum * velocity + (1 - dampening) * gradient``, by which parameters move.

    Parameters
    ----------
    nesterov : bool
        Whether they move by ``gradient + momentum * velocity`` instead.
    """

    def __init__(
        self, lr: float, momentum: float, dampening: float = 0, weight_decay: float = 0, nesterov: bool = False
    ) -> None:
        super().__init__("MomentumSGD")
        self.lr, self.momentum, self.dampening = float(lr), float(momentum), float(dampening)
        self.weight_decay, self.nesterov = float(weight_decay), nesterov

    def _first_state(self) -> list[Any]:
        return self._zeros()

    def _update(self, step: Any, i: int, p: ir.Expr, g: ir.Expr) -> Any:
        v = step.remembered(i, i + 1, "v")
        g = step.decayed(i, p, g, self.weight_decay)
        taken = _multiply(step.number(_one_less(self.dampening)), g) if self.dampening else g
        momentum = step.number(self.momentum)
        v_new = step.states[i + 1] = step.emit(i, "v_new", _add(_multiply(momentum, v), taken))
        by = step.emit(i, "g_nest", _add(g, _multiply(momentum, v_new))) if self.nesterov else v_new
        return step.moved(i, p, by)


class Adam(Optimizer):
    """Moves by the mean of gradients over the root of the mean of their squares.

    Parameters
    ----------
    betas : tuple of float
        How much of either mean stays at each step.
    eps : float
        Added to the root.
    """

    def __init__(
        self, lr: float, betas: tuple[float, float] = (0.9, 0.999), eps: float = 1e-08, weight_decay: float = 0
    ) -> None:
        super().__init__("Adam")
        self.lr, self.eps, self.weight_decay = float(lr), float(eps), float(weight_decay)
        self.beta1, self.beta2 = float(betas[0]), float(betas[1])

    def _first_state(self) -> list[Any]:
        ones = [tensor(np.ones((), ir.numpy_dtype(str(self.dtype)))) for _ in range(2)]
        return [*ones, *self._zeros(), *self._zeros()]

    def _begin(self, step: Any) -> None:
        for at, beta in ((1, self.beta1), (2, self.beta2)):
            product = _multiply(ir.TupleGetItem(step.state, at), step.number(beta))
            step.states[at] = step.bb.emit(product, f"beta{at}_prod")

    def _update(self, step: Any, i: int, p: Any, g: Any) -> Any:
        count = len(step.names)
        m, v = step.remembered(i, i + 3, "m"), step.remembered(i, i + 3 + count, "v")
        g = step.decayed(i, p, g, self.weight_decay)
        b1, b2 = step.number(self.beta1), step.number(self.beta2)
        r1, r2 = step.number(_one_less(self.beta1)), step.number(_one_less(self.beta2))
        m_new = step.states[i + 3] = step.emit(i, "m_new", _add(_multiply(b1, m), _multiply(r1, g)))
        square = _multiply(r2, _multiply(g, g))
        v_new = step.states[i + 3 + count] = step.emit(i, "v_new", _add(_multiply(b2, v), square))
        divide, subtract = make_call("divide"), make_call("subtract")
        m_hat = step.emit(i, "m_hat", divide(m_new, subtract(step.number(1), step.states[1])))
        v_hat = step.emit(i, "v_hat", divide(v_new, subtract(step.number(1), step.states[2])))
        return step.moved(i, p, divide(m_hat, _add(make_call("sqrt")(v_hat), step.number(self.eps))))
