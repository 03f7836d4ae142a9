"""What goes in and comes out: bodies as FastAPI reads and documents them, their bounds, and refusals."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field
from starlette.responses import JSONResponse

from openprompt_meta.classifier.prediction import NearestWord
from openprompt_meta.errors import one_line

# -- How much one request, one client and the whole service may ask for -----------------------------------------------


@dataclass(frozen=True)
class Limits:
    """Every bound of the service; what goes beyond one is refused with its value in the message.

    Args:
        body_bytes: size of a request's body.
        body_seconds: how long a body may take to arrive.
        texts: texts in one call of ``/predict``.
        text_length: characters of a text. The language model reads its first few hundred tokens in any case.
        classes: classes of a task.
        examples: examples of a task, all classes together.
        adapt_examples: those of them that take part in the gradient steps at most, which is what a fit spends its time
            and memory on; label embeddings are computed from all.
        label_length: characters of a class name or a label word.
        label_words: label words of a class.
        tasks: tasks kept; beyond it the one that was used longest ago leaves.
        requests_per_minute: of one client, with as many at once after a pause of a minute.
        fits_per_minute: the same for ``/fit``.
        clients: clients whose rate is remembered.
        connections: open at the same time; of one more, the one that has waited longest without asking is closed.
        header_seconds: how long a connection may be open without a whole head of a request.
        requests_at_once: requests under way, of all clients.
        predictions_at_once: predictions that are worked on at the same time.
        predictions_waiting: predictions that may wait for their turn.
        fits_at_once: fits that are worked on at the same time.
        fits_waiting: fits that may wait for their turn.
    """

    body_bytes: int = 1_000_000
    body_seconds: float = 15.0
    texts: int = 256
    text_length: int = 20_000
    classes: int = 64
    examples: int = 256
    adapt_examples: int = 64
    label_length: int = 100
    label_words: int = 20
    tasks: int = 32
    requests_per_minute: int = 1200
    fits_per_minute: int = 30
    clients: int = 4096
    connections: int = 512
    header_seconds: float = 10.0
    requests_at_once: int = 256
    predictions_at_once: int = 2
    predictions_waiting: int = 128
    fits_at_once: int = 1
    fits_waiting: int = 2


# -- What the service says when it refuses: a status and one sentence, as JSON ----------------------------------------

# 422 is for what is not as the schema says, 409 for what is, but whose parts do not go together or with the tasks that
# there are, which a schema cannot say.

_SENTENCES = {
    400: "The body is not JSON in UTF-8 that can be read.",
    404: "There is nothing at this address: '/docs' lists what there is.",
    405: "This address does not answer this method: '/docs' lists what there is.",
}


class Refusal(Exception):  # noqa: N818 - it goes to the client, not to a programmer
    """A request that is not carried out.

    Args:
        status: the HTTP status.
        sentence: what is wrong and how to fix it.
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
    where = ".".join(one_line(str(part))[:40] for part in first["loc"][1:]) or "the body"
    what = str(first["msg"])
    more = f" {len(errors) - 1} more of this kind follow." if len(errors) > 1 else ""
    return Refusal(422, f"At '{where}': {what[:1].lower()}{what[1:]}.{more}")


# -- The bodies that go in and come out, as FastAPI reads, checks and documents them. Sizes are checked elsewhere -----

# What the schema says of sizes is checked by the functions below, whose refusals a person can act on.
# White space is what Python takes for it; '\s' is something else in every dialect of regular expressions.
_SPACES = r"\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"
_CONTROLS = r"\x00-\x1f\x7f-\x9f"
SOMETHING = f"[^{_SPACES}]"
_NO_CONTROLS = f"^[^{_CONTROLS}]*[^{_SPACES}{_CONTROLS}][^{_CONTROLS}]*$"
_Text = Annotated[str, Field(description="a text", json_schema_extra={"pattern": SOMETHING})]
TaskName = Annotated[
    str,
    Field(
        description="name of a task: letters, digits, spaces, '.', '-' and '_'",
        examples=["intents"],
        json_schema_extra={"pattern": r"^\w[\w .-]{0,63}$"},
    ),
]


def add_limits(schemas: Mapping[str, Any], limits: Limits) -> None:
    """Enter the limits of a service into the schemas of what goes in."""

    def keys(name: str) -> Any:
        return schemas[name]["properties"]

    label = {"type": "string", "maxLength": limits.label_length, "pattern": _NO_CONTROLS}
    text = {"maxLength": limits.text_length}
    keys("ExplainRequest")["text"].update(text)
    texts = keys("PredictRequest")["texts"]
    texts.update(minItems=1, maxItems=limits.texts)
    texts["items"].update(text)
    classes = keys("FitRequest")["classes"]
    classes.update(minProperties=2, maxProperties=limits.classes, propertyNames=label)
    classes["additionalProperties"].update(maxItems=limits.examples)
    classes["additionalProperties"]["items"].update(text)
    words, _ = keys("FitRequest")["label_words"]["anyOf"]
    words["propertyNames"] = label
    words["additionalProperties"].update(minItems=1, maxItems=limits.label_words, items=label)


class _Request(BaseModel):
    # A misspelt key is an error, never a default that nobody asked for.
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Request):
    """Texts to classify."""

    texts: list[_Text] = Field(description="texts to classify", examples=[["will it rain tomorrow"]])
    task: TaskName | None = Field(None, description="name of the task; the one that came with the service by default")


class ExplainRequest(_Request):
    """A text to classify and explain."""

    text: _Text = Field(description="the text", examples=["will it rain tomorrow"])
    task: TaskName | None = Field(None, description="name of the task; the one that came with the service by default")


class FitRequest(_Request):
    """A new task: its classes, each with a few examples."""

    name: TaskName
    classes: dict[str, list[_Text]] = Field(
        description="example texts of each class; the numbers may differ, and where names are read, as with the pool "
        "that ships, a class whose name says what it is needs none",
        examples=[{"weather": ["will it rain", "how cold is it"], "music": ["play some jazz"]}],
    )
    label_words: dict[str, list[str]] | None = Field(
        None,
        description="words that stand for a class, or a sentence that describes it, in place of its name; of no other "
        "class than those of this request (else 409)",
    )
    replace: bool = Field(False, description="replace a task that has this name")
    leave_one_out: bool = Field(
        False, description="classify examples by all the others too, up to a hundred, and say how many come out right"
    )


class ErrorAnswer(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="one sentence that says what is wrong and how to fix it")


class Prediction(BaseModel):
    """What a text was found to be."""

    label: str = Field(description="the most probable class")
    probability: float = Field(description="its probability")
    probabilities: dict[str, float] = Field(description="the probability of every class")


class PredictAnswer(BaseModel):
    """A prediction for each text, in their order."""

    task: str
    predictions: list[Prediction]


class ClassProbability(BaseModel):
    """A class, and what the classifier and each of its verbalizers give it."""

    label: str
    probability: float = Field(description="the prediction")
    soft: float | None = Field(description="by label embeddings alone; null where there are none")
    hand_crafted: float | None = Field(description="by label words alone; null where they contribute nothing")


class NearestExample(BaseModel):
    """An example of the task near the text."""

    text: str | None = Field(description="null if the classifier was saved without its examples")
    label: str
    cosine: float


class ExplainAnswer(BaseModel):
    """Why a text is classified as it is."""

    task: str
    text: str
    label: str = Field(description="the most probable class")
    classes: list[ClassProbability] = Field(description="all classes, the most probable first")
    attention: list[float] = Field(description="how much each prompt of the pool contributes; adds up to one")
    prompt_words: list[list[NearestWord]] = Field(
        description="for each position of the prompt made for this text, the nearest words, nearest first"
    )
    nearest_examples: list[NearestExample] = Field(description="the most similar examples, most similar first")
    truncated: bool = Field(description="whether the text was longer than the length budget and cut")
    head: str | None = Field(description="which head decides, and why that one; null if there is no choice")


class TaskAnswer(BaseModel):
    """A task that can be asked."""

    name: str
    classes: list[str]
    examples: int = Field(description="examples that it was fitted to")
    served: bool = Field(description="whether it came with the service; then it cannot be replaced or deleted")


class TasksAnswer(BaseModel):
    """The tasks, the most recently used last."""

    tasks: list[TaskAnswer]


class LeaveOneOut(BaseModel):
    """How the examples are classified by all the others."""

    right: int = Field(description="examples that are classified rightly")
    examples: int = Field(description="examples that were left out, each once")


class FitAnswer(BaseModel):
    """The new task."""

    task: TaskAnswer
    seconds: float = Field(description="time that the fit took")
    forgotten: list[str] = Field(description="tasks that left to make room, those used longest ago")
    leave_one_out: LeaveOneOut | None = Field(
        None, description="if it was asked for; null where a class has fewer than two examples, or it cannot be had"
    )


class ForgetAnswer(BaseModel):
    """The task that was deleted."""

    deleted: str


class HealthAnswer(BaseModel):
    """Whether the service is well and how much it has to do."""

    status: str
    version: str
    model: str = Field(description="the frozen language model")
    tasks: int
    predictions_under_way: int
    fits_under_way: int


# -- Whether a request's texts, classes and names are within bounds, said in words a person can act on ----------------

_NAME = re.compile(r"\w[\w .-]{0,63}")


def checked_name(given: str) -> str:
    """A task's name in its one normal form. It is a key of a dictionary and nothing else."""
    name = unicodedata.normalize("NFC", given.strip())
    if not _NAME.fullmatch(name):
        raise Refusal(
            422,
            "A task's name has 1 to 64 letters, digits, spaces, '.', '-' and '_', and begins with a letter or digit.",
        )
    return name


def checked_text(text: str, limits: Limits, what: str = "The text") -> str:
    """The text, if there is something to read in it and not too much."""
    if not text.strip():
        raise Refusal(422, f"{what} is empty: write something.")
    if len(text) > limits.text_length:
        raise Refusal(
            422, f"{what} has {len(text):,} characters, but at most {limits.text_length:,} are read: shorten it."
        )
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # JSON can spell half a surrogate pair, which is no character
        raise Refusal(422, f"{what} has half a character in it (a lone surrogate): leave it out.") from None
    return text


def texts_within_limits(texts: Sequence[str], limits: Limits) -> list[str]:
    """The texts of a prediction."""
    if not texts:
        raise Refusal(422, "'texts' is empty: give at least one text.")
    if len(texts) > limits.texts:
        raise Refusal(
            422, f"{len(texts):,} texts are more than {limits.texts:,}, the most in one request: split them."
        )
    return [checked_text(text, limits, f"Text {number}") for number, text in enumerate(texts, start=1)]


def checked_classes(classes: Mapping[str, Sequence[str]], limits: Limits) -> tuple[list[str], list[str], list[str]]:
    """The texts and labels of a fit, and all its classes, of which some may have no example."""
    if len(classes) < 2:
        found = "there is only one" if classes else "there is none"
        raise Refusal(422, f"At least two classes are needed, and {found}: add a class with a few examples.")
    if len(classes) > limits.classes:
        raise Refusal(422, f"{len(classes):,} classes are more than {limits.classes:,}, the most of a task.")
    total = sum(map(len, classes.values()))
    if total > limits.examples:
        raise Refusal(
            409, f"{total:,} examples are more than {limits.examples:,}, the most of a task: leave some out."
        )
    texts, labels = [], []
    seen: dict[str, None] = {}  # in their order
    for given, examples in classes.items():
        label = _checked_label(given, limits, "A class's name")
        if label in seen:
            raise Refusal(409, f"The class '{label}' is there twice: give each class its own name.")
        seen[label] = None
        for number, text in enumerate(examples, start=1):
            texts.append(checked_text(text, limits, f"Example {number} of '{label}'"))
            labels.append(label)
    return texts, labels, list(seen)


def label_words_within_limits(
    words: Mapping[str, Sequence[str]] | None, labels: Sequence[str], limits: Limits
) -> dict[str, list[str]] | None:
    """The label words of a fit, for its classes and no other."""
    if not words:
        return None
    checked = {}
    for given, of_class in words.items():
        label = _checked_label(given, limits, "A class's name")
        if label not in labels:
            raise Refusal(409, f"There are label words for '{label}', which is not one of the classes.")
        if not 1 <= len(of_class) <= limits.label_words:
            raise Refusal(
                422, f"The class '{label}' has {len(of_class)} label words, but 1 to {limits.label_words} fit."
            )
        checked[label] = [_checked_label(word, limits, f"A label word of '{label}'") for word in of_class]
    for label in labels:
        if label not in checked:
            raise Refusal(409, f"The class '{label}' has no label words: give them for every class or for none.")
    return checked


def _checked_label(given: str, limits: Limits, what: str) -> str:
    label = unicodedata.normalize("NFC", given.strip())
    if not label or len(given) > limits.label_length:
        raise Refusal(422, f"{what} has {len(given):,} characters, but 1 to {limits.label_length} fit.")
    if any(unicodedata.category(sign) in ("Cc", "Cs") for sign in given):
        raise Refusal(422, f"{what} has a sign in it that cannot be shown: leave it out.")
    return label
