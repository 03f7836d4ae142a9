"""The service: its addresses, and what each does with a classifier."""

from __future__ import annotations

import asyncio
import copy
import io
import logging
import tempfile
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path, PurePath
from time import perf_counter
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.exceptions import HTTPException
from starlette.routing import Route

from openprompt_meta.classifier.classifier import MetaPromptClassifier
from openprompt_meta.errors import ArtefactError, DataError, NotFiniteError, TemplateError, VerbalizerError
from openprompt_meta.serve import requests as api
from openprompt_meta.serve.guard import COOKIE, Access, Guard
from openprompt_meta.serve.keeping import KeptTasks
from openprompt_meta.serve.pages import documentation, page_files
from openprompt_meta.serve.requests import Limits, Refusal, refusal_response
from openprompt_meta.serve.server import give_back_memory
from openprompt_meta.serve.tasks import SERVED, ServedTask, TaskStore, Workers
from openprompt_meta.version import __version__

# What texts, classes or words of the right shape can lead to; anything else is a fault of the service.
_FAULTS_OF_THE_REQUEST = (DataError, NotFiniteError, TemplateError, VerbalizerError)

# Examples that are left out one by one at most: some seconds.
_LEFT_OUT = 100

logger = logging.getLogger(__name__)

_REFUSALS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": api.ErrorAnswer, "description": "refused, with the reason"},
    409: {
        "model": api.ErrorAnswer,
        "description": "the parts of the request do not go together, or not with the tasks that there are",
    },
    503: {"model": api.ErrorAnswer, "description": "too much is under way; try again soon"},
    507: {"model": api.ErrorAnswer, "description": "the disk does not take it"},
}
_ZIP: dict[str, Any] = {"content": {"application/zip": {}}, "description": "the zip file"}


def build_app(
    classifier: MetaPromptClassifier,
    access: Access,
    limits: Limits | None = None,
    kept: KeptTasks | None = None,
) -> FastAPI:
    """The service around one classifier, as an ASGI application.

    Args:
        classifier: where every new task starts from; if it is fitted, it is a task itself. It is not changed.
        access: who may ask.
        limits: how much.
        kept: where tasks that are fitted over HTTP stay when the service stops; nowhere by default.
    """
    limits = limits or Limits()
    service = _Service(classifier, limits, kept)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        service.close()

    app = FastAPI(
        title="openprompt_meta",
        version=__version__,
        description="Classifies text from a few examples a class, with a frozen language model and a meta-learned "
        "pool of prompts. Refusals are JSON with one sentence under 'error'.",
        # FastAPI's own pages load scripts from elsewhere; /docs below does not.
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
    )
    _add_refusals(app)
    _add_api(app, service)
    _add_pages(app, access)
    posts = [route.path for route in app.routes if isinstance(route, Route) and "POST" in (route.methods or ())]
    app.add_middleware(Guard, access=access, limits=limits, posts=posts)
    app.state.at_work = service.at_work
    app.openapi = partial(_schema, app, app.openapi, limits)  # type: ignore[method-assign]
    return app


def _schema(app: FastAPI, described: Callable[[], dict[str, Any]], limits: Limits) -> dict[str, Any]:
    """The OpenAPI schema with the limits of this service in it."""
    if app.openapi_schema is None:
        api.add_limits(described()["components"]["schemas"], limits)
    return app.openapi_schema or {}


class _Service:
    """What the addresses share: the tasks and the threads."""

    def __init__(self, classifier: MetaPromptClassifier, limits: Limits, kept: KeptTasks | None) -> None:
        self.limits = limits
        self._kept = kept
        self._changing = asyncio.Lock()
        # The last part alone: where it lies on this machine is nobody's business.
        self.model = PurePath(classifier.meta_learned.config.plm.model_path).name
        self.predictions = Workers("predictions", limits.predictions_at_once, limits.predictions_waiting)
        self.fits = Workers("fits", limits.fits_at_once, limits.fits_waiting)
        most = min(classifier.adapt_examples, limits.adapt_examples)
        self._start = copy.copy(classifier).set_params(adapt_examples=most)
        fitted = hasattr(classifier, "task_")
        self.tasks = TaskStore(limits.tasks, ServedTask(SERVED, classifier) if fitted else None)
        config = classifier.meta_learned.config
        base = {"base_model": config.plm.model_path, "allow_pickle": config.plm.allow_pickle}
        for task in [] if kept is None else kept.read(limits.tasks, device=classifier.device, **base):
            self.tasks.add(task)

    async def fit(self, request: api.FitRequest) -> api.FitAnswer:
        name = api.checked_name(request.name)
        texts, labels, classes = api.checked_classes(request.classes, self.limits)
        words = api.label_words_within_limits(request.label_words, classes, self.limits)
        self.tasks.check_free(name, request.replace)
        began = perf_counter()
        task = await self.fits.run(partial(self._fitted, name, texts, labels, classes, words))
        async with self._changing:
            self.tasks.check_free(name, request.replace)  # another may have come meanwhile
            kept = self._kept
            if kept is not None:
                await self._on_disk(lambda: kept.write(task))
            forgotten = self.tasks.add(task)
            if kept is not None:
                await self._on_disk(lambda: kept.remove(*forgotten))
        seconds, left_out = perf_counter() - began, None
        if request.leave_one_out:
            found = await self.fits.run(partial(task.classifier.leave_one_out, _LEFT_OUT))
            left_out = None if found is None else api.LeaveOneOut(right=found[0], examples=found[1])
        return api.FitAnswer(task=_described(task), seconds=seconds, forgotten=forgotten, leave_one_out=left_out)

    async def download(self, name: str) -> bytes:
        task = self._asked(name)
        return await asyncio.to_thread(_zipped, task.classifier)

    async def forget(self, name: str) -> None:
        async with self._changing:
            self.tasks.check_removable(name)
            if self._kept is not None:
                await self._on_disk(partial(self._kept.remove, name))
            self.tasks.remove(name)

    async def _on_disk(self, change: Callable[[], object]) -> None:
        try:
            await asyncio.to_thread(change)
        except (OSError, ArtefactError) as error:
            logger.error("A task could not be kept or deleted: %s", error)
            raise Refusal(507, "The disk of the service does not take it, so nothing was changed.") from None

    def _fitted(
        self,
        name: str,
        texts: list[str],
        labels: list[str],
        classes: list[str],
        words: dict[str, list[str]] | None,
    ) -> ServedTask:
        known = classes if len(set(labels)) < len(classes) else None  # some by their names alone
        # A copy shares what was meta-learned, so that nothing is read from a disk again.
        try:
            return ServedTask(name, copy.copy(self._start).fit(texts, labels, words, known))
        finally:
            give_back_memory()

    async def predict(self, request: api.PredictRequest) -> api.PredictAnswer:
        texts = api.texts_within_limits(request.texts, self.limits)
        task = self._asked(request.task)
        self.predictions.check_room()
        answer = task.together.ask(texts)
        await self.predictions.run(task.together.work)
        rows = await asyncio.wrap_future(answer)
        return api.PredictAnswer(task=task.name, predictions=[_prediction(task.classes, row) for row in rows])

    async def explain(self, request: api.ExplainRequest) -> api.ExplainAnswer:
        text = api.checked_text(request.text, self.limits)
        task = self._asked(request.task)
        found = await self.predictions.run(lambda: task.classifier.explain(text).as_dict())
        found["label"] = str(found["label"])
        for row in (*found["classes"], *found["nearest_examples"]):
            row["label"] = str(row["label"])
        return api.ExplainAnswer(task=task.name, **found)

    def health(self) -> api.HealthAnswer:
        return api.HealthAnswer(
            status="ok",
            version=__version__,
            model=self.model,
            tasks=len(self.tasks),
            predictions_under_way=self.predictions.under_way,
            fits_under_way=self.fits.under_way,
        )

    def at_work(self) -> bool:
        return self.predictions.at_work or self.fits.at_work

    def close(self) -> None:
        self.predictions.close()
        self.fits.close()
        if self._kept is not None:
            self._kept.close()

    def _asked(self, name: str | None) -> ServedTask:
        return self.tasks.get(None if name is None else api.checked_name(name))


def _add_api(app: FastAPI, service: _Service) -> None:
    @app.post("/predict", responses=_REFUSALS)
    async def predict(request: api.PredictRequest) -> api.PredictAnswer:
        """Classify texts."""
        return await service.predict(request)

    @app.post("/explain", responses=_REFUSALS)
    async def explain(request: api.ExplainRequest) -> api.ExplainAnswer:
        """Classify a text, and say what the prompts and the examples had to do with it."""
        return await service.explain(request)

    @app.post("/fit", status_code=201, responses=_REFUSALS)
    async def fit(request: api.FitRequest) -> api.FitAnswer:
        """Learn a new task from a few examples a class. It is kept under its name until others need room."""
        return await service.fit(request)

    @app.get("/tasks", responses=_REFUSALS)
    async def tasks() -> api.TasksAnswer:
        """The tasks that can be asked."""
        return api.TasksAnswer(tasks=[_described(task) for task in service.tasks.all()])

    @app.get("/tasks/{name}/classifier", responses={**_REFUSALS, 200: _ZIP}, response_class=Response)
    async def download(name: str) -> Response:
        """The classifier of a task as a zip file, whose folder ``MetaPromptClassifier.from_pretrained`` loads."""
        content = await service.download(name)
        headers = {"Content-Disposition": 'attachment; filename="classifier.zip"'}
        return Response(content, media_type="application/zip", headers=headers)

    @app.delete("/tasks/{name}", responses=_REFUSALS)
    async def forget(name: api.TaskName) -> api.ForgetAnswer:
        """Delete a task."""
        checked = api.checked_name(name)
        await service.forget(checked)
        return api.ForgetAnswer(deleted=checked)

    @app.get("/health", responses=_REFUSALS)
    async def health() -> api.HealthAnswer:
        """Whether the service is well. Answers while fits and predictions are under way."""
        return service.health()


def _add_pages(app: FastAPI, access: Access) -> None:
    for address, (content, media_type) in page_files().items():
        app.add_api_route(address, _page(content, media_type, access), include_in_schema=False)

    @app.get("/docs", include_in_schema=False)
    async def docs() -> HTMLResponse:
        return HTMLResponse(documentation(app.openapi()))


def _page(content: bytes, media_type: str, access: Access) -> Callable[[Request], Response]:
    def page(request: Request) -> Response:
        if access.is_token(request.query_params.get("token", "")):
            # From here on the cookie speaks for the browser, and the token is out of its address bar.
            answer = RedirectResponse("/", status_code=303)
            answer.set_cookie(COOKIE, access.session, httponly=True, samesite="strict")
            return answer
        return Response(content, media_type=media_type)

    return page


def _add_refusals(app: FastAPI) -> None:
    @app.exception_handler(Refusal)
    async def refused(request: Request, error: Refusal) -> Response:
        return refusal_response(error)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        return refusal_response(api.validation_refusal(error.errors()))

    @app.exception_handler(HTTPException)
    async def unknown(request: Request, error: HTTPException) -> Response:
        return refusal_response(api.http_refusal(error.status_code), error.headers)

    for kind in _FAULTS_OF_THE_REQUEST:
        app.add_exception_handler(kind, _refused_by_the_classifier)


async def _refused_by_the_classifier(request: Request, error: Exception) -> Response:
    return refusal_response(Refusal(409, str(error)))


def _zipped(classifier: MetaPromptClassifier) -> bytes:
    """What ``save_pretrained`` writes, in a folder ``classifier`` of a zip file."""
    content = io.BytesIO()
    with tempfile.TemporaryDirectory(prefix="openprompt_meta-") as made:
        folder = Path(made) / "classifier"
        classifier.save_pretrained(folder)
        with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(path for path in folder.rglob("*") if path.is_file() and path.name[0] != "."):
                archive.write(file, Path("classifier") / file.relative_to(folder))
    return content.getvalue()


def _described(task: ServedTask) -> api.TaskAnswer:
    return api.TaskAnswer(name=task.name, classes=task.classes, examples=task.examples, served=task.name == SERVED)


def _prediction(classes: list[str], probabilities: list[float]) -> api.Prediction:
    by_class = dict(zip(classes, probabilities, strict=True))
    label = max(by_class, key=by_class.__getitem__)
    return api.Prediction(label=label, probability=by_class[label], probabilities=by_class)
