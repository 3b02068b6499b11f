"""The tensor-level dialect: loop nests over buffers, from schedulable blocks down to what code is generated from.

Read in this order: ``buffer``, ``stmt``, ``function``, ``reduce``, ``intrin``, then ``schedule/``, ``transform/``,
``pipeline``; ``script/`` is the text form.
"""

from typing import TYPE_CHECKING

from weft._aliases import names_of
from weft.ir import *  # noqa: F403 - TIR's scalar language is ir's
from weft.ir import AnyDim as Any
from weft.ir import CallIntrin as Call
from weft.ir import abs_ as abs
from weft.ir import all_of as all
from weft.ir import any_of as any
from weft.ir import exact_const as const
from weft.ir import floordiv as indexdiv
from weft.ir import floormod as indexmod
from weft.ir import max_ as max
from weft.ir import min_ as min
from weft.tir import spec as _spec  # its import registers the forms of TIR
from weft.tir.buffer import (
    Buffer,
    BufferAccessKind,
    BufferLoad,
    BufferRegion,
    MatchBufferRegion,
    decl_buffer,
    is_buffer_var,
)
from weft.tir.data_layout import (
    BijectiveLayout,
    Layout,
    SBijectiveLayout,
    SLayout,
    bijective_layout,
    layout,
    sbijective_layout,
    slayout,
)
from weft.tir.function import PrimFunc
from weft.tir.interpret import interpret
from weft.tir.intrin import *  # noqa: F403 - one name an intrinsic
from weft.tir.reduce import TENSOR_EXPRS, CommReducer, IntrinCall, ProducerLoad, Reduce, RegionRead
from weft.tir.script import printing as _printing  # its import registers print rules
from weft.tir.script.low_level import CALLS
from weft.tir.sequences import Return, convert, get_vscale_expr, ret, stmt_list, stmt_seq
from weft.tir.specialize import specialize_params
from weft.tir.stmt import (
    AllocBuffer,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferRealize,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    Prefetch,
    SBlock,
    SBlockRealize,
    SeqStmt,
    Stmt,
    While,
    seq,
)
from weft.tir.tiles import TILE_BYTES, TILE_COUNT, TILE_KINDS, TILE_ROWS, tile_intrinsic

PrimFunc.specialize = specialize_params  # type: ignore[attr-defined] - what it calls stands on PrimFunc
Allocate, Bind = AllocBuffer, LetStmt
EqualOp, NotEqualOp = EQ, NE  # noqa: F405
subtract, multiply = sub, mul  # noqa: F405
ProducerRealize = BufferRealize

if TYPE_CHECKING:  # the others are found when they are asked for
    from weft.tir import ir_builder as ir_builder

_LATER = {  # packages above this face, loaded when asked for
    "BlockDependenceInfo": "weft.tir.schedule",
    "BlockRV": "weft.tir.schedule",
    "BlockScope": "weft.tir.schedule",
    "IndexMap": "weft.tir.schedule",
    "LoopRV": "weft.tir.schedule",
    "ScheduleError": "weft.tir.schedule",
    "SBlockDependenceInfo": "weft.tir.schedule",
    "SBlockScope": "weft.tir.schedule",
    "ScheduleState": "weft.tir.schedule",
    "StmtSRef": "weft.tir.schedule",
    "Trace": "weft.tir.schedule",
    "comm_reducer": "weft.te",
    "sum": "weft.te",
    "build": "weft.target",
    "PyStmtExprMutator": "weft.tir.functor",
    "PyStmtExprVisitor": "weft.tir.functor",
    "renew_defs": "weft.tir.stmt_functor",
    "Schedule": "weft.tir.schedule",
    "TensorIntrin": "weft.tir.schedule",
    "functor": "",
    "ir_builder": "",
    "schedule": "",
    "stmt_functor": "",
    "transform": "",
}
_named = names_of("weft.tir", _LATER)


def __getattr__(name: str) -> object:
    return CALLS[name] if name in CALLS else _named(name)
