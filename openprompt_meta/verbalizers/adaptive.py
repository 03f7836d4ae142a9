"""`AdaptiveVerbalizer`: a logistic regression around class means, or those alone where held-out examples say so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from openprompt_meta.errors import VerbalizerError
from openprompt_meta.prompts.label_words import LabelWords
from openprompt_meta.verbalizers.rep import RepVerbalizer

_FOLDS = 5
# Another head has to be better than the one before by this share of its negative log-likelihood, and by so many of the
# difference's standard errors: with few examples it is mostly chance.
_MARGIN = 0.005
_STANDARD_ERRORS = 1.0
# The temperature of predictions is looked for between these.
_SHARPNESS = (0.25, 4.0)
# Where nothing can be held out, a regression on one example a class is too careful by about this much: the best t was
# 2.5 to 4 on validation classes of six data sets.
_SHARPNESS_UNTRIED = 2.5
# Time and memory go with rows (support texts and names) times classes. Up to the first bound fits are in float64; up
# to the second all folds and strengths are tried: 150 classes of 20 examples take 3 s on one core. Beyond it the
# smallest strength is compared with none on two folds: 1000 classes of 5 take 5 s. Beyond the last, where it would be
# a quarter of a minute and half a gigabyte, class means stay as they are.
_DOUBLE_PRECISION_UP_TO = 10_000
_EVERYTHING_UP_TO = 500_000
_CORRECTED_UP_TO = 20_000_000

_BUFFERS = ("weight", "bias", "sharpness", "choice_numbers")


# -- What was chosen, and why -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HeadCandidate:
    """One head, tried on held-out examples; every class counts the same, however many it has.

    Attributes:
        strength: C of its correction; ``None`` for class means as they are.
        accuracy: share of held-out examples that it has right.
        nll: their mean negative log-likelihood at the best temperature.
        sharpness: that temperature, t.
    """

    strength: float | None
    accuracy: float
    nll: float
    sharpness: float

    def in_words(self) -> str:
        """Both figures: ``83.1 % (-log P 0.61)``."""
        return f"{100 * self.accuracy:.1f} % (-log P {self.nll:.2f})"


@dataclass(frozen=True)
class HeadChoice:
    """Which head a task has been given.

    Attributes:
        strength: C of the correction; ``None`` for class means as they are.
        examples: whether any class has examples.
        names: whether any class has a name that counts as examples.
        folds: of the cross-validation; 0 if nothing could be held out.
        held_out: how many examples were held out, each once.
        candidates: the heads that were tried, in their order; empty without cross-validation.
    """

    strength: float | None
    examples: bool
    names: bool
    folds: int
    held_out: int
    candidates: tuple[HeadCandidate, ...]

    def describe(self) -> str:
        """One plain sentence."""
        head = f"class means{' with names' if self.names else ''}" if self.examples else "names of the classes alone"
        if self.strength is not None:
            head = f"a logistic regression around {head} (C = {self.strength:g})"
        if not self.candidates:
            return f"{head}; no example could be held out to compare heads on"
        tried = {one.strength: one.in_words() for one in self.candidates}
        # Of heads that are right equally often, likelihood tells why one was taken.
        figures = f"{head}: {tried.pop(self.strength)} of held-out examples right"
        regression = "with" if self.strength is not None else "by a logistic regression around them,"
        others = [
            f"{found} {'by the means alone' if c is None else f'{regression} C = {c:g}'}" for c, found in tried.items()
        ]
        if not others:
            return figures
        best = min(one.nll for one in self.candidates)
        chosen = next(one.nll for one in self.candidates if one.strength == self.strength)
        by_chance = ", which may be chance" if best < chosen else ""
        return f"{figures}, against {' and '.join(others)}{by_chance}"

    def numbers(self) -> Tensor:
        """What :meth:`of_numbers` takes, ``[1 + candidates, 4]``, for a ``state_dict``."""
        rows = [[_or_zero(self.strength), self.examples + 2 * self.names, self.folds, self.held_out]]
        rows += [[_or_zero(one.strength), one.accuracy, one.nll, one.sharpness] for one in self.candidates]
        return torch.tensor(rows, dtype=torch.float32)

    @classmethod
    def of_numbers(cls, numbers: Tensor) -> HeadChoice:
        """The choice that :meth:`numbers` wrote down."""
        (strength, known_by, folds, held_out), *candidates = numbers.tolist()
        return cls(
            strength or None,
            bool(int(known_by) & 1),
            bool(int(known_by) & 2),
            int(folds),
            int(held_out),
            tuple(HeadCandidate(c or None, *figures) for c, *figures in candidates),
        )


def _or_zero(strength: float | None) -> float:
    return 0.0 if strength is None else strength


# -- The correction ---------------------------------------------------------------------------------------------------


def balanced_weights(labels: Tensor, weights: Tensor, num_classes: int) -> Tensor:
    """Weights ``[n]`` made so that every class counts the same in total, as much as classes do on average now."""
    totals = weights.new_zeros(num_classes).index_add(0, labels, weights)  # [C]
    balanced: Tensor = weights * totals[totals > 0].mean() / totals[labels]
    return balanced


def fit_correction(
    directions: Tensor, base: Tensor, labels: Tensor, weights: Tensor, strength: float
) -> tuple[Tensor, Tensor]:
    """W ``[C, d]`` and b ``[C]`` that minimise ½‖W‖² + C Σ_i a_i CE(base_i + W ĥ_i + b, y_i).

    Args:
        directions: ĥ, features of length one, ``[n, d]``.
        base: what there is to be corrected, ``[n, C]``.
        labels: y, ``[n]``.
        weights: a, ``[n]``.
        strength: C.
    """
    size = directions.shape[1]
    extended = torch.cat([directions, torch.ones_like(directions[:, :1])], dim=1)  # the last column is for b
    scale = (strength * weights).unsqueeze(1)
    own = labels.unsqueeze(1)
    both = torch.zeros(base.shape[1], size + 1, dtype=base.dtype, device=base.device)

    def objective() -> Tensor:
        log_probabilities = (base + extended @ both.T).log_softmax(dim=-1)
        loss = 0.5 * both[:, :size].square().sum() - (scale * log_probabilities.gather(1, own)).sum()
        slopes = log_probabilities.exp_()
        slopes.scatter_add_(1, own, -torch.ones_like(scale)).mul_(scale)  # [n, C]
        both.grad = slopes.T @ extended
        both.grad[:, :size] += both[:, :size]
        return loss

    precise = base.dtype == torch.float64
    optimiser = torch.optim.LBFGS(
        [both],
        max_iter=200 if precise else 50,
        tolerance_grad=1e-6 if precise else 1e-3,
        tolerance_change=1e-12 if precise else 1e-6,
        line_search_fn="strong_wolfe",
    )
    optimiser.step(objective)
    return both[:, :size], both[:, size]


# -- Trying heads on held-out examples --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Task:
    """Support texts, then the names there are: a name is an example of its class that weighs w.

    Attributes:
        features: ``[m, d]``.
        labels: ``[m]``.
        weights: ``[m]``.
        examples: how many of the rows are support texts.
        num_classes: C.
        temperature: ρ.
        anchor: what share of the class means' sharpness a correction keeps if nothing speaks for another.
    """

    features: Tensor
    labels: Tensor
    weights: Tensor
    examples: int
    num_classes: int
    temperature: float
    anchor: float

    @property
    def counts(self) -> Tensor:
        """Support texts of each class, ``[C]``."""
        return torch.bincount(self.labels[: self.examples], minlength=self.num_classes)

    def correction(self, strength: float, kept: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """W and b, fitted to the rows that are kept."""
        part = self if kept is None else self._part(kept)
        weights = balanced_weights(part.labels, part.weights, part.num_classes)
        anchored = self.anchor * part.base(part.directions)
        weight, bias = fit_correction(part.directions, anchored, part.labels, weights, strength)
        return weight - (1 - self.anchor) * self.temperature * part.means, bias

    @property
    def directions(self) -> Tensor:
        """Features of length one, ``[m, d]``."""
        return F.normalize(self.features, dim=-1)

    def base(self, directions: Tensor) -> Tensor:
        """``ρ cos(v, h)`` with the classes' means, ``[n, C]``."""
        return self.temperature * directions @ self.means.T

    @property
    def means(self) -> Tensor:
        """The classes' means, of length one, ``[C, d]``."""
        members = F.one_hot(self.labels, self.num_classes).to(self.features.dtype)
        return F.normalize((members * self.weights.unsqueeze(1)).T @ self.features, dim=-1)  # a sum points there too

    def _part(self, kept: Tensor) -> _Task:
        examples = int(kept[: self.examples].sum())
        return _Task(
            self.features[kept],
            self.labels[kept],
            self.weights[kept],
            examples,
            self.num_classes,
            self.temperature,
            self.anchor,
        )

    def folds(self, number: int) -> Tensor:
        """In which fold each row is held out, ``[m]``; -1 for names, which never are.

        The j-th example of a class is in fold j modulo ``number``. The only example of a class without a name stays
        with every training part, or nothing would be known of the class.
        """
        place = torch.full_like(self.labels, -1)
        for label in range(self.num_classes):
            rows = (self.labels == label).nonzero().flatten()
            own = rows[rows < self.examples]
            if len(rows) > 1:
                place[own] = torch.arange(len(own), device=own.device) % number
        return place

    def held_out_scores(self, strength: float | None, fold: Tensor, number: int) -> Tensor:
        """Scores ``[m, C]`` of each held-out row by the head that was made without its fold."""
        scores = self.features.new_zeros(len(self.labels), self.num_classes)
        for one in range(number):
            held = fold == one
            part = self._part(~held)
            directions = F.normalize(self.features[held], dim=-1)
            scores[held] = part.base(directions)
            if strength is not None:
                weight, bias = part.correction(strength)
                scores[held] += directions @ weight.T + bias
        return scores


def best_sharpness(scores: Tensor, labels: Tensor, weights: Tensor) -> tuple[float, float]:
    """The t within bounds that suits scores best, and the mean of -log softmax(t · scores) there.

    Where all of a few scores are right, they would be made as sharp as may be. So t is drawn towards 1 by log(t)² / n,
    as much as one score has to say. A golden-section search over log t finds the least of the two together.

    Args:
        scores: ``[n, C]``.
        labels: ``[n]``.
        weights: of the mean, ``[n]``.
    """

    def nll(logarithm: float) -> float:
        losses = F.cross_entropy(math.exp(logarithm) * scores, labels, reduction="none")
        return float((weights * losses).sum() / weights.sum())

    def objective(logarithm: float) -> float:
        return nll(logarithm) + logarithm**2 / len(labels)

    ratio = (math.sqrt(5) - 1) / 2
    low, high = (math.log(bound) for bound in _SHARPNESS)
    left, right = high - ratio * (high - low), low + ratio * (high - low)
    at_left, at_right = objective(left), objective(right)
    while high - low > 1e-4:
        if at_left <= at_right:
            high, right, at_right = right, left, at_left
            left = high - ratio * (high - low)
            at_left = objective(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + ratio * (high - low)
            at_right = objective(right)
    return math.exp((low + high) / 2), nll((low + high) / 2)


def _choose(task: _Task, names: bool, strengths: Sequence[float], default: float | None) -> HeadChoice:
    """Which head suits the task: by cross-validation, or by default where nothing can be held out."""
    counts = task.counts
    largest = int(counts.max())
    cells = len(task.labels) * task.num_classes
    if largest < 2 or cells > _CORRECTED_UP_TO:
        # Holding out the only example of a class would compare heads on classes known by names, not on these.
        corrects = names and bool((counts > 0).all()) and cells <= _CORRECTED_UP_TO
        return HeadChoice(default if corrects else None, largest > 0, names, 0, 0, ())
    everything = cells <= _EVERYTHING_UP_TO
    number = min(_FOLDS, largest) if everything else 2
    fold = task.folds(number)
    held = fold >= 0
    labels = task.labels[held]
    weights = balanced_weights(labels, torch.ones_like(task.weights[held]), task.num_classes)
    candidates = []
    losses = []
    tried = sorted(strengths)[: None if everything else 1]
    for strength in (*tried[:1], None, *tried[1:]):
        scores = task.held_out_scores(strength, fold, number)[held]
        sharpness, nll = best_sharpness(scores, labels, weights)
        right = (scores.argmax(dim=-1) == labels).to(weights.dtype)
        accuracy = float((weights * right).sum() / weights.sum())
        candidates.append(HeadCandidate(strength, accuracy, nll, sharpness))
        losses.append(F.cross_entropy(sharpness * scores, labels, reduction="none"))
    best = 0
    for other in range(1, len(candidates)):
        if _clearly_better(losses[other], losses[best], weights):
            best = other
    return HeadChoice(candidates[best].strength, True, names, number, int(held.sum()), tuple(candidates))


def _clearly_better(losses: Tensor, before: Tensor, weights: Tensor) -> bool:
    """Whether held-out losses ``[n]`` are below those of the head before by more than chance and a margin."""
    shares = weights / weights.sum()
    gains = before - losses
    gain = (shares * gains).sum()
    error = ((shares * (gains - gain)) ** 2).sum().sqrt()
    return bool(gain > _STANDARD_ERRORS * error and gain > _MARGIN * (shares * before).sum())


# -- The verbalizer ---------------------------------------------------------------------------------------------------


class AdaptiveVerbalizer(RepVerbalizer):
    """Class means as :class:`~openprompt_meta.RepVerbalizer` has them, and a logistic regression around them.

    Equations, with ĥ = h / |h| and v_y the class means, words included if they count::

        P(y | x) = softmax_y(t · (ρ · cos(v_y, h) + W_y · ĥ + b_y))
        W, b     = argmin ½‖W - W⁰‖² + C Σ_i a_i CE(ρ · cos(v, h_i) + W ĥ_i + b, y_i),   W⁰_y = -(1 - β) ρ v_y / |v_y|

    over the support texts and the classes' words, with a_i such that every class counts the same in total: a logistic
    regression that is drawn towards β of the class means. The smallest C of ``strengths`` is taken, unless the class
    means by themselves (W = 0, b = 0) or a larger C are clearly better in cross-validation on the support set, by the
    negative log-likelihood of what is held out, every class counting the same. t is what suits the held-out
    predictions best, drawn towards 1 where there are few; 2.5 for a regression where nothing can be held out.

    :meth:`fit_support` does this where gradients are off, as in evaluation. With gradients on, in meta-training, and
    in an ordinary OpenPrompt loop there is no correction and t is 1: a run learns as with ``RepVerbalizer`` and is
    evaluated with the corrected head. With ``meta.label_embeddings: last_inner_step`` the last fit is made in the
    inner loop, with gradients, so that evaluation has no correction either.

    Args:
        anchor: β, from 1 (the class means in full) to 0 (an ordinary logistic regression).
        strengths: each C that is tried; for large tasks (support texts and names times classes above 500,000) the
            smallest only. None of them: class means.
        default_strength: C where no example can be held out, for a class must keep one: with one example of each
            class, if words count as examples. ``None`` leaves class means as they are there.

    The other arguments are those of :class:`~openprompt_meta.RepVerbalizer`; a similarity other than cosine, centring
    and assignment rounds are refused, and ``leave_one_out`` is for the inner loop, as there.

    Raises:
        VerbalizerError: an option that does not go together with a correction, or a strength not above 0.
    """

    weight: Tensor | None  # W, [C, d_o]
    bias: Tensor | None  # b, [C]
    sharpness: Tensor | None  # t
    choice_numbers: Tensor | None  # HeadChoice.numbers()

    def __init__(
        self,
        tokenizer: Any = None,
        model: nn.Module | None = None,
        classes: Sequence[str] | None = None,
        num_classes: int | None = None,
        similarity: str = "cosine",
        temperature: float = 10.0,
        inner_temperature: float | None = None,
        centring: str = "none",
        name_weight: float = 0.0,
        leave_one_out: bool = False,
        assignment_rounds: int = 0,
        assignment_temperature: float = 20.0,
        decay: float = 1.0,
        mix_lambda: float = 1.0,
        label_words: LabelWords | None = None,
        aggregation: str = "logits",
        words_read_by: str = "head",
        learn: Sequence[str] = (),
        anchor: float = 0.3,
        strengths: Iterable[float] = (10.0,),
        default_strength: float | None = 10.0,
    ) -> None:
        super().__init__(
            tokenizer,
            model,
            classes,
            num_classes,
            similarity,
            temperature,
            inner_temperature,
            centring,
            name_weight,
            leave_one_out,
            assignment_rounds,
            assignment_temperature,
            decay,
            mix_lambda,
            label_words,
            aggregation,
            words_read_by,
            learn,
        )
        for key, value, only in (
            ("similarity", similarity, "cosine"),
            ("centring", centring, "none"),
            ("assignment_rounds", assignment_rounds, 0),
        ):
            if value != only:
                raise VerbalizerError(
                    f"AdaptiveVerbalizer corrects cosines with class means of the support set: {key} must be {only}, "
                    f"got {value!r}. Use RepVerbalizer."
                )
        if not 0 <= anchor <= 1:
            raise VerbalizerError(f"anchor (β) must lie between 0 and 1, got {anchor!r}.")
        self.anchor = float(anchor)
        self.strengths = tuple(float(strength) for strength in strengths)
        given = (*self.strengths, *([] if default_strength is None else [default_strength]))
        if not all(0 < strength < math.inf for strength in given) or len(set(self.strengths)) < len(self.strengths):
            raise VerbalizerError(
                "strengths and default_strength (C) must be above 0 and no strength given twice, got "
                f"{list(self.strengths)} and {default_strength!r}."
            )
        self.default_strength = None if default_strength is None else float(default_strength)
        for name in _BUFFERS:
            self.register_buffer(name, None)

    @property
    def choice(self) -> HeadChoice | None:
        """Which head was chosen; ``None`` if none was to be, with gradients on."""
        return None if self.choice_numbers is None else HeadChoice.of_numbers(self.choice_numbers)

    def describe(self) -> str:
        """Which head it has and why, in a sentence."""
        choice = self.choice
        return "class means; a correction is fitted where gradients are off" if choice is None else choice.describe()

    def begin_task(self, classes: Sequence[str], label_words: LabelWords | None = None) -> None:
        """Forget label embeddings and correction, and take these classes."""
        super().begin_task(classes, label_words)
        self._forget_correction()

    def fit_support(self, features: Tensor, logits: Tensor | None, labels: Tensor) -> None:
        """Average the support set's features by class; with gradients off, choose and fit a correction as well."""
        super().fit_support(features, logits, labels)
        self._forget_correction()
        if not torch.is_grad_enabled():
            self._correct(features)

    def soft_log_probabilities(self, features: Tensor) -> Tensor:
        """``softmax(t · (ρ cos + W ĥ + b))`` in log space, ``[B, C]``."""
        if self.choice_numbers is None:
            return super().soft_log_probabilities(features)
        sums, counts = self._statistics()
        scores = self._scores(features, sums, counts, self._centre(features, sums, counts), self.temperature)
        if self.weight is not None and self.bias is not None:
            scores = scores + F.normalize(features, dim=-1) @ self.weight.T + self.bias
        if self.sharpness is not None:
            scores = self.sharpness * scores
        return scores.log_softmax(dim=-1)

    def _correct(self, features: Tensor) -> None:
        task, names = self._rows(features.detach())
        choice = _choose(task, names, self.strengths, self.default_strength)
        self.choice_numbers = choice.numbers().to(features.device)
        if choice.strength is not None:
            weight, bias = task.correction(choice.strength)
            self.weight, self.bias = weight.to(features.dtype).contiguous(), bias.to(features.dtype).contiguous()
        if choice.candidates:
            chosen = next(one for one in choice.candidates if one.strength == choice.strength)
            self.sharpness = features.new_tensor(chosen.sharpness)
        elif choice.strength is not None:
            self.sharpness = features.new_tensor(_SHARPNESS_UNTRIED)

    def _rows(self, features: Tensor) -> tuple[_Task, bool]:
        """The support set and the names that count as examples, and whether there are any of these."""
        labels = self._support_labels
        assert labels is not None  # noqa: S101 - for the type checker
        number = self._number_of_classes()
        weights = features.new_ones(len(labels))
        named = features.new_zeros(0, dtype=torch.long)
        if self.uses_names and self.name_features is not None:
            named = self.name_features.any(dim=-1).nonzero().flatten()
            features = torch.cat([features, self.name_features[named]])
            weights = torch.cat([weights, weights.new_full((len(named),), float(self.name_weight))])
        # Apple's graphics processors have no float64.
        doubles = len(features) * number <= _DOUBLE_PRECISION_UP_TO and features.device.type != "mps"
        precision = torch.float64 if doubles else torch.float32
        task = _Task(
            features.to(precision),
            torch.cat([labels, named]),
            weights.to(precision),
            len(labels),
            number,
            float(self.temperature),
            self.anchor,
        )
        return task, len(named) > 0

    def _observe(self, features: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self._forget_correction()  # of class means that this replaces
        return super()._observe(features, labels)

    def _forget_correction(self) -> None:
        for name in _BUFFERS:
            setattr(self, name, None)

    def _load_from_state_dict(self, state_dict: Mapping[str, Any], prefix: str, *args: Any) -> None:
        for name in _BUFFERS:
            saved = state_dict.get(prefix + name)
            setattr(self, name, None if saved is None else torch.empty_like(saved))
        super()._load_from_state_dict(state_dict, prefix, *args)
