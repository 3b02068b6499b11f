"""Tokens of Relay text, each with its place, and the stream that the parser reads them from."""

from __future__ import annotations

import json
import linecache
import re
from bisect import bisect_right
from typing import Any, NamedTuple, NoReturn

from weft.error import ParseError
from weft.ir import Span
from weft.relay.text.literals import NAME

_STRING = r'"(?:[^"\\\n]|\\.)*"'
_TOKENS = re.compile(
    "|".join(
        (
            r"(?P<space>\s+|//[^\n]*)",
            r"(?P<comment>/\*)",
            r"(?P<metadata>\#\[\s*metadata\s*\])",
            r'(?P<version>\#\[\s*version\s*=\s*"[^"\n]*"\s*\])',
            r"(?P<graph>%\d+)",
            rf"(?P<var>%(?:{NAME.pattern}|{_STRING}))",
            rf"(?P<global>@(?:{NAME.pattern}|{_STRING}))",
            r"(?P<item>\.\d+)",
            r"(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?:[A-Za-z]\w*)?|(?:inf|nan)b?f\d*(?!\w))",
            r"(?P<match>match\?)",
            rf"(?P<name>{NAME.pattern})",
            rf"(?P<string>{_STRING})",
            r"(?P<punct>->|=>|==|!=|<=|>=|[-+*/<>=(){}\[\],;:?])",
        )
    )
)
_COMMENT_EDGE = re.compile(r"/\*|\*/")


class Token(NamedTuple):
    """One token; ``kind`` is a group of the grammar above, and for words and signs the text itself tells more."""

    kind: str
    text: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The name behind a sigil."""
        body = self.text[1:]
        return json.loads(body) if body.startswith('"') else body

    def __str__(self) -> str:
        return "the end of the text" if self.kind == "end" else f"'{self.text if len(self.text) < 40 else '…'}'"


class Tokens:
    """The tokens of a text and where the reader stands.

    Parameters
    ----------
    text : str
        The text.
    source_name : str
        What spans call it; another text of the same name gets a number behind it.

    Raises
    ------
    ParseError
        When a character begins no token.
    """

    def __init__(self, text: str, source_name: str) -> None:
        self.file = _remember(text, source_name)
        self.text = text
        self._lines = [0, *(m.end() for m in re.finditer("\n", text))]
        self.metadata: Token | None = None
        self.version: Token | None = None
        self.tokens = self._scan()
        self.at = 0

    # --- places and errors ---

    def span(self, start: int, end: int) -> Span:
        """Return the place of a range of characters."""
        line, end_line = bisect_right(self._lines, start), bisect_right(self._lines, max(start, end - 1))
        return Span(self.file, line, end_line, start - self._lines[line - 1] + 1, end - self._lines[end_line - 1] + 1)

    def fail(self, what: str, at: Token | None = None, **details: Any) -> NoReturn:
        """Raise an error at a token, by default at the one that is next."""
        at = at or self.peek()
        raise ParseError(what, where=self.span(at.start, at.end), **details)

    def since(self, start: Token) -> Span:
        """Return the place from a token to what was read last."""
        return self.span(start.start, self.tokens[max(self.at - 1, 0)].end)

    # --- reading ---

    def peek(self, ahead: int = 0) -> Token:
        """Return the next token (or one after it) and stay."""
        return self.tokens[self.at + ahead]

    def next(self) -> Token:
        """Return the next token and step over it."""
        token = self.tokens[self.at]
        if token.kind != "end":
            self.at += 1
        return token

    def sees(self, *texts: str) -> bool:
        """Whether the next token is one of these words or signs."""
        token = self.tokens[self.at]
        return token.text in texts and token.kind in ("punct", "name", "match")

    def take(self, text: str) -> Token | None:
        """Step over a word or sign if it is next."""
        return self.next() if self.sees(text) else None

    def expect(self, text: str, where: str) -> Token:
        """Step over a word or sign, which must be next."""
        return self.take(text) or self.fail(f"{where} is malformed", expected=f"'{text}'", found=str(self.peek()))

    def expect_kind(self, kind: str, expected: str) -> Token:
        """Step over a token of a kind, which must be next."""
        if self.peek().kind != kind:
            self.fail(f"this is no {expected}", expected=expected, found=str(self.peek()))
        return self.next()

    def sequence(self, close: str, item: Any, where: str) -> tuple[list[Any], bool]:
        """Read items with commas between them up to `close`; also return whether a comma stood behind the last."""
        items: list[Any] = []
        comma = False
        while not self.take(close):
            if items and not comma:
                self.fail(f"{where} is malformed", expected=f"',' or '{close}'", found=str(self.peek()))
            items.append(item())
            comma = self.take(",") is not None
        return items, comma

    # --- scanning ---

    def _scan(self) -> list[Token]:
        found: list[Token] = []
        at, text = 0, self.text
        while at < len(text):
            m = _TOKENS.match(text, at)
            if m is None:
                self._unknown(at)
            kind, start, at = str(m.lastgroup), at, m.end()
            if kind == "space":
                continue
            token = Token(kind, m.group(), start, at)
            if kind == "comment":
                at = self._after_comment(token)
            elif kind == "metadata":
                self.metadata = Token(kind, text[at:], start, at)
                break
            elif kind == "version":
                self._take_version(token, found)
            else:
                if token.text[-1] == '"':
                    self._check_string(token)
                found.append(token)
        end = len(text.rstrip()) if self.metadata is None else self.metadata.start
        return found + [Token("end", "", end, end + 1)] * 6  # so that one may look ahead

    def _unknown(self, at: int) -> NoReturn:
        where = Token("", self.text[at], at, at + 1)
        if self.text[at] == '"':
            self.fail("a string does not end on its line", where, expected="a closing '\"'")
        if self.text[at] in "%@":
            self.fail("a name must follow", where, expected=f"{self.text[at]} and a name", found=str(where))
        self.fail("a character that begins nothing in Relay text", where, found=repr(self.text[at]))

    def _after_comment(self, opening: Token) -> int:
        """Return where a comment ends; comments nest."""
        depth, at = 1, opening.end
        while depth:
            m = _COMMENT_EDGE.search(self.text, at)
            if m is None:
                self.fail("a comment does not end", opening, expected="'*/'")
            depth += 1 if m.group() == "/*" else -1
            at = m.end()
        return at

    def _take_version(self, token: Token, before: list[Token]) -> None:
        version = token.text.split('"')[1]
        if before or self.version is not None:
            self.fail("the version stands at the beginning of a text", token)
        if version not in ("0.0.3", "0.0.4", "0.0.5"):
            self.fail("a version of Relay text that is not known", token, expected="0.0.5", found=version)
        self.version = token

    def _check_string(self, token: Token) -> None:
        body = token.text[token.text.index('"') :]
        try:
            json.loads(body)
        except json.JSONDecodeError as e:
            self.fail("a string is malformed", token, found=e.msg, help="escapes are those of JSON")


_COUNTS: dict[str, int] = {}
_KEPT = 10_000  # texts of one name whose lines error messages can still show


def _remember(text: str, name: str) -> str:
    """Keep the lines of a text for error messages; return the name of its file."""
    lines = [line + "\n" for line in text.split("\n")]
    entry = linecache.cache.get(name)
    file = name
    if entry is not None and entry[2:3] != (lines,):
        _COUNTS[name] = _COUNTS.get(name, 1) + 1
        file = f"{name} {_COUNTS[name]}"
        linecache.cache.pop(f"{name} {_COUNTS[name] - _KEPT}", None)
    linecache.cache[file] = (len(text), None, lines, file)
    return file
