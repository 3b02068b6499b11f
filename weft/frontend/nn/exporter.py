"""The exporter: traces the methods of a module into Relax functions.

An exported function takes the method's arguments, then effects, then parameters; it returns the method's result, or a
pair of it and the effects where there are any. ``_initialize_effect`` returns their first values.
"""

from __future__ import annotations

from typing import Any

from weft import ir
from weft.error import InvalidArgument
from weft.frontend.nn import spec as _spec
from weft.frontend.nn.effect import Effect, IOEffect
from weft.frontend.nn.parameter import Parameter
from weft.frontend.nn.tensor import Object, Tensor, dimensions
from weft.relax import BlockBuilder, analysis
from weft.relax import Var as RelaxVar


class Exporter:
    """Builds an IRModule of a module's methods.

    Parameters
    ----------
    debug : bool
        Whether programs may print and call debugging functions, for which each function takes and returns one more
        effect.
    """

    _open: ir.Ambient[Exporter] = ir.Ambient("Exporter")

    def __init__(self, debug: bool = False) -> None:
        self.builder = BlockBuilder()
        self.io_effect = IOEffect() if debug else None
        self.extern_mods: list[Any] = []

    @staticmethod
    def current() -> Exporter:
        """Return the exporter at work.

        Raises
        ------
        InvalidArgument
            When there is none.
        """
        found = Exporter._open.current
        if found is None:
            raise InvalidArgument("no module is being exported", help="use module.export_tvm(spec)")
        return found

    @staticmethod
    def active_io() -> IOEffect | None:
        """Return the effect of printing of the exporter at work; None where there is neither."""
        found = Exporter._open.current
        return found.io_effect if found is not None else None

    def add_external_module(self, mod: Any) -> None:
        """Say that the program calls functions of an external module.

        Raises
        ------
        InvalidArgument
            When another module has a function of the same name.
        """
        taken = {name for other in self.extern_mods if other is not mod for name in other.symbols} & set(mod.symbols)
        if taken:
            raise InvalidArgument("external modules have functions of the same name", found=", ".join(sorted(taken)))
        if not any(other is mod for other in self.extern_mods):
            self.extern_mods.append(mod)

    def build(self, spec: _spec.ModuleSpec) -> tuple[ir.IRModule, list[tuple[str, Parameter]], list[Any]]:
        """Trace the methods of a specification.

        Returns
        -------
        (mod, params, extern_mods)
            The functions, the parameters with their names in the order in which the functions take them, and the
            external modules that are called.
        """
        params = list(spec.module.named_parameters())
        effects: list[tuple[str, Effect]] = [("", self.io_effect)] if self.io_effect is not None else []
        effects += list(spec.module.named_effects())
        before = [p._expr for _, p in params]
        Exporter._open.enter(self)
        try:
            if effects:
                self._emit_initial_effects(effects)
            for name, method in spec:
                self._emit_method(name, method, params, effects)
                _check_closed(name, self.builder.module[name], params)
        finally:
            Exporter._open.leave(self)
            for (_, param), expr in zip(params, before, strict=True):
                param._expr = expr
        return _with_own_sizes(self.builder.get()), params, self.extern_mods

    def _emit_initial_effects(self, effects: list[tuple[str, Effect]]) -> None:
        bb = self.builder
        with bb.function("_initialize_effect", []):
            with bb.dataflow():
                values = [v for name, effect in effects for v in effect.emit_init(name, bb)]
                out = bb.emit_output(bb.emit(ir.Tuple(tuple(values))))
            bb.emit_func_output(out)

    def _emit_method(
        self,
        name: str,
        method: _spec.MethodSpec,
        params: list[tuple[str, Parameter]],
        effects: list[tuple[str, Effect]],
    ) -> None:
        names: dict[str, Any] = {}
        bb = self.builder
        effects = effects if method.effect_mode != "none" else []
        arguments = [
            RelaxVar(n, _argument_type(s, n, names)) for n, s in zip(method.arg_names, method.arg_specs, strict=True)
        ]
        states = [effect.create(path) for path, effect in effects]
        weights = _parameter_vars(params, names) if method.param_mode != "none" else []
        head = [*arguments, *_as_params(method.effect_mode, "packed_effects", [v for s in states for v in s])]
        tail = _as_params(method.param_mode, "packed_params", weights)
        with bb.function(name, [*head, *tail], attrs={"num_input": len(head)}):
            with bb.dataflow():
                if method.effect_mode == "packed" and effects:
                    unpacked = iter(_unpack(bb, head[-1], [v.name_hint for s in states for v in s]))
                    for (_, effect), state in zip(effects, states, strict=True):
                        effect.set_state([next(unpacked) for _ in state])
                if method.param_mode == "packed":
                    weights = _unpack(bb, tail[-1], [v.name_hint for v in weights])
                for (_, param), var in zip(params, weights, strict=bool(weights)):
                    param._expr = var
                inputs = [_wrap(bb, s, v) for s, v in zip(method.arg_specs, arguments, strict=True)]
                result = expression(_call(method.method, inputs), name)
                if effects:
                    finals = [v for _, effect in effects for v in effect.finalize()]
                    result = ir.Tuple((result, ir.Tuple(tuple(finals))))
                out = bb.emit_output(result)
            bb.emit_func_output(out)


def _check_closed(name: str, func: Any, params: list[tuple[str, Parameter]]) -> None:
    """Refuse a function that uses tensors or sizes that it does not get."""
    unknown = analysis.free_vars(func)
    known = {param._expr: path for path, param in params}
    names = [known.get(v, f"a tensor {v.ty}") for v in unknown]
    names += [f"the size '{v.name}'" for v in analysis.free_symbolic_vars(func)]
    if names:
        raise InvalidArgument(
            f"method '{name}' uses what it does not get",
            found=", ".join(names),
            help="parameters are found in attributes of modules, in nn.ModuleList, nn.ModuleDict, nn.ParameterList and "
            "nn.ParameterDict, unless param_mode is 'none'; other values are arguments",
        )


def _with_own_sizes(mod: ir.IRModule) -> ir.IRModule:
    """Give each function its own symbolic sizes, which are never negative."""
    functions: dict[Any, Any] = {}
    for gvar, func in mod.items():
        sizes = {v: ir.SizeVar(v.name, v.dtype) for v in ir.find(func, ir.Var)}
        functions[gvar] = ir.substitute(func, sizes) if isinstance(func, ir.Function) else func
    return mod.with_functions(functions)


def _argument_type(spec: Any, name: str, names: dict[str, Any]) -> Any:
    if isinstance(spec, _spec.Int):
        return ir.ShapeType((names.setdefault(name, ir.SizeVar(name, "int64")),))
    if isinstance(spec, _spec.Tensor):
        dims = dimensions(spec.shape, names)
        for var in (node for d in dims if isinstance(d, ir.PrimExpr) for node in ir.find(d, ir.Var)):
            names.setdefault(var.name, var)
        return ir.tensor_type(dims, spec.dtype)
    if isinstance(spec, _spec.Object):
        return ir.AnyType()
    return ir.TupleType(tuple(_argument_type(e, f"{name}_{i}", names) for i, e in enumerate(spec.elements)))


def _parameter_vars(params: list[tuple[str, Parameter]], names: dict[str, Any]) -> list[RelaxVar]:
    """Make the variables of parameters, whose named dimensions are those of the arguments where names agree."""
    out = []
    for name, param in params:
        ty = param._expr.ty
        own = {v: names.setdefault(v.name, ir.SizeVar(v.name, v.dtype)) for v in ir.find(ty, ir.Var)}
        out.append(RelaxVar(name, ir.substitute(ty, own)))
    return out


def _as_params(mode: str, name: str, variables: list[Any]) -> list[RelaxVar]:
    if mode == "packed":
        return [RelaxVar(name, ir.TupleType(tuple(v.ty for v in variables)))]
    return variables if mode == "plain" else []


def _unpack(bb: BlockBuilder, packed: RelaxVar, names: list[str]) -> list[Any]:
    return [bb.emit(ir.TupleGetItem(packed, i), name) for i, name in enumerate(names)]


def _call(method: Any, inputs: list[Any]) -> Any:
    """Call a method; the ``forward`` of a module that is a subroutine is called as one."""
    owner = getattr(method, "__self__", None)
    subroutine = getattr(owner, "define_subroutine", False) and method == getattr(owner, "forward", None)
    return owner(*inputs) if subroutine and owner is not None else method(*inputs)


def _wrap(bb: BlockBuilder, spec: Any, var: Any) -> Any:
    """What the method gets for an argument."""
    if isinstance(spec, _spec.Tensor):
        return Tensor(_expr=var)
    if isinstance(spec, _spec.Int):
        return var.ty.values[0]
    if isinstance(spec, _spec.Object):
        return spec.object_type(_expr=var, _name=var.name_hint)
    fields = [bb.emit(ir.TupleGetItem(var, i), f"{var.name_hint}_{i}") for i in range(len(spec.elements))]
    return type(spec.elements)(_wrap(bb, s, f) for s, f in zip(spec.elements, fields, strict=True))


def expression(value: object, method: str) -> ir.Expr:
    """Return the expression of a method's result: tensors, objects, numbers, and lists and tuples of them.

    Raises
    ------
    InvalidArgument
        When it is something else.
    """
    if isinstance(value, (Tensor, Object)):
        return value._expr
    if isinstance(value, ir.Expr):
        return value
    if isinstance(value, (list, tuple)):
        return ir.Tuple(tuple(expression(v, method) for v in value))
    if isinstance(value, ir.PrimExpr):
        return ir.shape_expr([value])
    if isinstance(value, (int, float)):
        return ir.prim_value(value)
    raise InvalidArgument(
        f"method '{method}' returns what no function can",
        expected="a tensor, an object, a number, or a list or tuple of them",
        found=repr(value),
        help="does the method end without a return?" if value is None else None,
    )
