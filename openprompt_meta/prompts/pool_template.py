"""`PromptPoolTemplate`: OpenPrompt's soft template with a pool in place of one prompt; and one of words alone."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from openprompt.data_utils import InputExample
from openprompt.prompts import SoftTemplate
from torch import Tensor, nn

from openprompt_meta.compat.bridge import refuse_unknown_keys
from openprompt_meta.config.template_text import Piece, check_pieces, has_soft_tokens, parse_template_text
from openprompt_meta.errors import TemplateError
from openprompt_meta.pools import GENERAL
from openprompt_meta.prompts.label_words import LabelWords, flatten_label_words, token_ids_of_words
from openprompt_meta.prompts.pool import PromptPool
from openprompt_meta.prompts.pool_files import (
    DESCRIBED,
    READ_BY,
    read_pool_config,
    read_pool_weights,
    write_pool_files,
)
from openprompt_meta.prompts.pooling import (
    QUERIES,
    Features,
    FeaturesInPlaceOfMask,
    Query,
    feature_size,
    query_size,
    suited_features,
)
from openprompt_meta.prompts.prefix import check_takes_prefix, first_position, position_table, prefix_inputs
from openprompt_meta.prompts.query import ModelReference, QueryFunction

logger = logging.getLogger(__name__)

# -- `PromptPoolTemplate`: OpenPrompt's soft template with an attention-weighted pool in place of one prompt ----------

INITIALISATIONS = ("label_words", "vocab", "random", "general")
KEYS = ("normal", "kmeans")
# What the encoder may be given besides input_ids, cut to the text without the pool for the query.
_ALONGSIDE = ("attention_mask", "token_type_ids")


class PromptPoolTemplate(SoftTemplate):
    """A template whose soft prompt depends on the text: a weighted mean of the prompts of a pool.

    The text language is OpenPrompt's with one more piece: ``{"pool"}`` marks where the prompt goes, the front if
    it is absent. The paper's layout is ``{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.`` ``{"soft"}`` is
    what it is in OpenPrompt's ``MixedTemplate``: a token with an embedding of its own, the same for every text, in
    :attr:`soft_tokens`. The query of a text is computed without the pool and without them.

    The prompt takes ``prompt_length`` real positions of ``input_ids``, whose embeddings :meth:`process_batch`
    replaces. Everything that OpenPrompt aligns with ``input_ids`` (loss ids, attention mask, truncation, hidden
    states) therefore stays aligned, which OpenPrompt's own ``SoftTemplate`` does for logits only.

    Args:
        model: the masked language model. It is referred to, not owned: ``parameters()`` and ``state_dict()`` of
            the template hold the pool alone.
        tokenizer: its tokenizer.
        text: the template text, or ``None`` to set ``template.text`` later.
        num_prompts: prompts in the pool, the paper's K.
        prompt_length: positions of a prompt, the paper's L_p.
        top_n: attend to the best ``top_n`` prompts only; to all of them if ``None``, as in the paper.
        init: where prompts start: ``label_words`` (embeddings of sampled label words, the paper's way),
            ``vocab`` (of sampled tokens), ``random``, or ``general``: the pool that ships, to go on from; by default
            ``label_words`` if there are any, else ``vocab``.
        label_words: words for ``init="label_words"``: a list, a list of lists or a mapping from classes. Give
            those of the meta-training classes only.
        random_range: for ``init="random"``, uniform in ``±random_range``.
        seed: makes the initialisation reproducible by itself; torch's global state if ``None``.
        query_copy: compute queries with a frozen copy of the encoder; for a language model that is tuned (see
            :class:`~openprompt_meta.prompts.query.QueryFunction` for the memory it takes).
        attention: how the pool is asked: ``dot`` (the paper's) or ``cosine``, see
            :class:`~openprompt_meta.prompts.pool.PromptPool`; the latter's statistics come from
            :meth:`start_from_queries`.
        attention_temperature: its temperature.
        keys: where the pool's keys start: ``normal`` (the paper's), or ``kmeans`` of the meta-training texts' queries,
            by :meth:`start_from_queries`.
        features: what is read of a text, both to be classified and to ask the pool: the hidden state at the [MASK]
            (``mask``, the paper's), the ``mean`` over all tokens that the model reads, ``both``, or ``auto``: the mean
            of a sentence encoder, which has no trained [MASK]. Whoever looks at the [MASK] of the outputs finds it
            there.
        query: what a text asks the pool with: its ``features`` without a prompt, for which it is read once more (the
            paper), or what takes less: the mean over its tokens' input ``embeddings``, which takes no pass, or over
            the output of the ``first_layer``, of which the fast engine computes no more than that layer; in stock
            OpenPrompt and for other models than BERT's kind the text goes through all of them.
        as_prefix: the prompt attends to itself alone, and the text, read as if there were no prompt in it (nor a
            [MASK] that nobody reads), to itself and the prompt. The prompt's hidden states are then the same for all
            texts: those of a single prompt are computed once, and a text takes hardly longer than without one. Where
            ``{"pool"}`` stands makes no difference. For models with absolute positions (BERT, RoBERTa, ELECTRA). A
            long text is still cut as if prompt and [MASK] stood in it: raise the length budget by ``prompt_length``
            + 1 to have as much of it read as without them.
        prefix_strength: s, what each position of a prefix counts for where a text attends to it and to its own
            tokens: at 1 as much as a token, towards 0 nothing. Below 1 a prompt steers without drowning what the model
            knows by itself, most of all in short texts.
        max_seq_length: the length budget of your data loader, to have it checked here; the model's own limit is
            checked in any case.
        placeholder_mapping: OpenPrompt's.

    Raises:
        TemplateError: for a text that cannot be laid out, or a model that cannot take a soft prompt.

    Example::

        template = PromptPoolTemplate(plm, tokenizer, text='{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.')
        model = PromptForClassification(plm, template, verbalizer, freeze_plm=True, plm_eval_mode=True)
    """

    # shortenable_ids last: OpenPrompt's truncation consults them for every other flag, and cuts them on its way.
    registered_inputflag_names = ("loss_ids", "soft_token_ids", "shortenable_ids")

    def __init__(
        self,
        model: nn.Module,
        tokenizer: Any,
        text: str | None = None,
        num_prompts: int = 8,
        prompt_length: int = 8,
        top_n: int | None = None,
        init: str | None = None,
        label_words: LabelWords | None = None,
        random_range: float = 0.5,
        seed: int | None = None,
        query_copy: bool = False,
        attention: str = "dot",
        attention_temperature: float | None = None,
        keys: str = "normal",
        features: str = "mask",
        query: str = "features",
        as_prefix: bool = False,
        prefix_strength: float = 1.0,
        max_seq_length: int | None = None,
        placeholder_mapping: Mapping[str, str] | None = None,
    ) -> None:
        _check_model(model)
        # SoftTemplate freezes the input embedding for good; whether the model is tuned is not a template's choice.
        embedding_trains = model.get_input_embeddings().weight.requires_grad  # type: ignore[operator]
        self._model = ModelReference(model)  # first: raw_embedding is read from it
        self._seed = seed
        self.template_text: str | None = None  # as it was written
        self._pieces: list[Piece] | None = None  # as it is laid out
        super().__init__(
            model=model,
            tokenizer=tokenizer,
            num_tokens=0,
            placeholder_mapping=dict(placeholder_mapping or {"<text_a>": "text_a", "<text_b>": "text_b"}),
        )
        # Unregistered, or the model's embedding would be saved with, and cloned with, every pool.
        del self._modules["raw_embedding"]
        self.raw_embedding.weight.requires_grad_(embedding_trains)

        self.num_tokens = prompt_length
        self.max_seq_length = max_seq_length
        if keys not in KEYS:
            raise TemplateError(f"keys must be one of {', '.join(KEYS)}; got {keys!r}.")
        self.keys = keys
        self.as_prefix = as_prefix
        self.prefix_strength = _checked_strength(prefix_strength, as_prefix)
        if as_prefix:
            check_takes_prefix(model)
        chosen = suited_features(features, model)
        kind = _query_kind(query)
        self.query_function = QueryFunction(model, query_copy, chosen, kind)
        self._reading = FeaturesInPlaceOfMask(chosen)
        with torch.random.fork_rng(devices=[], enabled=seed is not None):
            if seed is not None:
                torch.manual_seed(seed)
            self.pool = PromptPool(
                num_prompts,
                prompt_length,
                key_dim=query_size(model, chosen, kind),
                value_dim=self.raw_embedding.weight.shape[1],
                top_n=top_n,
                random_range=random_range,
                attention=attention,
                attention_temperature=attention_temperature,
            )
            self._initialise(init, label_words)
        self.soft_tokens: nn.Parameter | None = None  # [S, d_i], those of {"soft"}
        self.text: Any = text  # a string when set, its pieces when read

    # -- initialisation ---------------------------------------------------------------------------------------

    def _initialise(self, init: str | None, label_words: LabelWords | None) -> None:
        init = init or ("label_words" if label_words else "vocab")
        if init not in INITIALISATIONS:
            raise TemplateError(f"init must be one of {', '.join(INITIALISATIONS)}; got {init!r}.")
        if init == "random":
            return
        if init == "general":
            self._take_shipped_pool()
            return
        if init == "label_words":
            if not label_words:
                raise TemplateError("init='label_words' needs label_words, those of the meta-training classes.")
            ids = token_ids_of_words(self.tokenizer, flatten_label_words(label_words))
        else:
            special = set(self.tokenizer.all_special_ids)
            ids = [i for i in range(self.raw_embedding.weight.shape[0]) if i not in special]
        embedding = self.raw_embedding.weight.detach()
        self.pool.set_prompts_from_tokens(embedding, torch.tensor(ids, device=embedding.device))

    def _take_shipped_pool(self) -> None:
        config = read_pool_config(GENERAL)
        config["features"] = suited_features(config["features"], self._model.model)
        own: dict[str, Any] = {"key_dim": self.pool.key_dim, "value_dim": self.pool.value_dim}
        own |= {name: getattr(self.pool, name) for name in ("num_prompts", "prompt_length")}
        # What the prompts were learned to be read by. Not prefix_strength: they are learned at 1 and used at less.
        # Nor query: a single prompt is never asked for.
        own |= {name: getattr(self, name) for name in ("features", "as_prefix")}
        others = {name: config[name] for name in own if config[name] != own[name]}
        if others:
            raise TemplateError(
                f"init: general starts from the pool that ships, which was learned on minilm and "
                f"has {', '.join(f'{name} = {value}' for name, value in others.items())}; asked for is "
                f"{', '.join(f'{name} = {own[name]}' for name in others)}. Set these as it has them, or take another "
                "init."
            )
        prompts = read_pool_weights(
            GENERAL, PromptPool(**{name: config[name] for name in ("key_dim", "value_dim", *DESCRIBED)})
        )
        with torch.no_grad():
            self.pool.prompts.copy_(prompts["prompts"])

    @property
    def features(self) -> Features:
        """What is read of a text."""
        return self._reading.features

    @property
    def feature_size(self) -> int:
        """d_o, the length of a text's features."""
        return feature_size(self._model.model, self.features)

    @property
    def query(self) -> Query:
        """What a text asks the pool with."""
        return self.query_function.kind

    @property
    def asks_queries(self) -> bool:
        """Whether the query of a text makes a difference: a single prompt is the same whatever it is."""
        return self.pool.num_prompts > 1

    @property
    def starts_from_queries(self) -> bool:
        """Whether :meth:`start_from_queries` makes a difference."""
        return self.pool.num_prompts > 1 and (self.keys == "kmeans" or self.pool.query_mean is not None)

    def start_from_queries(self, queries: Tensor, seed: int = 0) -> None:
        """Let the pool start from the queries ``[n, d_o]`` of meta-training texts, before it learns anything."""
        if self.starts_from_queries:
            self.pool.start_from_queries(queries, seed, keys=self.keys == "kmeans")

    @property
    def raw_embedding(self) -> nn.Embedding:
        """The language model's input embedding."""
        embedding: nn.Embedding = self._model.model.get_input_embeddings()  # type: ignore[operator]
        return embedding

    # -- text -------------------------------------------------------------------------------------------------

    def safe_on_text_set(self) -> None:
        """OpenPrompt's, but a text that is refused leaves the template with the text it had."""
        try:
            super().safe_on_text_set()
        except TemplateError:
            self._in_on_text_set = False
            self._text = self._pieces
            raise

    def on_text_set(self) -> None:
        """Parse the text that was just set, and lay ``{"pool"}`` out over its positions."""
        source = self.text
        pieces = parse_template_text(source)
        check_pieces(pieces)
        if self.as_prefix and has_soft_tokens(pieces):
            raise TemplateError(
                'as_prefix lets the text attend to the pool\'s prompt alone, and {"soft"} is a part of the text. '
                "Leave out one of the two."
            )
        if not any("pool" in piece for piece in pieces):
            pieces.insert(0, {"add_prefix_space": "", "pool": None})
        prepared: list[Piece] = []
        starts: list[int | None] = []  # the vocabulary's token that each soft token starts from
        numbered: dict[int, list[Piece]] = {}
        for piece in pieces:
            if "pool" in piece:
                prepared += [{"add_prefix_space": "", "pool": j + 1} for j in range(self.pool.prompt_length)]
            elif "soft" in piece or "soft_id" in piece:
                prepared += self._lay_out_soft(piece, starts, numbered)
            else:
                prepared.append(piece)
        self._check_room(prepared)
        self.soft_tokens = self._initial_soft_tokens(starts)
        self.template_text = source
        self.text = self._pieces = prepared
        for flag in self.registered_inputflag_names:  # OpenPrompt caches these for the text before
            self.__dict__.pop(flag, None)

    def _lay_out_soft(self, piece: Piece, starts: list[int | None], numbered: dict[int, list[Piece]]) -> list[Piece]:
        """The positions of one soft piece, numbered behind the pool's; ``soft_id`` names them for later pieces."""
        if piece.get("soft_id") in numbered:
            return numbered[piece["soft_id"]]
        words, number = piece.get("soft"), piece.get("duplicate", 1)
        new: list[int | None] = [None] * (1 if piece.get("same") else number)
        if words is not None:
            new = list(self.tokenizer.encode(piece["add_prefix_space"] + words, add_special_tokens=False))
        first = self.pool.prompt_length + len(starts) + 1
        starts += new
        ids = [first] * number if piece.get("same") and words is None else range(first, first + len(new))
        positions: list[Piece] = [{"add_prefix_space": "", "soft": i} for i in ids]
        if "soft_id" in piece:
            numbered[piece["soft_id"]] = positions
        return positions

    def _initial_soft_tokens(self, starts: Sequence[int | None]) -> nn.Parameter | None:
        """OpenPrompt's: the embeddings of the words they are given, else standard normal."""
        if not starts:
            return None
        embedding = self.raw_embedding.weight.detach()
        with torch.random.fork_rng(devices=[], enabled=self._seed is not None):
            if self._seed is not None:
                torch.manual_seed(self._seed)
            tokens = torch.randn(len(starts), embedding.shape[1]).to(embedding)
        for i, token in enumerate(starts):
            if token is not None:
                tokens[i] = embedding[token]
        return nn.Parameter(tokens)

    def _check_room(self, pieces: Sequence[Piece]) -> None:
        """Refuse a text that leaves no position for what is to be classified."""
        fixed = self.tokenizer.num_special_tokens_to_add()
        for piece in pieces:
            if "text" in piece:
                fixed += len(
                    self.tokenizer.encode(piece["add_prefix_space"] + piece["text"], add_special_tokens=False)
                )
            elif any(kind in piece for kind in ("pool", "soft", "mask", "special")):
                fixed += 1
        positions = _positions(self._model.model)
        if positions is not None and self.max_seq_length is not None and self.max_seq_length > positions:
            raise TemplateError(
                f"max_seq_length = {self.max_seq_length} is more than the {positions} positions that "
                f"{type(self._model.model).__name__} has. Lower it to {positions} or less."
            )
        limits = {"max_seq_length": self.max_seq_length, "the model's positions": positions}
        for name, limit in limits.items():
            if limit is not None and fixed >= limit:
                raise TemplateError(
                    f"The template takes {fixed} positions by itself, {self.pool.prompt_length} of them for the "
                    f"pool, and leaves none of {name} = {limit} for the text. Shorten prompt_length or the "
                    "template text, or raise the limit."
                )

    def get_default_soft_token_ids(self) -> list[int]:
        """For each piece of the text, 1..L_p in the pool, what follows at soft tokens and 0 elsewhere."""
        return [piece.get("pool") or piece.get("soft") or 0 for piece in self.text]

    def incorporate_text_example(self, example: InputExample, text: Sequence[Piece] | None = None) -> list[str]:
        """The pieces of the template with the example's texts filled in, as strings for the tokenizer."""
        return [self._fill(piece, example) for piece in (self.text if text is None else text)]

    def _fill(self, piece: Piece, example: InputExample) -> str:
        space: str = piece["add_prefix_space"]
        if "pool" in piece or "soft" in piece:
            return ""
        if "mask" in piece:
            return "<mask>"
        if "special" in piece:
            return str(piece["special"])
        if "text" in piece:
            return space + str(piece["text"])
        if "placeholder" in piece:
            name, known = piece["placeholder"], vars(example)
            owner = "attributes"
        else:
            name, known = piece["meta"], example.meta
            owner = "meta entries"
        value = known.get(name)
        if "post_processing" in piece and value is not None:
            try:
                value = piece["post_processing"](value)
            except (TypeError, AttributeError, IndexError):  # another kind of value than it is for
                value = None
        if not isinstance(value, str):
            raise TemplateError(
                f"The template asks for {name!r}, which example {example.guid!r} gives as {known.get(name)!r}; "
                f"expected a string. Its {owner}: {', '.join(sorted(known))}."
            )
        return space + value

    def wrap_one_example(self, example: InputExample) -> list[Any]:
        """OpenPrompt's: the example as pieces with their flags, and what is not tokenised."""
        if self.text is None:
            raise TemplateError(
                "The template has no text yet. Set template.text, e.g. to "
                '\'{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.\''
            )
        wrapped: list[Any] = super().wrap_one_example(example)
        return wrapped

    # -- batches ----------------------------------------------------------------------------------------------

    def process_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch as the language model takes it: ``inputs_embeds`` ``[B, L, d_i]`` for ``input_ids`` ``[B, L]``.

        The caller's batch is left as it is, so it can be used again.
        """
        prepared = {key: batch[key] for key in batch}
        is_pool = self._pool_positions(batch)
        prompts = self.pool(self.pool_queries(batch))  # [B, L_p, d_i]
        embeds: Tensor = self.raw_embedding(prepared.pop("input_ids"))
        embeds = embeds.masked_scatter(is_pool.unsqueeze(-1), prompts.to(embeds.dtype))
        if self.soft_tokens is not None:
            number = batch["soft_token_ids"] - self.pool.prompt_length - 1  # [B, L], from 0 at soft tokens
            chosen = self.soft_tokens[number[number >= 0]]
            embeds = embeds.masked_scatter((number >= 0).unsqueeze(-1), chosen.to(embeds.dtype))
        prepared["inputs_embeds"] = embeds
        is_read = self.read_positions(batch)
        if self.as_prefix:
            prepared |= prefix_inputs(self._model.model, is_pool, is_read, self.prefix_strength)
        self._reading.note(batch, is_read)
        return prepared

    def post_processing_outputs(self, outputs: Any) -> Any:
        """Nothing to cut, since the prompt's positions are real ones; but the features to be put at the [MASK]."""
        return self._reading.put(outputs)

    def queries(self, batch: Mapping[str, Any]) -> Tensor:
        """Query vectors ``[B, d_o]``: the batch's own under ``"query"``, else computed by the query function."""
        given = _entry(batch, "query")
        if given is not None:
            query = torch.as_tensor(given, dtype=self.pool.keys.dtype, device=self.pool.keys.device)
            if len(query) != len(batch["input_ids"]):
                raise TemplateError(
                    f"The batch brings queries of shape {list(query.shape)} for {len(batch['input_ids'])} texts; "
                    f"expected [{len(batch['input_ids'])}, {self.pool.key_dim}], a row for each."
                )
            return query
        inputs, is_mask = self.without_pool(batch)
        return self.query_function(inputs, is_mask).to(self.pool.keys.dtype)

    def pool_queries(self, batch: Mapping[str, Any]) -> Tensor:
        """What the pool is asked with, ``[B, d_o]``: the queries, unless they make no difference.

        The question is then 0, which spares the pass over the text that a real one takes.
        """
        if not self.asks_queries:
            return self.pool.keys.new_zeros(len(batch["input_ids"]), self.pool.key_dim)
        return self.queries(batch)

    def read_positions(self, batch: Mapping[str, Any]) -> Tensor:
        """``[B, L]``, true at the tokens that a mean is over: all of them, or the text's beside a prefix."""
        attended: Tensor = batch["attention_mask"] > 0
        return attended & self._stays_without_pool(batch) if self.as_prefix else attended

    def _stays_without_pool(self, batch: Mapping[str, Any]) -> Tensor:
        self._pool_positions(batch)  # checks that it stands there whole
        stays: Tensor = batch["soft_token_ids"] <= 0
        return stays & (batch["loss_ids"] <= 0) if self.features == "mean" else stays

    def without_pool(self, batch: Mapping[str, Any]) -> tuple[dict[str, Tensor], Tensor]:
        """The batch's text as if there were no pool: encoder inputs ``[B, L - L_p]`` and where the [MASK] is.

        Nor is there a [MASK] if nobody reads it: a mean over tokens is closer to what the encoder was trained for
        without.
        """
        keep = self._stays_without_pool(batch)
        rows = keep.shape[0]
        inputs = {key: batch[key][keep].view(rows, -1) for key in ("input_ids", *_ALONGSIDE) if key in batch}
        return inputs, batch["loss_ids"][keep].view(rows, -1) > 0

    @torch.no_grad()
    def attention_weights(self, batch: Mapping[str, Any]) -> Tensor:
        """How much each prompt of the pool contributes to each text of a batch, ``[B, K]``."""
        return self.pool.attention(self.queries(batch))

    def _pool_positions(self, batch: Mapping[str, Any]) -> Tensor:
        """``[B, L]``, true where the pool stands, after a check that it stands there whole."""
        ids = _entry(batch, "soft_token_ids")
        if ids is None:
            raise TemplateError(
                "The batch has no 'soft_token_ids': it was not wrapped by this template. Build the "
                "PromptDataLoader with template=<this PromptPoolTemplate>."
            )
        is_pool: Tensor = (ids > 0) & (ids <= self.pool.prompt_length)
        lengths = (ids > 0).sum(dim=1) - sum("soft" in piece for piece in self._pieces or [])
        if not bool((lengths == self.pool.prompt_length).all()):
            raise TemplateError(
                f"The batch holds prompts of {sorted(set(lengths.tolist()))} positions, the pool's are "
                f"{self.pool.prompt_length} long. It was wrapped by another template, or cut."
            )
        return is_pool

    # -- files ------------------------------------------------------------------------------------------------

    def save_pretrained(self, folder: str | os.PathLike[str]) -> None:
        """Write the template (JSON) and its pool (safetensors) to a folder, without the language model."""
        if self.soft_tokens is not None:
            raise TemplateError(
                'A saved pool has no place for the tokens of {"soft"}. Keep template.state_dict(), which has both, or '
                'learn a template text with {"pool"} alone.'
            )
        base_model = getattr(self._model.model.config, "_name_or_path", "")
        read_by = {name: getattr(self, name) for name in READ_BY}
        write_pool_files(Path(folder), self.pool, self.template_text, base_model, read_by)

    @classmethod
    def from_pretrained(
        cls, folder: str | os.PathLike[str], model: nn.Module, tokenizer: Any, **overrides: Any
    ) -> PromptPoolTemplate:
        """The template that :meth:`save_pretrained` wrote, on top of ``model``.

        Args:
            folder: where it was saved.
            model: a language model of the saved sizes; the one the pool was learned for, to be of use.
            tokenizer: the model's tokenizer.
            overrides: other arguments of the constructor, such as ``query_copy`` or ``text``.
        """
        config = read_pool_config(Path(folder))
        _check_model(model)
        features = suited_features(overrides.pop("features", config["features"]), model)
        kind = _query_kind(overrides.get("query", config["query"]))
        found = {
            "key_dim": query_size(model, features, kind),
            "value_dim": model.get_input_embeddings().weight.shape[1],  # type: ignore[operator]
        }
        for name, size in found.items():
            if config[name] != size:
                raise TemplateError(
                    f"The pool in {os.fspath(folder)} was learned for {config['base_model'] or 'another model'} with "
                    f"{name} = {config[name]}; this model has {size}. Load the model it was learned for."
                )
        saved = {name: config[name] for name in ("text", *READ_BY, *DESCRIBED)}
        template = cls(model, tokenizer, **{**saved, "features": features, **overrides, "init": "random"})
        # assign: the pool takes the saved precision, whatever torch's default is.
        template.pool.load_state_dict(read_pool_weights(Path(folder), template.pool), assign=True)
        return template

    @classmethod
    def from_config(cls, config: Any, **kwargs: Any) -> PromptPoolTemplate:
        """OpenPrompt's, but a key that the template does not know is an error instead of being dropped."""
        refuse_unknown_keys(cls, config)
        template: PromptPoolTemplate = super().from_config(config, **kwargs)
        return template


def _entry(batch: Mapping[str, Any], key: str) -> Any:
    # Not batch.get: that of OpenPrompt's InputFeatures looks into an empty dictionary.
    return batch[key] if key in batch else None  # noqa: SIM401


def _checked_strength(strength: float, as_prefix: bool) -> float:
    if isinstance(strength, bool) or not isinstance(strength, (int, float)) or not 0 < strength <= 1:
        raise TemplateError(f"prefix_strength must be above 0 and at most 1, got {strength!r}.")
    if strength != 1 and not as_prefix:
        raise TemplateError(f"prefix_strength = {strength!r} is of a prompt that is a prefix. Set as_prefix: true.")
    return float(strength)


def _query_kind(query: str) -> Query:
    for known in QUERIES:
        if query == known:
            return known
    raise TemplateError(f"query must be one of {', '.join(QUERIES)}; got {query!r}.")


def _check_model(model: nn.Module) -> None:
    config = getattr(model, "config", None)
    if config is None or not hasattr(model, "get_input_embeddings"):
        raise TemplateError(f"Expected a language model of transformers, got {type(model).__name__}.")
    if getattr(config, "is_encoder_decoder", False):
        raise TemplateError(
            f"{type(model).__name__} is an encoder-decoder; the prompt pool is for masked language models such "
            "as BERT, RoBERTa, MPNet or DeBERTa."
        )
    if "inputs_embeds" not in inspect.signature(model.forward).parameters:
        raise TemplateError(
            f"{type(model).__name__} does not take inputs_embeds, so it cannot be given a soft prompt."
        )


def _positions(model: nn.Module) -> int | None:
    """How many positions the model has, or ``None`` if it counts distances instead."""
    table = position_table(model)
    return None if table is None else table.num_embeddings - first_position(model)


# -- `DiscreteTemplate`: words and a [MASK] around the text, and no soft prompt ---------------------------------------


class DiscreteTemplate(PromptPoolTemplate):
    """The pool template's text language with the pool left out, for methods that tune no prompt.

    ``{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.`` reads ``… Topic is [MASK].`` The pool that is there for
    its callers' sake takes no position and is never asked.

    Args:
        model: the masked language model.
        tokenizer: its tokenizer.
        text: the template text.
        max_seq_length: the length budget of the data loader, to have it checked here.
        features: what is read of a text.
    """

    def __init__(
        self, model: nn.Module, tokenizer: Any, text: str, max_seq_length: int | None = None, features: str = "mask"
    ) -> None:
        super().__init__(
            model,
            tokenizer,
            text,
            num_prompts=1,
            prompt_length=1,
            init="random",
            seed=0,
            features=features,
            max_seq_length=max_seq_length,
        )

    def on_text_set(self) -> None:
        """Lay the text out, and take the pool's positions away again."""
        super().on_text_set()
        if self.soft_tokens is not None:
            raise TemplateError('A method that tunes no prompt has no use for {"soft"} in its template text.')
        self.text = self._pieces = [piece for piece in self._pieces or [] if "pool" not in piece]

    def process_batch(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        """The batch as the language model takes it: ``inputs_embeds`` ``[B, L, d_i]`` for ``input_ids`` ``[B, L]``."""
        prepared = {key: batch[key] for key in batch}
        prepared["inputs_embeds"] = self.raw_embedding(prepared.pop("input_ids"))
        self._reading.note(batch, batch["attention_mask"])
        return prepared

    def _pool_positions(self, batch: Mapping[str, Any]) -> Tensor:
        return torch.zeros_like(batch["input_ids"], dtype=torch.bool)
