"""``relay.build``: a first-order program becomes kernels and what runs them, a graph or one native function."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from weft.error import InvalidArgument
from weft.garbage import rarely_collected
from weft.ir import IRModule, Pass, PassContext, Sequential, dumped
from weft.relax import compile_kernels
from weft.relax.pipeline import graph_passes
from weft.relay.aot import compile_ahead
from weft.relay.bind import bind_params_by_name
from weft.relay.build_options import Executor, Runtime
from weft.relay.database import kernel_sources, scheduled
from weft.relay.expr import Function, GlobalVar
from weft.relay.external import EXTERNAL_FUNCTIONS, compile_external, external_functions, with_externals
from weft.relay.first_order import check_first_order
from weft.relay.graph import KernelGraph, graph_of, plan_graph_memory
from weft.relay.to_relax import to_relax
from weft.relay.transform.compiler_functions import OutlineCompilerFunctionsWithExistingGlobalSymbols
from weft.relay.transform.dead_code import dead_code_elimination
from weft.relay.transform.fast_math import fast_math
from weft.relay.transform.fold_constant import fold_constant
from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.inline import inline
from weft.relay.transform.partial_eval import partial_evaluate
from weft.relay.transform.remove_unused_functions import remove_unused_functions
from weft.relay.typing import Program, TargetsLike
from weft.relay.vm import bind_params
from weft.relay.vm.compiler import as_module
from weft.runtime import Device, Module, Tensor
from weft.runtime.graph_executor import create_factory
from weft.target import Target, TargetLike

__all__ = [
    "GraphExecutorFactoryModule",
    "bind_params_by_name",
    "build",
    "build_config",
    "from_relay",
    "lower_to_graph",
    "optimize",
]


def __getattr__(name: str) -> Any:
    """Find what runs what is built, which stands above."""
    if name == "create_executor":
        return importlib.import_module("weft.relay.executor").create_executor
    raise AttributeError(f"module 'weft.relay.build_module' has no attribute '{name}'")


build_config = PassContext  # TVM's older name, under which programs set opt_level


class GraphExecutorFactoryModule:
    """What :func:`build` makes: unpack it to graph, library and parameters, export it, or make executors of it.

    Attributes
    ----------
    graph_json : str
        The graph, in TVM's format.
    lib : Module or None
        The kernels.
    params : dict of str to Tensor
        The constants of the graph.
    module : Module
        All of it as one module, whose function `libmod_name` makes an executor for a device.
    """

    def __init__(
        self,
        ir_mod: IRModule,
        target: Target,
        executor: Executor,
        graph_json: str,
        libmod: Module | None,
        libmod_name: str,
        params: Mapping[str, Tensor],
    ) -> None:
        self.ir_mod, self.target, self.executor = ir_mod, target, executor
        self.graph_json, self.lib, self.libmod_name = graph_json, libmod, libmod_name
        self.params = dict(params)
        self.module = create_factory(graph_json, libmod, self.params, libmod_name, executor.name)

    def get_graph_json(self) -> str:
        """Return the graph."""
        return self.graph_json

    get_executor_config = get_graph_json

    def get_lib(self) -> Module | None:
        """Return the kernels."""
        return self.lib

    def get_params(self) -> dict[str, Tensor]:
        """Return the constants of the graph."""
        return dict(self.params)

    def export_library(self, file_name: Any, fcompile: Any = None, addons: Any = None, **options: Any) -> str:
        """Write a library that :func:`weft.runtime.load_module` opens without the compiler.

        Parameters
        ----------
        file_name : path
            The file, ``model.so``.
        fcompile, addons, **options
            As in :meth:`Module.export_library`.
        """
        return self.module.export_library(file_name, fcompile=fcompile, addons=addons, **options)

    def __getitem__(self, name: str) -> Any:
        """A function of the module; ``["default"](device)`` makes an executor."""
        return self.module[name]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.graph_json, self.lib, self.params))

    def __repr__(self) -> str:
        return f"GraphExecutorFactoryModule({self.libmod_name}, executor={self.executor.name})"


def build(
    ir_mod: Program,
    target: TargetsLike = None,
    target_host: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    executor: Executor | str | None = None,
    runtime: Runtime | str | None = None,
) -> GraphExecutorFactoryModule:
    """Compile a program without control flow.

    Parameters
    ----------
    ir_mod : IRModule or Function
        The program. Calls of its functions are inlined, and control flow that the program itself decides is run at
        compile time; then ``main`` must consist of operators on tensors of constant shapes.
    target : Target or str, optional
        By default that of ``with Target(...)``, else the host's CPU.
    target_host : Target or str, optional
        Where the executor itself runs, for targets that are no CPU.
    params : mapping of str to tensor, optional
        Values for parameters of ``main``, by name; they become constants.
    mod_name : str
        The function of the result that makes an executor.
    executor : Executor or str, optional
        ``"graph"``, the default, or ``"aot"``.
    runtime : Runtime or str, optional
        ``"cpp"``.

    Returns
    -------
    GraphExecutorFactoryModule
        ``graph, lib, params = build(...)``, or ``GraphModule(build(...)["default"](device))``.

    Raises
    ------
    LoweringError
        When the program needs the virtual machine; it says which construct, and where.
    """
    kind = Executor.of(executor)
    Runtime.of(runtime)
    where = as_target(target, target_host)
    mod = as_module(ir_mod)
    return build_function(bind_params(mod, params) if params else mod, "main", where, kind, mod_name)


@rarely_collected()
@dumped
def build_function(
    mod: IRModule, name: str, target: Target, executor: Executor, mod_name: str = "default"
) -> GraphExecutorFactoryModule:
    """Compile one function of a module."""
    if executor.name == "aot" and target.kind.device != "cpu":
        raise InvalidArgument("programs ahead of time are the CPU's", expected="executor 'graph'", found=str(target))
    lowered, graph = lower_to_graph(mod, target, name)
    storage = plan_graph_memory(graph)
    if executor.name == "aot":
        graph, kernels = compile_ahead(graph, storage, lowered, target, f"{mod_name}_run")
        storage = plan_graph_memory(graph)
    else:
        kernels = with_externals(compile_kernels(lowered, target), compile_external(external_functions(lowered)))
    text = graph.to_json(storage, Device(target.kind.device).device_type)
    return GraphExecutorFactoryModule(mod, target, executor, text, kernels, mod_name, graph.params)


def lower_to_graph(mod: IRModule, target: Target, name: str = "main") -> tuple[IRModule, KernelGraph]:
    """Run the passes on a function, and return the kernels and the graph that calls them."""
    mod = _optimize(mod, name)
    check_first_order(mod, name)
    return lower_first_order(mod, target, name)


def lower_first_order(mod: IRModule, target: Target, name: str = "main") -> tuple[IRModule, KernelGraph]:
    """Return the kernels of a function that :func:`optimize` and :func:`check_first_order` leave, and their graph."""
    external = {str(f.attrs["global_symbol"]): f for f in external_functions(mod)}
    relax = to_relax(IRModule({**external, "main": mod[name]}))
    with kernel_sources():
        lowered = Sequential(graph_passes(target, check_indices=False), name="relay.build")(relax)
        lowered = scheduled(lowered, target)
    if external:
        lowered = lowered.with_attr(EXTERNAL_FUNCTIONS, tuple(external.values()))
    main: Any = mod[name]
    return lowered, graph_of(lowered, inputs=[p.name_hint for p in main.params])


def optimize(
    mod: Program, target: TargetsLike = None, params: Mapping[str, Any] | None = None
) -> tuple[IRModule, dict[str, Tensor]]:
    """Run the passes that :func:`build` runs on Relay.

    Returns
    -------
    (IRModule, dict)
        The program after inlining and folding, and the values of parameters that it still has: none.
    """
    as_target(target)
    mod = as_module(mod)
    return _optimize(bind_params(mod, params) if params else mod, "main"), {}


def as_target(target: TargetsLike, host: TargetLike | None = None) -> Target:
    """Make the target that arguments mean."""
    if isinstance(target, Mapping | Sequence) and not isinstance(target, str):
        options = list(target.values() if isinstance(target, Mapping) else target)
        if len(options) != 1:
            raise InvalidArgument("a graph is compiled for one target", found=repr(target))
        target = options[0]
    made = target or Target.current() or "llvm"
    made = made if isinstance(made, Target) else Target(made)
    return made if host is None or made.host is not None else Target(made, host)


def _optimize(mod: IRModule, name: str) -> IRModule:
    return Sequential(graph_pipeline(name), name="relay.graph")(mod)


def graph_pipeline(name: str = "main") -> list[Pass]:
    """List the passes that leave operators alone in a function that is of first order."""
    return [
        infer_type(),
        Pass("MarkForInline", lambda mod: _mark(mod, name), 0, _mark.__doc__),
        inline(),
        OutlineCompilerFunctionsWithExistingGlobalSymbols(),
        partial_evaluate(entry=name),
        remove_unused_functions(entry_functions=(name,)),
        fold_constant(fold_qnn=True),
        fast_math(),  # where the pass context asks for it
        dead_code_elimination(),
        infer_type(),
    ]


def _mark(mod: IRModule, name: str) -> IRModule:
    """Mark all functions but one to be inlined."""
    if name not in mod:
        raise InvalidArgument(
            f"the module has no function '{name}'", found=", ".join(v.name_hint for v, _ in mod.items()) or None
        )
    marked = {v: f.with_attr("Inline", 1) if type(f) is Function and v.name_hint != name else f for v, f in mod.items()}
    return mod.with_functions({v if isinstance(v, GlobalVar) else GlobalVar(str(v)): f for v, f in marked.items()})


def from_relay(
    func: IRModule | Function,
    target: Target | str | None = None,
    relay_params: Mapping[str, Any] | None = None,
    **options: object,
) -> IRModule:
    """Return a program as Relax (``relax.testing.relay_translator``), its operators as they are.

    Parameters
    ----------
    relay_params : mapping of str to Tensor, optional
        Values of parameters by name, which become constants.
    target, options
        Are for passes that Relax's own pipeline stands in for: nothing depends on them.
    """
    mod = as_module(func)
    return to_relax(infer_type()(bind_params(mod, relay_params) if relay_params else mod))
