"""The passes from Relay to what the virtual machine's code is generated from, top to bottom."""

from weft.ir import Pass, Sequential
from weft.relay.external import CallExternal
from weft.relay.transform.compiler_functions import OutlineCompilerFunctionsWithExistingGlobalSymbols
from weft.relay.transform.dead_code import dead_code_elimination
from weft.relay.transform.eliminate_common_subexpr import eliminate_common_subexpr
from weft.relay.transform.fold_constant import fold_constant
from weft.relay.transform.infer_type import infer_type
from weft.relay.transform.inline import inline
from weft.relay.transform.lambda_lift import lambda_lift
from weft.relay.transform.lower_regions import LowerRegions
from weft.relay.transform.manifest_alloc import ManifestAlloc
from weft.relay.transform.memory_plan import MemoryPlan
from weft.relay.transform.plan_devices import plan_devices
from weft.relay.transform.to_a_normal_form import to_a_normal_form
from weft.relay.vm.targets import Targets


def vm_pipeline(targets: Targets) -> Pass:
    """Make the pass that lowers a module for targets.

    Devices are planned twice: operators get copies between them, then what these became gets its storages.
    """
    target = targets.targets[0]
    planned = [] if targets.is_plain else [plan_devices(devices=targets.devices, host=targets.host)]
    return Sequential(
        [
            infer_type(),
            inline(),
            OutlineCompilerFunctionsWithExistingGlobalSymbols(),
            fold_constant(fold_qnn=True),
            eliminate_common_subexpr(),
            dead_code_elimination(),
            to_a_normal_form(),
            lambda_lift(),
            infer_type(),
            *planned,
            LowerRegions(target),
            CallExternal(),
            ManifestAlloc(target),
            *planned,
            MemoryPlan(),
        ],
        name="relay.vm",
    )
