"""Tasks that were fitted over HTTP, kept in a folder: written whole, read back when the service starts again."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from filelock import FileLock, Timeout

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.errors import OpenPromptMetaError, ServiceError
from openprompt_meta.files import folder_writer, read_json, write_atomic
from openprompt_meta.serve.requests import checked_name
from openprompt_meta.serve.tasks import ServedTask

logger = logging.getLogger(__name__)

_CLASSIFIER, _DESCRIPTION, _LOCK = "classifier", "task.json", ".lock"
_FOLDER = re.compile(r"[0-9a-f]{64}")
_LEFTOVER = re.compile(r"\..+\.part")


class KeptTask(NamedTuple):
    """A task as it stands in the folder; ``number`` counts the tasks that were ever kept there."""

    name: str
    number: int
    folder: Path


class KeptTasks:
    """A folder with a folder for each task, named by the checksum of the task's name: no name is ever a path.

    Each is put in place in one step, so that a service that is killed at any moment leaves whole tasks alone. Used
    from one thread at a time. One service at a time has the folder.

    Args:
        folder: made if need be, for the user of the service alone.

    Raises:
        ServiceError: it cannot be written, or another service has it.
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = FileLock(self.folder / _LOCK, thread_local=False)  # closed from the thread that serves
            self._lock.acquire(timeout=0)
            for entry in list(self.folder.iterdir()):
                if _LEFTOVER.fullmatch(entry.name):  # of a service that was killed: only one has the folder
                    shutil.rmtree(entry, ignore_errors=True)
        except Timeout:
            raise ServiceError(f"Another service keeps its tasks in {self.folder}: name another folder.") from None
        except OSError as error:
            raise ServiceError(f"Tasks cannot be kept in {self.folder}: {error}. Name another folder.") from None
        self._number = max((task.number for task in self._described()), default=0)

    def close(self) -> None:
        """Leave the folder to others."""
        self._lock.release()

    def read(self, most: int, **settings: Any) -> list[ServedTask]:
        """The tasks kept last, the oldest of them first; what cannot be read is left as it is, and logged.

        Args:
            most: how many.
            settings: arguments of the classifiers.
        """
        tasks = sorted(self._described(), key=lambda task: task.number)
        if len(tasks) > most:
            logger.warning("%s holds %d tasks; the %d kept last are served.", self.folder, len(tasks), most)
        found = []
        for kept in tasks[-most:]:
            try:
                classifier = MetaPromptClassifier.from_pretrained(kept.folder / _CLASSIFIER, **settings)
                classifier.task_  # noqa: B018 - an error for one that is not fitted
            except OpenPromptMetaError as error:
                logger.warning("The task %r is kept in %s and not served: %s", kept.name, kept.folder, error)
            else:
                found.append(ServedTask(kept.name, classifier))
        return found

    def write(self, task: ServedTask) -> None:
        """Keep a task in place of one that has its name.

        Raises:
            OSError: it could not be written; what was there is as it was.
            ArtefactError: the same.
        """
        self._number += 1
        with folder_writer(self._folder_of(task.name)) as temporary:
            task.classifier.save_pretrained(temporary / _CLASSIFIER)
            write_atomic(temporary / _DESCRIPTION, json.dumps({"name": task.name, "number": self._number}) + "\n")

    def remove(self, *names: str) -> None:
        """Delete tasks, each in one step as far as others can see. ``OSError`` if that is not possible."""
        for folder in map(self._folder_of, names):
            gone = folder.with_name(f".{folder.name}.{secrets.token_hex(6)}.part")
            with contextlib.suppress(FileNotFoundError):
                os.rename(folder, gone)
                shutil.rmtree(gone, ignore_errors=True)

    def _folder_of(self, name: str) -> Path:
        return self.folder / hashlib.sha256(name.encode("utf-8")).hexdigest()

    def _described(self) -> Iterator[KeptTask]:
        for entry in sorted(self.folder.iterdir()):
            if not _FOLDER.fullmatch(entry.name):
                continue
            try:
                content = read_json(entry / _DESCRIPTION)
                name, number = content["name"], content["number"]
                if type(number) is not int or self._folder_of(checked_name(name)) != entry:
                    raise ValueError("it is of another task")
            except Exception as error:  # whatever a file of anybody's can hold
                logger.warning("%s is not a kept task and is left alone: %s", entry, error)
                continue
            yield KeptTask(name, number, entry)
