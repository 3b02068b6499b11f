"""Which parts of the language a program uses."""

from enum import IntEnum

from weft.ir import IRModule, Node, Op
from weft.relay import expr as nodes
from weft.relay.adt import Constructor, Match
from weft.relay.typing import Program
from weft.relay.walk import ATOMS, parts, subexpressions


class Feature(IntEnum):
    """A part of the language. ``fGraph`` is sharing of what is no atom, ``fLetRec`` a let that refers to itself."""

    fVar = 0
    fGlobalVar = 1
    fConstant = 2
    fTuple = 3
    fTupleGetItem = 4
    fFunction = 5
    fOp = 6
    fCall = 7
    fLet = 8
    fIf = 9
    fRefCreate = 10
    fRefRead = 11
    fRefWrite = 12
    fConstructor = 13
    fMatch = 14
    fGraph = 15
    fLetRec = 16


_OF: dict[type, Feature] = {
    nodes.Var: Feature.fVar,
    nodes.GlobalVar: Feature.fGlobalVar,
    nodes.Constant: Feature.fConstant,
    nodes.Tuple: Feature.fTuple,
    nodes.TupleGetItem: Feature.fTupleGetItem,
    nodes.Function: Feature.fFunction,
    Op: Feature.fOp,
    nodes.Call: Feature.fCall,
    nodes.Let: Feature.fLet,
    nodes.If: Feature.fIf,
    nodes.RefCreate: Feature.fRefCreate,
    nodes.RefRead: Feature.fRefRead,
    nodes.RefWrite: Feature.fRefWrite,
    Constructor: Feature.fConstructor,
    Match: Feature.fMatch,
}


def detect_feature(a: Program, b: Program | None = None) -> set[Feature]:
    """Return the parts of the language that an expression or module uses.

    Parameters
    ----------
    a, b : Expr or IRModule
        The program; of an expression and its module, in either order, both count.
    """
    found: set[Feature] = set()
    for program in (a, b):
        if isinstance(program, IRModule):
            for f in program.functions.values():
                found |= _of_one(f) if isinstance(f, nodes.Function) else set()
        elif program is not None:
            found |= _of_one(program)
    return found


def _of_one(expr: nodes.Expr) -> set[Feature]:
    found: set[Feature] = set()
    users: set[Node] = set()
    for e in subexpressions(expr):
        if type(e) in _OF:
            found.add(_OF[type(e)])
        for p in parts(e):
            if p in users and not isinstance(p, ATOMS):
                found.add(Feature.fGraph)
            users.add(p)
        if (
            isinstance(e, nodes.Let)
            and Feature.fLetRec not in found
            and any(x is e.var for x in subexpressions(e.value))
        ):
            found.add(Feature.fLetRec)
        if isinstance(e, nodes.Function) and e.params:
            found.add(Feature.fVar)
    return found
