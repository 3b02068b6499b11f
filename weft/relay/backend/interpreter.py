"""The interpreter, its values, and what all executors have in common, under TVM's names."""

from weft.relay.executor import DebugExecutor, Executor
from weft.relay.interpreter import Interpreter
from weft.relay.values import Closure, ConstructorValue, RefValue

__all__ = ["Closure", "ConstructorValue", "DebugExecutor", "Executor", "Interpreter", "RefValue"]
