"""Every error Seedline raises on purpose.

    SeedlineError
    ├── JsonValueError                     a value is not lossless JSON
    │   └── JsonSyntaxError                a text is not JSON
    ├── ArtifactError                      a stored log cannot be read (path, line, offset, seq)
    │   ├── SessionNotFoundError
    │   ├── NotASessionError
    │   ├── SessionFormatUnsupportedError  nothing is damaged; another build reads it
    │   ├── SessionPersistenceCorruptionError
    │   ├── IdentityMismatchError
    │   ├── LayoutMismatchError
    │   └── ArtifactTooLargeError
    ├── OutputRefusedError                 a file cannot be written
    ├── SessionError                       a live session refuses
    │   ├── SessionIdRefusedError
    │   ├── HeaderRefusedError             names the field
    │   ├── EventRefusedError              an event must not join a log (code)
    │   │   └── SurfaceRefusedError        its surface marker must not take effect (code)
    │   ├── ReentrantAppendError
    │   ├── StoreRefusedError              a lifecycle step out of order (code)
    │   └── ForkRefusedError               (code)
    ├── StorageError                       a store refuses, or its medium failed
    │   ├── SessionExistsError
    │   ├── SessionBusyError               another writer has the session; names it
    │   ├── StaleWriterError               the lease is lost, or another hand has written
    │   ├── BatchRefusedError              seqs do not follow
    │   ├── StoreLayoutError               the store is of another layout or version
    │   ├── StoreUrlError
    │   └── UnsupportedOperationError
    ├── QueryError                         a question about sessions has no answer (code)
    ├── ModelFailureError                  a model call failed (code)
    │   ├── ModelError                     the adapter says so: becomes a finish chunk
    │   │   └── AnswersExhaustedError          a scripted model was asked once too often
    │   └── StreamFault                    the stream broke outside the adapter: ends the turn
    ├── UnclosedBlockError                 an answer ended inside a block
    ├── AnswersRefusedError                a file of scripted answers is wrong (path, JSONPath)
    ├── SettingRefusedError                a setting is out of its range
    ├── ToolCallError                      a tool call gets an error for an answer (code)
    │   ├── ToolArgsError
    │   ├── ToolUnknownError
    │   ├── ToolSchemaError                the tool's own parameter schema is wrong
    │   ├── ToolOutputError
    │   ├── ToolTimeoutError
    │   ├── FileRefusedError               a file tool does not do it (code)
    │   ├── SearchError                    (code)
    │   └── ToolServerError                another process that offers tools failed
    ├── ToolSetRefusedError                tools cannot stand together, or a filter names none
    ├── AgentError                         an agent refuses an operation
    │   ├── AgentBusyError
    │   ├── DuplicateMessageError
    │   ├── MissingRouteError              a request names no provider or no model
    │   └── UnloggedContextError           a request holds what the log does not
    ├── SubagentError                      a delegation is refused, or its teardown failed (code)
    └── ReplayError                        a recording cannot drive a run
        ├── ScriptExhaustedError           a call more than was recorded
        ├── AuxiliaryCallError             a call that is not the loop's own has no recording
        ├── UncancelledHangError           a hang entry, and nothing that cancels it
        ├── StalledReplayError             a run waits for what cannot come
        ├── BindingError                   a live child fits no recorded one (code)
        ├── ReplayDivergedError            a replay that had to be identical is not
        ├── UnfinishedCallError            turn and step of the call without an end
        ├── OverrideRefusedError           an override sidecar is wrong (code)
        ├── PlaceholderError               a `{{fromRequest:...}}` cannot be filled in (code)
        ├── LineageError                   recorded sessions form no tree (code)
        ├── RecordingMissingError          nothing is recorded, and this mode records nothing
        ├── StrayRecordingError            a recorded file belongs to no scenario (problem)
        ├── UnrecordedCallError            no recording answers a model call
        ├── UnusedRecordingError           a recorded model call was not made
        ├── InputRefusedError              an `input.json` is wrong (path, place)
        └── StepFailedError                a step of a scenario did not come about

Each message is built from facts and ends with the next step.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, Self, cast


class SeedlineError(Exception):
    """Root of the tree. `kind` is the stable word that `--json` output shows."""

    kind: ClassVar[str] = "error"


def sole_error(error: Exception) -> Exception:
    """Return the one error that groups of one are wrapped around, else `error` itself."""
    is_group = isinstance(cast("object", error), ExceptionGroup)
    inner: Sequence[Exception] = getattr(error, "exceptions", ()) if is_group else ()
    return sole_error(inner[0]) if len(inner) == 1 else error


class JsonValueError(SeedlineError):
    """A value would not survive JSON unchanged. `where` is a JSON Pointer into the value."""

    kind = "not-lossless-json"

    def __init__(self, reason: str, where: str = "") -> None:
        self.reason = reason
        self.where = where
        super().__init__(
            f"not lossless JSON at {where or 'the root'}: {reason}. "
            "Pass only None, bool, str, list, dict with str keys, finite float and int within ±(2**53-1)."
        )


class JsonSyntaxError(JsonValueError):
    """A text is not JSON, or goes past a limit that this build sets."""

    kind = "unparsable-json"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.where = ""
        SeedlineError.__init__(self, f"unparsable JSON: {reason}. Correct the text and read it again.")


def reason_of(error: Exception) -> str:
    """Return what went wrong without the next step, to be put into another error's sentence."""
    return error.reason if isinstance(error, JsonValueError) else str(error)


class ArtifactError(SeedlineError):
    """A stored log cannot be read. Reading changed no byte.

    `line` counts physical lines from 1, the header being line 1; `offset` counts bytes of the file;
    `seq` is the event the problem belongs to. Each is None where it does not apply.
    """

    kind = "artifact"
    next_step: ClassVar[str] = "Run `seedline verify` on the file to list every problem."

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        line: int | None = None,
        offset: int | None = None,
        seq: int | None = None,
    ) -> None:
        self.reason = reason
        self.path = path
        self.line = line
        self.offset = offset
        self.seq = seq
        super().__init__(self._message())

    def _message(self) -> str:
        places = [
            f"line {self.line}" if self.line is not None else "",
            f"seq {self.seq}" if self.seq is not None else "",
            f"byte {self.offset}" if self.offset is not None else "",
        ]
        place = ", ".join(filter(None, places))
        head = ": ".join(filter(None, [self.path or "", place, self.reason]))
        return f"{head}. {self.next_step}"

    def located(
        self,
        *,
        path: str | None = None,
        line: int | None = None,
        offset: int | None = None,
        seq: int | None = None,
    ) -> Self:
        """Return the same error with the facts it lacks filled in; facts it has stay."""
        return type(self)(
            self.reason,
            path=self.path if self.path is not None else path,
            line=self.line if self.line is not None else line,
            offset=self.offset if self.offset is not None else offset,
            seq=self.seq if self.seq is not None else seq,
        )


class SessionNotFoundError(ArtifactError):
    """No session has this id, or no file this path."""

    kind = "not-found"
    next_step = "Check the path, or list the store's sessions with `seedline ls`."


class NotASessionError(ArtifactError):
    """The file does not begin with a complete session header line."""

    kind = "not-a-session"
    next_step = "Pass a session log: its first line is a JSON object with `type` `session`."


class SessionFormatUnsupportedError(ArtifactError):
    """The log is whole, but in a format this build does not read. Never a sign of damage."""

    kind = "format-unsupported"
    next_step = "Read it with a build that supports it; nothing was changed."


class SessionPersistenceCorruptionError(ArtifactError):
    """Content was read and cannot be right: damage, a lost record, or two writers."""

    kind = "corrupt"
    next_step = "Run `seedline verify` to list every problem and `seedline repair` to write a mended copy."


class IdentityMismatchError(ArtifactError):
    """A file's place says one session and its header another, or one id has two files."""

    kind = "identity-mismatch"
    next_step = "Move the file to the folder of its own id, or read it from outside the store layout."


class LayoutMismatchError(ArtifactError):
    """A file is in a layout or encoding that this operation, or this store, does not take."""

    kind = "layout-mismatch"
    next_step = "Rewrite it with `seedline convert`."


class ArtifactTooLargeError(ArtifactError):
    """Reading would need more memory than the limit allows."""

    kind = "too-large"
    next_step = "Raise the limit if the source is trusted."


class OutputRefusedError(SeedlineError):
    """A file that a command was to write cannot be written. `path` names it; nothing is left of it."""

    kind = "output-refused"

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path} is not written: {reason}. Name a file that does not exist yet.")


class SessionError(SeedlineError):
    """A live session, or the store of live sessions, refuses an operation; nothing changed."""

    kind = "session"


class SessionIdRefusedError(SessionError):
    """A session id cannot be stored."""

    kind = "id-refused"

    def __init__(self, session_id: str, reason: str) -> None:
        self.session_id = session_id
        super().__init__(f"session id {session_id[:80]!r} is refused: {reason}. Choose another id.")


class HeaderRefusedError(SessionError):
    """A session header is wrong. `field` names the offending field."""

    kind = "header-refused"

    def __init__(self, field: str, reason: str) -> None:
        self.field = field
        self.reason = reason
        super().__init__(f"session header field {field!r}: {reason}. Correct the field and try again.")


EventRefusalCode = Literal[
    "data",
    "envelope",
    "retired",
    "sequence",
    "message",
    "request-header",
    "surface",
    "relation",
]


class EventRefusedError(SessionError):
    """An event must not join a log. `code` says which guard refused it."""

    kind = "event-refused"

    def __init__(self, code: EventRefusalCode, event_type: str, reason: str, seq: int | None = None) -> None:
        self.code = code
        self.event_type = event_type
        self.reason = reason
        self.seq = seq
        at = "" if seq is None else f" at seq {seq}"
        super().__init__(
            f"event {event_type!r}{at} is refused ({code}): {reason}. Correct it. The log is unchanged."
        )


SurfaceRefusalCode = Literal[
    "not-eligible",
    "marker-missing",
    "marker-malformed",
    "replace-shape",
    "start-missing",
    "end-missing",
    "start-after-end",
    "sources-malformed",
    "sources-empty",
    "sources-duplicate",
    "sources-not-earlier",
    "shadowed-not-cited",
    "tool-rewrite-several",
    "tool-rewrite-other-type",
    "tool-rewrite-beyond-content",
]


class SurfaceRefusedError(EventRefusedError):
    """A surface marker must not take effect. `surface_code` says which rule refused it."""

    kind = "surface-refused"

    def __init__(
        self,
        surface_code: SurfaceRefusalCode,
        event_type: str,
        reason: str,
        seq: int | None = None,
        missing: Sequence[int] = (),
    ) -> None:
        self.surface_code = surface_code
        self.missing = tuple(missing)
        super().__init__("surface", event_type, f"{surface_code}: {reason}", seq)


class ReentrantAppendError(SessionError):
    """A listener tried to append to the session whose event it is being told of."""

    kind = "reentrant-append"

    def __init__(self, session_id: str, event_type: str) -> None:
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r}: append of {event_type!r} from inside a listener of the same session. "
            "Append after the listener has returned."
        )


StoreRefusalCode = Literal["already-live", "already-attached", "not-live", "already-announced", "spawn-taken"]


class StoreRefusedError(SessionError):
    """A lifecycle step came out of order. `code` says which rule refused it."""

    kind = "store-refused"

    def __init__(self, code: StoreRefusalCode, session_id: str, reason: str) -> None:
        self.code = code
        self.session_id = session_id
        super().__init__(
            f"session {session_id!r}: {reason} ({code}). Check what the store holds; nothing was registered."
        )


ForkRefusalCode = Literal[
    "SESSION_ALREADY_EXISTS", "SESSION_NOT_FOUND", "SESSION_NOT_LIVE", "INVALID_BOUNDARY", "OPEN_TURN"
]


class ForkRefusedError(SessionError):
    """A fork is refused and no child exists. `code` says why."""

    kind = "fork-refused"

    def __init__(self, code: ForkRefusalCode, reason: str) -> None:
        self.code = code
        super().__init__(f"fork refused ({code}): {reason}. Fork at a `turn/end` of a live session.")


class StorageError(SeedlineError):
    """A store refuses an operation, or its medium failed; `place` is a path or a URL without its password."""

    kind = "storage"
    next_step: ClassVar[str] = "Check the medium and flush again: unwritten events are kept in memory."

    def __init__(self, reason: str, *, place: str | None = None, session_id: str | None = None) -> None:
        self.reason = reason
        self.place = place
        self.session_id = session_id
        who = None if session_id is None else f"session {session_id[:80]!r}"
        head = ": ".join(part for part in (place, who, reason) if part)
        super().__init__(f"{head}. {self.next_step}")


class SessionExistsError(StorageError):
    """A session of this id is stored already."""

    kind = "session-exists"
    next_step = "Open the stored session, or choose another id."


class SessionBusyError(StorageError):
    """Another writer has the session. The reason names its process where the store knows it."""

    kind = "session-busy"
    next_step = "Wait for it to close the session, or read without writing."


class StaleWriterError(StorageError):
    """This writer lost its lease, or another hand has written behind it; nothing was stored."""

    kind = "stale-writer"
    next_step = "Open the session again and go on from what is stored."


class BatchRefusedError(StorageError):
    """The seqs of a batch do not follow what is stored, or do not follow each other."""

    kind = "batch-refused"
    next_step = "Append events in the order of the log, each once."


class StoreLayoutError(StorageError):
    """The store is of another layout or version. It was not touched, and is never migrated."""

    kind = "store-layout"
    next_step = "Open it with the build that wrote it, or choose another place."


class StoreUrlError(StorageError):
    """A store URL cannot be understood."""

    kind = "store-url"
    next_step = "Use jsonl:PATH, sqlite:PATH, postgresql://... or memory: ."


class UnsupportedOperationError(StorageError):
    """This backend does not have the capability that the operation needs."""

    kind = "unsupported-operation"
    next_step = "Look at the backend's capabilities first."


QueryErrorCode = Literal[
    "EVENT_NOT_FOUND",
    "SOURCE_CONFLICT",
    "INVALID_FILTER",
    "INVALID_WINDOW",
    "INVALID_LINEAGE",
    "INVALID_QUERY",
    "INVALID_LIMIT",
    "INVALID_CURSOR",
    "INVALID_PRICES",
]
_QUERY_NEXT_STEPS: dict[QueryErrorCode, str] = {
    "EVENT_NOT_FOUND": "Name a seq that the log holds.",
    "SOURCE_CONFLICT": "Close the live session, or look at the stored one without it.",
    "INVALID_FILTER": "Correct the filter and ask again.",
    "INVALID_WINDOW": "Ask for a smaller window.",
    "INVALID_LINEAGE": "Look at the headers of these sessions; nothing was changed.",
    "INVALID_QUERY": "Write at least one word with letters or digits.",
    "INVALID_LIMIT": "Choose a limit within the range.",
    "INVALID_CURSOR": "Ask the same question that the cursor came from, or start without one.",
    "INVALID_PRICES": "Correct the price table and ask again.",
}


class QueryError(SeedlineError):
    """A question about sessions has no answer, or is wrong. `code` says why; nothing was changed."""

    kind = "query"

    def __init__(self, code: QueryErrorCode, reason: str) -> None:
        self.code: QueryErrorCode = code
        self.reason = reason
        super().__init__(f"{reason} ({code}). {_QUERY_NEXT_STEPS[code]}")


class ModelFailureError(SeedlineError):
    """A model call failed. The fields are those of the failure record the log keeps."""

    kind = "model"

    def __init__(
        self,
        reason: str,
        code: str,
        *,
        status: int | None = None,
        provider_retry_after_ms: float | None = None,
        request_id: str | None = None,
    ) -> None:
        self.reason = reason
        self.code = code
        self.status = status
        self.provider_retry_after_ms = provider_retry_after_ms
        self.request_id = request_id
        super().__init__(f"model call failed ({code}): {reason}. See the turn's last events for the request.")


class ModelError(ModelFailureError):
    """An adapter reports a failure; the loop logs it as a `finish` chunk and asks for recovery."""


class StreamFault(ModelFailureError):  # noqa: N818  # a fault of the harness, told apart from a model's error
    """A stream broke outside the adapter: no `finish` chunk is logged and recovery is not asked."""

    kind = "stream-fault"


class AnswersExhaustedError(ModelError):
    """A scripted model has no answer left. `ordinal` counts the session's calls from 1."""

    kind = "answers-exhausted"

    def __init__(self, session_id: str, ordinal: int, known: int) -> None:
        self.session_id = session_id
        self.ordinal = ordinal
        super().__init__(
            f"session {session_id!r} makes model call {ordinal}, the script holds {known} for it; "
            "add an answer to the script",
            "ANSWERS_EXHAUSTED",
        )


class UnclosedBlockError(SeedlineError):
    """An answer ended inside a block that only its own end completes."""

    kind = "unclosed-block"

    def __init__(self, index: object, block_type: str) -> None:
        super().__init__(
            f"the answer ended inside block {index} of type {block_type!r}. "
            "Let the adapter send a block-end for it."
        )


class AnswersRefusedError(SeedlineError):
    """A file of scripted answers is wrong. `where` is the JSONPath of what is wrong."""

    kind = "answers-refused"

    def __init__(self, path: str, where: str, reason: str) -> None:
        self.path = path
        self.where = where
        self.reason = reason
        super().__init__(f"{path}: at {where or 'the root'}: {reason}. Correct the file and run again.")


class SettingRefusedError(SeedlineError):
    """A setting is out of its range."""

    kind = "setting-refused"

    def __init__(self, setting: str, value: object, rule: str) -> None:
        self.setting = setting
        self.value = value
        super().__init__(f"setting {setting!r} is {value!r}; it must be {rule}. Correct it and try again.")


class ToolCallError(SeedlineError):
    """A tool call gets an error for an answer; the model reads the text. `code` goes into the log."""

    kind = "tool-call"
    code: str = "TOOL_FAILED"


class ToolArgsError(ToolCallError):
    """The arguments do not fit the tool's parameters."""

    kind = "tool-args"
    code = "INVALID_ARGS"

    def __init__(self, tool: str, violations: Sequence[str]) -> None:
        self.tool = tool
        self.violations = tuple(violations)
        super().__init__(
            f"invalid arguments for tool {tool!r}: {'; '.join(self.violations)}. "
            "Call it again with arguments that fit its parameters."
        )


class ToolUnknownError(ToolCallError):
    """No visible tool has this name."""

    kind = "tool-unknown"
    code = "UNKNOWN_TOOL"

    def __init__(self, tool: str) -> None:
        self.tool = tool
        super().__init__(f"there is no tool {tool!r}. Call one of the tools of this conversation.")


class ToolSchemaError(ToolCallError):
    """A tool's parameter schema cannot judge arguments."""

    kind = "tool-schema"
    code = "INVALID_TOOL_SCHEMA"

    def __init__(self, tool: str, reason: str) -> None:
        self.tool = tool
        super().__init__(
            f"the parameter schema of tool {tool!r} is unusable: {reason}. Do without this tool."
        )


class ToolOutputError(ToolCallError):
    """A tool answered with something that cannot be logged."""

    kind = "tool-output"
    code = "INVALID_TOOL_OUTPUT"

    def __init__(self, tool: str, reason: str) -> None:
        self.tool = tool
        super().__init__(
            f"tool {tool!r} gave an answer that cannot be logged: {reason}. "
            "It may have done its work; check before calling it again."
        )


class ToolTimeoutError(ToolCallError):
    """A tool took longer than it may."""

    kind = "tool-timeout"
    code = "TOOL_TIMEOUT"

    def __init__(self, tool: str, limit_ms: int) -> None:
        self.tool = tool
        self.limit_ms = limit_ms
        super().__init__(
            f"tool {tool!r} did not finish within {limit_ms} ms and was stopped. "
            "It may have done part of its work; check before calling it again."
        )


FileProblem = Literal[
    "FS_SANDBOX_DENIED",
    "FS_NOT_FOUND",
    "FS_NOT_A_FILE",
    "FS_NOT_TEXT",
    "FS_TOO_LARGE",
    "FS_NOT_OBSERVED",
    "FS_STALE_VERSION",
    "FS_NO_MATCH",
    "FS_AMBIGUOUS_MATCH",
    "FS_FAILED",
]
_FILE_NEXT_STEPS: dict[FileProblem, str] = {
    "FS_SANDBOX_DENIED": "Name a path inside the workspace.",
    "FS_NOT_FOUND": "Look for the right path with glob.",
    "FS_NOT_A_FILE": "Name a regular file.",
    "FS_NOT_TEXT": "Use a command that understands such files.",
    "FS_TOO_LARGE": "Use a command for a file of this size.",
    "FS_NOT_OBSERVED": "Read it first.",
    "FS_STALE_VERSION": "Read it again before changing it.",
    "FS_NO_MATCH": "Read the file and give its text exactly, white space included.",
    "FS_AMBIGUOUS_MATCH": "Give more of the text around the place, or set replace_all.",
    "FS_FAILED": "Check the path and its permissions.",
}


class FileRefusedError(ToolCallError):
    """A file tool did not do what was asked, and changed nothing. `code` says why."""

    kind = "file-refused"

    def __init__(self, code: FileProblem, path: str, reason: str) -> None:
        self.code = code
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason} ({code}). {_FILE_NEXT_STEPS[code]}")


SearchProblem = Literal["SEARCH_INVALID_PATTERN", "SEARCH_FAILED"]


class SearchError(ToolCallError):
    """A search was not made, or broke off. `code` says why."""

    kind = "search"

    def __init__(self, code: SearchProblem, reason: str) -> None:
        self.code = code
        self.reason = reason
        super().__init__(f"{reason} ({code}). Correct the pattern, or search a smaller place.")


class ToolServerError(ToolCallError):
    """A process that offers tools did not start, or did not answer a call."""

    kind = "tool-server"
    code = "TOOL_SERVER_FAILED"

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = reason
        super().__init__(f"tool server {server!r} failed: {reason}. Do without its tools, or start it again.")


class ToolSetRefusedError(SeedlineError):
    """Tools cannot stand together, or a filter does not fit them."""

    kind = "tool-set-refused"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the tool set is refused: {reason}. Correct the tools or the filter.")


class AgentError(SeedlineError):
    """An agent refuses an operation; its log is unchanged."""

    kind = "agent"


class AgentBusyError(AgentError):
    """The operation needs an idle agent."""

    kind = "agent-busy"

    def __init__(self, session_id: str, operation: str) -> None:
        super().__init__(f"agent of session {session_id!r} is busy: {operation}. Wait until it is idle.")


class DuplicateMessageError(AgentError):
    """A message id is already waiting in the inbox."""

    kind = "duplicate-message"

    def __init__(self, message_id: str) -> None:
        super().__init__(f"message {message_id!r} already waits in the inbox. Give each message its own id.")


class MissingRouteError(AgentError):
    """A request names no provider, or no model. `field` says which."""

    kind = "missing-route"

    def __init__(self, session_id: str, field: str) -> None:
        self.field = field
        super().__init__(
            f"session {session_id!r}: the next request names no {field}. "
            "Declare one for the agent, or let an extension configure it."
        )


class UnloggedContextError(AgentError):
    """A request about to be sent differs from what the log derives. `part` says where."""

    kind = "unlogged-context"

    def __init__(self, session_id: str, part: str) -> None:
        self.part = part
        super().__init__(
            f"session {session_id!r}: the request's {part} is not what the log derives. "
            "Append whatever the model shall see as an event."
        )


SubagentErrorCode = Literal[
    "NO_PROVIDER",
    "DUPLICATE_PROVIDER",
    "UNSUPPORTED_CAPABILITY",
    "INVALID_REQUEST",
    "INVALID_OUTPUT_SCHEMA",
    "DEPTH_EXCEEDED",
    "DUPLICATE_CHILD",
    "ABORTED_BEFORE_PUBLICATION",
    "DRAINING",
    "TEARDOWN_FAILED",
]
_SUBAGENT_NEXT_STEPS: dict[SubagentErrorCode, str] = {
    "NO_PROVIDER": "Register the provider, or name one that is registered.",
    "DUPLICATE_PROVIDER": "Give each provider its own name.",
    "UNSUPPORTED_CAPABILITY": "Leave the field out, or choose a provider that has the capability.",
    "INVALID_REQUEST": "Correct the request and start again.",
    "INVALID_OUTPUT_SCHEMA": "Pass a JSON Schema of an object that needs nothing outside itself.",
    "DEPTH_EXCEEDED": "Do the task here, without delegating it.",
    "DUPLICATE_CHILD": "Take a fresh ordinal from the call for each child.",
    "ABORTED_BEFORE_PUBLICATION": "Start again if the child is still wanted; none exists.",
    "DRAINING": "Start children from an agent that stays open.",
    "TEARDOWN_FAILED": "Read the attached causes; every other child was released.",
}


class SubagentError(SeedlineError):
    """A delegation is refused and no child of it exists, or a teardown failed. `code` says why."""

    kind = "subagent"

    def __init__(self, code: SubagentErrorCode, reason: str) -> None:
        self.code: SubagentErrorCode = code
        self.reason = reason
        super().__init__(f"{reason} ({code}). {_SUBAGENT_NEXT_STEPS[code]}")


class ReplayError(SeedlineError):
    """A recording cannot drive this run."""

    kind = "replay"


class UnfinishedCallError(ReplayError):
    """A recorded model call has no `finish` chunk. `turn` and `step` say which."""

    kind = "unfinished-call"

    def __init__(self, turn: int | float, step: int | float, path: str | None = None) -> None:
        self.turn = turn
        self.step = step
        self.path = path
        where = f"{path}: " if path else ""
        super().__init__(
            f"{where}the model call in turn {turn}, step {step} has no finish chunk. "
            "Name an override sidecar that replaces it."
        )

    def located(self, path: str) -> UnfinishedCallError:
        """Return the same error naming the file."""
        return self if self.path else UnfinishedCallError(self.turn, self.step, path)


OverrideRefusalCode = Literal[
    "document", "patch", "entry", "chunk", "kind", "index-range", "index-duplicate", "marked-compaction"
]


class OverrideRefusedError(ReplayError):
    """An override sidecar, or a marked compaction record, cannot become script entries."""

    kind = "override-refused"

    def __init__(self, code: OverrideRefusalCode, reason: str, path: str | None = None) -> None:
        self.code: OverrideRefusalCode = code
        self.reason = reason
        self.path = path
        where = f"{path}: " if path else ""
        super().__init__(f"{where}{reason} ({code}). Correct the entry and run again.")


PlaceholderProblem = Literal["pattern", "no-match", "unterminated"]


class PlaceholderError(ReplayError):
    """A `{{fromRequest:...}}` placeholder of a script cannot be filled in from the live request."""

    kind = "placeholder"

    def __init__(self, code: PlaceholderProblem, placeholder: str, reason: str) -> None:
        self.code: PlaceholderProblem = code
        self.placeholder = placeholder
        self.reason = reason
        super().__init__(
            f"placeholder {placeholder[:120]!r}: {reason} ({code}). Correct the sidecar, or the request."
        )


LineageProblem = Literal["no-session", "duplicate-id", "cycle", "duplicate-key", "unknown-key"]


class LineageError(ReplayError):
    """Recorded sessions do not form a tree, or a lineage key names none of them. `names` are their files."""

    kind = "lineage"

    def __init__(self, code: LineageProblem, reason: str, names: Sequence[str]) -> None:
        self.code: LineageProblem = code
        self.reason = reason
        self.names = tuple(names)
        listed = f": {', '.join(self.names)}" if self.names else ""
        super().__init__(f"{reason} ({code}){listed}. Pass the files of one run, each session once.")


class ScriptExhaustedError(ReplayError):
    """A replayed session made a model call that its recording does not hold."""

    kind = "script-exhausted"

    def __init__(self, key: str, call: int, recorded: int) -> None:
        self.key = key
        self.call = call
        super().__init__(
            f"session {key}: model call {call} was made, the recording holds {recorded}. "
            "Record the scenario again, or add the call with an override sidecar."
        )


class AuxiliaryCallError(ReplayError):
    """A replayed session asked a model for something else than its next answer. `purpose` says for what."""

    kind = "auxiliary-call"

    def __init__(self, key: str, purpose: str) -> None:
        self.key = key
        self.purpose = purpose
        super().__init__(
            f"session {key}: a model call for {purpose!r} has no recording of its own. "
            "Replay without the part that makes it; its recorded events are handed in."
        )


class UncancelledHangError(ReplayError):
    """A `hang` entry of a sidecar waits for a cancel that the record does not hold."""

    kind = "uncancelled-hang"

    def __init__(self, key: str, turn: int, step: int) -> None:
        self.key = key
        self.turn = turn
        self.step = step
        super().__init__(
            f"session {key}: the model call in turn {turn}, step {step} hangs by its sidecar, and the "
            "recorded turn was not cancelled there. Correct the sidecar, or record the cancel."
        )


class StalledReplayError(ReplayError):
    """A replayed session waits for something that nothing will bring about. `seq` is where it stands."""

    kind = "stalled"

    def __init__(self, key: str, seq: int, seconds: float) -> None:
        self.key = key
        self.seq = seq
        super().__init__(
            f"session {key}: nothing has moved for {seconds:g} s at seq {seq}. "
            "Record the scenario again; if it stalls once more, report it with the recording."
        )


BindingProblem = Literal["collision", "mismatch"]


class BindingError(ReplayError):
    """A child made in a replay does not fit the child recorded at its place. `code` says why."""

    kind = "binding"

    def __init__(self, code: BindingProblem, key: str, reason: str) -> None:
        self.code: BindingProblem = code
        self.key = key
        self.reason = reason
        super().__init__(f"session {key}: {reason} ({code}). Record the scenario again.")


class ReplayDivergedError(ReplayError, AssertionError):
    """A replay that had to be identical is not; the message is the report for people."""

    kind = "replay-diverged"

    def __init__(self, report: str) -> None:
        self.report = report
        super().__init__(report)


class RecordingMissingError(ReplayError):
    """A scenario has no recording, and the mode records none. `command` is what would record it."""

    kind = "recording-missing"

    def __init__(self, path: str, command: str) -> None:
        self.path = path
        self.command = command
        super().__init__(f"{path}: nothing is recorded here. Record it: {command}.")


StrayProblem = Literal["obsolete", "orphaned"]


class StrayRecordingError(ReplayError):
    """A recorded file that nothing uses. `problem` says of which sort it is."""

    kind = "stray-recording"

    def __init__(self, problem: StrayProblem, path: str, reason: str) -> None:
        self.problem: StrayProblem = problem
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {problem}: {reason}. Remove it, or record the scenario again.")


class UnrecordedCallError(ReplayError):
    """A model call was made that no recording answers. `key` and `call` (from 1) say which."""

    kind = "unrecorded-call"

    def __init__(self, key: str, call: int, reason: str) -> None:
        self.key = key
        self.call = call
        self.reason = reason
        super().__init__(
            f"session {key}, model call {call}: {reason}. Record again if the change is meant; "
            "no other recording answers in its place, and nothing was sent."
        )


class UnusedRecordingError(ReplayError):
    """Recorded model calls were not made. `calls` names them."""

    kind = "unused-recording"

    def __init__(self, path: str, calls: str) -> None:
        self.path = path
        self.calls = calls
        super().__init__(f"{path}: recorded calls were not made: {calls}. Record again if that is meant.")


class InputRefusedError(ReplayError):
    """An `input.json` is not what a scenario can be driven by. `where` is a place in it, empty for all."""

    kind = "input-refused"

    def __init__(self, path: str, where: str, reason: str) -> None:
        self.path = path
        self.where = where
        self.reason = reason
        super().__init__(f"{path}: {where or 'the document'}: {reason}. Correct it and run again.")


class StepFailedError(ReplayError):
    """A step of a scenario's input did not come about. `number` counts the steps from 1."""

    kind = "step-failed"

    def __init__(self, number: int, op: str, reason: str) -> None:
        self.number = number
        self.op = op
        self.reason = reason
        super().__init__(
            f"step {number} ({op}): {reason}. Correct the steps, or look at what the run did instead."
        )
