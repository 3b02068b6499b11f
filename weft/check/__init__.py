"""Where a wrong result comes from: every node, pass and kernel of a model against what it means.

Read in this order: ``difference`` (when two arrays differ), ``nodes`` (the importer and the operators against ONNX),
``stages`` (each pass against the program before it), ``kernels`` (each kernel against its own loops, unscheduled),
``model`` (all of them, and the compiled model).
"""

from weft.check.difference import Difference, Tolerance, compare
from weft.check.model import Finding, Report, check_model
from weft.check.stages import Stages
