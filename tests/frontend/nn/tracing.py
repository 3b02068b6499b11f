"""Running a function of nn tensors on arrays, at several sizes of its symbolic dimensions."""

from functools import partial

import numpy as np
import torch
from weft.relax.frontend import nn
from weft.relax.frontend.nn import spec

import weft
from tests.pairs import compiles
from weft import relax
from weft.relax.interpreter import Interpreter


def trace(function, **specs):
    """The module in which `forward` is `function`; specs are shapes, (shape, dtype) or whole specifications."""
    args = {n: _spec(s) for n, s in specs.items()}
    method = spec.MethodSpec(function, list(args), list(args.values()))
    return nn.Module().export_tvm(spec.ModuleSpec(nn.Module(), ["forward"], [method]))[0]


def _spec(value):
    if isinstance(value, list):
        return spec.Tensor(value, "float32")
    return spec.Tensor(*value) if isinstance(value, tuple) else value


def compiled(mod):
    return relax.VirtualMachine(weft.compile(mod, "llvm"), weft.cpu())


def as_numpy(value):
    if isinstance(value, torch.Tensor):
        return value.detach().numpy()
    return value.numpy() if hasattr(value, "numpy") else value


def flat(value):
    """Tensors within nested lists and tuples, in order."""
    if hasattr(value, "shape"):
        return [as_numpy(value)]
    return [t for v in value for t in flat(v)]


def draw(spec_, sizes, rng):
    shape = [sizes[d] if isinstance(d, str) else d for d in spec_.shape]
    if spec_.dtype.startswith("float"):
        return rng.standard_normal(shape).astype(spec_.dtype)
    return rng.integers(0, 2 if spec_.dtype == "bool" else 4, shape).astype(spec_.dtype)


def check(function, reference, sizes=({},), rtol=1e-4, atol=1e-5, **specs):
    """Compare what `function` computes with what `reference` does on tensors of PyTorch; one test of four compiles."""
    mod = trace(function, **specs)
    forward = compiled(mod)["forward"] if compiles(4) else partial(Interpreter(mod).run, "forward")
    for k, some in enumerate(sizes):
        rng = np.random.default_rng(k)
        arrays = [draw(_spec(s), some, rng) for s in specs.values()]
        found = flat(forward(*arrays))
        want = flat(reference(*[torch.tensor(a) for a in arrays]))
        assert len(found) == len(want)
        for i, (f, w) in enumerate(zip(found, want, strict=True)):
            assert (f.shape, f.dtype) == (w.shape, w.dtype), i
            np.testing.assert_allclose(f, w, rtol=rtol, atol=atol, err_msg=f"result {i}, sizes {some}")
