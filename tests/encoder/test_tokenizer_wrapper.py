"""Our tokenizer wrapper where OpenPrompt's own gives up."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from openprompt.data_utils import InputExample

from openprompt_meta.encoder.loading import LoadedMLM
from openprompt_meta.prompts.pool_template import PromptPoolTemplate

pytestmark = pytest.mark.prompts


@pytest.mark.parametrize("method", ["tail", "head", "balanced"])
@pytest.mark.parametrize("texts", [("rain " * 40, ""), ("", "rain " * 40), ("", ""), ("sun " * 20, "rain " * 40)])
def test_an_empty_text_may_stand_beside_one_that_must_be_cut(
    method: str, texts: tuple[str, str], tiny: Callable[[str], LoadedMLM]
) -> None:
    mlm = tiny("bert")
    text = '{"placeholder": "text_a"} {"pool"} {"placeholder": "text_b"} topic is {"mask"}.'
    template = PromptPoolTemplate(mlm.model, mlm.tokenizer, text, num_prompts=2, prompt_length=3)
    wrapper = mlm.wrapper(tokenizer=mlm.tokenizer, max_seq_length=24, truncate_method=method)
    wrapped = template.wrap_one_example(InputExample(guid="0", text_a=texts[0], text_b=texts[1]))
    features = wrapper.tokenize_one_example(wrapped, teacher_forcing=False)
    assert all(len(values) == 24 for values in features.values())
    assert [i for i in features["soft_token_ids"] if i > 0] == [1, 2, 3]
    mask = features["loss_ids"].index(1)
    assert features["input_ids"][mask] == mlm.tokenizer.mask_token_id
    assert sum(features["attention_mask"]) == min(24, 2 + 3 + 4 + sum(len(t.split()) for t in texts))
