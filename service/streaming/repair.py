"""Damaged JSON text to sound JSON text, by the smallest change that is evident.

The text is read once from left to right, as JSON; where it is none, it is mended on the spot and reading goes on. Only
what can't be told on the spot, as where a string with stray quotes ends, asks for a look ahead, and a budget bounds
all of these together: whatever the text, the time is proportional to its length. There is no recursion. What has no
evident mending is refused.
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
REPAIRS_MAX = 1 << 16
"""Repairs in one piece: a text with more of them tells nothing that could be trusted."""

_TOO_MANY = f"More than {REPAIRS_MAX} places are damaged."
_WINDOW, _ENOUGH, _STEPS = 8192, 1024, 64  # bytes that one look ahead may see, and what contents it: bytes or steps
_BUDGET, _BUDGET_PER_BYTE = 1 << 18, 16  # bytes that all looks ahead may see together
_LOOK_COST, _STEP_COST, _QUOTE_COST = 256, 32, 64  # what these count for beside the bytes they pass

_COMMA, _COLON, _QUOTE, _OPEN_BRACE, _OPEN_BRACKET, _BRACE, _BRACKET = b',:"{[}]'
_CLOSING = {_OPEN_BRACE: _BRACE, _OPEN_BRACKET: _BRACKET}
_CLOSERS = frozenset(_CLOSING.values())
_PAIRS = b"{}", b"[]", b"()"
_BLANKS = bytes(range(0x21))

# Each turn of a group takes the matcher some hundred bytes: what may have millions of them is matched in portions.
_STRING = rb'"[^"\\\x00-\x1f]*+(?:\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})[^"\\\x00-\x1f]*+){0,4096}"'
_LITERAL = rb"(?:-?(?:0|[1-9][0-9]*+)(?:\.[0-9]++)?(?:[eE][+-]?[0-9]++)?|true|false|null)"
_PARTS = {
    b"~": rb"[ \t\n\r]*+",
    b"<STRING>": _STRING,
    b"<LITERAL>": _LITERAL,
    b"<SCALAR>": rb"(?:%b|%b)" % (_STRING, _LITERAL),
    # What looks like these as far as quotes, brackets, commas and colons go.
    b"<ANY STRING>": rb'"(?:[^"\\]++|\\.)*"',
    b"<ANY SCALAR>": rb'(?:"(?:[^"\\]++|\\.)*"|[^\x00-\x20,:\[\]{}"][^,:\[\]{}"]*+)',
}


def _pattern(text: bytes) -> re.Pattern[bytes]:
    """The pattern that is written with these parts."""
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

# What a look ahead reads after a comma in an object, in an array and between the values: all up to the next bracket …
_NEXT_MEMBER = _pattern(rb"(?:~<ANY STRING>~:~<ANY SCALAR>~,)*~<ANY STRING>~:~(?:<ANY SCALAR>|([{\[]))")
_NEXT_ITEM = _pattern(rb"(?:~<ANY SCALAR>~,)*~(?:<ANY SCALAR>|([{\[]))")
_NEXT_VALUE = _pattern(rb"~(?:\Z|([{\[]))")
_SEPARATE_ITEM = _pattern(rb'(?<!")["{\[]|(?<=[ \t\n\r])(?:<LITERAL>[ \t\n\r]++)*(?:["{\[]|<LITERAL>~[,\]])')
# … and what shows that the comma is one.
_FITS_MEMBER = _pattern(rb"~(?:<ANY STRING>~:|\}|\Z)")
_FITS_ITEM = _pattern(rb"~(?:<ANY SCALAR>~[,\]]|[\[{\]]|\Z)")
_FITS_VALUE = _pattern(rb"~(?:\{|\Z)")

_NOT_A_NUMBER = re.compile(
    rb"[+-]?(?:nan(?:\(\w*\))?|inf(?:inity)?|[0-9]+\.#(?:inf|ind|[qs]nan)[0-9]*)", re.IGNORECASE
)  # as Python, C and the C library of Windows write them
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
    """What was wrong with a text, and how it is mended."""

    CONTROL_CHARACTER = "control_character"
    """A control character in a string is escaped; one between the tokens becomes a space."""
    BAD_ESCAPE = "bad_escape"
    """A backslash that escapes nothing is doubled; in a path with a drive's letter, each of them."""
    INVALID_UTF8 = "invalid_utf8"
    """Each ill-formed sequence becomes U+FFFD."""
    NOT_A_NUMBER = "not_a_number"
    """NaN or an infinity becomes the string of its text."""
    BARE_WORD = "bare_word"
    """Other text without quotes becomes the string of its text; a value that is missing becomes null."""
    LEADING_ZERO = "leading_zero"
    """The zeros before a number are dropped."""
    EXTRA_COMMA = "extra_comma"
    """A comma with nothing after it, or nothing before it, is dropped."""
    MISSING_COMMA = "missing_comma"
    """A comma is put between two members or values."""
    MISSING_COLON = "missing_colon"
    """A colon is put between a key and its value."""
    UNESCAPED_QUOTE = "unescaped_quote"
    """The quotes inside a string are escaped."""
    UNCLOSED = "unclosed"
    """What was open is closed after the last value in it."""
    WRONG_BRACKET = "wrong_bracket"
    """A closing bracket of the other kind is replaced; one too many is dropped."""


class Repair(NamedTuple):
    """One change: what for, and the offset in the piece of the first byte of the damage.

    What is missing has the offset at which it was put. A string has one repair of each kind, however many of its places
    have that damage, and ill-formed sequences that stand side by side have one.
    """

    damage: Damage
    offset: int


class Mended(NamedTuple):
    """What a piece holds.

    `values` are its JSON texts, one after the other: each is sound JSON in well-formed UTF-8 without white space around
    it, and equals the piece byte for byte wherever that was sound. `repairs` are in the order of their offsets.
    """

    values: list[bytes]
    repairs: list[Repair]


class Unmendable(Exception):
    """A piece has no evident mending.

    Args:
        reason: one sentence.
        offset: the byte of the piece at which it was given up.
    """

    def __init__(self, reason: str, offset: int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.offset = offset


def mend(piece: bytes, *, at_end: bool = False) -> Mended:
    """The JSON values of a piece of text, mended where it is damaged.

    Args:
        piece: JSON texts, one after the other with commas between them; one more may end it.
        at_end: the document is cut off at the end of the piece: what is open there has lost more than its brackets.

    Raises:
        Unmendable: some of the piece can't be told. There is no answer for parts of it.
    """
    try:
        piece.decode()
    except UnicodeDecodeError:
        return _Mender(*_well_formed(piece), at_end=at_end).mend()
    return _Mender(piece, [], at_end=at_end).mend()


class _Run(NamedTuple):
    """Bytes that are all well-formed or all ill-formed; where they start in the text that is made, and in the piece."""

    start: int
    source: int
    ill_formed: bool


def _well_formed(piece: bytes) -> tuple[bytes, list[_Run]]:
    """The piece with U+FFFD for each ill-formed sequence, and the runs it is made of."""
    runs: list[_Run] = []
    texts: list[bytes] = []
    start = source = 0
    parts = _ILL_FORMED.split(piece.decode(errors="surrogateescape"))
    if len(parts) // 2 > REPAIRS_MAX:
        raise Unmendable(_TOO_MANY, 0)
    for n, part in enumerate(parts):
        raw = part.encode(errors="surrogateescape")
        texts.append(raw.decode(errors="replace").encode() if n % 2 else raw)
        runs.append(_Run(start, source, ill_formed=bool(n % 2)))
        start += len(texts[-1])
        source += len(raw)
    return b"".join(texts), runs


_State: TypeAlias = Callable[[], "_State | None"]


class _Mender:
    """Reads one text. A method that returns a state reads on from `_at`, and says what is due then: None at the end."""

    def __init__(self, text: bytes, runs: list[_Run], *, at_end: bool) -> None:
        self._text = text
        self._runs = runs
        self._at_end = at_end
        self._budget = _BUDGET + _BUDGET_PER_BYTE * len(text)
        self._at = 0
        self._stack: list[int] = []  # the closing brackets of what is open
        self._comma = -1  # where something is due: the comma before it, if there is one
        self._start = 0  # of the value at the top
        self._opened = -1  # the end of the bracket that opened last
        self._value_end = -1  # the end of the last value, or of a bracket that opened after it
        self._values: list[tuple[int, int]] = []
        self._edits: list[tuple[int, int, bytes]] = []
        self._repairs = [Repair(Damage.INVALID_UTF8, run.source) for run in runs if run.ill_formed]

    def mend(self) -> Mended:
        """Read all of the text."""
        state: _State | None = self._item
        while state:
            state = state()
        return Mended(self._texts(), sorted(self._repairs, key=itemgetter(1)))

    def _texts(self) -> list[bytes]:
        """The values, with the edits made."""
        text = self._text
        if not self._edits:
            return [text[start:end] for start, end in self._values]
        self._edits.sort(key=itemgetter(0, 1))  # what is put in one place stays in its order
        texts: list[bytes] = []
        n = 0
        for start, end in self._values:
            parts: list[bytes] = []
            at = start
            while n < len(self._edits) and self._edits[n][1] <= end:
                edit_start, edit_end, new = self._edits[n]
                n += 1
                if edit_start >= start:  # and not between two values
                    parts += text[at:edit_start], new
                    at = edit_end
            texts.append(b"".join([*parts, text[at:end]]))
        return texts

    # What is due.

    def _key(self) -> _State | None:
        """The members of an object, or its end."""
        self._pass_scalars(_MEMBERS)
        key = _KEY.match(self._text, self._at)
        if not key:
            return self._odd_key()
        self._at = key.end()
        return self._value

    def _item(self) -> _State | None:
        """The items of an array, or its end; or the next value at the top."""
        if self._stack:
            self._pass_scalars(_ITEMS)
        token = self._next_token()
        if token < 0:
            return self._finish_due
        if token == _COMMA:
            return self._drop_comma()
        if token in _CLOSERS:
            return self._end()
        if not self._stack:
            self._start = self._at
        return self._value

    def _value(self) -> _State | None:
        """A value."""
        value = _VALUE.match(self._text, self._at)
        if not value:
            return self._odd_value()
        self._at = value.end()
        if value[1]:
            return self._open(value[1][0])
        return self._end_value()

    def _after(self) -> _State | None:
        """A comma, or the end of what is open."""
        token = self._next_token()
        if token < 0:
            return self._finish
        if token == _COMMA:
            self._comma = self._at
            self._at += 1
            return self._due()
        if token in _CLOSERS:
            return self._close(token)
        return self._insert_comma(token)

    def _due(self) -> _State:
        return self._key if self._stack and self._stack[-1] == _BRACE else self._item

    def _pass_scalars(self, pattern: re.Pattern[bytes]) -> None:
        """Go over all that is sound and no bracket, each with its comma: most of most events."""
        end = _past_all(pattern, self._text, self._at)
        if end > self._at:
            self._at = end
            self._comma = self._value_end = end - 1

    def _next_token(self) -> int:
        """Go to the first byte that is neither white space nor a control character; -1 at the end of the text."""
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
        return self._due()

    def _end(self) -> _State:
        """What is open ends, but something is due in it: that is sound only without a comma."""
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
        """A value ends here."""
        self._value_end = self._at
        if not self._stack:
            self._values.append((self._start, self._value_end))
        return self._after

    def _wrong_bracket(self, bracket: int) -> _State:
        """What is open inside has lost its ends, or this bracket is of the wrong kind, or it is one too many."""
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
            self._give_up("A bracket closes what is not open.")
        self._edit(Damage.WRONG_BRACKET, at, at + 1, b"")
        self._at += 1
        return self._due() if self._value_end == self._opened else self._after

    def _close_down_to(self, depth: int) -> None:
        """Close what is open beyond that depth, after the last value."""
        self._edit(Damage.UNCLOSED, self._value_end, self._value_end, bytes(self._stack[depth:][::-1]))
        del self._stack[depth:]
        if not depth:
            self._values.append((self._start, self._value_end))

    def _close_objects(self) -> None:
        """An object begins where none can: those around it have lost their ends, up to an array or to the top."""
        depth = len(self._stack)
        while depth and self._stack[depth - 1] == _BRACE:
            depth -= 1
        self._close_down_to(depth)

    def _finish_due(self) -> _State:
        """The text ends, but something is due: a comma before that is of what follows the piece."""
        if self._stack and self._comma < 0:
            self._give_up("It ends where something has just begun.")
        return self._finish

    def _finish(self) -> None:
        """The text ends."""
        if self._stack and self._at_end:
            self._give_up("It is cut off.")
        if self._stack:
            self._close_down_to(0)

    def _drop_comma(self) -> _State:
        """A comma stands where something is due."""
        self._edit(Damage.EXTRA_COMMA, self._at, self._at + 1, b"")
        self._at += 1
        return self._due()

    def _insert_comma(self, token: int) -> _State:
        """A comma is due, and here is what could follow it."""
        if token == _OPEN_BRACE and self._due() == self._key:
            self._close_objects()
        if not self._stack:
            fits = token in _CLOSING
        else:
            fits = token == _QUOTE if self._stack[-1] == _BRACE else token != _COLON
        if not fits:
            self._give_up("After a value stands neither a comma nor an end.")
        self._edit(Damage.MISSING_COMMA, self._value_end, self._value_end, b"," if self._stack else b"")
        self._comma = self._value_end
        return self._due()

    # Keys and scalars that are not sound, or after which stands what can't.

    def _odd_key(self) -> _State | None:
        token = self._next_token()
        if token < 0:
            return self._finish_due
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
            self._mend_string(at)
        else:
            self._at = _past(_BARE_KEY, self._text, at)
            if self._at == at:
                self._give_up("A key is due, and here is none.")
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
        """Where the key ends that begins here."""
        text, begin = self._text, self._at + 1
        end = _past_all(_TO_QUOTE, text, begin) + 1
        if self._is_colon(end) or _COLON_LOST.match(text, end, end + _WINDOW):
            return end
        end = _past_all(_TO_END_OF_KEY, text, begin) + 1
        return end if self._is_colon(end) else self._give_up("A key has no end.")

    def _is_colon(self, at: int) -> bool:
        return self._text.startswith(b":", _past(_BLANK, self._text, at))

    def _odd_value(self) -> _State | None:
        token, at = self._next_token(), self._at
        if token in _CLOSING:  # behind a control character
            return self._value
        if token < 0:
            self._give_up("It ends where a value is due.")
        if token == _QUOTE:
            self._at = self._string_end()
            self._mend_string(at)
        elif token == _COMMA or token in _CLOSERS:
            self._edit(Damage.BARE_WORD, at, at, b"null")
        else:
            self._bare_word()
        return self._end_value()

    def _bare_word(self) -> None:
        """Go over text without quotes: up to the next quote, comma or bracket, for a word may hold spaces."""
        at, run = self._at, _past(_WORD, self._text, self._at)
        word = self._text[at:run].rstrip(_BLANKS)
        self._at = end = at + len(word)
        if word.startswith(b":"):
            self._give_up("A value is due, and here is a colon.", at)
        if end == run and self._text.startswith(b'"', end):
            self._give_up("A quote stands in a word.")
        if _ONE_SCALAR.fullmatch(word):
            return
        zeros = _LEADING_ZERO.fullmatch(word)
        if zeros:
            self._edit(Damage.LEADING_ZERO, at, end, b"".join(zeros.groups()))
        elif self._stack and self._due() == self._item and all(map(_ONE_SCALAR.fullmatch, word.split())):
            first = _past(_ONE_SCALAR, self._text, at)
            self._edit(Damage.MISSING_COMMA, first, end, b", ".join(word.split())[first - at :])
        else:
            damage = Damage.NOT_A_NUMBER if _NOT_A_NUMBER.fullmatch(word) else Damage.BARE_WORD
            self._edit(damage, at, end, _quoted(word))

    def _mend_string(self, start: int) -> None:
        """Make the string sound that begins there and ends here: escape what has to be, and keep what is escaped."""
        old = new = self._text[start + 1 : self._at - 1]
        sound = _past_all(_SOUND_ESCAPES, old)
        if sound < len(old):
            self._note(Damage.BAD_ESCAPE, start + 1 + sound)
            escape_or_backslash = _PATH_ESCAPE_OR_BACKSLASH if _DRIVE.search(old) else _ESCAPE_OR_BACKSLASH
            new = escape_or_backslash.sub(rb"\1\2\2", new)
        quote = _past_all(_TO_QUOTE, old)
        if old.startswith(b'"', quote):
            self._note(Damage.UNESCAPED_QUOTE, start + 1 + quote)
            new = _PAIR_OR_QUOTE.sub(lambda found: found[0] if len(found[0]) > 1 else b'\\"', new)
        control = _CONTROL.search(old)
        if control:
            self._note(Damage.CONTROL_CHARACTER, start + 1 + control.start())
            for character, escape in _CONTROLS:
                new = new.replace(character, escape)
        if new != old:
            self._edits.append((start + 1, self._at - 1, new))

    # Where a string ends.

    def _string_end(self) -> int:
        """Where the value ends that begins here with a quote: at the next quote, unless what follows does not fit."""
        text = self._text
        first = _past_all(_TO_QUOTE, text, self._at + 1) + 1
        if text.startswith(b'"', first - 1) and self._ends_value(first):
            return first
        fitting = self._fitting_end()
        if not fitting and _CLOSER.match(text, first):
            fitting = first
        return fitting or self._give_up("A string has no end.")

    def _fitting_end(self) -> int:
        """The same for a string with stray quotes; 0 if none of them can be the end.

        Of the quotes that fit to what follows, it is the first behind which all is well to the text's end, or up to
        which the string looks whole: as many brackets closed as opened and, in an array, quotes in pairs. For what
        brings quotes into a string is, mostly, code and JSON. Failing that, it is the first behind which the text reads
        on for a while. A quote that seems to be escaped may be the end of a path of Windows.
        """
        text, at = self._text, self._at + 1
        open_brackets, quotes = [0, 0, 0], 0
        in_path, in_object = False, self._due() == self._key
        reading_on = fitting = 0
        while found := _ENDING_QUOTE.match(text, _past_all(_TO_END_OF_VALUE, text, at)):
            end, escaped = found.end(), bool(found[1])
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
        """Whether a string may end here, by what follows: strictly read, or with its comma lost."""
        behind = _past(_CLOSERS_RUN, self._text, at)
        if behind == len(self._text) or self._text[behind] == _COMMA:
            return True
        return bool(self._reads_on(at, len(self._stack), comma_lost=True))

    def _fits(self, at: int) -> bool:
        """Whether the string in a value may end here, by all that stands up to the next comma and right behind it."""
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
        """How far sound structure goes on after a value that ends here, inside so many of the open brackets.

        That is to the end of the text, if all is closed there; to where it was enough; or 0, if something is wrong
        before that. Strings and words need not be sound. With `comma_lost`, what is clearly a value needs no comma.
        """
        text, stack, start = self._text, self._stack[:depth], at
        window = min(len(text), at + _WINDOW)
        fresh = False  # a bracket has just opened
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
            found = pattern.match(text, at + comma, window)
            if not found or (fresh if comma else not begins):
                self._spend(at - start + steps * _STEP_COST + _LOOK_COST)
                return 0
            at, fresh = found.end(), bool(found[1])
            if found[1]:
                stack.append(_CLOSING[found[1][0]])
        self._spend(at - start + steps * _STEP_COST + _LOOK_COST)
        return 0 if stack and at == len(text) else at

    # The record.

    def _edit(self, damage: Damage, start: int, end: int, new: bytes) -> None:
        """Put the new bytes in the place of those from start to end."""
        self._note(damage, start)
        self._edits.append((start, end, new))

    def _note(self, damage: Damage, at: int) -> None:
        self._repairs.append(Repair(damage, self._source(at)))
        if len(self._repairs) > REPAIRS_MAX:
            self._give_up(_TOO_MANY)

    def _spend(self, looked_at: int) -> None:
        self._budget -= looked_at
        if self._budget < 0:
            self._give_up("It has too many quotes and brackets that fit nowhere.")

    def _source(self, at: int) -> int:
        """The offset in the piece of a byte of the text."""
        if not self._runs:
            return at
        run = self._runs[bisect_right(self._runs, at, key=itemgetter(0)) - 1]
        return run.source + at - run.start

    def _give_up(self, reason: str, at: int | None = None) -> NoReturn:
        raise Unmendable(reason, self._source(self._at if at is None else at))


def _past(pattern: re.Pattern[bytes], text: bytes, at: int, window: int = sys.maxsize) -> int:
    """Where the match ends that begins at a place: there, if there is none."""
    found = pattern.match(text, at, window)
    return found.end() if found else at


def _quoted(word: bytes) -> bytes:
    return json.dumps(word.decode(), ensure_ascii=False).encode()


def _past_all(pattern: re.Pattern[bytes], text: bytes, at: int = 0) -> int:
    """The same for a pattern that matches a portion at a time: where the last one ends."""
    while (end := _past(pattern, text, at)) > at:
        at = end
    return at
