"""The passes from Relay to what the virtual machine's code is generated from, top to bottom."""

from __future__ import annotations

from typing import Any

from weft.ir import Pass, Sequential
from weft.relay.transform.dead_code import dead_code_elimination
from weft.relay.transform.eliminate_common_subexpr import eliminate_common_subexpr
from weft.relay.transform.fold_constant import fold_constant
from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.inline import inline
from weft.relay.transform.lambda_lift import lambda_lift
from weft.relay.transform.lower_regions import LowerRegions
from weft.relay.transform.manifest_alloc import ManifestAlloc
from weft.relay.transform.to_a_normal_form import to_a_normal_form

__all__ = ["vm_pipeline"]


def vm_pipeline(target: Any) -> Pass:
    """Make the pass that lowers a module for a target."""
    return Sequential(
        [
            infer_type(),
            inline(),
            fold_constant(),
            eliminate_common_subexpr(),
            dead_code_elimination(),
            to_a_normal_form(),
            lambda_lift(),
            infer_type(),
            LowerRegions(target),
            ManifestAlloc(target),
        ],
        name="relay.vm",
    )
