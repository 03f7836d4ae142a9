"""What the service says when it refuses: a status and one sentence, as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.responses import JSONResponse

__all__ = ["Refusal", "http_refusal", "refusal_response", "validation_refusal"]

_SENTENCES = {
    400: "The body is not JSON in UTF-8 that can be read.",
    404: "There is nothing at this address: '/docs' lists what there is.",
    405: "This address does not answer this method: '/docs' lists what there is.",
}


class Refusal(Exception):  # noqa: N818 - it goes to the client, not to a programmer
    """A request that is not carried out.

    Args:
        status: the HTTP status.
        sentence: what is wrong and how to mend it.
        retry_after: seconds after which another try makes sense.
    """

    def __init__(self, status: int, sentence: str, retry_after: float | None = None) -> None:
        super().__init__(sentence)
        self.status = status
        self.sentence = sentence
        self.retry_after = retry_after


def refusal_response(refusal: Refusal, more_headers: Mapping[str, str] | None = None) -> JSONResponse:
    """``{"error": "One sentence."}`` with the status, and ``Retry-After`` where it helps."""
    headers = dict(more_headers or {})
    if refusal.retry_after is not None:
        headers["Retry-After"] = str(max(1, math.ceil(refusal.retry_after)))
    if refusal.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse({"error": refusal.sentence}, status_code=refusal.status, headers=headers)


def http_refusal(status: int) -> Refusal:
    """The refusal for a status that the framework gives by itself."""
    return Refusal(status, _SENTENCES.get(status, "The request cannot be answered."))


def validation_refusal(errors: Sequence[Mapping[str, Any]]) -> Refusal:
    """The refusal for a body of the wrong shape; what was sent is not repeated, only where it is wrong."""
    first = errors[0]
    if first["type"] == "json_invalid":
        return Refusal(422, "The body is not JSON that can be read.")
    if first["type"] == "missing" and len(first["loc"]) == 1:
        return Refusal(422, "The body is empty, but JSON is expected: '/docs' lists its keys.")
    # Keys of mappings can be anything; a few characters of them are enough to find the place.
    where = ".".join(_printable(str(part))[:40] for part in first["loc"][1:]) or "the body"
    what = str(first["msg"])
    more = f" {len(errors) - 1} more of this kind follow." if len(errors) > 1 else ""
    return Refusal(422, f"At '{where}': {what[:1].lower()}{what[1:]}.{more}")


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() else "?" for sign in text)
