"""Modules that ``torch.fx`` or ``torch.compile`` has traced: they are exported for given shapes, then converted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from weft.error import InvalidArgument
from weft.frontend.torch.exported_program import from_exported_program
from weft.frontend.torch.graph import Converter
from weft.ir import IRModule, as_int

if TYPE_CHECKING:
    import torch


def from_fx(
    model: torch.nn.Module,
    input_info: Sequence[tuple[Sequence[Any], Any]],
    *,
    keep_params_as_input: bool = False,
    unwrap_unit_return_tuple: bool = False,
    no_bind_return_tuple: bool = False,
    custom_convert_map: Mapping[str, Converter] | None = None,
    default_image_layout: str = "NCHW",
) -> IRModule:
    """Convert a module, such as ``torch.fx.symbolic_trace`` returns, for inputs of given shapes and types.

    What the module returns is what the function returns: a tensor, or a tuple.

    Parameters
    ----------
    model : torch.nn.Module
        In evaluation mode, or what it does in training is converted.
    input_info : sequence of (shape, dtype)
        A dimension that is no number is dynamic; equal ones are equal. Types are names or ``torch.dtype``.
    default_image_layout : str
        ``"NCHW"``, which is PyTorch's.

    The others are those of :func:`from_exported_program`.

    Raises
    ------
    InvalidArgument
        For another layout.
    ModelImportError
        As :func:`from_exported_program`.
    """
    import torch

    if default_image_layout != "NCHW":
        raise InvalidArgument("unknown layout of images", expected="NCHW", found=default_image_layout)
    names: dict[Any, Any] = {}
    inputs, dynamic = [], []
    for shape, dtype in input_info:
        kind = getattr(torch, str(dtype).removeprefix("torch."), None)
        if not isinstance(kind, torch.dtype):
            raise InvalidArgument("PyTorch has no such data type", expected="as 'float32'", found=str(dtype))
        sizes, dims = [], {}
        for axis, d in enumerate(shape):
            known = as_int(d)
            if known is None:
                name = f"d{len(names)}"
                dims[axis] = names.setdefault(str(d), torch.export.Dim(name))
            sizes.append(known if known is not None else 4 + list(names).index(str(d)))
        inputs.append(torch.zeros(sizes, dtype=kind))
        dynamic.append(dims)
    with torch.no_grad():
        program = torch.export.export(model, tuple(inputs), dynamic_shapes=_by_argument(model, dynamic))
    spec = program.call_spec.out_spec
    return from_exported_program(
        program,
        keep_params_as_input=keep_params_as_input,
        unwrap_unit_return_tuple=unwrap_unit_return_tuple or (spec is not None and spec.is_leaf()),
        no_bind_return_tuple=no_bind_return_tuple,
        custom_convert_map=custom_convert_map,
    )


def _by_argument(model: Any, dynamic: list[dict[int, Any]]) -> Any:
    """Dynamic dimensions as ``torch.export`` asks for them: variadic parameters take one tuple of all."""
    import inspect

    variadic = any(p.kind is p.VAR_POSITIONAL for p in inspect.signature(model.forward).parameters.values())
    return (tuple(dynamic),) if variadic else tuple(dynamic)


def dynamo_capture_subgraphs(
    model: torch.nn.Module, *params: Any, keep_params_as_input: bool = False, **kwargs: Any
) -> IRModule:
    """Trace a module with ``torch.compile`` for some arguments; its graphs become ``subgraph_0``, ``subgraph_1``.

    Parameters
    ----------
    model : torch.nn.Module
    params, kwargs
        Arguments of the module.
    keep_params_as_input : bool
        As :func:`from_exported_program`.
    """
    import torch

    mod = IRModule()

    def capture(graph: Any, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        info = [(tuple(int(d) for d in x.shape), x.dtype) for x in example_inputs if isinstance(x, torch.Tensor)]
        made = from_fx(graph, info, keep_params_as_input=keep_params_as_input, unwrap_unit_return_tuple=True)
        name = f"subgraph_{len(mod.functions)}"
        mod[name] = made["main"].with_attr("global_symbol", name)
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad(), torch._dynamo.config.patch(inline_inbuilt_nn_modules=False):
        torch.compile(model, backend=capture)(*params, **kwargs)
    return mod
