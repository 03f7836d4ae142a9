"""The model card: what a classifier is, for whoever finds the folder, in the form that model hubs read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from openprompt_meta.classifier.fitted import FittedTask
from openprompt_meta.classifier.pretrained import MetaLearned
from openprompt_meta.compat.versions import installed_versions
from openprompt_meta.version import __version__

__all__ = ["model_card"]

_MOST_CLASSES = 50
_HUB_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def model_card(meta: MetaLearned, task: FittedTask | None, metrics: Mapping[str, float]) -> str:
    """The card as Markdown with a YAML head. Names and texts of users are quoted, so that none is taken for markup."""
    model = meta.config.plm.model_path
    parts = [
        _head(model),
        "# A classifier from a few examples" if task is not None else "# A meta-learned prompt pool",
        _use(task),
        _section("Base model", f"{_code(model)}, frozen. Its weights are not in this folder; another model is refused "
                               f"(sha256 of its tensors {_code(meta.fingerprint)})."),
        _section("Template", _block(meta.config.prompt_pool_template.text)),
        _section("Data", _data(meta, task)),
        _section("Metrics", _metrics(meta, metrics)),
        _section("Settings", _settings(meta, task)),
        _section("Versions", _versions(meta)),
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _head(model: str) -> str:
    lines = ["library_name: openprompt_meta", "pipeline_tag: text-classification", "tags: [few-shot, prompt-tuning]"]
    if model in ("minilm", "minilm-mlm"):
        lines.append("base_model: sentence-transformers/all-MiniLM-L6-v2")
    elif _HUB_NAME.fullmatch(model):
        lines.append(f"base_model: {json.dumps(model)}")
    return "\n".join(["---", *lines, "---"])


def _use(task: FittedTask | None) -> str:
    last = 'classifier.predict(["a text"])' if task is not None else "classifier.fit(texts, labels)"
    code = (
        "from openprompt_meta import MetaPromptClassifier\n\n"
        f'classifier = MetaPromptClassifier.from_pretrained("this folder")\n{last}'
    )
    return (
        f"```python\n{code}\n```\n\n`PromptPoolTemplate.from_pretrained` of the same package reads the prompts alone."
    )


def _data(meta: MetaLearned, task: FittedTask | None) -> str:
    lines = []
    if meta.origin:
        lines.append(
            f"Prompts meta-learned on {_code(str(meta.origin.get('dataset')))}, {meta.origin.get('way')}-way "
            f"{meta.origin.get('shot')}-shot tasks."
        )
    else:
        lines.append("Prompts started from the vocabulary, without meta-learning.")
    if task is None:
        return lines[0]
    kept = "they are in `support.json`" if task.texts is not None else "they were left out of this folder"
    lines += [f"Fitted to {len(task.labels)} examples; {kept}.", "", "| class | examples |", "|---|---|"]
    pairs = list(zip(task.class_names, task.counts, strict=True))
    lines += [f"| {_code(name)} | {count} |" for name, count in pairs[:_MOST_CLASSES]]
    if len(pairs) > _MOST_CLASSES:
        lines.append(f"| and {len(pairs) - _MOST_CLASSES} more | |")
    return "\n".join(lines)


def _metrics(meta: MetaLearned, metrics: Mapping[str, float]) -> str:
    rows = [(f"{name}", f"{value:.4f}") for name, value in metrics.items()]
    found = meta.origin.get("validation_accuracy")
    if isinstance(found, int | float):
        rows.append(("accuracy on validation tasks of the meta-learning run", f"{found:.4f}"))
    for kind, values in _mapping(meta.origin.get("test_accuracy")).items():
        mean, interval = _mapping(values).get("mean"), _mapping(values).get("interval")
        if isinstance(mean, int | float):
            width = f" ± {interval:.4f}" if isinstance(interval, int | float) else ""
            rows.append((f"{kind} accuracy on test tasks of that run", f"{mean:.4f}{width}"))
    if not rows:
        return "None were measured."
    return "\n".join(["| measure | value |", "|---|---|", *(f"| {_code(name)} | {value} |" for name, value in rows)])


def _settings(meta: MetaLearned, task: FittedTask | None) -> str:
    config = meta.config
    section = config.prompt_pool_template
    rows: dict[str, Any] = {
        "prompts in the pool": section.num_prompts,
        "positions of a prompt": section.prompt_length,
        "verbalizer": config.verbalizer,
        "λ": getattr(getattr(config, config.verbalizer), "mix_lambda", 0.0),
        "inner steps": config.meta.inner_steps_eval,
        "inner step size": config.meta.inner_lr,
        "length budget in tokens": config.dataset.max_seq_length,
        "seed": meta.seed,
    }
    if task is not None and task.adapted.inner_losses:
        rows["loss on the examples before the first and the last step"] = (
            f"{task.adapted.inner_losses[0]:.4f}, {task.adapted.inner_losses[-1]:.4f}"
        )
    return "\n".join(["| setting | value |", "|---|---|", *(f"| {name} | {value} |" for name, value in rows.items())])


def _versions(meta: MetaLearned) -> str:
    now = {"openprompt_meta": __version__, **installed_versions()}
    lines = ["Saved with " + ", ".join(f"{name} {version}" for name, version in sorted(now.items())) + "."]
    then = _mapping(meta.origin.get("versions"))
    if then:
        lines.append("Meta-learned with " + ", ".join(f"{name} {_plain(then[name])}" for name in sorted(then)) + ".")
    return "\n\n".join(lines)


def _section(title: str, content: str) -> str:
    return f"## {title}\n\n{content}"


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _plain(value: Any) -> str:
    """On one line and without markup."""
    return re.sub(r"[^\w.+-]+", " ", str(value)).strip()


def _code(text: str) -> str:
    """Text as code inside a line or a cell of a table, whatever is in it."""
    line = " ".join(text.split())[:200].replace("|", "¦").replace("`", "'")
    return f"`{line}`"


def _block(text: str) -> str:
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}text\n{text}\n{fence}"
