"""Helpers for tests of programs built with Weft: comparisons, targets to run on, requirements (``tvm.testing``)."""

from weft._aliases import names_of
from weft.testing import env
from weft.testing.compare import assert_allclose, assert_prim_expr_equal
from weft.testing.fixtures import fixture, parameter, parameters, skip_parameterizations, xfail_parameterizations
from weft.testing.functions import device_test, echo, identity_cpp, nop, object_use_count
from weft.testing.numeric import (
    check_bool_expr_is_true,
    check_numerical_grads,
    generate_random_array,
    np_dtype_from_str,
)
from weft.testing.targets import *  # noqa: F403 - all marks are this package's face
from weft.testing.targets import __all__ as _targets
from weft.testing.transformations import CompareBeforeAfter, check_error

__all__ = [  # pyright: ignore[reportUnsupportedDunderAll] - those of targets are all of them
    "CompareBeforeAfter",
    "assert_allclose",
    "assert_prim_expr_equal",
    "check_bool_expr_is_true",
    "check_error",
    "check_numerical_grads",
    "device_test",
    "echo",
    "env",
    "fixture",
    "generate_random_array",
    "identity_cpp",
    "nop",
    "np_dtype_from_str",
    "object_use_count",
    "parameter",
    "parameters",
    "skip_parameterizations",
    "xfail_parameterizations",
    *_targets,
]

__getattr__ = names_of("weft.testing", dict.fromkeys(("auto_scheduler", "autotvm"), ""))
