"""The language of template texts, OpenPrompt's with one more piece, read without running any of it.

OpenPrompt hands every ``{…}`` of a template text to ``eval``, so that an untrusted text runs code. Here a
piece is a literal or it is refused.
"""

from __future__ import annotations

import ast
from typing import Any

from openprompt_meta.errors import TemplateError, did_you_mean

Piece = dict[str, Any]

# What a piece may be, and what it may say about itself.
KINDS = ("placeholder", "meta", "mask", "special", "text", "pool")
OPTIONS = ("shortenable", "add_prefix_space")
MAX_CHARACTERS = 20_000
_NEEDS_NAME = ("placeholder", "meta", "special", "text")


def parse_template_text(text: str) -> list[Piece]:
    """Split a template text into its pieces, in order.

    ``'{"placeholder": "text_a"} {"pool"} Topic is {"mask"}.'`` gives one dictionary for each ``{…}`` and for each
    run of plain text (``{"text": …}``), each with OpenPrompt's ``add_prefix_space`` (``" "`` or ``""``).

    Raises:
        TemplateError: a brace is not closed, a piece is anything but a literal dictionary or set, or the text is
            longer than any model reads.
    """
    if not isinstance(text, str):
        raise TemplateError(f"A template text must be a string, got {type(text).__name__}: {text!r}.")
    if len(text) > MAX_CHARACTERS:
        raise TemplateError(
            f"The template text has {len(text):,} characters, more than {MAX_CHARACTERS:,}: {_cut(text)}. No model "
            "reads as much; the texts to classify come in through a placeholder."
        )
    pieces: list[Piece] = []
    position = 0
    while position < len(text):
        start = position
        while position < len(text) and text[position] == " ":
            position += 1
        if position == len(text):
            break
        spaced = position > start or (position > 0 and text[position - 1] == " ")
        piece: Piece = {"add_prefix_space": " " if spaced else ""}
        if text[position] == "{":
            end = _closing_brace(text, position)
            piece.update(_literal_piece(text[position : end + 1], text))
            position = end + 1
        else:
            end = text.find("{", position)
            end = len(text) if end == -1 else end
            piece["text"] = text[position:end].rstrip(" ")
            position = end
        pieces.append(piece)
    return pieces


def check_pieces(pieces: list[Piece]) -> None:
    """Refuse pieces that the pool template cannot lay out.

    Raises:
        TemplateError: unknown piece or option, no mask or several, several pools, no placeholder to classify.
    """
    for piece in pieces:
        _check_piece(piece)
    shown = _cut(" ".join(_show(piece) for piece in pieces), quoted=False)
    masks = sum("mask" in piece for piece in pieces)
    if masks != 1:
        found = "none" if masks == 0 else f"{masks} of them"
        raise TemplateError(
            f'The template needs exactly one {{"mask"}}, found {found} in: {shown}. '
            'The paper\'s layout is: {"placeholder": "text_a"} {"pool"} Topic is {"mask"}.'
        )
    pools = sum("pool" in piece for piece in pieces)
    if pools > 1:
        raise TemplateError(
            f'The template may hold {{"pool"}} once, found {pools} of them in: {shown}. '
            "For a longer prompt raise prompt_length."
        )
    if not any("placeholder" in piece or "meta" in piece for piece in pieces):
        raise TemplateError(
            f'The template shows the model no text: {shown}. Add {{"placeholder": "text_a"}} where it belongs.'
        )


def _closing_brace(text: str, start: int) -> int:
    """Index of the brace that closes the one at ``start``; braces inside quotes do not count."""
    depth = 0
    quote = ""
    position = start
    while position < len(text):
        character = text[position]
        if quote:
            if character == "\\":
                position += 1
            elif character == quote:
                quote = ""
        elif character in "\"'":
            quote = character
        elif character == "{":
            depth += 1
        elif character == "}":
            depth -= 1
            if depth == 0:
                return position
        position += 1
    raise TemplateError(
        f"The brace at position {start} of the template text is never closed: {_cut(text[start:])}. "
        'Every piece ends with a brace, as in {"mask"}.'
    )


def _literal_piece(source: str, text: str) -> Piece:
    try:
        value = ast.literal_eval(source)
        str(value)  # a number too long to be shown is none that a template needs
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        raise TemplateError(
            f"The piece {_cut(source)} of the template text {_cut(text)} is not a literal and is refused: template "
            "texts never run code. A piece is a dictionary or set of quoted names, strings, numbers, True, "
            'False or None, as in {"placeholder": "text_a", "shortenable": True}.'
        ) from None
    if isinstance(value, set):
        value = dict.fromkeys(sorted(value, key=str))
    if not isinstance(value, dict) or not value or not all(isinstance(key, str) for key in value):
        raise TemplateError(
            f"The piece {_cut(source)} of the template text {_cut(text)} is empty or not named by a string. "
            f"Known pieces: {', '.join(KINDS)}."
        )
    return value


def _check_piece(piece: Piece) -> None:
    unknown = [key for key in piece if key not in KINDS and key not in OPTIONS]
    if unknown:
        name = unknown[0]
        hint = did_you_mean(name, (*KINDS, *OPTIONS))
        if name in ("soft", "soft_id", "duplicate", "same"):
            hint = " Soft tokens are the pool's business here: use {'pool'}, or OpenPrompt's mixed_template."
        elif name == "post_processing":
            hint = " Process the texts before they reach the template: it never runs code."
        raise TemplateError(
            f"Unknown piece or option {_cut(name)} in {_show(piece)}.{hint} Known pieces: {', '.join(KINDS)}; "
            f"known options: {', '.join(OPTIONS)}."
        )
    kinds = [key for key in piece if key in KINDS]
    if len(kinds) != 1:
        raise TemplateError(f"A piece is exactly one of {', '.join(KINDS)}; {_show(piece)} is {kinds or 'none'}.")
    kind = kinds[0]
    if kind in _NEEDS_NAME and not isinstance(piece[kind], str):
        raise TemplateError(f"{_show(piece)}: {kind!r} needs a string, as in {{{kind!r}: 'text_a'}}.")
    if "shortenable" in piece and not isinstance(piece["shortenable"], (bool, int)):
        raise TemplateError(f"{_show(piece)}: 'shortenable' is True or False, without quotes.")
    if kind in ("mask", "pool") and piece.get("shortenable"):
        raise TemplateError(f"{_show(piece)}: the {kind} cannot be cut when a text is too long. Drop 'shortenable'.")
    if not isinstance(piece["add_prefix_space"], str):
        raise TemplateError(f"{_show(piece)}: 'add_prefix_space' is a string to put before it, as in ' ' or ''.")


def _show(piece: Piece) -> str:
    """A piece as it would be written in a template text, cut if it is long."""
    inner = ", ".join(
        f'"{key}"' if value is None else f'"{key}": {value!r}'
        for key, value in piece.items()
        if key != "add_prefix_space"
    )
    return _cut(piece["text"] if list(piece) == ["add_prefix_space", "text"] else f"{{{inner}}}", quoted=False)


def _cut(source: str, most: int = 200, *, quoted: bool = True) -> str:
    """A quotation that stays readable, however long the text."""
    shown = repr(source[:most]) if quoted else source[:most]
    return shown if len(source) <= most else f"{shown} (and {len(source) - most} characters more)"
