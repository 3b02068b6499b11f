"""FuseOps: operators whose intermediate values need never reach memory become functions that stand for one kernel."""

from typing import Any

from weft import ir
from weft.ir.deep import with_deep_stack
from weft.relay.expr import Call, Function, Let, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_module
from weft.relay.op.pattern import renames_dimensions
from weft.relay.transform.fusion_graph import FusionGraph
from weft.relay.transform.fusion_groups import FusionGroups
from weft.relay.walk import map_parts, subexpressions

_MOST = 256
_STOP = "annotation.stop_fusion"


@ir.module_pass(name="relay.FuseOps")
def fuse_ops(mod: ir.IRModule, fuse_opt_level: int = -1) -> ir.IRModule:
    """Make functions with attribute ``Primitive`` of operators that one kernel can compute together.

    Requires: Types are inferred; graphs or A-normal form.
    Ensures: Operators are called inside such functions, which are called where they stand.
        Types are inferred. ``annotation.stop_fusion`` is gone: nothing was fused across it.
    Before::

        def @main(%x: Tensor[(2, 3), float32]) {
          tanh(exp(add(%x, 1f)))
        }

    After::

        def @main(%x: Tensor[(2, 3), float32]) {
          %0 = fn (%p0: Tensor[(2, 3), float32], Primitive=1) -> Tensor[(2, 3), float32] {
            tanh(exp(add(%p0, 1f)))
          };
          %0(%x)
        }

    Parameters
    ----------
    fuse_opt_level : int
        0 makes a function of each operator; -1 is the level of the pass context.
    Cost: Linear in operators times the depth of the post-dominator tree on the way.
    Source: TVM's ``FuseOps``.
    """
    context = ir.PassContext.current()
    level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
    most = int(context.config.get("relay.FuseOps.max_depth", _MOST))
    linked = bool(context.config.get("relay.FuseOps.link_params", False))
    typed = infer_module(mod)
    fused = {
        v: with_deep_stack(lambda f=f: _Fused(f, level, most, linked).mutate(f)) if type(f) is Function else f
        for v, f in typed.items()
    }
    return infer_module(typed.with_functions(fused))


class _Group:
    """What a group's function takes: its parameters, and what it is called with."""

    def __init__(self) -> None:
        self.params: list[Var] = []
        self.args: list[Any] = []

    def param(self, arg: ir.Expr, ty: ir.Type) -> Var:
        """Return the parameter that stands for a value from outside."""
        for p, a in zip(self.params, self.args, strict=True):
            if a is arg:
                return p
        self.params.append(Var(f"p{len(self.params)}", ty))
        self.args.append(arg)
        return self.params[-1]

    def call(self, body: ir.Expr, ty: ir.Type | None, span: Any) -> Call:
        """Make the group's function and its call."""
        calls = [e for e in subexpressions(body) if isinstance(e, Call)]
        attrs: dict[str, Any] = {"Primitive": int(bool(calls))}
        tensors = all(isinstance(p.ty, ir.TensorType) for p in self.params)
        if calls and tensors and all(isinstance(c.op, ir.Op) and renames_dimensions(c.op) for c in calls):
            attrs["relay.reshape_only"] = 1
        return Call(Function(tuple(self.params), body, ty, (), ir.Attrs.of(attrs)), tuple(self.args), span=span)


class _Fused:
    """Rewrites one function by the groups of its expressions."""

    def __init__(self, func: Function, level: int, most: int, linked: bool) -> None:
        graph = FusionGraph(func, linked)
        groups = FusionGroups(graph, level, most)
        self._root = {node.expr: graph.order[groups.root(node.index)].expr for node in graph.order}
        self._groups: dict[Any, _Group] = {}
        self._memo: dict[Any, Any] = {}

    def mutate(self, expr: ir.Expr) -> Any:
        """Return what an expression becomes."""
        chain: list[tuple[Let, Any]] = []
        while (result := self._memo.get(expr)) is None:
            if type(expr) is not Let:
                result = self._memo[expr] = self._expr(expr)
                break
            chain.append((expr, self.mutate(expr.value)))
            expr = expr.body
        for let, value in reversed(chain):
            same = value is let.value and result is let.body
            result = self._memo[let] = let if same else Let(let.var, value, result, span=let.span)
        return result

    def _expr(self, expr: Any) -> Any:
        if type(expr) is Function and expr.attrs.get("Primitive"):
            return expr
        if type(expr) is Call and isinstance(expr.op, ir.Op) and not expr.op.get_attr("TNonComputational"):
            return self._operator(expr)
        root = self._root.get(expr, expr)
        if type(expr) is Tuple and root is not expr:
            return Tuple(self._inside(expr.fields, root), span=expr.span)
        if type(expr) is TupleGetItem and (root is not expr or self._root.get(expr.tuple_value) is root):
            item = TupleGetItem(self._inside((expr.tuple_value,), root)[0], expr.index, span=expr.span)
            return item if root is not expr else self._group(root).call(item, expr.ty, expr.span)
        return map_parts(expr, self.mutate)

    def _operator(self, call: Any) -> Any:
        if call.op.name == _STOP:
            return self.mutate(call.args[0])
        root = self._root[call]
        made = Call(call.op, self._inside(call.args, root), call.attrs, call.ty_args, span=call.span)
        return made if root is not call else self._group(root).call(made, call.ty, call.span)

    def _inside(self, args: tuple[Any, ...], root: ir.Expr) -> tuple[ir.Expr, ...]:
        """Return arguments as the function of a group sees them: those of other groups become its parameters."""
        made = []
        for arg in args:
            new = self.mutate(arg)
            inside = self._root.get(arg) is root
            made.append(new if inside else self._group(root).param(new, arg.ty))
        return tuple(made)

    def _group(self, root: ir.Expr) -> _Group:
        return self._groups.setdefault(root, _Group())
