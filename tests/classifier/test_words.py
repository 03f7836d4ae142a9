"""Classes known by their words: names as examples, and no example at all."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from openprompt_meta import MetaPromptClassifier, PromptPoolTemplate, load_mlm
from openprompt_meta.encoder.wrapping import wrap_texts
from openprompt_meta.errors import DataError
from openprompt_meta.runs.run import Run
from tests.helpers.few_texts import LABELS, TEXTS
from tests.helpers.small_runs import small_config, write_data

WORDS = {"weather": ["rain", "storm"], "sport": ["game", "goal"], "food": ["soup"]}


@pytest.fixture(scope="module")
def run(tiny_mlm_folder: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("names")
    config = small_config(tiny_mlm_folder("bert"), write_data(folder / "data")).with_values(
        {"rep_verbalizer.name_weight": 2.0, "prompt_pool_template.features": "mean", "meta.iterations": 2}
    )
    assert Run(config, folder / "run", show_progress=False).train() is not None
    return folder / "run"


def test_without_an_example_a_text_is_compared_with_the_words(run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run).fit([], [], label_words=WORDS, classes=list(WORDS))
    assert list(classifier.classes_) == sorted(WORDS)
    probabilities = classifier.predict_proba(TEXTS)
    # The same as one example a class whose text is the words, compared by the same pool without a step.
    names = [", ".join(WORDS[name]) for name in sorted(WORDS)]
    words = MetaPromptClassifier.from_run(run, inner_steps=0).fit(names, sorted(WORDS), label_words=WORDS)
    features = words.task_.adapted.features
    asked = MetaPromptClassifier.from_run(run, inner_steps=0).fit([*TEXTS, "one more"], [*LABELS, LABELS[0]])
    texts = asked.task_.adapted.features[: len(TEXTS)]
    expected = (10 * F.normalize(texts, dim=-1) @ F.normalize(features, dim=-1).T).softmax(dim=-1)
    assert torch.allclose(torch.from_numpy(probabilities), expected, atol=1e-5)


def test_a_class_may_lack_examples_and_get_them_later(run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run)
    classifier.fit(TEXTS, LABELS, classes=[*sorted(set(LABELS)), "opera"])
    assert "opera" in classifier.classes_
    assert classifier.task_.counts[list(classifier.classes_).index("opera")] == 0
    classifier.partial_fit(["an aria in the evening"], ["opera"])
    assert classifier.task_.counts[list(classifier.classes_).index("opera")] == 1
    only = MetaPromptClassifier.from_run(run).fit([], [], classes=["weather", "opera"])
    before = only.predict_proba(TEXTS)
    only.partial_fit(["rain"], ["weather"])
    assert list(only.classes_) == ["opera", "weather"]
    assert only.task_.counts == [0, 1]
    assert not (only.predict_proba(TEXTS) == before).all()


def test_a_classifier_without_examples_is_saved_and_loaded(run: Path, tmp_path: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run).fit([], [], label_words=WORDS, classes=list(WORDS))
    classifier.save_pretrained(tmp_path / "zero")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "zero")
    assert (loaded.predict_proba(TEXTS) == classifier.predict_proba(TEXTS)).all()
    assert loaded.explain(TEXTS[0]).nearest_examples == ()


def test_words_given_change_what_a_class_is(run: Path) -> None:
    one = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS)
    words = {label: ["thunder"] for label in set(LABELS)} | {LABELS[0]: ["a goal in the rain"]}
    two = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, label_words=words)
    assert not (one.predict_proba(TEXTS) == two.predict_proba(TEXTS)).all()


def test_classes_without_examples_need_a_verbalizer_that_reads_words(tiny_run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(tiny_run)
    with pytest.raises(DataError, match=r"There is no example of \['opera'\]"):
        classifier.fit(TEXTS, LABELS, classes=[*set(LABELS), "opera"])
    with pytest.raises(DataError, match="are not among the classes"):
        classifier.fit(TEXTS, LABELS, classes=["opera", "weather"])


def test_what_makes_no_classes_is_refused_in_a_sentence(run: Path) -> None:
    classifier = MetaPromptClassifier.from_run(run)
    with pytest.raises(DataError, match="at least two classes"):
        classifier.fit([], [], classes=["weather"])
    with pytest.raises(DataError, match="at least two classes"):
        classifier.fit([], [], classes=[])
    with pytest.raises(DataError, match=r"Of the classes \[0, 1\] there is no example, and their names say nothing"):
        classifier.fit(None, None, classes=[0, 1])
    with pytest.raises(DataError, match=r"Of the classes \['label_b'\] there is no example"):
        classifier.fit(["rain"], ["weather"], classes=["weather", "label_b"])
    classifier.fit(None, None, classes=[0, 1], label_descriptions={0: "rain and storm", 1: "goals and games"})
    with pytest.raises(DataError, match="mixed type"):
        classifier.partial_fit(["rain", "sun"], ["a", "b"])


def test_a_name_that_says_nothing_is_left_out(run: Path) -> None:
    numbered = {label: i for i, label in enumerate(sorted(set(LABELS)))}
    by_number = MetaPromptClassifier.from_run(run, inner_steps=0).fit(TEXTS, [numbered[label] for label in LABELS])
    features, labels = by_number.task_.adapted.features, torch.tensor([numbered[label] for label in LABELS])
    means = torch.stack([features[labels == i].mean(dim=0) for i in range(len(numbered))])
    expected = (10 * F.normalize(features, dim=-1) @ F.normalize(means, dim=-1).T).softmax(dim=-1)
    assert torch.allclose(torch.from_numpy(by_number.predict_proba(TEXTS)), expected, atol=1e-5)
    by_name = MetaPromptClassifier.from_run(run, inner_steps=0).fit(TEXTS, LABELS)
    assert not torch.allclose(torch.from_numpy(by_name.predict_proba(TEXTS)), expected, atol=1e-3)


def test_some_classes_may_have_names_and_others_none(run: Path, tmp_path: Path) -> None:
    first = sorted(set(LABELS))[0]
    labels = ["label_a" if label == first else label for label in LABELS]
    classifier = MetaPromptClassifier.from_run(run, inner_steps=0).fit(TEXTS, labels)
    features = classifier.task_.adapted.features
    place = list(classifier.classes_).index("label_a")
    own = torch.tensor([label == "label_a" for label in labels])
    found = classifier.task_.adapted.verbalizer["name_features"]
    assert bool((found[place] == 0).all())
    assert bool((found[torch.arange(len(found)) != place] != 0).any(dim=1).all())
    mean = features[own].mean(dim=0)
    asked = torch.from_numpy(classifier.predict_proba(TEXTS))
    cosine = F.cosine_similarity(features, mean.unsqueeze(0))
    assert torch.corrcoef(torch.stack([asked[:, place].log(), cosine]))[0, 1] > 0.5
    classifier.save_pretrained(tmp_path / "some")
    assert (MetaPromptClassifier.from_pretrained(tmp_path / "some").predict_proba(TEXTS) == asked.numpy()).all()


def test_a_sentence_says_what_a_class_is(run: Path) -> None:
    described = {label: f"people who speak of {label}" for label in set(LABELS)}
    one = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, label_descriptions=described)
    two = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, label_words=described)
    assert (one.predict_proba(TEXTS) == two.predict_proba(TEXTS)).all()
    some = dict(list(described.items())[:1])
    three = MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, label_descriptions=some)
    assert not (three.predict_proba(TEXTS) == one.predict_proba(TEXTS)).all()
    for given, message in (
        ({"label_words": described, "label_descriptions": described}, "have both"),
        ({"label_descriptions": {"nowhere": "a place"}}, "which are no classes"),
        ({"label_descriptions": ["a", "b"]}, "no mapping"),
        ({"label_descriptions": {LABELS[0]: 3}}, "no mapping"),
    ):
        with pytest.raises(DataError, match=message):
            MetaPromptClassifier.from_run(run).fit(TEXTS, LABELS, **given)  # type: ignore[arg-type]


def test_an_explanation_shows_what_the_words_give(run: Path) -> None:
    words = MetaPromptClassifier.from_run(run, mix_lambda=None).fit(TEXTS, LABELS).explain(TEXTS[0])
    assert all(one.hand_crafted is None for one in words.classes)


@pytest.mark.parametrize("attention", [{"attention": "cosine", "keys": "kmeans"}, {"attention_temperature": 0.5}])
def test_a_pool_with_another_attention_is_saved_and_loaded(
    attention: dict[str, object],
    tiny_mlm_folder: Callable[[str], Path],
    tmp_path: Path,
) -> None:
    keys = {f"prompt_pool_template.{name}": value for name, value in attention.items()}
    config = (
        small_config(tiny_mlm_folder("bert"), write_data(tmp_path / "data"))
        .with_values(
            {**keys, "meta.iterations": 2, "rep_verbalizer.mix_lambda": 0.5, "rep_verbalizer.learn": ["mix_lambda"]}
        )
        .with_values({"rep_verbalizer.words_read_by": "encoder"})
    )
    assert Run(config, tmp_path / "run", show_progress=False).train() is not None
    classifier = MetaPromptClassifier.from_run(tmp_path / "run").fit(TEXTS, LABELS)
    classifier.save_pretrained(tmp_path / "saved")
    loaded = MetaPromptClassifier.from_pretrained(tmp_path / "saved")
    assert (loaded.predict_proba(TEXTS) == classifier.predict_proba(TEXTS)).all()
    assert all(one.hand_crafted is not None for one in loaded.explain(TEXTS[0]).classes)
    base = load_mlm(tiny_mlm_folder("bert"))
    template = PromptPoolTemplate.from_pretrained(tmp_path / "saved", base.model, base.tokenizer)
    expected = loaded.explain(TEXTS[0]).attention
    batch = wrap_texts([TEXTS[0]], template, base.wrapper(tokenizer=base.tokenizer, max_seq_length=48)).batch([0])
    assert torch.allclose(template.attention_weights(batch)[0], torch.tensor(expected), atol=1e-6)
    # The caller's λ goes before the one that was learned.
    assert (
        MetaPromptClassifier.from_run(tmp_path / "run", mix_lambda=0.2).meta_learned.config.rep_verbalizer.mix_lambda
        == 0.2
    )
