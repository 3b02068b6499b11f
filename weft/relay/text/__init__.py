"""Relay's text format, version 0.0.5: printing and parsing. Importing this package makes ``str`` of Relay use it.

Read in this order: ``literals`` (numbers and names), ``scopes`` (where a shared node is written), ``types``,
``printer``, ``astext`` (whole texts); then ``lexer``, ``reader`` (types, attributes), ``expressions``, ``parser``.
"""

from weft.ir import set_printer
from weft.relay.text.astext import VERSION, is_relay, text_of
from weft.relay.text.parser import SpanCheck, fromtext, parse, parse_expr

set_printer(text_of)

__all__ = ["VERSION", "SpanCheck", "fromtext", "is_relay", "parse", "parse_expr"]
