"""The text engine: printing and parsing of TVMScript.

Read in this order: ``doc`` (documents), ``printer`` (the print driver), ``scalar`` and ``types`` (rules of nodes that
all dialects share), ``source`` (where a program's text comes from), ``evaluate`` (expressions), ``parser`` (the parse
driver). The rules of a dialect stand beside its nodes. Importing this package installs the printer.
"""

from weft.ir.node import set_printer
from weft.ir.text import scalar, types
from weft.ir.text.printer import script

set_printer(script)
