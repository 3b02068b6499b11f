"""Modules: classes that hold parameters and other modules, and whose methods become functions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from weft.error import ErrorGroup, InvalidArgument, WeftError
from weft.frontend.nn.effect import Effect
from weft.frontend.nn.exporter import Exporter
from weft.frontend.nn.jit import JITModule
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.spec import ModuleSpec
from weft.frontend.nn.subroutine import SubroutineMixin
from weft.relax.transform import AttachExternModules


class Module(SubroutineMixin):
    """A part of a model.

    A subclass makes its parameters and inner modules in ``__init__`` and computes in ``forward``, or in methods of
    other names. Nothing is computed while Python runs: :meth:`export_tvm` traces the methods and returns a Relax
    module of them.

    Examples
    --------
    >>> class Layer(Module):
    ...     def __init__(self):
    ...         self.weight = Parameter((4, 4))
    ...
    ...     def forward(self, x):
    ...         return x @ self.weight
    """

    forward: Any

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call ``forward``."""
        if not hasattr(self, "forward"):
            raise InvalidArgument(
                f"module '{type(self).__name__}' has no method 'forward'", help="define it, or call another method"
            )
        return self._call_subroutine(args, kwargs) if self.define_subroutine else self.forward(*args, **kwargs)

    def members(self) -> Iterator[tuple[str, Any]]:
        """List what the module holds, by name; containers list their elements."""
        yield from vars(self).items()

    def replace_member(self, name: str, value: Any) -> None:
        """Put another object in the place of what :meth:`members` lists under a name."""
        setattr(self, name, value)

    def named_parameters(self, prefix: str = "") -> Iterator[tuple[str, Parameter]]:
        """List parameters with their dotted names, each once even where several modules share it."""
        seen: set[int] = set()
        for name, param in self.state_dict(prefix=prefix).items():
            if id(param) not in seen:
                seen.add(id(param))
                yield name, param

    def parameters(self) -> Iterator[Parameter]:
        """List parameters, each once."""
        for _, param in self.named_parameters():
            yield param

    def state_dict(self, *, prefix: str = "", destination: dict[str, Parameter] | None = None) -> dict[str, Parameter]:
        """Return parameters by their dotted names, under every name where several modules share one."""
        out = {} if destination is None else destination
        for name, member in _found(self, Parameter, prefix):
            out[name] = member
        return out

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True) -> tuple[list[str], list[str]]:
        """Set the values of parameters.

        Parameters
        ----------
        state_dict : mapping of str to array
            Values by name: tensors of Weft or PyTorch, NumPy arrays, or parameters that have values.
        strict : bool
            Whether names must be the same on both sides.

        Returns
        -------
        (missing, unexpected)
            Names of parameters without a value in `state_dict`, and of values without a parameter.

        Raises
        ------
        InvalidArgument
            When names differ and `strict` is on.
        ErrorGroup
            With each value that does not fit its parameter.
        """
        if not isinstance(state_dict, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise InvalidArgument("values come by the names of parameters", found=type(state_dict).__name__)
        own = self.state_dict()
        missing = [name for name in own if state_dict.get(name) is None]
        unexpected = [name for name in state_dict if name not in own]
        if strict and (missing or unexpected):
            raise InvalidArgument(
                f"the values are not those of '{type(self).__name__}'",
                found=f"missing: {', '.join(missing) or 'none'}; unexpected: {', '.join(unexpected) or 'none'}",
                help="pass strict=False to set those that are there",
            )
        errors: list[WeftError] = []
        for name, param in own.items():
            if name not in missing:
                try:
                    param.data = state_dict[name]
                except WeftError as e:
                    e.where = f"parameter '{name}'"
                    errors.append(e)
        if errors:
            raise ErrorGroup(f"values do not fit the parameters of '{type(self).__name__}'", errors)
        return missing, unexpected

    def named_effects(self, prefix: str = "") -> Iterator[tuple[str, Effect]]:
        """List effects with their dotted names, each once."""
        seen: set[int] = set()
        for name, effect in _found(self, Effect, prefix):
            if id(effect) not in seen:
                seen.add(id(effect))
                yield name, effect

    def to(self, dtype: str | None = None) -> None:
        """Change the data type of all parameters and effects, before they have values."""
        if dtype is None:
            return
        for _, member in self.members():
            if isinstance(member, (Parameter, Effect, Module)):
                member.to(dtype)

    def export_tvm(self, spec: Any, debug: bool = False, allow_extern: bool = False) -> Any:
        """Trace methods into a Relax module.

        Parameters
        ----------
        spec : dict or ModuleSpec
            From method names to their arguments: ``{"forward": {"x": spec.Tensor([1, "n"], "float32")}}``.
        debug : bool
            Whether programs may print.
        allow_extern : bool
            Whether methods may use external modules, which are the third part of the result;
            ``relax.transform.AttachExternModules`` links them with the program.

        Returns
        -------
        (mod, params) or (mod, params, extern_mods)
            The functions, and the parameters with their names, in the order in which the functions take them after
            their arguments and effects.

        Raises
        ------
        InvalidArgument
            When the specification does not fit, a method uses what it does not get, or external modules are used and
            not allowed.
        """
        mod, params, extern_mods = Exporter(debug=debug).build(ModuleSpec.from_raw(spec, self))
        if allow_extern:
            return mod, params, extern_mods
        if extern_mods:
            raise InvalidArgument("the model uses external modules", help="export with allow_extern=True")
        return mod, params

    def jit(
        self,
        spec: Any,
        device: Any = "cpu",
        pipeline: Any = "default_build",
        out_format: str = "torch",
        debug: bool = False,
    ) -> JITModule:
        """Compile methods for the parameters' values, and return what runs them on tensors of another framework.

        Parameters
        ----------
        spec : dict or ModuleSpec
            As for :meth:`export_tvm`; ``"packed"`` is the same as ``"plain"`` here.
        device : str or Device
            Where it runs.
        pipeline : str or Pass, optional
            The pipeline of ``relax.build``.
        out_format : str
            ``"torch"`` or ``"numpy"``: what results are.
        debug : bool
            Whether programs may print.

        Raises
        ------
        InvalidArgument
            When a parameter has no value.
        """
        spec = ModuleSpec.from_raw(spec, self).unpacked()
        mod, params, extern_mods = self.export_tvm(spec, debug=debug, allow_extern=True)
        mod = AttachExternModules(extern_mods)(mod) if extern_mods else mod
        return JITModule(spec, mod, params, device, pipeline, out_format)


def _found(module: Module, kind: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Walk a module for members of one class, with dotted names."""
    for name, member in module.members():
        path = f"{prefix}.{name}" if prefix else name
        if isinstance(member, kind):
            yield path, member
        elif isinstance(member, Module):
            yield from _found(member, kind, path)
