"""Whether a tool call may run: verdicts, who gives them, and who is asked when a person must decide."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, Protocol

import msgspec

from seedline.tools.base import CallContext


class Allow(msgspec.Struct, frozen=True):
    """The call may run."""


class Deny(msgspec.Struct, frozen=True):
    """The call must not run; the model reads `reason`."""

    reason: str


class Ask(msgspec.Struct, frozen=True):
    """A person decides; `reason` is for that person."""

    reason: str | None = None


Verdict = Allow | Deny | Ask


class Policy(Protocol):
    """Judges calls, one at a time, in the model's order."""

    async def judge(self, context: CallContext, arguments: Any) -> Verdict:
        """Return the verdict on a call whose arguments fit the tool. An exception counts as a refusal."""
        ...


Approval = Literal["allowed", "rejected", "cancelled", "unavailable"]
"""What came of asking: allowed for this once, rejected, withdrawn unanswered, or nobody can be asked."""


class Approver(Protocol):
    """Puts a call to a person. Whoever implements it logs the question and the answer."""

    async def ask(self, context: CallContext, arguments: Any, reason: str | None) -> Approval:
        """Return the answer; cancelled when the turn is."""
        ...


class Strictest(msgspec.Struct, frozen=True):
    """Asks each policy in order: a denial wins over a question, a question over leave."""

    policies: Sequence[Policy]

    async def judge(self, context: CallContext, arguments: Any) -> Verdict:
        verdict: Verdict = Allow()
        for policy in self.policies:
            found = await policy.judge(context, arguments)
            if isinstance(found, Deny):
                return found
            verdict = found if isinstance(verdict, Allow) else verdict
        return verdict


_REFUSALS: Final[dict[Approval, str]] = {
    "rejected": "the person asked did not allow this call",
    "cancelled": "the question whether to allow this call was withdrawn unanswered",
    "unavailable": "this call needs a person's leave, and none can be asked at the moment",
}
_NOBODY: Final = "this call needs a person's leave, and this run has nobody to ask"


async def denial(
    policy: Policy | None, approver: Approver | None, context: CallContext, arguments: Any
) -> str | None:
    """Return why a call must not run, None when it may."""
    verdict = Allow() if policy is None else await policy.judge(context, arguments)
    if isinstance(verdict, Deny):
        return verdict.reason
    if isinstance(verdict, Allow):
        return None
    if approver is None:
        return _because(_NOBODY, verdict)
    approval = await approver.ask(context, arguments, verdict.reason)
    return None if approval == "allowed" else _because(_REFUSALS[approval], verdict)


def _because(refusal: str, asked: Ask) -> str:
    return f"{refusal} (asked because: {asked.reason})" if asked.reason else refusal
