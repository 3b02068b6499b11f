"""Losses: each is called with the types of predictions and targets and returns a function of them."""

from collections.abc import Callable
from typing import Any

from weft import error, ir
from weft.op import make_call
from weft.relax.block_builder import BlockBuilder
from weft.relax.expr import Var

_REDUCTIONS = ("mean", "sum", "none")


class Loss:
    """The base of losses.

    Parameters
    ----------
    loss_name : str
        The name of the function.
    num_backbone_outputs : int
        How many results of the model it takes.
    reduction : str
        What becomes of the losses of elements: their "mean" or "sum", or "none".
    """

    def __init__(self, loss_name: str, num_backbone_outputs: int, reduction: str = "mean") -> None:
        if reduction not in _REDUCTIONS:
            raise error.InvalidArgument("unknown reduction", expected=", ".join(_REDUCTIONS), found=repr(reduction))
        self._loss_name, self._reduction, self._num_backbone_outputs = loss_name, reduction, num_backbone_outputs

    @property
    def num_backbone_outputs(self) -> int:
        """How many results of the model it takes."""
        return self._num_backbone_outputs

    def __call__(self, *args: Any, **_named: Any) -> ir.Function:
        """Return the function for values of some types; variables stand for their types."""
        raise NotImplementedError

    def _with_reduction(self, expr: ir.Expr) -> ir.Expr:
        return expr if self._reduction == "none" else make_call(self._reduction)(expr)

    def _function(self, params: list[Any], names: tuple[str, ...], body: Callable[..., ir.Expr]) -> ir.Function:
        bb = BlockBuilder()
        given = [(p, n) for p, n in zip(params, names, strict=False) if p is not None]
        variables = [_parameter(p, n) for p, n in given]
        with bb.function(self._loss_name, variables):
            with bb.dataflow():
                result = bb.emit_output(body(bb, *variables))
            bb.emit_func_output(result)
        made = bb.get()[self._loss_name]
        assert isinstance(made, ir.Function)
        return made


def _parameter(given: Any, name: str) -> Any:
    """Make a parameter of a type, or like a variable."""
    if isinstance(given, ir.Type):
        return Var(name, given)
    if isinstance(given, ir.ExprVar):
        return Var(given.name_hint, given.ty)
    raise error.InvalidArgument(f"the type of '{name}' is missing", expected="a variable or a type", found=repr(given))


class L1Loss(Loss):
    """The absolute difference."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("l1_loss", 1, reduction)

    def __call__(self, predictions: Any, targets: Any) -> ir.Function:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the function for predictions and targets of some types."""

        def body(_bb: BlockBuilder, p: ir.Expr, t: ir.Expr) -> ir.Expr:
            return self._with_reduction(make_call("abs")(make_call("subtract")(p, t)))

        return self._function([predictions, targets], ("predictions", "targets"), body)


class MSELoss(Loss):
    """The square of the difference."""

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__("mse_loss", 1, reduction)

    def __call__(self, predictions: Any, targets: Any) -> ir.Function:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the function for predictions and targets of some types."""

        def body(bb: BlockBuilder, p: ir.Expr, t: ir.Expr) -> ir.Expr:
            away = bb.emit(make_call("subtract")(p, t))
            return self._with_reduction(make_call("multiply")(away, away))

        return self._function([predictions, targets], ("predictions", "targets"), body)


class CrossEntropyLoss(Loss):
    """``nll_loss`` of ``log_softmax``: targets are the numbers of classes.

    Parameters
    ----------
    ignore_index : int
        A target that counts nothing.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Any, targets: Any, weights: Any = None) -> ir.Function:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the function for predictions, targets and perhaps weights of classes."""

        def body(bb: BlockBuilder, p: ir.Expr, t: ir.Expr, *w: ir.Expr) -> ir.Expr:
            logits = bb.emit(make_call("nn.log_softmax")(p))
            options = {"reduction": self._reduction, "ignore_index": self.ignore_index}
            return make_call("nn.nll_loss")(logits, t, *w, **options)

        return self._function([predictions, targets, weights], ("predictions", "targets", "weights"), body)


class CategoricalCrossEntropyLoss(Loss):
    """The same where targets are one-hot vectors of integers.

    Parameters
    ----------
    ignore_index : int
        A class that counts nothing, where it is not negative.
    """

    def __init__(self, reduction: str = "mean", ignore_index: int = -100) -> None:
        super().__init__("categorical_cross_entropy_loss", 1, reduction)
        self.ignore_index = ignore_index

    def __call__(self, predictions: Any, targets: Any, weights: Any = None) -> ir.Function:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Return the function for predictions, targets and perhaps weights of classes."""
        dtype = getattr(targets, "dtype", None) or targets.ty.dtype
        if not ir.DataType(dtype).is_integer:
            raise error.DTypeMismatch("one-hot targets are integers", expected="an integer type", found=str(dtype))

        def body(bb: BlockBuilder, p: Any, t: Any, *w: Any) -> ir.Expr:
            logits = bb.emit(make_call("nn.log_softmax")(p))
            if self.ignore_index >= 0:
                classes = make_call("argmax")(t, axis=1)
                t = bb.emit(make_call("reshape")(classes, ir.shape_expr(t.ty.shape[:1])))
                options = {"reduction": self._reduction, "ignore_index": self.ignore_index}
                return make_call("nn.nll_loss")(logits, t, *w, **options)
            each = bb.emit(make_call("multiply")(make_call("negative")(logits), make_call("astype")(t, "float32")))
            for weight in w:
                each = bb.emit(make_call("multiply")(each, weight))
            return self._with_reduction(each)

        return self._function([predictions, targets, weights], ("predictions", "targets", "weights"), body)
