"""The model hub: fetching and uploading a classifier's files and no others, and the model card."""

from __future__ import annotations

import os
import re
import tempfile
from pathlib import Path

from openprompt_meta.classifier.artefact import FILES, Stored, write_artefact
from openprompt_meta.errors import ArtefactError

__all__ = ["local_folder", "upload"]

# -- The model hub, by `huggingface_hub`: fetching a classifier's files and no others, uploading them and no others ---

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")


def local_folder(
    artefact: str | os.PathLike[str], revision: str | None = None, token: str | None = None
) -> str | os.PathLike[str]:
    """The folder itself if there is one, else that of the hub's repository of that name, fetched if need be.

    Raises:
        ArtefactError: it cannot be fetched.
    """
    name = os.fspath(artefact)
    if Path(name).exists() or not _REPOSITORY.fullmatch(name):
        return artefact
    from huggingface_hub import snapshot_download

    try:
        return snapshot_download(name, revision=revision, token=token, allow_patterns=list(FILES))
    except Exception as error:  # the client raises whatever its HTTP library does
        raise ArtefactError(
            f"There is no folder {name}, and no classifier of that name could be fetched from the model hub: "
            f"{_first_line(error)}"
        ) from error


def upload(
    stored: Stored,
    repo_id: str,
    *,
    private: bool | None,
    token: str | None,
    revision: str | None,
    commit_message: str,
    create_pr: bool,
) -> str:
    """Write a classifier to a temporary folder and upload that; where it then is.

    Raises:
        ArtefactError: the hub cannot be reached or refuses.
    """
    from huggingface_hub import HfApi

    api = HfApi(token=token)
    with tempfile.TemporaryDirectory() as folder:
        target = Path(folder) / "classifier"
        write_artefact(target, stored)
        try:
            repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
            commit = api.upload_folder(
                repo_id=repo_id,
                folder_path=target,
                revision=revision,
                commit_message=commit_message,
                create_pr=create_pr,
                allow_patterns=list(FILES),
            )
        except Exception as error:
            raise ArtefactError(
                f"The classifier could not be uploaded to {repo_id}: {_first_line(error)} Log in with "
                "`huggingface-cli login` or give token=; save_pretrained keeps it here."
            ) from error
    return str(commit.commit_url)


def _first_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
