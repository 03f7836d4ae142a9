"""The reference of all commands as a page: ``python -m openprompt_meta.cli.writing > docs/reference/cli.md``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from openprompt_meta.cli import build_parser

_HEADER = """# Command line

Generated from the parser by `python -m openprompt_meta.cli.writing`; change it there.

Every command ends with 0 if it has done what was asked, 1 if it found something wrong, 2 if it was refused with a
message, 130 if it was interrupted and 143 if it was terminated."""


def reference() -> str:
    """The page, in Markdown."""
    return "\n\n".join([_HEADER, *_sections(build_parser())]) + "\n"


def _sections(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {choice.dest: choice.help for choice in action._choices_actions}
            for name, command in action.choices.items():
                if any(isinstance(one, argparse._SubParsersAction) for one in command._actions):
                    yield from _sections(command)
                else:
                    yield _section(command, command.description or helps.get(name) or "")


def _section(command: argparse.ArgumentParser, description: str) -> str:
    sentence = description[:1].upper() + description[1:]
    parts = [f"## {command.prog}", sentence if sentence.endswith(".") else f"{sentence}."]
    actions = [one for one in command._actions if not isinstance(one, argparse._HelpAction)]
    if actions:
        rows = [f"| {_written(one)} | {_explained(one)} |" for one in actions]
        parts.append("\n".join(["| argument | |", "|---|---|", *rows]))
    return "\n\n".join(parts)


def _written(action: argparse.Action) -> str:
    value = "" if action.nargs == 0 else _value(action)
    if not action.option_strings:
        return f"`{value}`"
    return f"`{', '.join(action.option_strings)}{' ' + value if value else ''}`"


def _value(action: argparse.Action) -> str:
    if action.metavar is not None:
        return action.metavar if isinstance(action.metavar, str) else " ".join(action.metavar)
    if action.choices is not None:
        return "{" + ",".join(map(str, action.choices)) + "}"
    return action.dest.upper() if action.option_strings else action.dest


def _explained(action: argparse.Action) -> str:
    text = action.help or ""
    if "%(default)s" in text:
        text = text.replace("%(default)s", str(action.default))
    return text.replace("%%", "%").replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
