"""About how long a run takes without any of it being run: its work counted, at the rate of this machine.

A plan has to be there at once, so nothing here imports torch unless the rate of the machine is not known yet.
"""

from __future__ import annotations

import json
import logging
import os
import re
import statistics
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from openprompt_meta.components import TaskWork
from openprompt_meta.config.schema import KNOWN_DATASETS, DatasetSection, RunConfig
from openprompt_meta.data.facts import facts_of
from openprompt_meta.encoder.packaged import PACKAGED, unchecked_folder
from openprompt_meta.files import default_cache_folder, write_atomic
from openprompt_meta.runs.process import set_threads, usable_processors

logger = logging.getLogger(__name__)

# -- What is read: a language model of some size, texts of some length ------------------------------------------------

_WORD_OR_SIGN = re.compile(r"\w+|[^\w\s]")
# Of the seven data sets in BERT's vocabulary: 1.05 to 1.14 a word or sign, 1.1 to 1.8 a word with its signs.
_TOKENS_A_WORD_OR_SIGN = 1.08
_TOKENS_A_WORD = 1.2
_FRAME = 7  # tokens of a template besides its text and its prompt
_SAMPLE = 500


@dataclass(frozen=True)
class EncoderSize:
    """What decides how much work a token is; of a BERT-like encoder."""

    layers: int = 12
    width: int = 768
    inner: int = 3072
    words: int = 30522

    @property
    def weights(self) -> int:
        """Numbers in its layers and its input embeddings."""
        return self.layers * self._weights_of_a_layer + self.words * self.width

    @property
    def _weights_of_a_layer(self) -> int:
        return 4 * self.width**2 + 2 * self.width * self.inner

    def flops(self, tokens: float, at_mask: bool) -> float:
        """Of a text of that many tokens, forwards.

        Args:
            tokens: in the text.
            at_mask: whether the last layer is run at the [MASK] alone, where it has keys and values for every token.
        """
        whole = tokens * (2 * self._weights_of_a_layer + 4 * tokens * self.width)
        last = tokens * 4 * self.width**2 if at_mask else whole
        return (self.layers - 1) * whole + last


def encoder_size(model_path: str) -> tuple[EncoderSize, bool]:
    """A language model's size by its ``config.json``, and whether that could be read; BERT's if not."""
    try:
        described = json.loads(_description(model_path).read_text(encoding="utf-8"))
        keys = ("num_hidden_layers", "hidden_size", "intermediate_size", "vocab_size")
        sizes = [int(described[key]) for key in keys]
    except (OSError, ValueError, KeyError, TypeError):
        return EncoderSize(), False
    return EncoderSize(*sizes), True


def _description(model_path: str) -> Path:
    if model_path in PACKAGED:
        folder = unchecked_folder()
        if folder is None:
            raise FileNotFoundError(model_path)
        return folder / "config.json"
    if os.path.isdir(model_path):
        return Path(model_path) / "config.json"
    from huggingface_hub import try_to_load_from_cache

    return Path(str(try_to_load_from_cache(model_path, "config.json")))


class TextSizes(NamedTuple):
    """Tokens of a text on average, and how many texts there are to test on."""

    tokens: float
    test_texts: int


@lru_cache(maxsize=64)
def text_sizes(dataset: _Dataset, most: int) -> TextSizes:
    """Of a data set whose texts have ``most`` tokens at most; of one that is well known, without its files.

    Raises:
        DataError: another one cannot be read.
    """
    section = dataset.section
    if section.name in KNOWN_DATASETS and not section.mixture:
        facts = facts_of(section.name)
        share = len(facts.splits["authors"].test) / len(facts.classes)
        return TextSizes(min(most, _TOKENS_A_WORD * facts.words_a_text), round(share * facts.samples))
    from openprompt_meta.data.loading import open_dataset

    opened = open_dataset(section)
    lengths = [_TOKENS_A_WORD_OR_SIGN * len(_WORD_OR_SIGN.findall(text)) for text in opened.test.texts[:_SAMPLE]]
    return TextSizes(statistics.fmean(min(most, length) for length in lengths), len(opened.test.texts))


@dataclass(frozen=True, eq=False)
class _Dataset:
    """A section of a configuration as a key: two that say the same are one."""

    section: DatasetSection

    def __hash__(self) -> int:
        return hash(self.section.model_dump_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Dataset) and self.section == other.section


# -- How fast this machine is, measured once --------------------------------------------------------------------------

_RATES = "rates.json"
_ROWS = 512  # so few that a try is over before another process takes its turn
_MOVED = 32_000_000  # numbers; more than a cache holds
_SECONDS_OF_TRIES = 0.2
_FEWEST_TRIES = 5


@dataclass(frozen=True)
class MachineRate:
    """Floating-point operations a second in an encoder's largest matrix product, and bytes a second from memory."""

    flops: float
    bytes: float


def machine_rate(size: EncoderSize, precision: str, threads: int | None) -> MachineRate:
    """This machine's rate; measured in a second, and kept in the cache folder from then on."""
    asked = re.match(r"\d+", os.environ.get("OMP_NUM_THREADS", ""))  # "2,1" is two, and one within them
    count = threads or (int(asked[0]) if asked else usable_processors())
    key = f"{size.width}x{size.inner} {precision} {count} threads"
    file = default_cache_folder() / _RATES
    known = _known_rates(file)
    with suppress(KeyError, TypeError, ValueError):
        kept = MachineRate(**{name: float(known[key][name]) for name in ("flops", "bytes")})
        if kept.flops > 0 and kept.bytes > 0:
            return kept
    measured = _measure_rate(size, precision, threads)
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps({**known, key: asdict(measured)}, indent=1) + "\n")
    except OSError as error:
        logger.info("The machine's rate cannot be kept in %s (%s); it is measured anew next time.", file, error)
    return measured


def _known_rates(file: Path) -> dict[str, Any]:
    try:
        known = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _measure_rate(size: EncoderSize, precision: str, threads: int | None) -> MachineRate:
    import torch

    before = torch.get_num_threads()
    set_threads(threads)
    try:
        product = MatrixProduct(_ROWS, size.width, size.inner, getattr(torch, precision))
        weights, gradients = torch.zeros(_MOVED), torch.ones(_MOVED)
        return MachineRate(
            flops=product.flops / _best_time(product.run),
            bytes=3 * weights.nbytes / _best_time(lambda: weights.add_(gradients)),
        )
    finally:
        torch.set_num_threads(before)


def _best_time(way: Callable[[], object]) -> float:
    """Seconds of the best of several tries.

    Of the processors' time, shared out among the threads: a machine that is busy with something else is as fast as it
    would be by itself.
    """
    import torch

    way()
    times: list[float] = []
    until = time.perf_counter() + _SECONDS_OF_TRIES
    while len(times) < _FEWEST_TRIES or time.perf_counter() < until:
        started = time.process_time()
        way()
        times.append((time.process_time() - started) / torch.get_num_threads())
    return min(times)


class MatrixProduct:
    """An encoder's largest matrix product, there and back."""

    def __init__(self, rows: int, width: int, inner: int, precision: Any) -> None:
        import torch

        self._rows = torch.randn(rows, width).to(precision)
        self._weight = torch.randn(inner, width).to(precision)
        self._back = torch.randn(rows, inner).to(precision)
        self.flops = 2 * 2 * rows * width * inner

    def run(self, times: int = 1) -> None:
        """Once, or several times."""
        import torch

        for _ in range(times):
            torch.nn.functional.linear(self._rows, self._weight)
            self._back @ self._weight


# -- The two together -------------------------------------------------------------------------------------------------

_REACHED = {"float32": 0.85, "bfloat16": 0.65, "float16": 0.65}  # of the rate of products with few rows
_START = 4.0  # seconds until a run reads its first text
_A_PASS = 0.01  # seconds of a pass that are no product: Python, batches, the verbalizer
_A_STEP_MOVES = 28  # bytes of each tuned number in a step of Adam: four are read, three written
_RESTORING_MOVES = 8  # and in putting it back when the task is done


def estimated_seconds(config: RunConfig) -> tuple[float, str]:
    """About how many seconds the run will take from its beginning, and by what that was estimated.

    Raises:
        DataError: its texts cannot be read.
    """
    size, known = encoder_size(config.plm.model_path)
    precision = "float32" if config.plm.precision == "auto" else config.plm.precision
    worker = _Worker(config, size, machine_rate(size, precision, config.run.threads), precision)
    source = "estimate" if known else "estimate, for a model of BERT's size"
    return worker.seconds(), source


class _Worker:
    """What a run's parts take at a rate."""

    def __init__(self, config: RunConfig, size: EncoderSize, rate: MachineRate, precision: str) -> None:
        self._config, self._size, self._rate = config, size, rate
        self._texts = text_sizes(_Dataset(config.dataset), config.dataset.max_seq_length)
        template = config.prompt_pool_template
        prompts = config.method_declaration.uses_verbalizer
        tokens = self._texts.tokens + (_FRAME + template.prompt_length if prompts else 2)
        flops = size.flops(tokens, at_mask=prompts and template.features in ("auto", "mask"))
        self._seconds_a_text = flops / (_REACHED[precision] * rate.flops)
        self._backward = 2.0 if config.tunes_model else 1.0  # as many forward passes: gradients of weights cost one

    def seconds(self) -> float:
        """Of the whole run; early stopping would make it less."""
        meta, section = self._config.meta, self._config.method_section
        trains = self._config.method_declaration.trains_across_tasks
        validations = 1 + -(-meta.iterations // meta.validate_every) if trains else 0
        evaluation = section.evaluation_work(self._config)
        tested = self._of_tasks(evaluation, meta.test_tasks) + validations * self._of_tasks(
            evaluation, meta.valid_tasks
        )
        if not trains:
            return _START + tested
        iteration = self._of_task(section.iteration_work(self._config), second_order=not meta.first_order)
        return _START + tested + meta.iterations * meta.meta_batch * iteration

    def _of_tasks(self, work: TaskWork, tasks: int) -> float:
        if not work.once:
            return tasks * self._of_task(work)
        read = min(tasks * work.read, self._texts.test_texts)
        return read * self._seconds_a_text + tasks * _A_PASS

    def _of_task(self, work: TaskWork, second_order: bool = False) -> float:
        passes = (1 + self._backward) * (2 if second_order else 1)
        seconds = (work.read + passes * work.learned) * self._seconds_a_text + (1 + work.steps) * _A_PASS
        if self._config.tunes_model and work.steps:
            moved = self._size.weights * (work.steps * _A_STEP_MOVES + _RESTORING_MOVES)
            seconds += moved / self._rate.bytes
        return seconds
