"""`@tool`: a typed Python function as a tool, its JSON Schema taken from the annotations."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints, overload

import anyio.to_thread
import msgspec

from seedline.errors import ToolArgsError, ToolSetRefusedError
from seedline.jsonvalue import encode_lossless
from seedline.tools.base import CallContext, Outcome
from seedline.tools.registry import Answered, FunctionTool, function_tool


@overload
def tool(function: Callable[..., Any], /) -> FunctionTool: ...


@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout_ms: int | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    parallel: bool = False,
    timeout_ms: int | None = None,
) -> FunctionTool | Callable[[Callable[..., Any]], FunctionTool]:
    """Make a tool of a function: `@tool`, or `@tool(parallel=True, timeout_ms=5000)`.

    Name and description are the function's name and docstring unless given. Every parameter needs a type
    that msgspec can read from JSON; `Annotated[int, msgspec.Meta(description="...", ge=0)]` adds words and
    limits. Undeclared arguments are refused. A parameter annotated `CallContext` is not the model's: it gets
    the call's context. The result may be an `Outcome`, text, or any JSON-like value, which the model reads as
    JSON. An `async` function runs in the event loop and is cancelled with the turn; a plain one runs in a
    worker thread, which nothing can interrupt. Raises `ToolSetRefusedError` for a function that cannot be
    one.
    """
    if function is None:
        return partial(_made, name=name, description=description, parallel=parallel, timeout_ms=timeout_ms)
    return _made(function, name=name, description=description, parallel=parallel, timeout_ms=timeout_ms)


def _made(
    function: Callable[..., Any],
    *,
    name: str | None,
    description: str | None,
    parallel: bool,
    timeout_ms: int | None,
) -> FunctionTool:
    called = name or function.__name__
    words = description or inspect.getdoc(function)
    if not words:
        raise ToolSetRefusedError(f"function {called!r} has neither docstring nor description")
    arguments, contexts = _arguments(function, called)

    async def execute(value: Any, context: CallContext) -> Answered:
        given = _given(called, arguments, value) | dict.fromkeys(contexts, context)
        if inspect.iscoroutinefunction(function):
            return _answered(await function(**given))
        return _answered(await anyio.to_thread.run_sync(partial(function, **given)))

    return function_tool(called, words, _schema(arguments), execute, parallel, timeout_ms=timeout_ms)


def _arguments(function: Callable[..., Any], called: str) -> tuple[type[msgspec.Struct], list[str]]:
    """Return the struct of a function's arguments, and the parameters that take the context."""
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ToolSetRefusedError(f"an annotation of function {called!r} leads nowhere: {error}") from None
    fields: list[tuple[str, Any, Any]] = []
    contexts: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ToolSetRefusedError(
                f"parameter {parameter} of function {called!r} has no name to call it by"
            )
        annotation = hints.get(parameter.name)
        if annotation is None:
            raise ToolSetRefusedError(f"parameter {parameter.name!r} of function {called!r} has no type")
        if _plain(annotation) is CallContext:
            contexts.append(parameter.name)
        else:
            default = msgspec.NODEFAULT if parameter.default is parameter.empty else parameter.default
            fields.append((parameter.name, annotation, _field(default)))
    struct = msgspec.defstruct(called, fields, kw_only=True, forbid_unknown_fields=True)
    return struct, contexts


def _field(default: Any) -> Any:
    if isinstance(default, list | dict | set):  # shared by every call otherwise
        return msgspec.field(default_factory=cast("Any", default).copy)
    return msgspec.field(default=default)


def _plain(annotation: Any) -> Any:
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def _schema(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the schema of the arguments, an object at the root."""
    try:
        whole = msgspec.json.schema(arguments)
    except TypeError as error:
        raise ToolSetRefusedError(
            f"function {arguments.__name__!r} takes what JSON cannot give: {error}"
        ) from None
    definitions = whole["$defs"]
    root = definitions.pop(whole["$ref"].rpartition("/")[2])
    root.pop("title", None)
    return root | ({"$defs": definitions} if definitions else {})


def _given(called: str, arguments: type[msgspec.Struct], value: Any) -> dict[str, Any]:
    """Return the function's arguments; the schema let the value pass, the types may still refuse it."""
    try:
        converted = msgspec.convert(value, arguments)
    except msgspec.ValidationError as error:
        raise ToolArgsError(called, [str(error)]) from None
    return {name: getattr(converted, name) for name in converted.__struct_fields__}


def _answered(result: Any) -> Answered:
    if isinstance(result, Outcome | str):
        return result
    return encode_lossless(msgspec.to_builtins(result)).decode()
