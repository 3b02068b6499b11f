"""Helpers for tests of programs built with Weft: comparisons, targets to run on, requirements (``tvm.testing``)."""

from weft.testing import env
from weft.testing.compare import assert_allclose, assert_prim_expr_equal
from weft.testing.functions import device_test, echo, identity_cpp, nop, object_use_count
from weft.testing.targets import (
    device_enabled,
    enabled_targets,
    known_failing_targets,
    main,
    parameter,
    parametrize_targets,
    requires_cuda,
    requires_gpu,
    requires_llvm,
    skip_if_32bit,
    uses_gpu,
)

__all__ = [
    "assert_allclose", "assert_prim_expr_equal", "device_enabled", "device_test", "echo", "enabled_targets", "env",
    "identity_cpp", "known_failing_targets", "main", "nop", "object_use_count",
    "parameter", "parametrize_targets", "requires_cuda", "requires_gpu", "requires_llvm", "skip_if_32bit",
    "uses_gpu",
]  # fmt: skip
