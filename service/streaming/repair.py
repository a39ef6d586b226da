"""Repair of damaged JSON text by the smallest evident change.

The text is read once from left to right as JSON. Where it is invalid, it is repaired on the spot, and reading goes on.
Some damage needs lookahead, for example to find the end of a string with stray quotes. A budget bounds the total
lookahead, so that the time is at most proportional to the length of the text. There is no recursion. Text without an
evident repair is refused.
"""

import json
import re
import sys
from bisect import bisect_right
from collections.abc import Callable
from enum import StrEnum
from operator import itemgetter
from typing import NamedTuple, NoReturn, TypeAlias

DEPTH_MAX = 512
"""Largest depth of nested brackets."""
REPAIRS_MAX = 1 << 16
"""Largest number of repairs in one piece; a text with more of them can't be trusted."""

_TOO_MANY = f"More than {REPAIRS_MAX} places are damaged."
_WINDOW = 8192  # bytes that one lookahead may match
_ENOUGH, _STEPS = 1024, 64  # bytes or steps of valid structure after which a lookahead succeeds
_BUDGET, _BUDGET_PER_BYTE = 1 << 18, 16  # bytes for all lookahead together
_LOOK_COST, _STEP_COST, _QUOTE_COST = 256, 32, 64  # extra cost of each lookahead, step and quote, in bytes

_COMMA, _COLON, _QUOTE, _OPEN_BRACE, _OPEN_BRACKET, _BRACE, _BRACKET = b',:"{[}]'
_CLOSING = {_OPEN_BRACE: _BRACE, _OPEN_BRACKET: _BRACKET}
_CLOSERS = frozenset(_CLOSING.values())
_PAIRS = b"{}", b"[]", b"()"
_BLANKS = bytes(range(0x21))

# The matcher keeps some hundred bytes for each repetition of a group, so groups that may repeat millions of times are
# matched in portions.
_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){0,4096}"'
_LITERAL = rb"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
_PARTS = {
    b"~": rb"[ \t\n\r]*+",
    b"<STRING>": _STRING,
    b"<LITERAL>": _LITERAL,
    b"<SCALAR>": rb"(?:%b|%b)" % (_STRING, _LITERAL),
    # Approximations of strings and scalars that look at nothing but quotes, brackets, commas and colons.
    b"<ANY STRING>": rb'"(?:[^"\\]++|\\.)*"',
    b"<ANY SCALAR>": rb'(?:"(?:[^"\\]++|\\.)*"|[^\x00-\x20,:\[\]{}"][^,:\[\]{}"]*+)',
}


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """Compile a pattern in which each name of `_PARTS` stands for its part."""
    for name, part in _PARTS.items():
        text = text.replace(name, part)
    return re.compile(text, re.DOTALL)


_SPACE = _pattern(rb"~")
_MEMBERS = _pattern(rb"(?:~<STRING>~:~<SCALAR>~,){0,256}")
_ITEMS = _pattern(rb"(?:~<SCALAR>~,){0,256}")
_KEY = _pattern(rb"~<STRING>~:")
_VALUE = _pattern(rb"~(?:([{\[])|<SCALAR>(?=~(?:,|\Z|[\]}][\]} \t\n\r]*+(?:,|\Z))))")
_ONE_SCALAR = _pattern(rb"<SCALAR>")

_BLANK = _pattern(rb"[\x00-\x20]*+")
_CLOSERS_RUN = _pattern(rb"[\x00-\x20\]}]*+")
_CLOSER = _pattern(rb"[\x00-\x20]*+[\]}]")
_LAST = _pattern(rb"[\x00-\x20,]*+")
_WORD = _pattern(rb'[^",\[\]{}]*+')
_BARE_KEY = _pattern(rb'[^\x00-\x20",:\[\]{}][^",:\[\]{}]*+(?=:)')
_TO_QUOTE = _pattern(rb'(?:[^"\\]++|\\.){0,4096}')
_TO_END_OF_KEY = _pattern(rb'(?:[^"\\]++|\\.|"(?!~:)){0,4096}')
_TO_END_OF_VALUE = _pattern(rb'(?:[^"\\]++|\\[^"]|\\?"(?!~(?:[,\]}]|\Z))){0,4096}')
_ENDING_QUOTE = _pattern(rb'(\\?)"')
_COLON_LOST = _pattern(rb"~(?:<ANY SCALAR>~[,}]|[{\[])")

# Text that lookahead reads after a comma, up to the next opening bracket, in an object, in an array or between values.
_NEXT_MEMBER = _pattern(rb"(?:~<ANY STRING>~:~<ANY SCALAR>~,)*~<ANY STRING>~:~(?:<ANY SCALAR>|([{\[]))")
_NEXT_ITEM = _pattern(rb"(?:~<ANY SCALAR>~,)*~(?:<ANY SCALAR>|([{\[]))")
_NEXT_VALUE = _pattern(rb"~(?:\Z|([{\[]))")
_SEPARATE_ITEM = _pattern(rb'(?<!")["{\[]|(?<=[ \t\n\r])(?:<LITERAL>[ \t\n\r]++)*(?:["{\[]|<LITERAL>~[,\]])')
# Text after a comma which proves that the comma is a separator, in an object, in an array or between values.
_FITS_MEMBER = _pattern(rb"~(?:<ANY STRING>~:|\}|\Z)")
_FITS_ITEM = _pattern(rb"~(?:<ANY SCALAR>~[,\]]|[\[{\]]|\Z)")
_FITS_VALUE = _pattern(rb"~(?:\{|\Z)")

_NOT_A_NUMBER = re.compile(
    rb"[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|[0-9]+\.#(?:inf|ind|[qs]nan)[0-9]*)", re.IGNORECASE
)  # the notations of Python, of C and of the C library of Windows
_LEADING_ZERO = re.compile(rb"(-?)0+((?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?)")
_CONTROL = re.compile(rb"[\x00-\x1f]")
_CONTROLS = [(bytes([n]), json.dumps(chr(n))[1:-1].encode()) for n in range(0x20)]
_SOUND_ESCAPES = re.compile(rb'(?:[^\\]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})){0,4096}')
_ESCAPE_OR_BACKSLASH = re.compile(rb'(\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))|(\\)')
_PATH_ESCAPE_OR_BACKSLASH = re.compile(rb'(\\(?:["\\]|u[0-9a-fA-F]{4}))|(\\)')
_DRIVE = re.compile(rb"\b[A-Za-z]:\\")
_PAIR_OR_QUOTE = re.compile(rb'\\.|"', re.DOTALL)
_ILL_FORMED = re.compile("([\udc80-\udcff]+)")


class Damage(StrEnum):
    """Kinds of damage, each with its repair."""

    CONTROL_CHARACTER = "control_character"
    """A control character in a string is escaped; one between tokens becomes a space."""
    BAD_ESCAPE = "bad_escape"
    """A backslash that begins no escape is doubled.

    In a string with a drive letter, which may be a Windows path, only escapes of quotes, backslashes and code points
    (``u`` and four digits) count as escapes.
    """
    INVALID_UTF8 = "invalid_utf8"
    """Each ill-formed sequence becomes U+FFFD."""
    NOT_A_NUMBER = "not_a_number"
    """NaN or an infinity becomes a string with its text."""
    BARE_WORD = "bare_word"
    """Other text without quotes becomes a string; a missing value becomes null."""
    LEADING_ZERO = "leading_zero"
    """The leading zeros of a number are dropped."""
    EXTRA_COMMA = "extra_comma"
    """A comma with nothing before or after it is dropped."""
    MISSING_COMMA = "missing_comma"
    """A comma is inserted between two members or values."""
    MISSING_COLON = "missing_colon"
    """A colon is inserted between a key and its value."""
    UNESCAPED_QUOTE = "unescaped_quote"
    """The quotes inside a string are escaped."""
    UNCLOSED = "unclosed"
    """An unclosed bracket is closed after the last value in it."""
    WRONG_BRACKET = "wrong_bracket"
    """A closing bracket of the wrong kind is replaced; a superfluous one is dropped."""


class Repair(NamedTuple):
    """One change: the kind of damage, and the offset of its first byte in the piece.

    For missing text, the offset is that of the insertion. A string has at most one repair of each kind; adjacent
    ill-formed sequences share a repair.
    """

    damage: Damage
    offset: int


class Repaired(NamedTuple):
    """Result of a repair.

    Attributes:
        values: the piece's JSON texts in order. Each is valid JSON in well-formed UTF-8 without white space around it.
            Wherever the piece was valid, the text equals it byte for byte.
        repairs: the changes, in the order of their offsets.
    """

    values: list[bytes]
    repairs: list[Repair]


class Unrepairable(Exception):
    """A piece has no evident repair.

    Args:
        reason: explanation, in one sentence.
        offset: offset in the piece at which the repair was given up.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


def repair_json(piece: bytes, *, at_end: bool = False) -> Repaired:
    """Return the JSON values of a piece of text, repaired where it is damaged.

    Args:
        piece: JSON texts in order with commas between them; the piece may end with a comma.
        at_end: whether the document ends with the piece. Brackets that are open there are then not repaired.

    Raises:
        Unrepairable: part of the piece has no evident repair; no part of the piece is returned.
    """
    try:
        piece.decode()
    except UnicodeDecodeError:
        return _Repairer(*_well_formed(piece), at_end=at_end).run()
    return _Repairer(piece, [], at_end=at_end).run()


class _Run(NamedTuple):
    """Bytes that are all well-formed or all ill-formed: from `start` in the new text, from `source` in the piece."""

    start: int
    source: int
    ill_formed: bool


def _well_formed(piece: bytes) -> tuple[bytes, list[_Run]]:
    """Return the piece with U+FFFD in place of each ill-formed sequence, and the runs."""
    runs: list[_Run] = []
    texts: list[bytes] = []
    start = source = 0
    parts = _ILL_FORMED.split(piece.decode(errors="surrogateescape"))
    if len(parts) // 2 > REPAIRS_MAX:
        raise Unrepairable(_TOO_MANY, 0)
    for n, part in enumerate(parts):
        raw = part.encode(errors="surrogateescape")
        texts.append(raw.decode(errors="replace").encode() if n % 2 else raw)
        runs.append(_Run(start, source, ill_formed=bool(n % 2)))
        start += len(texts[-1])
        source += len(raw)
    return b"".join(texts), runs


_State: TypeAlias = Callable[[], "_State | None"]


class _Repairer:
    """State machine that reads one text.

    Each method that returns a state reads on from `_at`. The returned method reads the next part; None ends the run.
    """

    def __init__(self, text: bytes, runs: list[_Run], *, at_end: bool) -> None:
        self._text = text
        self._runs = runs
        self._at_end = at_end
        self._budget = _BUDGET + _BUDGET_PER_BYTE * len(text)
        self._at = 0
        self._stack: list[int] = []  # the closing bracket of each open bracket
        self._comma = -1  # offset of the comma before an element that must follow, or -1
        self._start = 0  # start of the current top-level value
        self._opened = -1  # end of the last opening bracket
        self._value_end = -1  # end of the last value, or of a later opening bracket
        self._values: list[tuple[int, int]] = []
        self._edits: list[tuple[int, int, bytes]] = []
        self._repairs = [Repair(Damage.INVALID_UTF8, run.source) for run in runs if run.ill_formed]

    def run(self) -> Repaired:
        """Read all of the text."""
        state: _State | None = self._item
        while state:
            state = state()
        return Repaired(self._texts(), sorted(self._repairs, key=itemgetter(1)))

    def _texts(self) -> list[bytes]:
        """Return the values with the edits applied."""
        text = self._text
        if not self._edits:
            return [text[start:end] for start, end in self._values]
        self._edits.sort(key=itemgetter(0, 1))  # stable: insertions at one place keep their order
        texts: list[bytes] = []
        n = 0
        for start, end in self._values:
            parts: list[bytes] = []
            at = start
            while n < len(self._edits) and self._edits[n][1] <= end:
                edit_start, edit_end, new = self._edits[n]
                n += 1
                if edit_start >= start:  # edits between two values are dropped
                    parts += text[at:edit_start], new
                    at = edit_end
            texts.append(b"".join([*parts, text[at:end]]))
        return texts

    # Elements that must come next.

    def _key(self) -> _State | None:
        """Read the members of an object, or its end."""
        self._pass_scalars(_MEMBERS)
        key = _KEY.match(self._text, self._at)
        if not key:
            return self._invalid_key()
        self._at = key.end()
        return self._value

    def _item(self) -> _State | None:
        """Read the items of an array, or its end; or the next top-level value."""
        if self._stack:
            self._pass_scalars(_ITEMS)
        token = self._next_token()
        if token < 0:
            return self._finish_pending
        if token == _COMMA:
            return self._drop_comma()
        if token in _CLOSERS:
            return self._end()
        if not self._stack:
            self._start = self._at
        return self._value

    def _value(self) -> _State | None:
        """Read a value."""
        value = _VALUE.match(self._text, self._at)
        if not value:
            return self._invalid_value()
        self._at = value.end()
        if value[1]:
            return self._open(value[1][0])
        return self._end_value()

    def _after(self) -> _State | None:
        """Read a comma, or a closing bracket."""
        token = self._next_token()
        if token < 0:
            return self._finish
        if token == _COMMA:
            self._comma = self._at
            self._at += 1
            return self._next_element()
        if token in _CLOSERS:
            return self._close(token)
        return self._insert_comma(token)

    def _next_element(self) -> _State:
        return self._key if self._stack and self._stack[-1] == _BRACE else self._item

    def _pass_scalars(self, pattern: re.Pattern[bytes]) -> None:
        """Skip valid scalars, each with its comma: the bulk of most events."""
        end = _past_all(pattern, self._text, self._at)
        if end > self._at:
            self._at = end
            self._comma = self._value_end = end - 1

    def _next_token(self) -> int:
        """Go to the next byte that is neither white space nor a control character, and return it; -1 at the end."""
        at = _past(_SPACE, self._text, self._at)
        if at < len(self._text) and self._text[at] < 0x20:
            end = _past(_BLANK, self._text, at)
            self._edit(Damage.CONTROL_CHARACTER, at, end, b" ")
            at = end
        self._at = at
        return self._text[at] if at < len(self._text) else -1

    # Brackets and commas.

    def _open(self, bracket: int) -> _State:
        if len(self._stack) == DEPTH_MAX:
            self._give_up(f"Brackets are nested more than {DEPTH_MAX} deep.")
        self._stack.append(_CLOSING[bracket])
        self._comma = -1
        self._opened = self._value_end = self._at
        return self._next_element()

    def _end(self) -> _State:
        """Handle a closing bracket in place of an element: a comma before the bracket is dropped."""
        if self._stack and self._comma >= 0:
            self._edit(Damage.EXTRA_COMMA, self._comma, self._comma + 1, b"")
        return self._after

    def _close(self, bracket: int) -> _State:
        if not self._stack or bracket != self._stack[-1]:
            return self._wrong_bracket(bracket)
        self._stack.pop()
        self._at += 1
        return self._end_value()

    def _end_value(self) -> _State:
        """Record that a value ends here."""
        self._value_end = self._at
        if not self._stack:
            self._values.append((self._start, self._value_end))
        return self._after

    def _wrong_bracket(self, bracket: int) -> _State:
        """Handle a mismatched closing bracket: inner brackets are unclosed, its kind is wrong, or it is superfluous."""
        at, depth = self._at, len(self._stack)
        outer = depth - 1 - self._stack[::-1].index(bracket) if bracket in self._stack else None
        last = _past(_LAST, self._text, at + 1) == len(self._text)
        if outer is not None and (last or self._reads_on(at + 1, outer)):
            self._close_down_to(outer + 1)
            return self._close(bracket)
        if depth and self._reads_on(at + 1, depth - 1):
            self._edit(Damage.WRONG_BRACKET, at, at + 1, bytes(self._stack[-1:]))
            return self._close(self._stack[-1])
        if not (self._reads_on(at + 1, depth) if depth else self._values):
            self._give_up("A closing bracket has no opening one.")
        self._edit(Damage.WRONG_BRACKET, at, at + 1, b"")
        self._at += 1
        return self._next_element() if self._value_end == self._opened else self._after

    def _close_down_to(self, depth: int) -> None:
        """Close the open brackets beyond a depth, after the last value."""
        self._edit(Damage.UNCLOSED, self._value_end, self._value_end, bytes(self._stack[depth:][::-1]))
        del self._stack[depth:]
        if not depth:
            self._values.append((self._start, self._value_end))

    def _close_objects(self) -> None:
        """Handle an object where none can begin: close the objects around it, up to an array or to the top."""
        depth = len(self._stack)
        while depth and self._stack[depth - 1] == _BRACE:
            depth -= 1
        self._close_down_to(depth)

    def _finish_pending(self) -> _State:
        """Handle the end of the text in place of an element: a comma before the end belongs to the next piece."""
        if self._stack and self._comma < 0:
            self._give_up("The text ends directly after an opening bracket.")
        return self._finish

    def _finish(self) -> None:
        """Handle the end of the text."""
        if self._stack and self._at_end:
            self._give_up("The text is cut off.")
        if self._stack:
            self._close_down_to(0)

    def _drop_comma(self) -> _State:
        """Handle a comma in place of an element."""
        self._edit(Damage.EXTRA_COMMA, self._at, self._at + 1, b"")
        self._at += 1
        return self._next_element()

    def _insert_comma(self, token: int) -> _State:
        """Handle an element in place of a comma."""
        if token == _OPEN_BRACE and self._next_element() == self._key:
            self._close_objects()
        if not self._stack:
            fits = token in _CLOSING
        else:
            fits = token == _QUOTE if self._stack[-1] == _BRACE else token != _COLON
        if not fits:
            self._give_up("Neither a comma nor a closing bracket follows a value.")
        self._edit(Damage.MISSING_COMMA, self._value_end, self._value_end, b"," if self._stack else b"")
        self._comma = self._value_end
        return self._next_element()

    # Keys and scalars that are invalid, or are followed by invalid text.

    def _invalid_key(self) -> _State | None:
        token = self._next_token()
        if token < 0:
            return self._finish_pending
        if token == _COMMA:
            return self._drop_comma()
        if token in _CLOSERS:
            return self._end()
        if token == _OPEN_BRACE and self._comma >= 0:
            self._close_objects()
            return self._item
        at = self._at
        if token == _QUOTE:
            self._at = self._key_end()
            self._repair_string(at)
        else:
            self._at = _past(_BARE_KEY, self._text, at)
            if self._at == at:
                self._give_up("A key is missing.")
            self._edit(Damage.BARE_WORD, at, self._at, _quoted(self._text[at : self._at].rstrip(_BLANKS)))
        return self._colon()

    def _colon(self) -> _State:
        end = self._at
        if self._next_token() == _COLON:
            self._at += 1
        else:
            self._edit(Damage.MISSING_COLON, end, end, b":")
        return self._value

    def _key_end(self) -> int:
        """Return the end of the key that begins here."""
        text, begin = self._text, self._at + 1
        end = _past_all(_TO_QUOTE, text, begin) + 1
        if self._is_colon(end) or _COLON_LOST.match(text, end, end + _WINDOW):
            return end
        end = _past_all(_TO_END_OF_KEY, text, begin) + 1
        return end if self._is_colon(end) else self._give_up("A key has no end.")

    def _is_colon(self, at: int) -> bool:
        return self._text.startswith(b":", _past(_BLANK, self._text, at))

    def _invalid_value(self) -> _State | None:
        token, at = self._next_token(), self._at
        if token in _CLOSING:  # after a control character
            return self._value
        if token < 0:
            self._give_up("The text ends where a value must follow.")
        if token == _QUOTE:
            self._at = self._string_end()
            self._repair_string(at)
        elif token == _COMMA or token in _CLOSERS:
            self._edit(Damage.BARE_WORD, at, at, b"null")
        else:
            self._bare_word()
        return self._end_value()

    def _bare_word(self) -> None:
        """Read and repair a word without quotes. It may have spaces, and ends at the next quote, comma or bracket."""
        at, run = self._at, _past(_WORD, self._text, self._at)
        word = self._text[at:run].rstrip(_BLANKS)
        self._at = end = at + len(word)
        if word.startswith(b":"):
            self._give_up("A colon stands where a value must follow.", at)
        if end == run and self._text.startswith(b'"', end):
            self._give_up("A quote stands in a word.")
        if _ONE_SCALAR.fullmatch(word):
            return
        zeros = _LEADING_ZERO.fullmatch(word)
        if zeros:
            self._edit(Damage.LEADING_ZERO, at, end, b"".join(zeros.groups()))
        elif self._stack and self._next_element() == self._item and all(map(_ONE_SCALAR.fullmatch, word.split())):
            first = _past(_ONE_SCALAR, self._text, at)
            self._edit(Damage.MISSING_COMMA, first, end, b", ".join(word.split())[first - at :])
        else:
            damage = Damage.NOT_A_NUMBER if _NOT_A_NUMBER.fullmatch(word) else Damage.BARE_WORD
            self._edit(damage, at, end, _quoted(word))

    def _repair_string(self, start: int) -> None:
        """Make the string from `start` to here valid: add missing escapes, and keep existing ones."""
        old = new = self._text[start + 1 : self._at - 1]
        sound = _past_all(_SOUND_ESCAPES, old)
        if sound < len(old):
            self._note(Damage.BAD_ESCAPE, start + 1 + sound)
            escape_or_backslash = _PATH_ESCAPE_OR_BACKSLASH if _DRIVE.search(old) else _ESCAPE_OR_BACKSLASH
            new = escape_or_backslash.sub(rb"\1\2\2", new)
        quote = _past_all(_TO_QUOTE, old)
        if old.startswith(b'"', quote):
            self._note(Damage.UNESCAPED_QUOTE, start + 1 + quote)
            new = _PAIR_OR_QUOTE.sub(lambda match: match[0] if len(match[0]) > 1 else b'\\"', new)
        control = _CONTROL.search(old)
        if control:
            self._note(Damage.CONTROL_CHARACTER, start + 1 + control.start())
            for character, escape in _CONTROLS:
                new = new.replace(character, escape)
        if new != old:
            self._edits.append((start + 1, self._at - 1, new))

    # Ends of strings.

    def _string_end(self) -> int:
        """Return the end of the string that begins here: the next quote, if the text after it fits, or a later one."""
        text = self._text
        first = _past_all(_TO_QUOTE, text, self._at + 1) + 1
        if text.startswith(b'"', first - 1) and self._ends_value(first):
            return first
        fitting = self._fitting_end()
        if not fitting and _CLOSER.match(text, first):
            fitting = first
        return fitting or self._give_up("A string has no end.")

    def _fitting_end(self) -> int:
        """Return the end of a string with stray quotes; 0 if no quote can be its end.

        Candidates are the quotes after which the text fits. The end is the first candidate after which the whole rest
        of the text is valid, or before which the string looks complete. A complete string has balanced brackets and, in
        an array, paired quotes: most stray quotes come with code or JSON in a string. If there is no such candidate,
        the end is the first candidate after which the text is valid for a while. A quote that seems escaped may end a
        Windows path.
        """
        text, at = self._text, self._at + 1
        open_brackets, quotes = [0, 0, 0], 0
        in_path, in_object = False, self._next_element() == self._key
        reading_on = fitting = 0
        while quote := _ENDING_QUOTE.match(text, _past_all(_TO_END_OF_VALUE, text, at)):
            end, escaped = quote.end(), bool(quote[1])
            self._spend(end - at + _QUOTE_COST)
            for n, (opening, closing) in enumerate(_PAIRS):
                open_brackets[n] += text.count(opening, at, end) - text.count(closing, at, end)
            quotes += text.count(b'"', at, end)
            in_path = in_path or bool(_DRIVE.search(text, at, end))
            at = end
            if self._fits(end):
                if not any(open_brackets) and (in_object or quotes % 2) and (in_path or not escaped):
                    return end
                read_to = 0 if reading_on else self._reads_on(end, len(self._stack))
                if read_to == len(text):
                    return end
                reading_on = reading_on or (end if read_to else 0)
                fitting = fitting or (0 if escaped else end)
        return reading_on or fitting

    def _ends_value(self, at: int) -> bool:
        """Return whether a string may end at `at`: the text after it is valid, or only lacks a comma."""
        behind = _past(_CLOSERS_RUN, self._text, at)
        if behind == len(self._text) or self._text[behind] == _COMMA:
            return True
        return bool(self._reads_on(at, len(self._stack), comma_lost=True))

    def _fits(self, at: int) -> bool:
        """Return whether a string may end at `at`, by the text up to the next comma and directly after that comma."""
        text, depth = self._text, len(self._stack)
        at = _past(_SPACE, text, at)
        while depth and at < len(text) and text[at] == self._stack[depth - 1]:
            depth -= 1
            at = _past(_SPACE, text, at + 1)
        if at == len(text):
            return True
        if text[at] != _COMMA:
            return False
        if not depth:
            return bool(_FITS_VALUE.match(text, at + 1))
        pattern = _FITS_MEMBER if self._stack[depth - 1] == _BRACE else _FITS_ITEM
        return bool(pattern.match(text, at + 1, at + _WINDOW))

    def _reads_on(self, at: int, depth: int, *, comma_lost: bool = False) -> int:
        """Return how far the structure is valid after a value that ends at `at`, inside `depth` open brackets.

        The result is the end of the text, if all brackets are closed there, or an offset after `_ENOUGH` bytes or
        `_STEPS` steps; 0 if the structure is invalid before that. Strings and words need not be valid. With
        `comma_lost`, an unmistakable value needs no comma before it.
        """
        text, stack, start = self._text, self._stack[:depth], at
        window = min(len(text), at + _WINDOW)
        fresh = False  # directly after an opening bracket
        steps = 0
        while at < start + _ENOUGH and steps < _STEPS:
            steps += 1
            at = _past(_BLANK, text, at, window)
            if at == len(text):
                break
            if stack and text[at] == stack[-1]:
                stack.pop()
                at += 1
                fresh = False
                continue
            comma = text[at] == _COMMA
            pattern = _NEXT_VALUE if not stack else _NEXT_MEMBER if stack[-1] == _BRACE else _NEXT_ITEM
            begins = fresh or (comma_lost and (pattern != _NEXT_ITEM or _SEPARATE_ITEM.match(text, at, window)))
            match = pattern.match(text, at + comma, window)
            if not match or (fresh if comma else not begins):
                self._spend(at - start + steps * _STEP_COST + _LOOK_COST)
                return 0
            at, fresh = match.end(), bool(match[1])
            if match[1]:
                stack.append(_CLOSING[match[1][0]])
        self._spend(at - start + steps * _STEP_COST + _LOOK_COST)
        return 0 if stack and at == len(text) else at

    # Edits, repairs and budget.

    def _edit(self, damage: Damage, start: int, end: int, new: bytes) -> None:
        """Replace the bytes from `start` to `end`."""
        self._note(damage, start)
        self._edits.append((start, end, new))

    def _note(self, damage: Damage, at: int) -> None:
        self._repairs.append(Repair(damage, self._source(at)))
        if len(self._repairs) > REPAIRS_MAX:
            self._give_up(_TOO_MANY)

    def _spend(self, cost: int) -> None:
        self._budget -= cost
        if self._budget < 0:
            self._give_up("The text has too many stray quotes and brackets.")

    def _source(self, at: int) -> int:
        """Return the offset in the piece of a byte of the text."""
        if not self._runs:
            return at
        run = self._runs[bisect_right(self._runs, at, key=itemgetter(0)) - 1]
        return run.source + at - run.start

    def _give_up(self, reason: str, at: int | None = None) -> NoReturn:
        raise Unrepairable(reason, self._source(self._at if at is None else at))


def _past(pattern: re.Pattern[bytes], text: bytes, at: int, window: int = sys.maxsize) -> int:
    """Return the end of a pattern's match at an offset; the offset itself if there is no match."""
    match = pattern.match(text, at, window)
    return match.end() if match else at


def _quoted(word: bytes) -> bytes:
    return json.dumps(word.decode(), ensure_ascii=False).encode()


def _past_all(pattern: re.Pattern[bytes], text: bytes, at: int = 0) -> int:
    """Return the end of all successive matches from an offset on, for a pattern that matches a portion at a time."""
    while (end := _past(pattern, text, at)) > at:
        at = end
    return at
