"""What of a program runs on the host: operators on strings, sequences, optionals and maps, and draws of random numbers.

The machine holds tensors and objects of Python. A tensor of strings is an int64 tensor of the numbers that its texts
have in the run's table; the 2- and 4-bit types are widened to types of whole bytes; sequences and optionals are lists
of tensors, maps are dicts. `kind` says what of this a value is and converts it where users hand it in or get it out.

Reading order: `kind`, `registry`, one file per family, `call`, which the first call of a program imports with them.
"""

from typing import TYPE_CHECKING

from weft._aliases import names_of
from weft.runtime.host.kind import STORED, Kind, Texts, from_machine, in_type, known_texts, to_machine
from weft.runtime.host.registry import HOST_FUNCTION

if TYPE_CHECKING:
    from weft.runtime.host.call import call_host, host_operators
    from weft.runtime.host.numbers import unique_rows
    from weft.runtime.host.reference import register_operator

__getattr__ = names_of(
    __name__,
    {
        "call_host": "weft.runtime.host.call",
        "host_operators": "weft.runtime.host.call",
        "register_operator": "weft.runtime.host.reference",
        "unique_rows": "weft.runtime.host.numbers",
    },
)
