"""Operators that nobody scheduled become kernels for GPUs: a sample of what ``benchmarks.gpu --check`` runs on one."""

import pytest

import weft
from benchmarks.operators import CASES
from weft.frontend.onnx import from_onnx

SAMPLE = [c for i, c in enumerate(CASES) if i % 29 == 0 or c.op in ("CumSum", "RoiAlign", "GRU")]


@pytest.mark.share(32, "case.op", "symbolic")
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("case", SAMPLE, ids=lambda c: f"{c.op}-{c.name}")
def test_an_operator_is_built(case, symbolic):
    mod = from_onnx(case.model(symbolic))
    assert _kernels(weft.compile(mod, target=weft.target.Target("nvptx -mcpu=sm_80")).mod)


def _kernels(module):
    own = module.function_names() if module.is_device_module else []
    return [*own, *(name for m in module.imported_modules for name in _kernels(m))]
