"""Networks, and small tools, for tests and examples under TVM's names.

Read ``init`` and ``layers`` first, then any network; ``nat`` holds natural numbers, ``run`` runs single passes.
"""

import importlib
from typing import Any

from weft.relay.prelude import Prelude as Prelude
from weft.relay.testing import (
    dcgan,
    densenet,
    dqn,
    inception_v3,
    init,
    layers,
    lstm,
    mlp,
    mobilenet,
    nat,
    resnet,
    resnet_3d,
    squeezenet,
    synthetic,
    temp_op_attr,
    vgg,
)
from weft.relay.testing.gradients import check_grad, count_ops
from weft.relay.testing.gradients import random_of_type as _np_randn_from_type  # TVM's name
from weft.relay.testing.init import Initializer, Xavier, create_workload
from weft.relay.testing.nat import count, make_nat_expr, make_nat_value
from weft.relay.testing.py_converter import run_as_python, to_python
from weft.relay.testing.run import rand, run_infer_type, run_opt_pass


def __getattr__(name: str) -> Any:
    if name == "enabled_targets":
        return importlib.import_module("weft.testing").enabled_targets  # a higher floor: only when asked for
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
