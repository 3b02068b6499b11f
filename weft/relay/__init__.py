"""Relay: the functional dialect, with closures, recursion, algebraic data types and references.

Read in this order: ``types``, ``expr``, ``adt``, ``op/``, ``infer``, ``text/``, ``transform/``, ``vm/``.
"""

import importlib

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
from weft.relay.infer import infer_type
from weft.relay.op import annotation, dyn, image, namespace, nn, random, vision
from weft.relay.text import fromtext, parse, parse_expr  # the import also installs the printer
from weft.relay.to_relax import to_relax
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
    TypeRelation,
    TypeVar,
    scalar_type,
)

from weft.ir import Span  # isort: skip
from weft import ir as base  # isort: skip - under TVM's name of the module that has Span
from weft.relay import types as ty  # isort: skip
from weft.relay import spec as spec  # isort: skip - the forms, which passes are checked against
from weft.relay import prelude as prelude  # isort: skip
from weft.relay import expr_functor as expr_functor  # isort: skip
from weft.relay import type_functor as type_functor  # isort: skip
from weft.relay.bind import bind  # isort: skip
from weft.relay.expr_functor import ExprFunctor, ExprMutator, ExprVisitor  # isort: skip
from weft.relay.scope_builder import ScopeBuilder  # isort: skip
from weft.relay.type_functor import TypeFunctor, TypeMutator, TypeVisitor  # isort: skip
from weft.relay import dataflow_pattern as dataflow_pattern  # isort: skip
from weft.relay import qnn as qnn  # isort: skip
from weft.relay import vm as vm  # isort: skip - stands on the rest
from weft.relay import backend as backend  # isort: skip
from weft.relay.executor import create_executor  # isort: skip
from weft.relay import graph_evaluator as graph_evaluator  # isort: skip - the executors "graph" and "aot"
from weft.relay.build_module import build, build_config, optimize  # isort: skip
from weft.relay.plain_c import plain_c  # isort: skip
from weft.runtime import load_param_dict, save_param_dict  # isort: skip

_operator, __dir__ = namespace("")  # constructors of operators: relay.add, relay.reshape


def __getattr__(name: str) -> object:
    if name in ("data_dep_optimization", "frontend", "loops", "quantize", "testing"):  # when asked for
        return importlib.import_module(f"weft.relay.{name}")
    return _operator(name)
