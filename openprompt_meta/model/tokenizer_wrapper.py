"""OpenPrompt's tokenizer wrapper for masked language models, for every tokenizer and for empty texts."""

from __future__ import annotations

from typing import Any

from openprompt.plms.mlm import MLMTokenizerWrapper

from openprompt_meta.compat.tokenization import add_special_tokens

__all__ = ["MaskedLMTokenizerWrapper"]


class MaskedLMTokenizerWrapper(MLMTokenizerWrapper):
    """``MLMTokenizerWrapper`` that also works with fast tokenizers; the same features for slow ones."""

    add_special_tokens = add_special_tokens

    # The arguments by name: OpenPrompt's data loader hands over those that it finds in the signature.
    def __init__(
        self,
        max_seq_length: int,
        tokenizer: Any,
        truncate_method: str = "tail",
        create_token_type_ids: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            max_seq_length=max_seq_length,
            tokenizer=tokenizer,
            truncate_method=truncate_method,
            create_token_type_ids=create_token_type_ids,
            **kwargs,
        )
        _allow_long_texts(tokenizer)

    def truncate(self, encoder_inputs: dict[str, list[list[int]]]) -> dict[str, Any]:
        """OpenPrompt's, without the parts that have no token: two of its methods look at the first one of each."""
        full = [i for i, part in enumerate(encoder_inputs["input_ids"]) if part]
        kept = {key: [parts[i] for i in full] for key, parts in encoder_inputs.items()}
        cut: dict[str, Any] = super().truncate(kept)
        return cut


def _allow_long_texts(tokenizer: Any) -> None:
    """Keep transformers from warning of texts that are longer than the model takes: the wrapper cuts them."""
    warned = getattr(tokenizer, "deprecation_warnings", None)
    if isinstance(warned, dict):
        warned["sequence-length-is-longer-than-the-specified-maximum"] = True
