"""Text from logs, made harmless before a terminal sees it.

A recorded text may hold escape sequences, text-direction controls or half characters. None of them reaches
the terminal: each is shown as an escape, a half character as U+FFFD.
"""

from __future__ import annotations

import re
from typing import Final

_ACTIVE: Final = (
    r"\x00-\x1f\x7f-\x9f"  # C0, DEL, C1: terminal control
    r"\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"  # text direction
    r"\u00ad\u180e\u200b\u2060-\u2064\u206a-\u206f\ufeff\ufff9-\ufffb"  # takes no room on the screen
    r"\u2028\u2029"  # line and paragraph ends
    r"\U000e0000-\U000e007f"  # tags: text that no one sees
)
_SHOWN: Final = re.compile(f"[{_ACTIVE}\ud800-\udfff]")
_ESCAPED: Final = re.compile(f"[{_ACTIVE}]")
_SHORT: Final = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def inert(text: str) -> str:
    """Return `text` as one line that a terminal only displays. Other text comes back unchanged."""
    return _SHOWN.sub(_visible, text)


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    if "\ud800" <= character <= "\udfff":
        return "\ufffd"
    return _SHORT.get(character) or character.encode("unicode_escape").decode()


def inert_json(text: str) -> str:
    r"""Return JSON text of the same value in which `\u` escapes stand for all that a terminal acts on."""
    return _ESCAPED.sub(_json_escape, text)


def _json_escape(match: re.Match[str]) -> str:
    raw = match.group().encode("utf-16-be")
    return "".join(rf"\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))
