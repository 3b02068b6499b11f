"""FoldConstant: what is known at compile time is computed then."""

from typing import Any

from weft.ir import Expr, IRModule, Node, module_pass
from weft.relay.adt import Constructor, Match
from weft.relay.expr import Call, Constant, Function, If, Let, Tuple, TupleGetItem, Var, lets
from weft.relay.transform.effects import Effects
from weft.relay.transform.known import UNKNOWN, arrays_of, evaluate_call, match_known
from weft.relay.transform.to_a_normal_form import is_primitive
from weft.relay.walk import ATOMS, rewrite


@module_pass
def fold_constant(mod: IRModule, fold_qnn: bool = False) -> IRModule:
    """Evaluate operators on constants, and choose the branches and clauses that constants and constructors decide.

    Parameters
    ----------
    fold_qnn : bool
        Whether operators on quantized tensors are folded like others: passes that look for them come before.

    Requires: Any form; the shapes that ``shape_of`` asks for are known where there are types.
    Ensures: The same form. Operators without arguments and those that fill tensors stay; results above 4 MB stay
        computed unless their inputs are larger; what fails stays, and fails when it is run.
    Before::

        def @main(%x: Tensor[(), float32]) {
          let %a = add(1f, 2f);
          if (less(1f, 2f)) { multiply(%x, %a) } else { %x }
        }

    After::

        def @main(%x: Tensor[(), float32]) { multiply(%x, 3f) }
    Cost: Linear, and the evaluation.
    Source: TVM's ``FoldConstant``.
    """
    effects = Effects(mod)
    plain = {v for v, f in mod.items() if type(f) is Function and not is_primitive(f)}
    return mod.with_functions({v: _Folder(effects, fold_qnn).run(f) if v in plain else f for v, f in mod.items()})


def fold_constant_expr(expr: Expr, mod: IRModule, fold_qnn: bool = False) -> Any:
    """Return an expression over the functions of `mod` as :func:`fold_constant` leaves it."""
    return _Folder(Effects(mod), fold_qnn).run(expr)


class _Folder:
    """Folds one function; ``known`` says what variables of lets stand for."""

    def __init__(self, effects: Effects, fold_qnn: bool) -> None:
        self.effects, self.fold_qnn = effects, fold_qnn
        self.known: dict[Var, Any] = {}

    def run(self, expr: Expr) -> Any:
        return rewrite(expr, self.rule, pre=self.replacement, on_let=self.learn)

    def learn(self, var: Var, value: Expr) -> None:
        if type(value) in (Constant, Tuple) or (type(value) is Call and type(value.op) is Constructor):
            self.known[var] = value

    def replacement(self, e: Node) -> Any:
        if type(e) is Var:
            value = self.known.get(e)
            return value if type(value) is Constant else None
        return e if type(e) is Function and is_primitive(e) else None

    def meaning(self, e: Expr) -> Any:
        """Return what an expression stands for."""
        while type(e) is Var and e in self.known:
            e = self.known[e]
        return e

    def arrays(self, e: Expr) -> Any:
        e = self.meaning(e)
        if type(e) is not Tuple:
            return arrays_of(e)
        fields = tuple(map(self.arrays, e.fields))
        return None if any(f is None for f in fields) else fields

    def rule(self, e: Any) -> Any:
        kind = type(e)
        if kind is Call:
            quantized = str(getattr(e.op, "name", "")).startswith("qnn.") and not self.fold_qnn
            made = None if quantized else evaluate_call(e, self.arrays)
            return e if made is None else made
        if kind is TupleGetItem:
            return self.project(e)
        if kind is If and type(e.cond) is Constant:
            return e.true_branch if bool(e.cond.data.numpy()) else e.false_branch
        if kind is Match:
            return self.choose(e)
        if kind is Let and type(self.known.get(e.var)) is Constant:
            return e.body
        return e

    def project(self, e: TupleGetItem) -> Any:
        whole = self.meaning(e.tuple_value)
        if type(whole) is not Tuple:
            return e
        field = whole.fields[e.index]
        if whole is e.tuple_value:
            return e if any(self.effects.any(f) for f in whole.fields) else field
        return field if isinstance(field, ATOMS) else e

    def choose(self, e: Match) -> Any:
        """Return the clause that is certain to be taken."""
        for clause in e.clauses:
            bound: list[tuple[Var, Any]] = []
            found = match_known(clause.lhs, e.data, self.meaning, bound)
            if found == UNKNOWN:
                return e
            if found is True:
                simple = type(e.data) is Var or not self.effects.any(e.data)
                return lets(bound, clause.rhs) if simple and self.visible(bound, e.data) else e
        return e

    def visible(self, bound: list[tuple[Var, Any]], data: Expr) -> bool:
        """Whether what pattern variables stand for may be said again: a name, or a part of the data itself."""
        return type(data) is not Var or all(isinstance(value, ATOMS) for _, value in bound)
