"""OpenPrompt's runners as they are, on whatever device the model is and with checkpoints that hold no code."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from typing import Any

import torch
from openprompt import trainer
from openprompt.data_utils import InputFeatures
from openprompt.pipeline_base import PromptForClassification
from openprompt.prompts import ProtoVerbalizer
from openprompt.protoverb_trainer import ProtoVerbClassificationRunner as OpenPromptProtoVerbRunner
from torch import Tensor, nn

from openprompt_meta.errors import CheckpointError
from openprompt_meta.files import write_together
from openprompt_meta.tensor_files import DamagedFile, flatten_tree, packed, read_tensors, rebuild_tree

logger = logging.getLogger(__name__)

_FORMAT = "openprompt_meta.checkpoint.1"
# What verbalizers learn and keep outside their state_dict: ProtoVerb's flag, the words that PETAL's search found.
_PLAIN_STATE = ("trained", "label_words_ids", "search_id", "accumulate")


class _SettledFeatures(InputFeatures):
    """A batch that is where it has to be, and stays there whatever device it is sent to."""

    def to(self, device: Any = None) -> _SettledFeatures:
        return self

    def cuda(self, device: Any = None) -> _SettledFeatures:
        return self


class FollowingLoader:
    """A data loader whose batches are on the model's device; OpenPrompt's runners send theirs to ``cuda:0``."""

    def __init__(self, loader: Any, model: nn.Module) -> None:
        self.loader = loader
        self.model = model

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[InputFeatures]:
        for batch in self.loader:
            device = next(self.model.parameters()).device
            yield _SettledFeatures(**batch.to(device).to_dict())


class _AnyDeviceRunner(trainer.BaseRunner):
    """What both runners need: batches that follow the model, and checkpoints of plain values.

    A checkpoint leaves out a frozen language model, holds the state of the random number generators, and so a resumed
    run goes on exactly as an uninterrupted one.
    """

    def __init__(
        self,
        model: PromptForClassification,
        config: Any = None,
        train_dataloader: Any = None,
        valid_dataloader: Any = None,
        test_dataloader: Any = None,
        **others: Any,
    ) -> None:
        loaders = {"train": train_dataloader, "valid": valid_dataloader, "test": test_dataloader}
        following = {
            f"{split}_dataloader": None if loader is None else FollowingLoader(loader, model)
            for split, loader in loaders.items()
        }
        self.metrics: dict[str, dict[str, float]] = {}
        super().__init__(model=model, config=config, **following, **others)

    def inference_epoch_end(self, split: str, outputs: Any) -> Any:
        """OpenPrompt's, which gives all metrics to one that keeps the first; :attr:`metrics` keeps them all."""
        metrics = super().inference_epoch_end(split, outputs)
        self.metrics[split] = {name: float(value) for name, value in metrics.items()}
        return metrics

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def save_checkpoint(
        self, ckpt: str, save_state: bool = True, extra: dict[str, Any] | None = None, copy: str | None = None
    ) -> None:
        """Write the training state under the name ``ckpt``, and the same under ``copy``."""
        if self.clean:
            return
        tree = {
            "base_model": self._base_model(),
            "state_dict": self._learned_state(),
            "verbalizer": self._verbalizer_state(),
            **(extra or {}),
        }
        if save_state:
            tree |= {
                "optimizer": [_state_of(optimizer) for optimizer in self.optimizers],
                "scheduler": [_state_of(scheduler) for scheduler in self.schedulers],
                "random": {"cpu": torch.get_rng_state(), "cuda": _cuda_states()},
                "cur_epoch": self.cur_epoch,
                "best_score": self.best_score,
                "global_step": self.global_step,
            }
        copies = [self.checkpoint_path(copy)] if copy else []
        write_runner_state(tree, self.checkpoint_path(ckpt), *copies)
        logger.info("Saved checkpoint %s%s.", ckpt, f" and {copy}" if copy else "")

    def load_checkpoint(self, ckpt: str, load_state: bool = True) -> bool:
        """Take up the state saved under ``ckpt``.

        Args:
            ckpt: ``last`` or ``best``.
            load_state: also take up optimisers, epoch and random numbers, to go on training. Without a checkpoint
                that gives ``False`` then, and OpenPrompt starts from scratch; otherwise it is an error.

        Raises:
            CheckpointError: it is missing, not ours, or of a run with another model, template or verbalizer.
        """
        path = self.checkpoint_path(ckpt)
        try:
            tree = read_runner_state(path)
        except FileNotFoundError:
            if load_state:
                return False
            raise CheckpointError(f"There is no checkpoint {path}. Give the folder of a finished run.") from None
        self._require_same_model(tree, path)
        self.model = self.inner_model
        self._load_learned_state(tree["state_dict"], path)
        self._load_verbalizer_state(tree["verbalizer"])
        if load_state:
            self._load_training_state(tree)
        logger.info("Loaded checkpoint %s, validation %s.", ckpt, tree.get("validation_metric"))
        return True

    def _load_training_state(self, tree: dict[str, Any]) -> None:
        for owner, state in [
            *zip(self.optimizers, tree["optimizer"], strict=True),
            *zip(self.schedulers, tree["scheduler"], strict=True),
        ]:
            if state is not None:
                owner.load_state_dict(state)
        torch.set_rng_state(tree["random"]["cpu"])
        if tree["random"]["cuda"] and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(tree["random"]["cuda"])
        self.cur_epoch = tree["cur_epoch"] + 1
        self.best_score = tree["best_score"]
        self.global_step = tree["global_step"]
        # As it was when saved, after a validation: RepVerbalizer begins new averages when training begins again.
        self.model.eval()

    def _frozen(self) -> set[str]:
        """Names in the state_dict that belong to a language model which nobody tunes."""
        plm = self.inner_model.plm
        if any(parameter.requires_grad for parameter in plm.parameters()):
            return set()
        # By identity too: OpenPrompt's soft templates hold the model's input embedding as their own.
        own = {id(parameter) for parameter in plm.parameters()}
        named = self.inner_model.state_dict(keep_vars=True).items()
        return {name for name, value in named if name.startswith("prompt_model.plm.") or id(value) in own}

    def _learned_state(self) -> dict[str, Tensor]:
        frozen = self._frozen()
        return {name: value for name, value in self.inner_model.state_dict().items() if name not in frozen}

    def _load_learned_state(self, state: dict[str, Tensor], path: str) -> None:
        try:
            missing, unexpected = self.inner_model.load_state_dict(state, strict=False)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise CheckpointError(f"{path} does not fit this configuration: {reason}") from None
        differences = sorted({*missing} - self._frozen()) + sorted(unexpected)
        if differences:
            raise CheckpointError(
                f"{path} does not fit this configuration; it differs in {', '.join(differences[:5])}. Use the "
                "config.yaml in the run's folder."
            )

    def _verbalizer_state(self) -> dict[str, Any]:
        own = vars(self.inner_model.verbalizer)
        return {name: own[name] for name in _PLAIN_STATE if name in own}

    def _load_verbalizer_state(self, state: dict[str, Any]) -> None:
        for name in _PLAIN_STATE:
            if name in state:
                setattr(self.inner_model.verbalizer, name, state[name])

    def _base_model(self) -> str:
        # The last part only: a folder may have moved since.
        return f"{self.config.plm.model_name}:{str(self.config.plm.model_path).rstrip('/').rpartition('/')[2]}"

    def _require_same_model(self, tree: dict[str, Any], path: str) -> None:
        if tree["base_model"] != self._base_model():
            raise CheckpointError(
                f"{path} was trained on {tree['base_model']}, and this run is on {self._base_model()}. Use the model "
                "it was trained on."
            )


class ClassificationRunner(_AnyDeviceRunner, trainer.ClassificationRunner):
    """OpenPrompt's ``ClassificationRunner`` on any device, with checkpoints that hold no code."""


class ProtoVerbClassificationRunner(_AnyDeviceRunner, OpenPromptProtoVerbRunner):
    """OpenPrompt's ``ProtoVerbClassificationRunner`` on any device, with checkpoints that hold no code."""

    def fit(self, ckpt: str | None = None) -> Any:
        """OpenPrompt's, and the prototypes of ``train_verblizer: post`` are those of the model that is tested.

        OpenPrompt learns them on the last epoch's model, and then tests the best one with the prototypes it was
        made with.
        """
        best = super().fit(ckpt)
        if self.config.train.train_verblizer == "post" and not self.clean:
            self.load_checkpoint("best", load_state=False)
            self._train_prototypes()
            self.save_checkpoint("best", save_state=False, extra={"validation_metric": best})
        return best

    def _train_prototypes(self) -> None:
        self.inner_model.verbalizer.train_proto(self.model, self.train_dataloader, self.config.environment.local_rank)

    def _verbalizer_state(self) -> dict[str, Any]:
        optimizer = self.inner_model.verbalizer.optimizer
        return {**super()._verbalizer_state(), "optimizer": optimizer.state_dict()}

    def _load_verbalizer_state(self, state: dict[str, Any]) -> None:
        super()._load_verbalizer_state(state)
        self.inner_model.verbalizer.optimizer.load_state_dict(state["optimizer"])

    def _load_training_state(self, tree: dict[str, Any]) -> None:
        super()._load_training_state(tree)
        # OpenPrompt saves first and learns prototypes after; a run that was cut off in between has yet to.
        if self.config.train.train_verblizer == "alternate" and self.cur_epoch < self.num_epochs:
            self._train_prototypes()


def runner_class_for(verbalizer: nn.Module) -> type[_AnyDeviceRunner]:
    """ProtoVerb's runner for ProtoVerb, the ordinary one for all others."""
    return ProtoVerbClassificationRunner if isinstance(verbalizer, ProtoVerbalizer) else ClassificationRunner


def _state_of(owner: Any) -> Any:
    # OpenPrompt puts dummies among the optimisers for templates and verbalizers that optimise themselves.
    return owner.state_dict() if hasattr(owner, "state_dict") else None


def _cuda_states() -> list[Tensor]:
    return torch.cuda.get_rng_state_all() if torch.cuda.is_available() else []


def write_runner_state(tree: Any, *paths: str | os.PathLike[str]) -> None:
    """Write ``tree``, of plain values and tensors, to each of ``paths``, whole or not at all."""
    tensors, rest = flatten_tree(tree)
    content = packed(tensors, {"format": _FORMAT, "tree": rest})
    write_together([(path, content) for path in paths])


def read_runner_state(path: str | os.PathLike[str]) -> Any:
    """The tree in ``path``.

    Raises:
        FileNotFoundError: there is no such file.
        CheckpointError: it is no checkpoint of this package. Nothing in it is executed either way.
    """
    try:
        tensors, metadata = read_tensors(path)
        if metadata.get("format") != _FORMAT:
            raise DamagedFile(f"its format is {metadata.get('format')!r}, expected {_FORMAT!r}")
        return rebuild_tree(tensors, metadata.get("tree", ""))
    except DamagedFile as error:
        raise CheckpointError(
            f"{os.fspath(path)} is not a checkpoint of this package, or it is damaged ({error}). OpenPrompt's own "
            "checkpoints are pickles, which can run code when they are read, so they are not. Train again, or resume "
            "from a folder that this package wrote."
        ) from None
