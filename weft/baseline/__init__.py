"""First answers: a model file becomes a program of NumPy operators at once, while the compiler is still at work.

Read in this order: ``onnx_file``, ``operators``, ``windows``, ``program``. Nothing here decides what is right: whatever
is not plainly among the operators and types that are known (:class:`NotInBaseline`) waits for the compiled program.
"""

from weft.baseline.program import BaselineInput, BaselineProgram
from weft.baseline.refusal import NotInBaseline
