"""Compiling one function of operators, under TVM's names: ``te_compiler.get().lower(func, target)`` and ``jit``."""

import functools
from typing import Any, cast

from weft import ir, relax, tir
from weft.error import LoweringError
from weft.relay.build_module import as_target, lower_to_graph
from weft.relay.expr import Function
from weft.relay.infer import infer_module
from weft.target import Target


class LoweredFunction:
    """What a function of operators became.

    Attributes
    ----------
    funcs : IRModule
        Its kernels, as TIR functions.
    target : Target
        What they are for.
    prim_fn_var : GlobalVar or None
        The kernel that computes it, where one does.
    """

    def __init__(self, source: Function, target: Target) -> None:
        lowered, graph = lower_to_graph(infer_module(ir.IRModule({"main": source})), target)
        self.target = target
        self.funcs = lowered.with_functions({v: f for v, f in lowered.items() if not isinstance(f, ir.Function)})
        called = [n for n in graph.nodes if n.function is not None]
        outputs = [e for node in called for e in range(len(node.outputs))]
        inputs = [i for i, n in enumerate(graph.nodes) if n.function is None]
        whole = len(called) == 1 and [e.node for e in called[0].inputs] == inputs and len(graph.heads) == len(outputs)
        self.prim_fn_var = lowered.get_global_var(str(called[0].function)) if whole and not graph.params else None

    def single(self) -> ir.GlobalVar:
        """Return the kernel that computes it all."""
        if self.prim_fn_var is None:
            raise LoweringError(
                "a function that is compiled by itself becomes one kernel",
                found=f"{len(self.funcs.functions)} kernels",
                help="relay.build compiles any",
            )
        return self.prim_fn_var

    def same_as(self, other: Any) -> bool:
        """Whether it is that very one."""
        return self is other


class TECompiler:
    """Lowers functions, each once for a target."""

    def __init__(self) -> None:
        self._made: dict[tuple[str, str], LoweredFunction] = {}

    def lower(self, source_func: Function, target: Any = None) -> LoweredFunction:
        """Lower a function of operators on tensors of constant shapes; equal ones are lowered once."""
        where = as_target(target)
        key = ir.fingerprint(source_func), str(where)
        if key not in self._made:
            self._made[key] = LoweredFunction(source_func, where)
        return self._made[key]

    def jit(self, source_func: Function, target: Any = None) -> Any:
        """Compile a function of operators to a packed function of its arguments, then its results.

        Raises
        ------
        LoweringError
            When it is more than one kernel.
        """
        lowered = self.lower(source_func, target)
        module = relax.compile_kernels(lowered.funcs, lowered.target)
        assert module is not None
        return module[lowered.single().name_hint]

    def clear(self) -> None:
        """Forget what was lowered."""
        self._made.clear()


def lower_to_primfunc(relay_func: Function, target: Target | str) -> tir.PrimFunc:
    """Return the TIR function that computes a function of operators.

    Raises
    ------
    LoweringError
        When it is more than one kernel.
    """
    lowered = get().lower(relay_func, target)
    return cast(tir.PrimFunc, lowered.funcs[lowered.single()])


@functools.cache
def get() -> TECompiler:
    """Return the compiler of the process."""
    return TECompiler()
