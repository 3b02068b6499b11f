"""EtaExpand: constructors and functions of the module that are used as values become functions that call them."""

from typing import Any

from weft.ir import IRModule, Node, function_pass, with_fields
from weft.relay.adt import Constructor, type_data
from weft.relay.expr import Call, Expr, Function, GlobalVar, Var
from weft.relay.transform.copying import typed
from weft.relay.transform.lambda_lift import is_closure
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.types import FuncType, TypeCall, TypeVar
from weft.relay.walk import map_parts, rewrite


@function_pass(kind=Function)
def eta_expand(
    func: Function, mod: IRModule, expand_constructor: bool = False, expand_global_var: bool = False
) -> Function:
    """Replace constructors and functions of the module, where they are not called, by functions that call them.

    Parameters
    ----------
    expand_constructor, expand_global_var : bool
        What is replaced.

    Requires: Any form; the data types and functions are in the module.
    Ensures: The same form, less A-normal: what is not replaced is called where it stands.
    With ``expand_global_var=True``, before::

        def @aux(%x: Tensor[(), int32]) -> Tensor[(), int32] { %x }

        def @main() -> fn (Tensor[(), int32]) -> Tensor[(), int32] { @aux }

    After::

        def @aux(%x: Tensor[(), int32]) -> Tensor[(), int32] { %x }

        def @main() -> fn (Tensor[(), int32]) -> Tensor[(), int32] {
          fn (%x: Tensor[(), int32]) -> Tensor[(), int32] { @aux(%x) }
        }
    Cost: Linear.
    Source: TVM's ``EtaExpand``.
    """
    if is_primitive(func):
        return func

    def expanded(e: Expr) -> Any:
        if expand_constructor and type(e) is Constructor:
            return _function(e, [f"a{i}" for i in range(len(e.inputs))], _constructor_type(e, mod))
        if expand_global_var and type(e) is GlobalVar and e in mod and type(mod[e]) is Function:
            target: Any = mod[e]
            return _function(e, [p.name_hint for p in target.params], target.func_type_annotation())
        return e

    def rule(e: Node) -> Any:
        if type(e) is not Call:
            return map_parts(e, expanded)
        args = tuple(map(expanded, e.args))
        return with_fields(e, args=args)

    if is_closure(func) and type(func.body) is Function:
        return func.replace(body=rewrite(func.body, rule))
    return rewrite(func, rule)


def _constructor_type(constructor: Constructor, mod: IRModule) -> FuncType:
    data: Any = type_data(mod, constructor)
    type_vars = data.type_vars if data is not None else ()
    return FuncType(constructor.inputs, TypeCall(constructor.belong_to, type_vars), type_vars)


def _function(callee: Expr, names: list[str], ty: FuncType) -> Function:
    """Make a function of that type which calls something."""
    new = {t: TypeVar(t.name_hint, t.kind) for t in ty.type_params}
    params = tuple(Var(n, typed(t, new)) for n, t in zip(names, ty.arg_types, strict=True))
    return Function(params, Call(callee, params), typed(ty.ret_type, new), tuple(new.values()))
