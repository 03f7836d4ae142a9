"""The flow of OpenPrompt's tutorials 0 and 1.1 to 1.4, written anew in a few lines each, as it is and with our parts.

Each tutorial runs with OpenPrompt's own template and verbalizer, with our template, with our verbalizer, and with
both. What they ask of the parts along the way (ids of label words, logits made classes, parameter groups, files,
calibration) stands here as they ask for it; only the texts and the language model are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from openprompt import PromptDataLoader, PromptForClassification
from openprompt.prompts import ManualTemplate, ManualVerbalizer, MixedTemplate, SoftTemplate, SoftVerbalizer
from openprompt.utils.calibrate import calibrate

import openprompt_meta
from openprompt_meta.encoder.loading import LoadedMLM
from tests.helpers.prompts import CLASSES, WORDS, close, examples

pytestmark = pytest.mark.prompts

LABEL_WORDS = [WORDS[name] for name in CLASSES]
PARTS = [(False, False), (True, False), (False, True), (True, True)]


class Tutorial:
    """What the tutorials share: their data loaders, their training loop and their evaluation."""

    def __init__(self, mlm: LoadedMLM, template: Any, verbalizer: Any, **options: Any) -> None:
        self.mlm, self.template, self.verbalizer = mlm, template, verbalizer
        self.model = PromptForClassification(mlm.model, template, verbalizer, **options)

    def loader(self, data: list[Any], shuffle: bool) -> PromptDataLoader:
        return PromptDataLoader(
            dataset=data,
            template=self.template,
            tokenizer=self.mlm.tokenizer,
            tokenizer_wrapper_class=self.mlm.wrapper,
            max_seq_length=48,
            decoder_max_length=3,
            batch_size=4,
            shuffle=shuffle,
            teacher_forcing=False,
            predict_eos_token=False,
            truncate_method="head",
        )

    def train(self, *optimizers: torch.optim.Optimizer, epochs: int = 2) -> list[float]:
        losses = []
        for _ in range(epochs):
            for batch in self.loader(examples(), shuffle=True):
                loss = torch.nn.functional.cross_entropy(self.model(batch), batch["label"])
                if loss.requires_grad:
                    loss.backward()
                losses.append(loss.item())
                for optimizer in optimizers:
                    optimizer.step()
                    optimizer.zero_grad()
        return losses

    @torch.no_grad()
    def predictions(self) -> list[int]:
        self.model.eval()
        found: list[int] = []
        for batch in self.loader(examples(), shuffle=False):
            found += self.model(batch).argmax(dim=-1).tolist()
        return found

    def weights(self) -> list[dict[str, Any]]:
        """The language model's parameters in two groups, with and without decay."""
        spared = ("bias", "LayerNorm.weight")
        named = list(self.model.plm.named_parameters())
        return [
            {"params": [p for n, p in named if not n.endswith(spared)], "weight_decay": 0.01},
            {"params": [p for n, p in named if n.endswith(spared)], "weight_decay": 0.0},
        ]


def adamw(groups: Any, lr: float = 1e-3) -> torch.optim.Optimizer:
    from transformers import AdamW  # as the tutorials have it

    made: torch.optim.Optimizer = AdamW(groups, lr=lr)
    return made


@pytest.fixture
def mlm(tiny: Callable[[str], LoadedMLM]) -> LoadedMLM:
    torch.manual_seed(0)
    return tiny("bert")


def worked(tutorial: Tutorial, losses: list[float]) -> None:
    assert all(math.isfinite(loss) for loss in losses)
    found = tutorial.predictions()
    assert len(found) == 6
    assert set(found) <= {0, 1, 2}


@pytest.mark.parametrize(("ours_template", "ours_verbalizer"), PARTS)
def test_0_basic(mlm: LoadedMLM, ours_template: bool, ours_verbalizer: bool, capsys: Any) -> None:
    text = '{"placeholder":"text_a"} Question: {"placeholder":"text_b"}? Is it correct? {"mask"}.'
    if ours_template:
        template: Any = openprompt_meta.PromptPoolTemplate(mlm.model, mlm.tokenizer, text, seed=0)
    else:
        template = ManualTemplate(tokenizer=mlm.tokenizer, text=text)
    print(template.wrap_one_example(examples()[0]))
    if ours_verbalizer:
        verbalizer: Any = openprompt_meta.RepVerbalizer(
            mlm.tokenizer, mlm.model, num_classes=3, label_words=LABEL_WORDS
        )
    else:
        verbalizer = ManualVerbalizer(mlm.tokenizer, num_classes=3, label_words=LABEL_WORDS)
    stock = ManualVerbalizer(mlm.tokenizer, num_classes=3, label_words=LABEL_WORDS)
    assert verbalizer.label_words_ids.tolist() == stock.label_words_ids.tolist()
    assert verbalizer.label_words == stock.label_words
    logits = torch.randn(2, len(mlm.tokenizer))
    close(verbalizer.process_logits(logits).softmax(-1), stock.process_logits(logits).softmax(-1), 1e-5)
    tutorial = Tutorial(mlm, template, verbalizer, freeze_plm=False)
    worked(tutorial, tutorial.train(adamw([{"params": [p for p in tutorial.model.parameters() if p.requires_grad]}])))


@pytest.mark.parametrize(("ours_template", "ours_verbalizer"), PARTS)
def test_1_1_mixed_template(mlm: LoadedMLM, ours_template: bool, ours_verbalizer: bool) -> None:
    make = openprompt_meta.PromptPoolTemplate if ours_template else MixedTemplate
    with_words = '{"placeholder":"text_a"} {"soft": "Question:"} {"placeholder":"text_b"}? Is it correct? {"mask"}.'
    make(model=mlm.model, tokenizer=mlm.tokenizer, text=with_words)
    text = '{"placeholder":"text_a"} {"soft"} {"soft"} {"soft"} {"placeholder":"text_b"} {"soft"} {"mask"}.'
    template: Any = make(model=mlm.model, tokenizer=mlm.tokenizer, text=text)
    if ours_verbalizer:
        verbalizer: Any = openprompt_meta.RepVerbalizer(
            mlm.tokenizer, mlm.model, num_classes=3, label_words=LABEL_WORDS
        )
    else:
        verbalizer = ManualVerbalizer(mlm.tokenizer, num_classes=3, label_words=LABEL_WORDS)
    verbalizer.process_logits(torch.randn(2, len(mlm.tokenizer)))
    tutorial = Tutorial(mlm, template, verbalizer, freeze_plm=False)
    learned = {n: p for n, p in template.named_parameters() if "raw_embedding" not in n}
    before = {n: p.detach().clone() for n, p in learned.items()}
    worked(tutorial, tutorial.train(adamw(tutorial.weights()), adamw([{"params": list(learned.values())}])))
    assert all(not torch.equal(before[n], p) for n, p in learned.items())


@pytest.mark.parametrize(("ours_template", "ours_verbalizer"), PARTS)
@pytest.mark.parametrize("name", ["RepVerbalizer", "WarpVerbalizer", "ProtoVerbalizer", "AdaptiveVerbalizer"])
def test_1_2_soft_verbalizers(mlm: LoadedMLM, ours_template: bool, ours_verbalizer: bool, name: str) -> None:
    text = '{"placeholder":"text_a"} {"placeholder":"text_b"} In this sentence, the topic is {"mask"}.'
    if ours_template:
        template: Any = openprompt_meta.PromptPoolTemplate(mlm.model, mlm.tokenizer, text, seed=0)
    else:
        template = ManualTemplate(tokenizer=mlm.tokenizer, text=text)
    make = getattr(openprompt_meta, name) if ours_verbalizer else SoftVerbalizer
    tutorial = Tutorial(mlm, template, make(mlm.tokenizer, mlm.model, num_classes=3), freeze_plm=False)
    verbalizer = tutorial.model.verbalizer
    groups = [
        {"params": verbalizer.group_parameters_1, "lr": 3e-5},
        {"params": verbalizer.group_parameters_2, "lr": 3e-4},
    ]
    if ours_verbalizer:
        own = {id(p) for p in verbalizer.parameters()}
        assert {id(p) for group in groups for p in group["params"]} == own
        assert bool(own) is (name in ("WarpVerbalizer", "ProtoVerbalizer"))
    worked(tutorial, tutorial.train(adamw(tutorial.weights(), lr=3e-5), adamw(groups)))


@pytest.mark.parametrize(("ours_template", "ours_verbalizer"), PARTS)
def test_1_3_calibration(mlm: LoadedMLM, ours_template: bool, ours_verbalizer: bool, tmp_path: Path) -> None:
    lines = tmp_path / "manual_template.txt"
    lines.write_text('A {"mask"} news : {"placeholder": "text_a"} {"placeholder": "text_b"}\n', encoding="utf-8")
    words = tmp_path / "manual_verbalizer.txt"
    words.write_text("\n".join(",".join(own) for own in LABEL_WORDS) + "\n", encoding="utf-8")
    if ours_template:
        template: Any = openprompt_meta.PromptPoolTemplate(mlm.model, mlm.tokenizer, seed=0)
    else:
        template = ManualTemplate(tokenizer=mlm.tokenizer)
    template = template.from_file(str(lines), choice=0)
    make = openprompt_meta.ManualVerbalizer if ours_verbalizer else ManualVerbalizer
    verbalizer: Any = make(mlm.tokenizer, num_classes=3).from_file(str(words))
    tutorial = Tutorial(mlm, template, verbalizer, freeze_plm=False)
    support = examples()
    for example in support:
        example.label = -1
    logits = calibrate(tutorial.model, tutorial.loader(support, shuffle=False))
    tutorial.model.verbalizer.register_calibrate_logits(logits)
    assert [len(own) for own in tutorial.model.verbalizer.label_words] == [len(own) for own in LABEL_WORDS]
    worked(tutorial, [])


@pytest.mark.parametrize("ours_template", [False, True])
def test_1_3_calibration_of_a_verbalizer_that_reads_features(mlm: LoadedMLM, ours_template: bool) -> None:
    text = 'A {"mask"} news : {"placeholder": "text_a"} {"placeholder": "text_b"}'
    if ours_template:
        template: Any = openprompt_meta.PromptPoolTemplate(mlm.model, mlm.tokenizer, text, seed=0)
    else:
        template = ManualTemplate(tokenizer=mlm.tokenizer, text=text)
    verbalizer = openprompt_meta.RepVerbalizer(mlm.tokenizer, mlm.model, classes=CLASSES, name_weight=1.0)
    tutorial = Tutorial(mlm, template, verbalizer)
    openprompt_meta.read_names_with(tutorial.model.eval(), WORDS)
    batches = list(tutorial.loader(examples(), shuffle=False))
    with torch.no_grad():
        plain = torch.cat([tutorial.model(batch) for batch in batches])
        support = tutorial.loader(examples(), shuffle=False)
        mean = calibrate(tutorial.model, support)
        expected = verbalizer.log_probabilities(mean.unsqueeze(0), None)
        verbalizer.register_calibrate_logits(mean)
        calibrated = torch.cat([tutorial.model(batch) for batch in batches])
    ratio = plain.double().exp() / expected.double().exp()
    close(calibrated.exp(), ratio / ratio.sum(dim=-1, keepdim=True), 1e-5)


@pytest.mark.parametrize(("ours_template", "ours_verbalizer"), PARTS)
@pytest.mark.parametrize("choice", [0, 1])
def test_1_4_soft_template(
    mlm: LoadedMLM, ours_template: bool, ours_verbalizer: bool, choice: int, tmp_path: Path
) -> None:
    from transformers import get_constant_schedule_with_warmup
    from transformers.optimization import Adafactor

    # One with a lambda, as those of OpenPrompt's scripts for soft templates have it.
    lines = tmp_path / "soft_template.txt"
    lines.write_text(
        ' it : {"placeholder":"text_b","shortenable":False,"post_processing": lambda x:x+"."} is '
        '{"placeholder":"text_a"} {"mask"}\n {"placeholder":"text_a"} {"placeholder":"text_b"} {"mask"} .\n',
        encoding="utf-8",
    )
    words = tmp_path / "manual_verbalizer.txt"
    words.write_text("\n".join(",".join(own) for own in LABEL_WORDS) + "\n", encoding="utf-8")
    if ours_template:
        template: Any = openprompt_meta.PromptPoolTemplate(model=mlm.model, tokenizer=mlm.tokenizer)
    else:
        template = SoftTemplate(model=mlm.model, tokenizer=mlm.tokenizer, num_tokens=4, initialize_from_vocab=True)
    if not ours_template and choice == 0:
        lines.write_text(lines.read_text("utf-8").replace(',"post_processing": lambda x:x+"."', ""), encoding="utf-8")
    template = template.from_file(str(lines), choice=choice)
    if ours_verbalizer:
        verbalizer: Any = openprompt_meta.RepVerbalizer(mlm.tokenizer, mlm.model, classes=CLASSES)
    else:
        verbalizer = ManualVerbalizer(mlm.tokenizer, classes=CLASSES)
    verbalizer = verbalizer.from_file(str(words), choice=0)
    tutorial = Tutorial(mlm, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    assert 0 <= tutorial.loader(examples(), shuffle=True).tokenizer_wrapper.truncate_rate <= 1
    learned = [p for name, p in tutorial.model.template.named_parameters() if "raw_embedding" not in name]
    optimizer = Adafactor([{"params": learned}], lr=0.3, relative_step=False, scale_parameter=False, warmup_init=False)
    schedule = get_constant_schedule_with_warmup(optimizer, num_warmup_steps=0)
    tutorial.model.train()
    losses = tutorial.train(optimizer)
    torch.nn.utils.clip_grad_norm_(tutorial.model.parameters(), 1.0)
    schedule.step()
    torch.save(tutorial.model.state_dict(), tmp_path / "best.ckpt")
    worked(tutorial, losses)


def test_soft_tokens_are_those_of_openprompts_mixed_template(mlm: LoadedMLM) -> None:
    # With one prompt the pool is a soft prompt, so the whole text is one that MixedTemplate can say.
    soft = (
        '{"soft": "the rain"} {"placeholder": "text_a"} {"soft": None, "duplicate": 2} {"soft_id": 3, "soft": "is"} '
    )
    rest = '{"soft_id": 3} topic {"mask"}.'
    ours = openprompt_meta.PromptPoolTemplate(
        mlm.model, mlm.tokenizer, soft + rest + ' {"pool"}', num_prompts=1, prompt_length=2, seed=0
    )
    theirs = MixedTemplate(mlm.model, mlm.tokenizer, soft + rest + ' {"soft"} {"soft"}')
    assert ours.soft_tokens is not None
    words = mlm.tokenizer("the rain is", add_special_tokens=False)["input_ids"]
    embedding = mlm.model.get_input_embeddings().weight
    close(ours.soft_tokens[[0, 1, 4]], embedding[words].detach(), 0)
    close(theirs.soft_embedding.weight[[1, 2, 5]], embedding[words].detach(), 0)
    with torch.no_grad():
        theirs.soft_embedding.weight[1:6] = ours.soft_tokens
        theirs.soft_embedding.weight[6:] = ours.pool.prompts[0]
    results = []
    for template in (ours, theirs):
        verbalizer = ManualVerbalizer(mlm.tokenizer, num_classes=3, label_words=LABEL_WORDS)
        tutorial = Tutorial(mlm, template, verbalizer)
        tutorial.model.eval()
        results.append(torch.cat([tutorial.model(batch) for batch in tutorial.loader(examples(), shuffle=False)]))
    close(results[0], results[1].detach(), 1e-5)


def test_queries_leave_soft_tokens_out(mlm: LoadedMLM) -> None:
    plain = '{"placeholder": "text_a"} topic {"mask"}.'
    with_soft = '{"soft"} {"placeholder": "text_a"} {"soft": "rain"} topic {"mask"}.'
    queries = []
    for text in (plain, with_soft):
        template = openprompt_meta.PromptPoolTemplate(mlm.model, mlm.tokenizer, text, seed=0)
        verbalizer = ManualVerbalizer(mlm.tokenizer, num_classes=3, label_words=LABEL_WORDS)
        loader = Tutorial(mlm, template, verbalizer).loader(examples(), shuffle=False)
        queries.append(torch.cat([template.queries(batch) for batch in loader]))
    close(queries[0], queries[1].detach(), 1e-5)


def test_what_has_no_meaning_is_refused_in_words(mlm: LoadedMLM, tmp_path: Path) -> None:
    errors = openprompt_meta.OpenPromptMetaError
    rep = openprompt_meta.RepVerbalizer(mlm.tokenizer, mlm.model, num_classes=3)
    for ask in (lambda: rep.label_words_ids, lambda: rep.process_logits(torch.zeros(1, len(mlm.tokenizer)))):
        with pytest.raises(errors, match="was given no label words"):
            ask()
    with pytest.raises(errors, match="NameVerbalizer has the words of the classes read as texts"):
        _ = openprompt_meta.NameVerbalizer(classes=CLASSES).label_words_ids
    mixed = openprompt_meta.RepVerbalizer(mlm.tokenizer, mlm.model, classes=CLASSES, label_words=WORDS, mix_lambda=0.5)
    with pytest.raises(errors, match="only one of the two can be calibrated"):
        mixed.register_calibrate_logits(torch.zeros(32))
    template = openprompt_meta.PromptPoolTemplate(
        mlm.model, mlm.tokenizer, '{"placeholder": "text_a"} {"soft"} {"mask"}'
    )
    with pytest.raises(errors, match=r"no place for the tokens of .*state_dict"):
        template.save_pretrained(tmp_path)
    with pytest.raises(errors, match="as_prefix"):
        openprompt_meta.PromptPoolTemplate(
            mlm.model, mlm.tokenizer, '{"placeholder": "text_a"} {"soft"} {"mask"}', as_prefix=True
        )
