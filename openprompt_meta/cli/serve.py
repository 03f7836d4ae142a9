"""`openprompt-meta serve DIR`: parse, call, print."""

from __future__ import annotations

import argparse
import os
import secrets
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from openprompt_meta.compat.versions import command_for_extra
from openprompt_meta.errors import CompatibilityError, ServiceError

if TYPE_CHECKING:
    from openprompt_meta.classifier.classifier import MetaPromptClassifier

    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_parser(subparsers: Subparsers) -> None:
    """Add ``serve``."""
    parser = subparsers.add_parser(
        "serve",
        help="answer over HTTP, with a page for the browser",
        description="Answer over HTTP, with a page for the browser and documentation at /docs. Reachable from this "
        "machine alone unless --host says otherwise, and then by token only. Tasks that are fitted over HTTP live in "
        "memory until the service stops, unless --keep says where to keep them. Ctrl-C stops it.",
    )
    parser.add_argument(
        "folder",
        metavar="DIR",
        nargs="?",
        help="a saved classifier, or a run folder; the pool that ships by default, to fit tasks over HTTP",
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=_whole(0, 65535), default=8000, help="0 takes a free one (default: %(default)s)"
    )
    parser.add_argument(
        "--token",
        help="asked for on every request; better in the environment variable OPENPROMPT_META_TOKEN, which other users "
        "of the machine cannot see. Beyond loopback one is made and printed if none is given",
    )
    parser.add_argument(
        "--allow-host",
        action="append",
        default=[],
        metavar="NAME",
        help="a host name under which the service is addressed, e.g. that of a reverse proxy; may be repeated",
    )
    parser.add_argument(
        "--base-model", metavar="NAME", help="the language model, if it is elsewhere, or is to be fetched from the hub"
    )
    parser.add_argument(
        "--keep", metavar="FOLDER", help="keep tasks that are fitted over HTTP there, and serve those that are"
    )
    limits = parser.add_argument_group("limits")
    for option, (least, text) in _LIMITS.items():
        limits.add_argument(option, type=_whole(least), metavar="N", help=text)
    parser.set_defaults(run=_run)


_LIMITS = {
    "--tasks": (1, "tasks kept besides the one in DIR; the one used longest ago leaves first"),
    "--requests-per-minute": (0, "of one client; 0 for no limit"),
    "--fits-per-minute": (0, "of one client; 0 for no limit"),
    "--predictions-at-once": (1, "threads that predict"),
}


def _run(options: argparse.Namespace) -> int:
    try:
        from openprompt_meta.serve.app import build_app
        from openprompt_meta.serve.guard import TOKEN_VARIABLE, Access, is_loopback
        from openprompt_meta.serve.keeping import KeptTasks
        from openprompt_meta.serve.requests import Limits
        from openprompt_meta.serve.server import (
            Server,
            address_of,
            end_process,
            open_socket,
            share_cores,
        )
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("fastapi", "starlette", "pydantic", "uvicorn"):
            raise
        raise CompatibilityError(
            f"The service needs {error.name}, which is not installed. Install it with: {command_for_extra('serve')}"
        ) from None
    given = options.token or os.environ.get(TOKEN_VARIABLE) or None
    made = secrets.token_urlsafe(32) if given is None and not is_loopback(options.host) else None
    access = Access(options.host, given or made, options.allow_host)
    chosen = {
        name: value
        for name in (option.lstrip("-").replace("-", "_") for option in _LIMITS)
        if (value := getattr(options, name)) is not None
    }
    limits = replace(Limits(), **chosen)
    with open_socket(options.host, options.port) as listening:
        share_cores(limits.predictions_at_once)
        classifier = _open(options.folder, options.base_model)
        kept = None if options.keep is None else KeptTasks(options.keep)
        app = build_app(classifier, access, limits, kept)
        listening.listen()  # once it is said below, a request that comes too soon waits instead of being refused
        served = options.folder or "the pool that ships"
        listening.listen()  # whoever reads the address below may ask at once
        print(f"Serving {served} on {address_of(listening)}/{_query(given, made)}", flush=True)
        if not is_loopback(options.host):
            print("From other machines, use this machine's own name or address in its place.", flush=True)
        Server(app, limits).run(sockets=[listening])
    print("Stopped.", flush=True)
    if app.state.at_work():
        end_process(0)
    return 0


def _open(folder: str | None, base_model: str | None) -> MetaPromptClassifier:
    from openprompt_meta.classifier.artefact import is_artefact
    from openprompt_meta.classifier.classifier import MetaPromptClassifier
    from openprompt_meta.runs.folder import RunFolder

    if folder is None:
        return MetaPromptClassifier(base_model=base_model)
    if not Path(folder).is_dir():
        raise ServiceError(f"There is no folder {folder}: give one that 'openprompt-meta fit' or 'train' wrote.")
    # A run folder may name what is fetched, a saved classifier may not: one that poses as both is the latter.
    if RunFolder(folder).config_file.is_file() and not is_artefact(folder):
        return MetaPromptClassifier.from_run(folder, base_model=base_model)
    return MetaPromptClassifier.from_pretrained(folder, base_model=base_model)


def _query(given: str | None, made: str | None) -> str:
    if made is not None:
        return f"?token={made}"
    return "?token=YOUR_TOKEN" if given is not None else ""


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    def whole_number(text: str) -> int:
        number = int(text)
        if number < least or (most is not None and number > most):
            expected = f"{least} or more" if most is None else f"{least} to {most}"
            raise argparse.ArgumentTypeError(f"got {number}, expected {expected}")
        return number

    return whole_number
