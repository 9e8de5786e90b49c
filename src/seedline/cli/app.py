"""The command line as one typer app: every verb's arguments and help.

Only signatures stand here. A verb's body imports its module when it runs, so that help costs nothing more.
"""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from seedline.version import __version__

# Plain help: drawing it with rich costs another 0.1 s, and `--help` must answer within 0.15 s.
app = typer.Typer(
    name="seedline",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text for people.")]
LogFile = Annotated[
    str, typer.Argument(metavar="FILE", help="A session log: complete or projected, plain or zstd.")
]
LogFiles = Annotated[
    list[str], typer.Argument(metavar="FILE", help="Session logs of one tree, the root session's first.")
]
AnyFiles = Annotated[list[str], typer.Argument(metavar="PATH", help="Session logs, each checked by itself.")]
InFile = Annotated[str, typer.Argument(metavar="IN", help="The session log to read. It is never changed.")]
OutFile = Annotated[str, typer.Argument(metavar="OUT", help="The file to write. It must not exist.")]


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"seedline {__version__}")
        raise typer.Exit


@app.callback()
def seedline(
    version: Annotated[
        bool,
        typer.Option("--version", callback=show_version, is_eager=True, help="Print the version and exit."),
    ] = False,
) -> None:
    """Agent sessions as append-only event logs: run, inspect, fork, repair and replay them."""


@app.command()
def inspect(
    file: LogFile,
    as_json: JsonFlag = False,
    no_digest: Annotated[
        bool, typer.Option("--no-digest", help="Leave the digest out; it is null in the document.")
    ] = False,
) -> None:
    """Say what a session log holds. Reads only, also where a repair is due."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.inspect import inspect_file

    deliver(lambda: inspect_file(file, with_digest=not no_digest), as_json=as_json, path=file)


@app.command()
def script(
    files: LogFiles,
    as_json: JsonFlag = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="[KEY=]FILE",
            help="A sidecar that replaces recorded calls of the session with this key, else of the root.",
        ),
    ] = None,
) -> None:
    """Derive what a replay would answer: one entry for each model call of each session's own part."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.script import script_of_files

    deliver(lambda: script_of_files(files, override or []), as_json=as_json, path=files[0])


@app.command()
def convert(
    source: InFile,
    target: OutFile,
    layout: Annotated[
        Literal["complete", "projected"] | None,
        typer.Option(help="With or without seq and time on each row; the default keeps what IN has."),
    ] = None,
    packing: Annotated[
        Literal["packed", "unpacked"] | None,
        typer.Option(
            help="Stream deltas as one row for each run, or every event on its own; default packed."
        ),
    ] = None,
    encoding: Annotated[
        Literal["jsonl", "zstd"] | None,
        typer.Option(help="Plain lines or zstd frames; the default goes by OUT's ending `.zstd`."),
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Write a session log in another layout, packing or encoding. Every good event is kept."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.convert import Form, convert_file

    form = Form(layout, packing, encoding)
    deliver(lambda: convert_file(source, target, form), as_json=as_json, path=source)


@app.command()
def verify(paths: AnyFiles, as_json: JsonFlag = False) -> None:
    """List everything that is wrong with session logs, not only the first problem."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.verify import verify_files

    deliver(lambda: verify_files(paths), as_json=as_json)


@app.command()
def repair(source: InFile, target: OutFile, as_json: JsonFlag = False) -> None:
    """Write a mended copy of a damaged session log and list what could not be kept. Nothing is renumbered."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.repair import repair_file

    deliver(lambda: repair_file(source, target), as_json=as_json, path=source)


RecordedPaths = Annotated[
    list[str],
    typer.Argument(
        metavar="PATH",
        help="A session log, a scenario folder, a stored session's log with its subagents, or an ID with "
        "--store.",
    ),
]
StoreOption = Annotated[
    str | None,
    typer.Option("--store", metavar="URL", help="The store whose session ids the paths are: jsonl:PATH."),
]


@app.command()
def replay(
    paths: RecordedPaths,
    as_json: JsonFlag = False,
    jobs: Annotated[
        int,
        typer.Option("-j", "--jobs", metavar="N", min=1, help="Replay N paths at a time, in N processes."),
    ] = 1,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            metavar="[NAME=]MODE",
            help="What becomes of tool calls: serve (the default) answers them with their recorded results. "
            "execute and verify run tools, which only the Python API can.",
        ),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Accept only children whose place in the tree is certain.")
    ] = False,
    override: Annotated[
        list[str] | None,
        typer.Option(
            "--override",
            metavar="[KEY=]FILE",
            help="A sidecar that replaces recorded calls of the session with this key, else of the root.",
        ),
    ] = None,
    allow_not_replayable: Annotated[
        bool,
        typer.Option("--allow-not-replayable", help="Exit with 0 where a path cannot be replayed at all."),
    ] = False,
    store: StoreOption = None,
) -> None:
    """Drive the real loop with recordings and compare every event. No model is called, no tool runs."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.replay import replay_paths, request_of

    request = request_of(override or [], tools or [], store, strict=strict)
    deliver(
        lambda: replay_paths(paths, request, jobs=jobs, allow_not_replayable=allow_not_replayable),
        as_json=as_json,
        path=paths[0],
    )


@app.command()
def stats(paths: RecordedPaths, as_json: JsonFlag = False, store: StoreOption = None) -> None:
    """Add up what sessions spent. Each request counts once; inherited history is billed to the parent."""
    from seedline.cli.answer import deliver
    from seedline.cli.stores import store_folder
    from seedline.cli.verbs.stats import stats_of_paths

    folder = store_folder(store)
    deliver(lambda: stats_of_paths(paths, folder), as_json=as_json, path=paths[0])


AnyStore = Annotated[
    str | None,
    typer.Option(
        "--store",
        metavar="URL",
        help="jsonl:PATH, sqlite:PATH or postgresql://...; else $SEEDLINE_STORE, else a folder of yours.",
    ),
]


@app.command()
def ls(
    as_json: JsonFlag = False,
    limit: Annotated[
        int, typer.Option("-n", "--limit", metavar="N", min=0, help="At most N sessions; 0 shows all.")
    ] = 50,
    store: AnyStore = None,
) -> None:
    """List the sessions of a store, the newest first. A damaged one is marked and hides no other."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.ls import list_sessions

    deliver(lambda: list_sessions(store, limit), as_json=as_json)


@app.command()
def tail(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="A session log, or an ID of the store.")],
    as_json: JsonFlag = False,
    count: Annotated[int, typer.Option("-n", "--count", metavar="N", min=0, help="Show N events.")] = 20,
    store: AnyStore = None,
) -> None:
    """Show the last events of a session. Reads only, also while a run goes on."""
    from seedline.cli.answer import deliver
    from seedline.cli.verbs.tail import tail_of_session

    deliver(lambda: tail_of_session(session, count, store), as_json=as_json, path=session)
