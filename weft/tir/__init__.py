"""The tensor-level dialect: loop nests over buffers, from schedulable blocks down to what code is generated from.

Read in this order: ``buffer``, ``stmt``, ``function``, ``reduce``, ``intrin``, then ``schedule/``, ``transform/``,
``pipeline``; ``script/`` is the text form.
"""

from weft.ir import *  # noqa: F403 - TIR's scalar language is ir's
from weft.ir import CallIntrin as Call
from weft.ir import abs_ as abs
from weft.ir import all_of as all
from weft.ir import any_of as any
from weft.ir import max_ as max
from weft.ir import min_ as min
from weft.tir import spec as _spec  # its import registers the forms of TIR
from weft.tir.buffer import Buffer, BufferLoad, BufferRegion, MatchBufferRegion, decl_buffer
from weft.tir.function import PrimFunc
from weft.tir.interpret import interpret
from weft.tir.intrin import *  # noqa: F403 - one name an intrinsic
from weft.tir.reduce import CommReducer, ProducerLoad, Reduce
from weft.tir.script import printing as _printing  # its import registers print rules
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
    SeqStmt,
    Stmt,
    While,
    seq,
)
