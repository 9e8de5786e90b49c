"""The texts that recordings carry and a run derives again, byte for byte as recorded.

Every other text for a model is worded where it is written.
"""

from __future__ import annotations

from typing import Final

TOOL_OUTCOME_UNKNOWN: Final = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. "
    "Its outcome is unknown. Decide whether to retry from the tool semantics: "
    "retry only if the operation is read-only or idempotent; "
    "if it may have side effects, first verify external state or ask the user. Do not retry blindly."
)
"""Crash repair, for a call that was recorded as started and has no result."""

ABORTED_BEFORE_DISPATCH: Final = "Error: tool call aborted before dispatch"
"""Cancel, for a call whose body did not run."""

ABORTED: Final = "Error: tool call aborted"
"""Cancel, for a call that was cut while its body ran."""
