"""The bodies that go in and come out, as FastAPI reads, checks and documents them. Sizes are checked elsewhere."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ClassProbability",
    "ErrorAnswer",
    "ExplainAnswer",
    "ExplainRequest",
    "FitAnswer",
    "FitRequest",
    "ForgetAnswer",
    "HealthAnswer",
    "NearestExample",
    "NearestWord",
    "PredictAnswer",
    "PredictRequest",
    "Prediction",
    "TaskAnswer",
    "TasksAnswer",
]

Text = Annotated[str, Field(description="a text")]
TaskName = Annotated[
    str, Field(description="name of a task: letters, digits, spaces, '.', '-' and '_'", examples=["intents"])
]


class _Request(BaseModel):
    # A misspelt key is an error, never a default that nobody asked for.
    model_config = ConfigDict(extra="forbid", strict=True)


class PredictRequest(_Request):
    """Texts to classify."""

    texts: list[Text] = Field(description="texts to classify", examples=[["will it rain tomorrow"]])
    task: TaskName | None = Field(None, description="name of the task; the one that came with the service by default")


class ExplainRequest(_Request):
    """A text to classify and explain."""

    text: Text = Field(description="the text", examples=["will it rain tomorrow"])
    task: TaskName | None = Field(None, description="name of the task; the one that came with the service by default")


class FitRequest(_Request):
    """A new task: its classes, each with a few examples."""

    name: TaskName
    classes: dict[str, list[Text]] = Field(
        description="example texts of each class; the numbers may differ",
        examples=[{"weather": ["will it rain", "how cold is it"], "music": ["play some jazz"]}],
    )
    label_words: dict[str, list[str]] | None = Field(
        None, description="words that stand for a class, for language models with a vocabulary head"
    )
    replace: bool = Field(False, description="replace a task that has this name")


class ErrorAnswer(BaseModel):
    """Why a request was refused."""

    error: str = Field(description="one sentence that says what is wrong and how to mend it")


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
    hand_crafted: float | None = Field(description="by label words alone; null where they have no say")


class NearestWord(BaseModel):
    """A token of the vocabulary near a position of the prompt."""

    word: str
    cosine: float


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


class TaskAnswer(BaseModel):
    """A task that can be asked."""

    name: str
    classes: list[str]
    examples: int = Field(description="examples that it was fitted to")
    served: bool = Field(description="whether it came with the service; then it cannot be replaced or deleted")


class TasksAnswer(BaseModel):
    """The tasks, the most recently used last."""

    tasks: list[TaskAnswer]


class FitAnswer(BaseModel):
    """The new task."""

    task: TaskAnswer
    seconds: float = Field(description="time that the fit took")
    forgotten: list[str] = Field(description="tasks that left to make room, those used longest ago")


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
