"""Regular expressions as recordings hold them: the common subset of JavaScript, given to `re`.

A pattern means here what it means in JavaScript without flags, or it is refused: named groups, back
references, `\\p{...}`, inline flags, possessive quantifiers. Characters beyond U+FFFF count as one, where
JavaScript counts two halves; such characters in a class or under a quantifier are refused.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SPACE: Final = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
_LINE_ENDS: Final = r"\n\r\u2028\u2029"
_CONTROLS: Final = {"n": r"\n", "r": r"\r", "t": r"\t", "v": r"\v", "f": r"\f"}
_SETS: Final = {"d": "0-9", "w": "A-Za-z0-9_", "s": SPACE}
_QUANTIFIER: Final = re.compile(r"([*+?]|\{(\d+)(,(\d*))?\})(\??)", re.ASCII)
_HEX: Final = re.compile(r"x([0-9A-Fa-f]{2})|u([0-9A-Fa-f]{4})|c([A-Za-z])")
_GROUP: Final = re.compile(r"\(\?(:|=|!|<=|<!)")
_LOOKS: Final = ("=", "!", "<=", "<!")


class UnsupportedPatternError(ValueError):
    """A pattern that is no JavaScript regular expression, or outside the common subset."""


@dataclass(frozen=True, slots=True)
class JsPattern:
    """A compiled pattern. `first_repeated` says that its first group is under a quantifier, or inside one."""

    regex: re.Pattern[str]
    first_repeated: bool

    def last_in(self, text: str) -> str | None:
        """Return what the last match in `text` caught, None without a match.

        That is the first capture group, or the whole match where there is none or it took no part.
        Raises `UnsupportedPatternError` when the two languages may disagree on whether it did.
        """
        last: re.Match[str] | None = None
        at = 0
        while at <= len(text) and (found := self.regex.search(text, at)):
            last = found
            # After an empty match JavaScript goes on one character later; `finditer` would look here again.
            at = found.end() + (found.start() == found.end())
        if last is None or not self.regex.groups or last.group(1) is None:
            return None if last is None else last.group()
        if self.first_repeated and not last.group(1):
            raise UnsupportedPatternError("the first group is repeated and matched an empty text")
        return last.group(1)


def compile_js(pattern: str) -> JsPattern:
    """Return `pattern` compiled. Raises `UnsupportedPatternError` saying what is wrong and where."""
    translation = _Translation(pattern)
    translated = translation.run()
    try:
        return JsPattern(re.compile(translated, re.ASCII), translation.first_repeated)
    except (re.error, OverflowError, RecursionError) as error:
        raise UnsupportedPatternError(str(error)) from None


class _Group:
    """An open group, or the whole pattern. `number` is a capture group's; `look` groups take nothing."""

    def __init__(self, number: int | None, look: bool) -> None:
        self.number = number
        self.look = look
        self.inner: list[int] = []  # numbers of the capture groups inside
        self._some_empty = False  # whether an alternative before this one may match nothing
        self._takes = False  # whether this alternative, but for its last piece, takes a character
        self.last_takes = False

    def add(self, takes: bool) -> None:
        self._takes |= self.last_takes
        self.last_takes = takes

    def next_alternative(self) -> None:
        self._some_empty = self.may_be_empty
        self._takes = self.last_takes = False

    @property
    def may_be_empty(self) -> bool:
        return self._some_empty or not (self._takes or self.last_takes)


class _Translation:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.out: list[str] = []
        self.open = [_Group(None, False)]
        self.captures = 0
        self.atom = False  # whether the piece just written may be repeated
        self.inner: list[int] = []  # capture groups strictly inside that piece
        self.number: int | None = None  # the capture group that piece is
        self.first_repeated = False

    def fail(self, reason: str) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"{reason} at character {self.at}")

    def run(self) -> str:
        while self.at < len(self.pattern):
            self.step()
        if len(self.open) > 1:
            raise self.fail("a group is not closed")
        return "".join(self.out)

    def step(self) -> None:
        character = self.pattern[self.at]
        match character:
            case "(":
                self.open_group()
            case ")":
                self.close_group()
            case "[":
                self.put(self.read_class())
            case "\\":
                self.escape()
            case "*" | "+" | "?":
                self.quantify()
            case "{" if _QUANTIFIER.match(self.pattern, self.at):
                self.quantify()
            case "|":
                self.out.append(character)
                self.open[-1].next_alternative()
                self.atom = False
                self.at += 1
            case "^":
                self.put(character, atom=False, width=1)
            case "$":
                self.put(r"\Z", atom=False, width=1)
            case ".":
                self.put(f"[^{_LINE_ENDS}]", width=1)
            case _:
                self.put(re.escape(character), atom=ord(character) <= 0xFFFF, takes=True, width=1)

    def put(self, piece: str, *, atom: bool = True, takes: bool | None = None, width: int = 0) -> None:
        """Write one piece. `atom`: it may be repeated; `takes`: it matches at least one character."""
        self.out.append(piece)
        self.open[-1].add(atom if takes is None else takes)
        self.atom = atom
        self.inner = []
        self.number = None
        self.at += width

    # --- groups and quantifiers ---

    def open_group(self) -> None:
        special = _GROUP.match(self.pattern, self.at)
        if special is None and self.pattern.startswith("(?", self.at):
            raise self.fail("named groups and inline flags are not supported")
        if special is None:
            self.captures += 1
        number = self.captures if special is None else None
        look = special is not None and special.group(1) in _LOOKS
        text = special.group() if special else "("
        self.put(text, atom=False, width=len(text))
        self.open.append(_Group(number, look))

    def close_group(self) -> None:
        if len(self.open) == 1:
            raise self.fail("unmatched `)`")
        group = self.open.pop()
        self.put(")", atom=not group.look, takes=not group.look and not group.may_be_empty, width=1)
        self.inner = group.inner
        self.number = group.number
        own = [] if group.number is None else [group.number]
        self.open[-1].inner += [*own, *group.inner]

    def quantify(self) -> None:
        found = _QUANTIFIER.match(self.pattern, self.at)
        if found is None or not self.atom:
            raise self.fail("nothing to repeat")
        least, most = _bounds(found)
        if most is not None and least > most:
            raise self.fail("a quantifier is out of order")
        # Python keeps what a group inside a loop caught in an earlier round; JavaScript forgets it.
        if 1 in self.inner and (most is None or most > 1):
            raise self.fail("a capture group inside a repeated group is not supported")
        # A round that matches nothing ends a loop in JavaScript, and is undone there.
        if not self.open[-1].last_takes and (most is None or most > 1):
            raise self.fail("a repeated group that may match nothing is not supported")
        self.first_repeated |= self.number == 1 or 1 in self.inner
        self.out.append(found.group())
        self.open[-1].last_takes &= least > 0
        self.atom = False
        self.at += len(found.group())

    # --- escapes ---

    def escape(self) -> None:
        following = self.pattern[self.at + 1 : self.at + 2]
        match following:
            case "":
                raise self.fail("a backslash ends the pattern")
            case "b":
                self.put(r"\b", atom=False, width=2)
            case "B":
                self.put(r"(?!\b)", atom=False, width=2)
            case "d" | "w" | "s":
                self.put(f"[{_SETS[following]}]", width=2)
            case "D" | "W" | "S":
                self.put(f"[^{_SETS[following.lower()]}]", width=2)
            case _:
                self.put(self.read_escape())

    def read_escape(self) -> str:
        """Read an escape that stands for one character, and return it written for `re`."""
        following = self.pattern[self.at + 1 : self.at + 2]
        found = _HEX.match(self.pattern, self.at + 1)
        if following in _CONTROLS and following:
            width, text = 2, _CONTROLS[following]
        elif following == "0" and not self.pattern[self.at + 2 : self.at + 3].isdigit():
            width, text = 2, r"\x00"
        elif found:
            width, text = 1 + len(found.group()), _code_point(found)
        elif following.isalnum() or not following:
            raise self.fail(f"the escape `\\{following}` is not supported")
        else:
            width, text = 2, re.escape(following)
        self.at += width
        return text

    # --- character classes ---

    def read_class(self) -> str:
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        members: list[str] = []
        no_space = False
        while not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise self.fail("a character class is not closed")
            if self.pattern.startswith(r"\S", self.at):
                no_space = True
                self.at += 2
            else:
                members.append(self.read_member())
        self.at += 1
        return _class_text(negated, "".join(members), no_space)

    def read_member(self) -> str:
        """Read one character, class escape or range."""
        low, single = self.read_class_atom()
        if not self.pattern.startswith("-", self.at) or self.pattern.startswith("-]", self.at):
            return low
        self.at += 1
        high, also = self.read_class_atom()
        if not (single and also):
            raise self.fail("a range needs characters at both ends")
        return f"{low}-{high}"

    def read_class_atom(self) -> tuple[str, bool]:
        """Return the text for `re` and whether it stands for one character."""
        character = self.pattern[self.at : self.at + 1]
        following = self.pattern[self.at + 1 : self.at + 2]
        if character == "\\" and following in _SETS and following:
            self.at += 2
            return _SETS[following], False
        if character == "\\" and following in ("D", "W", "S"):
            self.at += 2
            return f"\\{following}", False
        if character == "\\" and following == "b":
            self.at += 2
            return r"\x08", True
        if character == "\\":
            return self.read_escape(), True
        if not character or ord(character) > 0xFFFF:
            raise self.fail("a character beyond U+FFFF in a class is not supported")
        self.at += 1
        return re.escape(character), True


def _bounds(found: re.Match[str]) -> tuple[int, int | None]:
    """Return the least and the greatest count of a quantifier, None for no limit."""
    simple = {"*": (0, None), "+": (1, None), "?": (0, 1)}
    if found.group(1) in simple:
        return simple[found.group(1)]
    least = int(found.group(2))
    if found.group(3) is None:
        return least, least
    return least, int(found.group(4)) if found.group(4) else None


def _code_point(found: re.Match[str]) -> str:
    """Write the character that `xHH`, `uHHHH` or `cX` names."""
    if found.group(3):
        return f"\\x{ord(found.group(3)) % 32:02x}"
    return f"\\u{int(found.group(1) or found.group(2), 16):04x}"


def _class_text(negated: bool, members: str, no_space: bool) -> str:
    """Write a class. `no_space` says that it holds every character that is not white space."""
    if not no_space:
        if not members:
            return r"[\s\S]" if negated else r"(?!)"
        return f"[{'^' if negated else ''}{members}]"
    listed = f"(?:[^{SPACE}]|[{members}])" if members else f"[^{SPACE}]"
    return rf"(?:(?!{listed})[\s\S])" if negated else listed
