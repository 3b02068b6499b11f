"""Values and functions across the language border, on top of apache-tvm-ffi.

Reading order: `native` (finds and loads the library), `function` (packed functions and how results are wrapped),
`container` (maps), `convert` (Python callables and values), `registry` (global functions and the runtime's builtins).
"""

import builtins as _builtins

import weft.error as _errors

from weft.ffi.native import LIBRARY, find_library, symbol_address  # isort: skip - loads the library first
from weft.ffi.container import Map
from weft.ffi.convert import CallbackTaker, as_opaque, convert, convert_func
from weft.ffi.function import (
    Function,
    NativeTensor,
    PackedFunc,
    convert_argument,
    refuse_copies,
    register_argument,
    register_check,
    register_wrapper,
    wrap,
)
from weft.ffi.registry import (
    builtin,
    get_global_func,
    list_global_func_names,
    register_error,
    register_func,
    register_global_func,
    register_on_demand,
    remove_global_func,
)

__all__ = [
    "LIBRARY",
    "Function",
    "Map",
    "NativeTensor",
    "PackedFunc",
    "refuse_copies",
    "builtin",
    "CallbackTaker",
    "as_opaque",
    "convert",
    "convert_argument",
    "convert_func",
    "find_library",
    "get_global_func",
    "list_global_func_names",
    "register_argument",
    "register_check",
    "register_error",
    "register_func",
    "register_global_func",
    "register_on_demand",
    "register_wrapper",
    "remove_global_func",
    "symbol_address",
    "wrap",
]

_MADE_OF_MORE = (BaseExceptionGroup, UnicodeError, _errors.ErrorGroup)
# An error that crosses the border comes back as its own class, where one is made of a message alone.
for _error in (*vars(_builtins).values(), *vars(_errors).values()):
    if isinstance(_error, type) and issubclass(_error, BaseException) and not issubclass(_error, _MADE_OF_MORE):
        register_error(_error.__name__, _error)
