"""The prompt pool: K prompts, each a key and a value, mixed by attention into one prompt per instance."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from sklearn.cluster import KMeans
from torch import Tensor, nn

from openprompt_meta.errors import TemplateError

ATTENTIONS = ("dot", "cosine")


class PromptPool(nn.Module):
    """K learnable prompts and the attention that turns a query into an instance-dependent prompt.

    Equations (paper, "Meta-Learn a Prompt Pool"), for a query ``q`` of size ``d_o``::

        a = softmax(K q / sqrt(d_o))            [num_prompts]
        θ = Σ_i a_i θ_i                         [prompt_length, value_dim]

    The queries of texts have most of their length in common, so that this attention is about the same for all of them.
    With ``attention="cosine"`` it is that of queries without their common part, ``a = softmax(τ cos(k_i, q - μ))``,
    μ being their mean over the meta-training texts, which is saved with the pool.

    This is all that meta-learning clones: ``num_prompts · (key_dim + prompt_length · value_dim)`` numbers,
    55,296 of them at 8, 8, 768 and 768.

    Args:
        num_prompts: prompts in the pool, the paper's K.
        prompt_length: positions that a prompt takes, L_p.
        key_dim: size of the query and of the keys, d_o: the hidden size of the language model.
        value_dim: size of a prompt's tokens, d_i: the width of the language model's input embedding.
        top_n: attend to the ``top_n`` best keys only, as L2P and DualPrompt do; all of them if ``None``.
        random_range: prompts start uniform in ``±random_range`` until :meth:`set_prompts` replaces them.
        attention: ``dot`` (the paper's) or ``cosine``.
        attention_temperature: τ; by default 1 / sqrt(d_o) for ``dot``, 10 for ``cosine``.
    """

    query_mean: Tensor | None  # [d_o]

    def __init__(
        self,
        num_prompts: int,
        prompt_length: int,
        key_dim: int,
        value_dim: int,
        top_n: int | None = None,
        random_range: float = 0.5,
        attention: str = "dot",
        attention_temperature: float | None = None,
    ) -> None:
        super().__init__()
        sizes = {
            "num_prompts": num_prompts,
            "prompt_length": prompt_length,
            "key_dim": key_dim,
            "value_dim": value_dim,
        }
        for name, size in sizes.items():
            if not isinstance(size, int) or isinstance(size, bool) or size < 1:
                raise TemplateError(f"PromptPool: {name} must be a whole number of at least 1, got {size!r}.")
        if top_n is not None and (type(top_n) is not int or not 1 <= top_n <= num_prompts):
            raise TemplateError(
                f"PromptPool: top_n must be a whole number between 1 and num_prompts = {num_prompts}, got {top_n!r}. "
                "Leave it out to attend to every prompt."
            )
        if attention not in ATTENTIONS:
            raise TemplateError(f"PromptPool: attention must be one of {', '.join(ATTENTIONS)}; got {attention!r}.")
        if attention_temperature is not None and not attention_temperature > 0:
            raise TemplateError(f"PromptPool: attention_temperature must be above 0, got {attention_temperature!r}.")
        self.top_n = top_n
        self.attention_kind = attention
        self.attention_temperature = attention_temperature
        self.register_buffer("query_mean", torch.zeros(key_dim) if attention == "cosine" else None)
        self.keys = nn.Parameter(torch.randn(num_prompts, key_dim))
        self.prompts = nn.Parameter(
            torch.empty(num_prompts, prompt_length, value_dim).uniform_(-random_range, random_range)
        )

    @property
    def num_prompts(self) -> int:
        """K, the number of prompts."""
        return self.prompts.shape[0]

    @property
    def prompt_length(self) -> int:
        """L_p, the number of positions a prompt takes."""
        return self.prompts.shape[1]

    @property
    def key_dim(self) -> int:
        """d_o, the size of a query."""
        return self.keys.shape[1]

    @property
    def value_dim(self) -> int:
        """d_i, the size of a prompt's tokens."""
        return self.prompts.shape[2]

    def attention(self, query: Tensor) -> Tensor:
        """Weights of the prompts for each query.

        Args:
            query: ``[B, d_o]``.

        Returns:
            ``[B, K]``, rows summing to one; with ``top_n`` all but ``top_n`` of them are exactly zero.
        """
        if query.dim() != 2 or query.shape[1] != self.key_dim:
            raise TemplateError(
                f"PromptPool: a query of shape {list(query.shape)} does not fit keys of size {self.key_dim}; "
                f"expected [batch, {self.key_dim}]. The query is the [MASK]'s hidden state of the language "
                "model that the pool was made for."
            )
        scores = self._scores(query)  # [B, K]
        if self.top_n is not None and self.top_n < self.num_prompts:
            kept = scores.topk(self.top_n, dim=-1).indices
            dropped = torch.ones_like(scores, dtype=torch.bool).scatter(-1, kept, False)
            scores = scores.masked_fill(dropped, -math.inf)
        return scores.softmax(dim=-1)

    def _scores(self, query: Tensor) -> Tensor:
        temperature = self.attention_temperature
        if self.attention_kind == "dot":
            products = query @ self.keys.T
            return products / math.sqrt(self.key_dim) if temperature is None else temperature * products
        cosines = self._standardised(query) @ F.normalize(self.keys, dim=-1).T
        return (10.0 if temperature is None else temperature) * cosines

    def _standardised(self, query: Tensor) -> Tensor:
        """Queries without what they have in common, of length one."""
        centre = query.new_zeros(()) if self.query_mean is None else self.query_mean
        return F.normalize(query - centre, dim=-1)

    @torch.no_grad()
    def start_from_queries(self, queries: Tensor, seed: int = 0, keys: bool = True) -> None:
        """Learn from the queries of meta-training texts what they have in common, and where keys start.

        Args:
            queries: ``[n, d_o]``.
            seed: of k-means.
            keys: start the keys from the centres of k-means of the standardised queries, scaled to length one.

        Raises:
            TemplateError: there are fewer queries than prompts.
        """
        if len(queries) < self.num_prompts:
            raise TemplateError(f"PromptPool: {len(queries)} queries are too few for {self.num_prompts} keys.")
        queries = queries.to(self.keys)
        if self.query_mean is not None:
            self.query_mean.copy_(queries.mean(dim=0))
        if keys:
            found = KMeans(self.num_prompts, n_init=4, random_state=seed).fit(
                self._standardised(queries).cpu().numpy()
            )
            centres = torch.from_numpy(found.cluster_centers_).to(self.keys)
            self.keys.copy_(F.normalize(centres, dim=-1))

    def forward(self, query: Tensor) -> Tensor:
        """The instance-dependent prompts ``[B, L_p, d_i]`` for queries ``[B, d_o]``."""
        return torch.einsum("bk,kld->bld", self.attention(query), self.prompts)

    @torch.no_grad()
    def set_prompts(self, prompts: Tensor) -> None:
        """Start from ``prompts`` ``[K, L_p, d_i]``."""
        if prompts.shape != self.prompts.shape:
            raise TemplateError(
                f"PromptPool: prompts of shape {list(prompts.shape)} given, expected "
                f"{list(self.prompts.shape)} (num_prompts, prompt_length, value_dim)."
            )
        self.prompts.copy_(prompts)

    @torch.no_grad()
    def set_prompts_from_tokens(
        self, embedding: Tensor, token_ids: Tensor, generator: torch.Generator | None = None
    ) -> None:
        """Start every position of every prompt from the embedding of a token drawn from ``token_ids``.

        Tokens are drawn without repetition as long as there are enough of them, so that a large set of label
        words is spread over the pool.

        Args:
            embedding: the language model's input embedding, ``[V, d_i]``.
            token_ids: candidates, ``[n]``.
            generator: source of randomness; torch's global one if ``None``.
        """
        if embedding.shape[1] != self.value_dim:
            raise TemplateError(
                f"PromptPool: the input embedding is {embedding.shape[1]} wide, the pool's prompts are "
                f"{self.value_dim} wide. Make the pool with value_dim={embedding.shape[1]}."
            )
        if token_ids.numel() == 0:
            raise TemplateError("PromptPool: no tokens to start the prompts from.")
        wanted = self.num_prompts * self.prompt_length
        rounds = math.ceil(wanted / token_ids.numel())
        order = torch.cat([torch.randperm(token_ids.numel(), generator=generator) for _ in range(rounds)])
        drawn = token_ids[order[:wanted].to(token_ids.device)]
        self.set_prompts(embedding[drawn].view_as(self.prompts))

    def extra_repr(self) -> str:
        """Sizes, for ``repr``."""
        top_n = f", top_n={self.top_n}" if self.top_n is not None else ""
        return (
            f"num_prompts={self.num_prompts}, prompt_length={self.prompt_length}, "
            f"key_dim={self.key_dim}, value_dim={self.value_dim}{top_n}"
        )
