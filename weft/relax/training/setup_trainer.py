"""SetupTrainer: a model's function becomes a module that trains."""

from collections.abc import Sequence
from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.relax.analysis import check_well_formed
from weft.relax.training.append_loss import AppendLoss
from weft.relax.training.loss import Loss
from weft.relax.training.optimizer import Optimizer
from weft.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining, Gradient, LegalizeOps

BACKBONE_FUNC, BACKBONE_LOSS_FUNC = "backbone", "backbone_loss"
ADJOINT_FUNC, OPTIMIZER_FUNC = "backbone_loss_adjoint", "optimizer"


def SetupTrainer(loss: Loss, optimizer: Optimizer, loss_args: Sequence[ir.Type], legalize: bool = True) -> ir.Pass:
    """Make the pass that adds to a function ``backbone`` what training calls.

    The module's attributes ``param_num`` and ``state_num`` say how many arguments of ``backbone``, behind its inputs,
    are parameters and states; new states are its last results. Added are ``backbone_loss``, its adjoint and
    ``optimizer``, and the attributes ``input_num`` and ``optim_state``.

    Parameters
    ----------
    loss_args : sequence of types
        What `loss` is called with.
    legalize : bool
        Whether operators become kernels.
    """

    def run(mod: ir.IRModule) -> ir.IRModule:
        """Add the functions."""
        params, states = _counts(mod)
        mod = AppendLoss(BACKBONE_FUNC, loss(*loss_args), loss.num_backbone_outputs, BACKBONE_LOSS_FUNC)(mod)
        mod = DecomposeOpsForInference(BACKBONE_FUNC)(mod)
        mod = DecomposeOpsForTraining(BACKBONE_LOSS_FUNC)(mod)
        inputs = len(mod[BACKBONE_FUNC].params) - params - states  # type: ignore[attr-defined]
        variables = list(mod[BACKBONE_LOSS_FUNC].params[inputs : inputs + params])  # type: ignore[attr-defined]
        mod = Gradient(BACKBONE_LOSS_FUNC, variables, 0)(mod).copy()
        optimizer.init(variables)
        mod[OPTIMIZER_FUNC] = optimizer.get_function().with_attr("global_symbol", OPTIMIZER_FUNC)
        mod = mod.with_attrs({"input_num": inputs, "optim_state": tuple(optimizer.state)})
        return LegalizeOps()(mod) if legalize else mod

    return ir.Pass("SetupTrainer", run, 0, SetupTrainer.__doc__)


def _counts(mod: ir.IRModule) -> tuple[int, int]:
    """Check the module, and return the numbers of parameters and states."""
    if not check_well_formed(mod):
        raise InvalidArgument("SetupTrainer: the module is not well formed")
    func = mod[BACKBONE_FUNC] if BACKBONE_FUNC in mod else None
    if not isinstance(func, ir.Function):
        raise InvalidArgument(f"SetupTrainer: the module has no Relax function '{BACKBONE_FUNC}'")
    counts = [getattr(mod.attrs.get(k), "value", mod.attrs.get(k)) for k in ("param_num", "state_num")]
    if not all(isinstance(c, int) for c in counts):
        raise InvalidArgument("SetupTrainer: the module needs the integer attributes param_num and state_num")
    params, states = counts
    if len(func.params) < params + states:
        raise InvalidArgument(
            "SetupTrainer: backbone has too few parameters", expected=str(params + states), found=str(len(func.params))
        )
    result: Any = func.body.body  # type: ignore[attr-defined]
    if states and (not isinstance(result, ir.Tuple) or len(result.fields) <= states):
        raise InvalidArgument("SetupTrainer: backbone returns its results, then its states", found=str(func.ret_ty))
    return params, states
