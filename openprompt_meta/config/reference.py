"""``docs/configuration.md``, generated from the schema: ``python -m openprompt_meta.config.reference > FILE``."""

from __future__ import annotations

import inspect
import json
import sys

from openprompt_meta.config.keys import Key, describe, section_types

__all__ = ["reference"]

_HEAD = """\
# Configuration

Generated from `openprompt_meta/config/schema.py` by `python -m openprompt_meta.config.reference`; change it there.

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
- `preset: authors`: the settings of the authors' code where they differ from the paper's
  (`openprompt_meta/config/presets.py`). It counts as one more inherited file, read last.
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
