"""A program that has everything loaded and starts runs as processes of their own, to be killed at any moment.

A line of JSON on stdin, ``{"yaml": …, "folder": …, "die_at": …}``, starts one; stdout then says ``{"pid": …}`` and,
when the process has ended, ``{"signal": …, "code": …, "events": …}``. With ``die_at`` the process kills itself before
its n-th change of a file: opening one to write, renaming, removing, making a folder. ``events`` are those of a run
that came to its end.
"""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from typing import Any


def changes_files(event: str, arguments: tuple[Any, ...]) -> bool:
    if event == "open":
        flags = arguments[2]
        return isinstance(flags, int) and bool(flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT))
    return event in {"os.rename", "os.remove", "os.mkdir"}


def train(request: dict[str, Any], report: int) -> int:
    from openprompt_meta.config.loading import load_config
    from openprompt_meta.errors import OpenPromptMetaError
    from openprompt_meta.runs.run import Run

    seen = 0

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal seen
        if not changes_files(event, arguments):
            return
        if seen == request.get("die_at"):
            os.kill(os.getpid(), signal.SIGKILL)
        seen += 1

    run = Run(load_config(request["yaml"]), request["folder"], show_progress=False)
    sys.addaudithook(watch)
    try:
        run.train()
    except OpenPromptMetaError as error:
        print(error, file=sys.stderr)
        return 2
    os.write(report, str(seen).encode())
    return 0


def main() -> None:
    # Loaded before the first request, and never used here: a process that has learned cannot be forked.
    for module in ("openprompt_meta.runs.run", "transformers.models.bert.modeling_bert"):
        importlib.import_module(module)
    importlib.import_module("openprompt_meta.compat.maml").load_maml()

    last: int | None = None
    for line in sys.stdin:
        if last is not None:
            os.waitpid(last, 0)
        request = json.loads(line)
        reading, writing = os.pipe()
        last = pid = os.fork()
        if pid == 0:
            code = 1
            try:
                os.close(reading)
                code = train(request, writing)
            finally:
                sys.stderr.flush()
                os._exit(code)
        os.close(writing)
        print(json.dumps({"pid": pid}), flush=True)
        # Its number stays taken until the next request, so that a late kill cannot hit another process.
        end = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        events = os.read(reading, 100)
        os.close(reading)
        exited = end.si_code == os.CLD_EXITED
        ended = {
            "signal": None if exited else end.si_status,
            "code": end.si_status if exited else None,
            "events": int(events) if events else None,
        }
        print(json.dumps(ended), flush=True)


if __name__ == "__main__":
    main()
