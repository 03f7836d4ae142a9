"""The keys in writing: a :class:`RunConfig` as YAML that reads back as an equal one, and the reference of all keys.

``docs/configuration.md`` is generated: ``python -m openprompt_meta.config.writing > docs/configuration.md``.
"""

from __future__ import annotations

import inspect
import json
import sys
import textwrap
from typing import Any

import yaml

from openprompt_meta.config.schema import Key, RunConfig, component_sections, describe, section_types
from openprompt_meta.config.validation import FORMAT_VERSION, VERSION_KEY

_WIDTH = 100
_LINE_BREAKS = frozenset("\n\r\x85\u2028\u2029")  # to YAML


def to_mapping(config: RunConfig) -> dict[str, Any]:
    """The configuration as plain dictionaries, lists and values.

    Sections of components that are not in use are left out if they hold nothing but defaults: what a package offers
    that happens to be installed is no part of a run.
    """
    return {name: value for name, value in config.model_dump().items() if not _is_idle(name, config)}


def to_yaml(config: RunConfig) -> str:
    """The content of :func:`to_mapping` as YAML, with what each key means as a comment."""
    lines = ["# Form of this file.", f"{VERSION_KEY}: {FORMAT_VERSION}", ""]
    open_section = ""
    for key in describe():
        if _is_idle(key.section, config):
            continue
        if key.section != open_section:
            lines.append("")
            if key.section:
                lines.append(f"{key.section}:")
            open_section = key.section
        lines += _lines_of(key, config)
    return "\n".join(lines).lstrip("\n") + "\n"


def _lines_of(key: Key, config: RunConfig) -> list[str]:
    owner = getattr(config, key.section) if key.section else config
    indent = "  " if key.section else ""
    comment = textwrap.wrap(key.doc.replace("``", ""), _WIDTH - 4, break_long_words=False)
    return [*(f"{indent}# {line}" for line in comment), f"{indent}{key.name}: {_scalar(getattr(owner, key.name))}"]


def _scalar(value: object) -> str:
    # Between double quotes a line break is an escape: one line a key, whatever it holds.
    style = '"' if isinstance(value, str) and not _LINE_BREAKS.isdisjoint(value) else None
    dumped: str = yaml.safe_dump(
        value, default_style=style, default_flow_style=True, width=float("inf"), allow_unicode=True
    )
    return dumped.removesuffix("...\n").rstrip("\n")


def _is_idle(section: str, config: RunConfig) -> bool:
    owner = component_sections().get(section)
    return owner is not None and section not in config.sections_in_use and getattr(config, section) == owner()


# -- docs/configuration.md --------------------------------------------------------------------------------------------

_HEAD = """\
# Configuration

Generated from `openprompt_meta/config/schema.py` by `python -m openprompt_meta.config.writing`; change it there.

A run is described by one YAML file. All keys are optional. Everything is checked before a model or data set loads, and
all problems are reported at once, each with its file, line and nearest valid name.

```yaml
inherit: [base/intents, my/base.yaml]   # the first ships, the second is beside this file; later ones win
dataset:
  name: demo
meta:
  shot: 5
```

- `inherit`: a path relative to the file, or the name of a YAML that ships (`openprompt-meta yamls` lists them), or a
  list of them. Sections are joined key by key; what the file says itself wins, lists are replaced as a whole.
- `preset: recommended`: what does best on the packaged encoder; `preset: authors`: the settings of the authors' code
  where they differ from the paper's; `preset: paper`: the paper's, which are the defaults, for a file that inherits
  another preset (`openprompt_meta/config/loading.py`). A preset counts as one more inherited file, read last.
- On the command line, `key=value` with dotted keys wins over everything: `meta.shot=1 run.seeds=[0,1,2]
  verbalizer=warp_verbalizer preset=authors`.
- `version: 1`: the form of the file, which a run writes into its `config.yaml`. A newer form than the package knows is
  refused; a file without a version is of the present form.
- Paths such as `dataset.path` are relative to the working directory.
- Plain values only: tags, merge keys (`<<`) and keys given twice are refused.

Of the sections below `run`, those of the chosen `method`, `verbalizer` and `meta.learner` are used;
[methods.md](methods.md) describes the methods.
"""


def reference() -> str:
    """The whole page as Markdown."""
    top = [key for key in describe() if not key.section]
    parts = [_HEAD, "## Top level\n", _table(top)]
    for name, owner in section_types().items():
        parts += [f"## `{name}`\n", _intro(name, owner), _table([key for key in describe() if key.section == name])]
    return "\n".join(parts)


def _intro(name: str, owner: type[object]) -> str:
    text = " ".join((inspect.getdoc(owner) or "").split()).removeprefix(f"``{name}``: ")
    text = text.replace(":class:`openprompt_meta.", "`").replace("``", "`")
    return f"{text[:1].upper()}{text[1:]}\n"


def _table(keys: list[Key]) -> str:
    rows = [f"| `{key.name}` | {key.type} | `{_default(key)}` | {key.doc.replace('``', '`')} |" for key in keys]
    return "\n".join(["| key | value | default | meaning |", "|---|---|---|---|", *rows, ""])


def _default(key: Key) -> str:
    """As one would write it in YAML."""
    return key.default if isinstance(key.default, str) else json.dumps(key.default)


if __name__ == "__main__":
    sys.stdout.write(reference())
