"""Names of TVM's package of the same name: the interpreter's values and the virtual machine."""

from weft.relay.backend import executor_factory, interpreter, name_transforms, te_compiler, utils, vm
from weft.relay.build_options import Executor, Runtime
