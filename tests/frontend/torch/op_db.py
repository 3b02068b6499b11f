"""PyTorch's own database of operators through the importer: ``python -m tests.frontend.torch.op_db --samples 5``.

Each sample input of each operator in core ATen (float32, int64, bool) is exported, static and with every dimension
dynamic, imported, and compared with eager. What eager or ``torch.export`` refuse is left out.
"""

import argparse
import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from types import SimpleNamespace
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import weft
from tests.frontend.torch.programs import machine
from weft.frontend.torch import from_exported_program
from weft.frontend.torch.graph import as_real

DTYPES = {"float32": torch.float32, "int64": torch.int64, "bool": torch.bool, "complex64": torch.complex64}
DTYPES["float64"] = torch.float64
REAL = ("float32", "int64", "bool")
UNDEFINED = ("empty", "new_empty")
"""Whose elements are whatever lies in memory."""
ANY_PLACE = ("sort", "topk", "argsort", "msort")
"""Which of equal elements comes first is not said."""


def core() -> set[str]:
    """Names of the operators in core ATen."""
    found = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name, None)
        if hasattr(packet, "overloads") and any(torch.Tag.core in getattr(packet, o).tags for o in packet.overloads()):
            found.add(name)
    return found


def operators(beyond: bool = False) -> list[Any]:
    """Entries of the database for them, or for all others."""
    names = core()
    named = [info for info in op_db if ({info.aten_name, info.aten_name.rstrip("_")} & names == set()) is beyond]
    return [info for info in named if not _is_random(info.aten_name)]


def _is_random(name: str) -> bool:
    """Whether no two calls are equal, in PyTorch neither."""
    packet = getattr(torch.ops.aten, name, None)
    return packet is not None and torch.Tag.nondeterministic_seeded in getattr(packet, packet.overloads()[0]).tags


def samples(info: Any, count: int, dtypes: Sequence[str] = REAL) -> Iterator[tuple[Any, int, Any]]:
    """The first sample inputs of each element type."""
    for dtype in map(DTYPES.__getitem__, dtypes):
        if dtype in info.dtypes:
            for n, sample in enumerate(list(info.sample_inputs("cpu", dtype, requires_grad=False))[:count]):
                yield dtype, n, sample


class Call(torch.nn.Module):
    """One call of an operator: tensors are inputs, everything else is fixed."""

    def __init__(self, info: Any, sample: Any) -> None:
        super().__init__()
        self.op = info.op
        leaves, self.spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        self.places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[i].detach().clone() for i in self.places)
        self.leaves = [None if i in self.places else leaf for i, leaf in enumerate(leaves)]

    def forward(self, *tensors: Any) -> Any:
        leaves = list(self.leaves)
        for i, tensor in zip(self.places, tensors, strict=True):
            leaves[i] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return self.op(*args, **kwargs)


def spellings(call: Call) -> Iterator[tuple[Any, Any]]:
    """The operators of ATen in a call, each with arguments by name of which one has another form, for `check`."""
    found: dict[Any, dict[str, Any]] = {}

    class Recorder(torch.fx.Interpreter):
        def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
            if isinstance(target, torch._ops.OpOverload):
                found[target] = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | kwargs
            return super().call_function(target, args, kwargs)

    with suppress(Exception):  # for a call that eager or ``torch.export`` refuses, as in `check`
        Recorder(torch.export.export(call, call.tensors).module()).run(*call.tensors)
    for target, given in found.items():
        info = SimpleNamespace(op=lambda given, target=target: target(**given), name=str(target))
        rank = max((x.ndim for x in given.values() if isinstance(x, torch.Tensor)), default=0)
        for a in target._schema.arguments:
            for value in _forms(a, given[a.name], rank) if a.name in given else ():
                yield info, SimpleNamespace(input=given | {a.name: value}, args=(), kwargs={})


def _forms(argument: Any, given: Any, rank: int) -> list[Any]:
    """Numbers for tensors and of other types, axes from the end, tuples, the default: eager says which it takes."""
    kind = str(argument.type).removeprefix("Optional[").removesuffix("]")
    found = [argument.default_value] if argument.has_default_value() else []
    found += [2, 1.5, True] if kind in ("Tensor", "number") else [2] if kind == "float" else []
    found += [given - rank] if kind == "int" and isinstance(given, int) and "dim" in argument.name else []
    return found + ([tuple(given), [i - rank for i in given]] if kind.startswith("List[int") and given else [])


def check(info: Any, sample: Any, dynamic: bool, run: Callable[..., Any] = machine) -> str:
    """``ok``, or why a sample is left out; raises where Weft, run by `run`, refuses or differs."""
    call = Call(info, sample)
    try:
        with torch.no_grad():
            expected = [x for x in pytree.tree_leaves(call(*(t.clone() for t in call.tensors))) if x is not None]
    except Exception:
        return "eager refuses"
    if any(isinstance(x, torch.Tensor) and x.layout is not torch.strided for x in expected):
        return "sparse"
    dims = tuple({i: torch.export.Dim.AUTO for i in range(t.ndim)} for t in call.tensors)
    try:
        program = torch.export.export(call, call.tensors, dynamic_shapes=(dims,) if dynamic and dims else None)
    except Exception:
        return "export refuses"
    found = run(from_exported_program(program))(*(weft.runtime.from_dlpack(as_real(t)) for t in call.tensors))
    found = [found] if hasattr(found, "numpy") else list(found)
    assert len(found) == len(expected), f"{len(found)} results instead of {len(expected)}"
    if info.name.startswith(UNDEFINED):
        return "ok"
    for f, e in zip(found, (as_real(torch.as_tensor(x)) for x in expected), strict=True):
        if info.name in ANY_PLACE and e.dtype == torch.int64 and len(expected) > 1 and e is not expected[0]:
            continue
        mine = torch.from_dlpack(f).clone()
        wide = {torch.float32: {"rtol": 1e-3, "atol": 1e-4}, torch.float64: {"rtol": 1e-9, "atol": 1e-10}}.get(
            e.dtype, {}
        )
        torch.testing.assert_close(mine.to(e.dtype) if not e.ndim else mine, e, equal_nan=True, **wide)
    return "ok"


def main() -> int:
    """Run all; print what fails, and for each element type and mode how many of those that export takes are right."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--only", default="")
    parser.add_argument("--beyond", action="store_true", help="operators outside of core ATen instead")
    parser.add_argument("--dtypes", nargs="*", default=REAL, choices=DTYPES)
    parser.add_argument("--modes", nargs="*", default=["static", "dynamic"])
    parser.add_argument("--part", type=int, nargs=2, default=(0, 1), metavar=("I", "N"), help="every N-th operator")
    parser.add_argument("--forms", action="store_true", help="the calls of ATen in them with arguments in other forms")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    count: Counter[tuple[str, str, str]] = Counter()
    for info in operators(options.beyond)[options.part[0] :: options.part[1]]:
        if options.only not in info.name:
            continue
        for dtype, n, sample in samples(info, options.samples, options.dtypes):
            calls = spellings(Call(info, sample)) if options.forms else [(info, sample)]
            for call, mode in itertools.product(calls, options.modes):
                try:
                    outcome = check(*call, mode == "dynamic")
                except Exception as error:
                    outcome = "failed"
                    text = " ".join(str(error).split())[:300]
                    print(info.name, info.variant_test_name, dtype, n, mode, type(error).__name__, text, flush=True)
                count[mode, str(dtype), outcome] += 1
    for mode, dtype in sorted({key[:2] for key in count}):
        right, failed = (count[mode, dtype, k] for k in ("ok", "failed"))
        share = 100 * right / max(right + failed, 1)
        print(f"{mode} {dtype}: {right} of {right + failed} right, {share:.1f}%")
    return int(any(name == "failed" for *_, name in count))


if __name__ == "__main__":
    raise SystemExit(main())
