"""Name patterns of a selection. The time of a match is linear in the length of the name.

Regular expressions have the syntax of RE2: https://github.com/google/re2/wiki/Syntax. RE2 never backtracks and bounds
its own memory; it has neither look-around nor back-references.
"""

import re
from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from service.trace.errors import BadSelection
from service.trace.selection_fields import REGEX, is_pattern


class NamePatterns:
    """Set of names and name patterns; a name matches the set if it matches any of them.

    Args:
        wanted: the names and patterns, as in `Criteria.names`.

    Raises:
        BadSelection: a pattern is not a regular expression of RE2.
    """

    def __init__(self, wanted: Iterable[str]) -> None:
        self._names = {name for name in wanted if not is_pattern(name)}
        self._regexes = [_regex(name) for name in wanted if is_pattern(name)]
        self._matches: dict[str, bool] = {}

    def match(self, names: Sequence[str]) -> list[bool]:
        """Return for each name whether it matches; results are cached by name."""
        new = [name for name in names if name not in self._matches]
        matching = {name for name in new if name in self._names}
        if new and self._regexes:
            text = pa.array(new, pa.large_string())
            for regex in self._regexes:
                flags = pc.match_substring_regex(text, regex).to_pylist()
                matching.update(name for name, matches in zip(new, flags, strict=True) if matches)
        self._matches |= {name: name in matching for name in new}
        return [self._matches[name] for name in names]


def _regex(pattern: str) -> str:
    """Return the regular expression of a pattern; raise `BadSelection` unless RE2 accepts it."""
    if pattern.startswith(REGEX):
        regex = pattern[len(REGEX) :]
    else:
        words = re.findall(r"\*+|\?|[^*?]+", pattern)
        regex = rf"(?s)\A{''.join(map(_translate, words))}\z"
    try:
        pc.match_substring_regex(pa.array([""]), regex)
    except (pa.ArrowInvalid, UnicodeEncodeError) as error:
        reason = str(error).removeprefix("Invalid regular expression: ").splitlines()[0][:200]
        raise BadSelection(f"The regular expression {regex[:100]!r} is not one of RE2's: {reason}.") from error
    return regex


def _translate(word: str) -> str:
    """Return the regular expression of a token of a pattern: stars, a question mark, or plain text."""
    if word.startswith("*"):
        return ".*"
    return "." if word == "?" else re.escape(word)
