"""Modules through the importer, beside PyTorch."""

import warnings

import numpy as np
import torch

import weft
from weft import relax, target
from weft.frontend.torch import from_exported_program
from weft.relax.interpreter import evaluate

QUICK = target.Target("llvm -opt-level=0")
"""Compiles in half the time; numbers do not depend on it."""


class Call(torch.nn.Module):
    """A function as a module."""

    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def machine(mod):
    return relax.VirtualMachine(weft.compile(mod, QUICK), weft.cpu())["main"]


compiles = 1
"""How many programs of the test, from the next one on, the machine runs (`conftest.py`)."""


def evaluated(mod):
    """What a module's operators are said to compute, as a function of tensors; types of all values are compared."""
    return lambda *args: [weft.runtime.tensor(x) for x in evaluate(mod, *(a.numpy() for a in args))]


def runner(mod):
    """Return the machine for as many programs as are compiled, and then what their operators compute."""
    global compiles
    compiles -= 1
    return machine(mod) if compiles >= 0 else evaluated(mod)


def exported(module, args, dynamic=None):
    """``torch.export`` of a module in evaluation mode; it warns about its own insides."""
    if isinstance(module, Call) and dynamic:  # PyTorch wants one tuple of all arguments' dimensions
        dynamic = (tuple(d for part in dynamic for d in (part if isinstance(part, tuple) else (part,))),)
    with warnings.catch_warnings(action="ignore"):
        return torch.export.export(module.eval(), args, dynamic_shapes=dynamic)


def check(module, args, *others, dynamic=None, tolerance=1e-4, **options):
    """Import a module for some arguments; compare it on these, and on others where dimensions are dynamic."""
    mod = from_exported_program(exported(module, args, dynamic), **options)
    function = runner(mod)
    for given in (args, *others):
        with torch.no_grad():
            expected = module(*given)
        found = function(*(weft.runtime.from_dlpack(x.contiguous()) for x in given if isinstance(x, torch.Tensor)))
        found = [found] if hasattr(found, "numpy") else list(found)
        expected = list(expected) if isinstance(expected, (tuple, list)) else [expected]
        assert len(found) == len(expected)
        for f, e in zip(found, expected, strict=True):
            np.testing.assert_allclose(f.numpy(), e.numpy(), rtol=tolerance, atol=tolerance)
            assert str(f.dtype) == str(e.dtype).removeprefix("torch.")
    return mod
