"""Cases of operators, by family: each file registers its own; those of shared operators follow."""

import importlib
import pkgutil

from tests.op import cases as shared_cases  # noqa: F401 - registers them
from tests.relay.op.contract import take_cases_of_shared

for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
take_cases_of_shared()
