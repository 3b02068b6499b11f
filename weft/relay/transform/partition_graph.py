"""PartitionGraph: annotated regions become functions of the module, one an external compiler each."""

import re
from typing import Any

from weft import error, ir
from weft.ffi import get_global_func
from weft.relay.analysis.annotated_regions import BEGIN, END, AnnotatedRegion, AnnotatedRegionSet, annotation_of
from weft.relay.analysis.variables import free_vars
from weft.relay.bind import bind
from weft.relay.expr import Call, Constant, Function, GlobalVar, Tuple, TupleGetItem, Var
from weft.relay.infer import infer_module
from weft.relay.op.registry import op_call
from weft.relay.transform.annotate_target import DEFAULT
from weft.relay.walk import rewrite, rewrite_with_original


def PartitionGraph(mod_name: str = "default", bind_constants: bool = True) -> ir.Pass:
    """Make the pass that cuts annotated regions out: each is a function with ``Compiler``, which is called instead.

    A region that gives several values returns a tuple. The function is called
    ``tvmgen_<mod_name>_<compiler>_<function>_<number>``; where the global function ``relay.ext.<compiler>.optimize``
    is registered, it gets a module of each region and returns the one that is used. Regions of ``"default"`` stay
    where they are, without annotations.

    Parameters
    ----------
    mod_name : str
        What names of functions begin with.
    bind_constants : bool
        Whether constants that a region takes are within its function; otherwise they are arguments.

    Source: TVM's ``PartitionGraph``.
    """

    def partition(mod: ir.IRModule) -> ir.IRModule:
        """Cut the regions of all functions out."""
        mod = infer_module(mod.with_functions({v: _prepared(f) for v, f in mod.items()}))
        made: dict[Any, Any] = {}
        for v, func in mod.items():
            if type(func) is not Function or func.attrs.get("Compiler"):
                made[v] = func
                continue
            cut = _Cut(func, v.name_hint, mod_name, bind_constants)
            made[v] = cut.function()
            taken = [n for n in cut.functions if n in mod]
            if taken:
                raise error.InvalidArgument(
                    f"the module has a function '{taken[0]}' already", help="give PartitionGraph another mod_name"
                )
            made |= {GlobalVar(n): f for n, f in cut.functions.items()}
        return infer_module(mod.with_functions(made))

    return ir.Pass("PartitionGraph", partition, 0, PartitionGraph.__doc__)


def _prepared(func: Any) -> Any:
    """Drop annotations of the default compiler; where a region ends with a tuple, its fields end instead."""
    if type(func) is not Function:
        return func

    def rule(e: Call) -> Any:
        if DEFAULT in (annotation_of(e, BEGIN), annotation_of(e, END)):
            return e.args[0]
        compiler = annotation_of(e, END)
        if compiler is not None and type(e.args[0]) is Tuple:
            return Tuple(tuple(op_call(END, f, compiler=compiler) for f in e.args[0].fields), span=e.span)
        return e

    return rewrite(func, rule)


class _Cut:
    """Cuts the regions of one function out; ``functions`` has what became of them, by name.

    A first walk puts variables in the place of both annotations: parameters of the region, and the values that come
    out of it. Then each region is known, and calls of their functions stand for the values.
    """

    def __init__(self, func: Function, name: str, mod_name: str, bind_constants: bool) -> None:
        self.func, self.name, self.mod_name, self.bind_constants = func, name, mod_name, bind_constants
        self.regions = AnnotatedRegionSet(func)
        self.functions: dict[str, Function] = {}
        self.params: dict[AnnotatedRegion, dict[Any, tuple[Var, Any]]] = {r: {} for r in self.regions}
        self.bodies: dict[AnnotatedRegion, dict[Any, tuple[Var, Any]]] = {r: {} for r in self.regions}

    def function(self) -> Function:
        cut = rewrite_with_original(self.func, self.rule)
        values: dict[Var, Any] = {}
        for region in self.regions:
            results = list(self.bodies[region].values())
            if results:
                call = self.called(region, [body for _, body in results])
                for i, (var, body) in enumerate(results):
                    values[var] = TupleGetItem(call, i, ty=body.ty) if len(results) > 1 else call
        return rewrite(cut, lambda e: e, instead=values) if values else cut

    def rule(self, old: Any, new: Any) -> Any:
        region: Any = self.regions.get_region(old)
        if annotation_of(old, BEGIN) is not None:
            source = old.args[0]
            while annotation_of(source, BEGIN) is not None or annotation_of(source, END) is not None:
                source = source.args[0]
            name = f"{region.target}_{region.id}_i{region.args.index(old)}"
            return self.params[region].setdefault(source, (Var(name, old.ty), new.args[0]))[0]
        if annotation_of(old, END) is not None:
            return self.bodies[region].setdefault(old.args[0], (Var("result", old.ty), new.args[0]))[0]
        return new

    def called(self, region: AnnotatedRegion, bodies: list[Any]) -> Call:
        """Make the function of a region, and the call of it."""
        params = self.params[region].values()
        bound = {p: e for p, e in params if self.bind_constants and _is_constant(e)}
        body = bodies[0] if len(bodies) == 1 else Tuple(tuple(bodies))
        func = bind(Function(tuple(p for p, _ in params), body), bound)
        stray = free_vars(func)
        if stray:
            raise error.InvalidArgument(
                f"a region of '{region.target}' takes '{stray[0].name_hint}' without an annotation",
                where=self.func.span,
                expected="compiler_begin around each value from outside",
                help="AnnotateTarget makes them",
            )
        optimize = get_global_func(f"relay.ext.{region.target}.optimize", allow_missing=True)
        if optimize is not None:
            func = optimize(infer_module(ir.IRModule({"main": func})))["main"]
        name = mangled(self.mod_name, f"{region.target}_{self.name}_{region.id}")
        marks = {"Primitive": 1, "Inline": 1, "Compiler": region.target, "global_symbol": name}
        self.functions[name] = func.with_attr(marks)
        return Call(GlobalVar(name), tuple(e for p, e in params if p not in bound))


def mangled(mod_name: str, name: str) -> str:
    """Name a function that is made for a part of a module, as C can spell it."""
    return re.sub(r"\W", "_", "_".join(filter(None, ("tvmgen", mod_name, name))), flags=re.ASCII)


def _is_constant(expr: ir.Expr) -> bool:
    return all(isinstance(e, Constant) for e in (expr.fields if type(expr) is Tuple else (expr,)))
