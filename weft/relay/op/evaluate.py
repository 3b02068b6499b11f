"""Evaluate a call of an operator on NumPy arrays, by the references of the shared operators that it expands to.

This is the meaning of Relay's operators: the interpreter, constant folding and the contract tests stand on it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from weft import ir
from weft.relay.operate import operate


def evaluate(call: ir.Call, arrays: Sequence[Any]) -> Any:
    """Evaluate a call of an operator.

    Parameters
    ----------
    call : Call
        The call; only its operator and attributes are used.
    arrays : sequence
        The values of its arguments: NumPy arrays, and tuples of them (of any depth) for tuples.

    Returns
    -------
    numpy.ndarray or tuple
        The result.
    """
    return operate(call.op, call.attrs, [_value(a) for a in arrays])  # type: ignore[arg-type]


def _value(value: Any) -> Any:
    return tuple(map(_value, value)) if isinstance(value, (tuple, list)) else np.asarray(value)
