"""Relay: the functional dialect, with closures, recursion, algebraic data types and references.

Read in this order: ``types``, ``expr``, ``adt``, ``op/``, ``infer``, ``text/``, ``transform/``, ``vm/``.
"""

from weft.relay.adt import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
    TypeData,
)
from weft.relay.expr import (
    Call,
    Constant,
    Expr,
    Function,
    GlobalVar,
    If,
    Let,
    RefCreate,
    RefRead,
    RefWrite,
    RelayExpr,
    Tuple,
    TupleGetItem,
    TupleWrapper,
    Var,
    const,
    var,
)
from weft.relay.types import (
    Any,
    FuncType,
    GlobalTypeVar,
    IncompleteType,
    RefType,
    TensorType,
    TupleType,
    TypeCall,
    TypeKind,
    TypeVar,
    scalar_type,
)
