"""Every template with every verbalizer, ours and OpenPrompt's, forward and backward."""

from __future__ import annotations

import copy

import pytest
import torch
from openprompt.prompts import (
    AutomaticVerbalizer,
    KnowledgeableVerbalizer,
    ManualTemplate,
    MixedTemplate,
    One2oneVerbalizer,
    SoftTemplate,
    SoftVerbalizer,
)

from openprompt_meta.verbalizers.base import EpisodicVerbalizer
from openprompt_meta.verbalizers.manual import ManualVerbalizer
from openprompt_meta.verbalizers.proto import ProtoVerbalizer
from openprompt_meta.verbalizers.rep import RepVerbalizer
from openprompt_meta.verbalizers.warp import DartVerbalizer, WarpVerbalizer
from tests.helpers.prompts import CLASSES, WORDS, batch_of, classifier, close, pool_template, snapshot

pytestmark = pytest.mark.prompts

PLAIN = '{"placeholder": "text_a"} topic is {"mask"}.'
TEMPLATES = {
    "pool": lambda mlm: pool_template(mlm),
    "pool, top 2": lambda mlm: pool_template(mlm, top_n=2),
    "manual": lambda mlm: ManualTemplate(mlm.tokenizer, PLAIN),
    "mixed": lambda mlm: MixedTemplate(mlm.model, mlm.tokenizer, '{"soft": "about"} ' + PLAIN),
    # Reads logits at the right place, hidden states at the wrong one: see test_pool_template.
    "soft": lambda mlm: SoftTemplate(mlm.model, mlm.tokenizer, PLAIN, num_tokens=3),
}


def _of(kind, **options):
    return lambda mlm: kind(mlm.tokenizer, mlm.model, CLASSES, label_words=WORDS, **options)


OURS = {
    "rep": _of(RepVerbalizer),
    "rep, euclidean, centred": _of(RepVerbalizer, similarity="euclidean", centring="support"),
    "rep, mixed": _of(RepVerbalizer, mix_lambda=0.5),
    "warp": _of(WarpVerbalizer),
    "warp, mixed": _of(WarpVerbalizer, mix_lambda=0.5),
    "dart": _of(DartVerbalizer),
    "proto": _of(ProtoVerbalizer, multi_verb="proto"),
    "proto, mixed": _of(ProtoVerbalizer, mix_lambda=0.5),
    "proto, ensemble": _of(ProtoVerbalizer),
    "manual": lambda mlm: ManualVerbalizer(mlm.tokenizer, CLASSES, label_words=WORDS),
    "manual, probabilities": lambda mlm: ManualVerbalizer(
        mlm.tokenizer, CLASSES, label_words=WORDS, aggregation="probabilities"
    ),
}


def _knowledgeable(mlm):
    verbalizer = KnowledgeableVerbalizer(mlm.tokenizer, CLASSES)
    verbalizer.label_words = copy.deepcopy(WORDS)  # its constructor fails if it is given any
    return verbalizer


def _one2one(mlm):
    return One2oneVerbalizer(mlm.tokenizer, classes=CLASSES, label_words={c: WORDS[c][0] for c in CLASSES})


THEIRS = {
    "soft": _of(SoftVerbalizer),
    "automatic": lambda mlm: AutomaticVerbalizer(mlm.tokenizer, num_candidates=20, classes=CLASSES),
    "knowledgeable": _knowledgeable,
    "one2one": _one2one,
}


@pytest.fixture(params=["bert", "roberta", "mpnet"])
def mlm(request, tiny):
    return tiny(request.param)


@pytest.mark.parametrize("template_name", TEMPLATES)
@pytest.mark.parametrize("verbalizer_name", OURS)
def test_our_verbalizers_learn_with_every_template(mlm, template_name, verbalizer_name):
    torch.manual_seed(0)
    template, verbalizer = TEMPLATES[template_name](mlm), OURS[verbalizer_name](mlm)
    model = classifier(mlm, template, verbalizer, plm_eval_mode=True)
    batch = batch_of(mlm, template)
    before = snapshot(batch)
    if isinstance(verbalizer, ProtoVerbalizer):
        verbalizer.train_proto(model, [batch_of(mlm, template)])
    model.train()
    log_probabilities = model({**before})
    assert log_probabilities.shape == (6, 3)
    close(log_probabilities.exp().sum(dim=-1), [1.0] * 6, 1e-5)
    learners = [p for part in (template, verbalizer) for p in part.parameters() if p.requires_grad]
    prompts = [p for name, p in template.named_parameters() if p.requires_grad and "raw_embedding" not in name]
    if learners:
        torch.nn.functional.nll_loss(log_probabilities, batch["label"]).backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in learners)
        assert any(p.grad is not None and p.grad.abs().max() > 0 for p in learners)
    if prompts and template_name.startswith("pool"):
        assert all(p.grad.abs().max() > 0 for p in prompts)
    model.eval()
    assert model({**before}).isfinite().all()


@pytest.mark.parametrize("verbalizer_name", OURS)
def test_our_verbalizers_serve_one_task_after_another(mlm, verbalizer_name):
    verbalizer = OURS[verbalizer_name](mlm)
    assert isinstance(verbalizer, EpisodicVerbalizer)
    model = classifier(mlm, pool_template(mlm), verbalizer).eval()
    batch = batch_of(mlm, model.template)
    outputs = model.prompt_model(batch)
    features, logits = (model.extract_at_mask(part, batch) for part in (outputs.hidden_states[-1], outputs.logits))
    for classes, labels in ((CLASSES, [0, 1, 2, 0, 1, 2]), (CLASSES[:2], [0, 1, 1, 0, 1, 0])):
        verbalizer.begin_task(classes, WORDS)
        verbalizer.fit_support(features, logits if verbalizer.needs_vocabulary_head else None, torch.tensor(labels))
        found = model(batch)
        assert found.shape == (6, len(classes))
        close(found.exp().sum(dim=-1), [1.0] * 6, 1e-5)
        head = logits if verbalizer.needs_vocabulary_head else None
        close(verbalizer.log_probabilities(features, head), found.detach(), 1e-5)


@pytest.mark.parametrize("verbalizer_name", THEIRS)
def test_openprompts_verbalizers_keep_working_with_our_template(mlm, verbalizer_name):
    template, verbalizer = pool_template(mlm), THEIRS[verbalizer_name](mlm)
    model = classifier(mlm, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    batch = batch_of(mlm, template)
    if verbalizer_name == "automatic":
        model.train()
        with torch.no_grad():
            model(batch)  # shows it the training set
        verbalizer.optimize_to_initialize()
    scores = model(batch)
    assert scores.shape == (6, 3)
    torch.nn.functional.cross_entropy(scores, batch["label"]).backward()
    for parameter in template.parameters():
        assert parameter.grad.isfinite().all()
        assert parameter.grad.abs().max() > 0


def test_openprompts_soft_verbalizer_reads_the_masks_hidden_state(tiny):
    mlm = tiny("bert")
    template, verbalizer = pool_template(mlm), THEIRS["soft"](mlm)
    model = classifier(mlm, template, verbalizer).eval()
    batch = batch_of(mlm, template)
    inputs = template.process_batch(batch)
    hidden = mlm.model(
        inputs_embeds=inputs["inputs_embeds"], attention_mask=batch["attention_mask"], output_hidden_states=True
    ).hidden_states[-1]
    at_mask = hidden[torch.arange(6), (batch["loss_ids"] > 0).long().argmax(dim=1)]
    close(model(batch), verbalizer.head(at_mask).detach(), 1e-6)
