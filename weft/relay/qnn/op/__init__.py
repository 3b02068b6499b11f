"""``relay.qnn.op``: the constructors of quantized operators."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from typing import Any

from weft.ir import register_op_attr
from weft.relay.op.construct import namespace
from weft.relay.qnn import elementwise, products
from weft.relay.qnn.requantization import requantize_config
from weft.spelling import also_called

__all__ = ["elementwise", "products", "register_qnn_canonicalize", "register_qnn_legalize", "requantize_config"]


@also_called(op_name="qnn_op_name")
def register_qnn_legalize(qnn_op_name: str, legal_op: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Say what ``qnn.transform.Legalize`` puts in place of an operator's calls; without `legal_op`, a decorator."""
    return register_op_attr(qnn_op_name, "FTVMQnnLegalize", legal_op, level)


@also_called(op_name="qnn_op_name")
def register_qnn_canonicalize(qnn_op_name: str, legal_op: Callable[..., Any] | None = None, level: int = 10) -> Any:
    """Say what ``qnn.transform.CanonicalizeOps`` writes for an operator; without `legal_op`, a decorator."""
    return register_op_attr(qnn_op_name, "FTVMQnnCanonicalize", legal_op, level)


qnn = sys.modules[__name__]  # TVM's name of the module of the constructors
_operator, __dir__ = namespace("qnn.")


def __getattr__(name: str) -> Any:
    if name in ("canonicalizations", "legalizations"):  # the first stands on the interpreter
        return importlib.import_module(f"weft.relay.qnn.op.{name}")
    return _operator(name)
