"""Text of Python made of parts: ``doc`` has the parts, ``doc_printer`` writes them (``tvm.script.printer``)."""

from weft.script.printer import doc, doc_printer
