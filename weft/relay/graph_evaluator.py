"""Executors of programs without control flow: ``create_executor("graph")`` and ``create_executor("aot")``."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from weft import error, ir, runtime
from weft.relay.build_module import as_target, build_function
from weft.relay.build_options import Executor as Kind
from weft.relay.executor import Executor, register_executor
from weft.relay.transform.infer_type import infer_type
from weft.runtime.graph_executor import GraphModule


@register_executor("graph")
class GraphExecutor(Executor):
    """Runs programs without control flow as graphs of kernels."""

    kind = "graph"

    def prepare(self, mod: ir.IRModule, name: str) -> Callable[..., Any]:
        """Compile a function; the result runs it on an executor of its own."""
        mod = infer_type()(mod)
        func: Any = mod[name]
        built = build_function(mod, name, as_target(self.target), Kind(self.kind))
        module = GraphModule(built["default"](self.device if self.device is not None else runtime.cpu()))
        returned = func.body.ty

        def run(*args: Any) -> Any:
            if len(args) != len(func.params):
                raise error.InvalidArgument(
                    f"{name}: wrong number of arguments", expected=str(len(func.params)), found=str(len(args))
                )
            for i, value in enumerate(_fields(args)):
                module.set_input(i, value)
            module.run()
            outputs = (runtime.tensor(module.get_output(i)) for i in range(module.get_num_outputs()))
            return _packed(returned, outputs)

        return run


@register_executor("aot")
class AotExecutor(GraphExecutor):
    """Runs programs without control flow as one native function."""

    kind = "aot"


def _fields(value: Any) -> Iterator[Any]:
    """Tensors of nested tuples, in order."""
    if isinstance(value, (tuple, list)) and not isinstance(value, (runtime.Tensor, np.ndarray)):
        for v in value:
            yield from _fields(v)
    else:
        yield value


def _packed(ty: ir.Type, outputs: Iterator[runtime.Tensor]) -> Any:
    """The next outputs as a value of a type."""
    if isinstance(ty, ir.TupleType):
        return tuple([_packed(f, outputs) for f in ty.fields])
    return next(outputs)
