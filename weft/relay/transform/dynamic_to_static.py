"""DynamicToStatic: operators whose shape arguments are known take them as attributes."""

from typing import Any

from weft import ir
from weft.relay.expr import Constant, Function, GlobalVar
from weft.relay.op.registry import get, has, op_call
from weft.relay.transform.fold_constant import fold_constant
from weft.relay.transform.infer_type import infer_type
from weft.relay.walk import operator_name, rewrite, subexpressions

_ROUNDS = 8  # an operator that becomes static may give the shapes of the next


@ir.module_pass
def dynamic_to_static(mod: ir.IRModule) -> ir.IRModule:
    """Replace operators of ``relay.dyn`` by their namesakes where what they take as tensors is constant.

    Requires: Any form.
    Ensures: Constants are folded, and expressions have types.
    Before::

        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(6), int32]) {
          dyn.reshape(%x, shape_of(%y, dtype="int64"))
        }

    After::

        def @main(%x: Tensor[(2, 3), float32], %y: Tensor[(6), int32]) { reshape(%x, newshape=[6]) }
    Cost: That of folding constants and inferring types, a few times.
    Source: TVM's ``DynamicToStatic``.
    """
    steps: list[ir.Pass] = [infer_type(), fold_constant()]
    for _ in range(_ROUNDS):
        for step in steps:
            mod = step(mod)
        called = {e.name_hint for f in mod.functions.values() for e in _names(f)}
        made = {v: _static_function(f, v.name_hint in called) if type(f) is Function else f for v, f in mod.items()}
        if mod.with_functions(made) is mod:
            break
        mod = mod.with_functions(made)
    return infer_type()(mod)


def _names(func: Any) -> list[GlobalVar]:
    return [e for e in subexpressions(func) if type(e) is GlobalVar]


def _static_function(func: Function, called: bool) -> Function:
    """Make a function's operators static; what it returns is inferred anew where no call depends on it."""
    made = rewrite(func, _static)
    return made if made is func or called else made.replace(ret_type=None)


def _static(e: Any) -> Any:
    """Return the static operator for a call of a dynamic one whose arguments allow it."""
    name = operator_name(e)
    if not name.startswith("dyn.") or not has(name[4:]) or not has(name):
        return e
    dynamic, static = get(name), get(name[4:])
    tensors: list[Any] = []
    attrs: dict[str, Any] = dict(e.attrs.items)
    for spec, arg in zip(dynamic.inputs, e.args, strict=False):
        if spec.kind != "values":
            tensors.append(arg)
        elif type(arg) is not Constant or spec.name not in static.attrs:
            return e
        else:
            attrs[spec.name] = _numbers(arg, spec.name)
    return op_call(static.name, *tensors, **{k: v for k, v in attrs.items() if k in static.attrs})


def _numbers(arg: Constant, name: str) -> Any:
    array = arg.data.numpy()
    if name in ("k", "depth"):
        return int(array.reshape(-1)[0])
    return tuple(map(tuple, array.tolist())) if array.ndim == 2 else tuple(array.reshape(-1).tolist())
