"""The language of template texts, OpenPrompt's with one more piece, read without running any of it.

OpenPrompt hands every ``{…}`` of a template text to ``eval``, so that an untrusted text runs code. Here a
piece is a literal or it is refused; a lambda behind ``post_processing`` is recognised as one of a fixed list.
"""

from __future__ import annotations

import ast
import contextlib
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from openprompt_meta.errors import TemplateError, did_you_mean

Piece = dict[str, Any]

# What a piece may be, and what it may say about itself.
KINDS = ("placeholder", "meta", "mask", "special", "text", "pool", "soft")
OPTIONS = ("shortenable", "add_prefix_space", "post_processing")
SOFT_OPTIONS = ("soft_id", "duplicate", "same")  # OpenPrompt's, for soft tokens alone
MAX_SOFT_TOKENS = 512
MAX_CHARACTERS = 20_000
_NEEDS_NAME = ("placeholder", "meta", "special", "text")


# What may be done to a text before it is filled in: how it is written, with TEXT for any quoted text, and what it is.
_PROCESSES: Mapping[str, Callable[..., Any]] = {
    "x": lambda x: x,
    "x.strip()": lambda x: x.strip(),
    "x.lstrip()": lambda x: x.lstrip(),
    "x.rstrip()": lambda x: x.rstrip(),
    "x.strip(TEXT)": lambda x, text: x.strip(text),
    "x.lstrip(TEXT)": lambda x, text: x.lstrip(text),
    "x.rstrip(TEXT)": lambda x, text: x.rstrip(text),
    "x.strip(string.punctuation)": lambda x: x.strip(string.punctuation),
    "x.rstrip(string.punctuation)": lambda x: x.rstrip(string.punctuation),
    "x.lower()": lambda x: x.lower(),
    "x.upper()": lambda x: x.upper(),
    "x.capitalize()": lambda x: x.capitalize(),
    "x.title()": lambda x: x.title(),
    "x[:-1]": lambda x: x[:-1],
    "x[:1].lower() + x[1:]": lambda x: x[:1].lower() + x[1:],
    "x + TEXT": lambda x, text: x + text,
    "TEXT + x": lambda x, text: text + x,
    "TEXT.join(x)": lambda x, text: text.join(x),
}


@dataclass(frozen=True)
class PostProcessing:
    """A ``post_processing`` of a template text that was recognised: one of a fixed list, never run from its source.

    Attributes:
        shape: how it is written, with ``TEXT`` for a quoted text.
        texts: the quoted texts.
    """

    shape: str
    texts: tuple[str, ...] = ()

    def __call__(self, value: Any) -> Any:
        """What becomes of the text (or of the list of texts, for a ``join``)."""
        return _PROCESSES[self.shape](value, *self.texts)

    def __repr__(self) -> str:
        written = self.shape
        for text in self.texts:
            written = written.replace("TEXT", repr(text), 1)
        return f"lambda x: {written}"


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
    refused = TemplateError(
        f"The piece {_cut(source)} of the template text {_cut(text)} is not a literal and is refused: template "
        "texts never run code. A piece is a dictionary or set of quoted names, strings, numbers, True, "
        'False or None, as in {"placeholder": "text_a", "shortenable": True}.'
    )
    try:
        node = ast.parse(source, mode="eval").body
        processing = _take_post_processing(node, source)
        value = ast.literal_eval(node)
        str(value)  # a number too long to be shown is none that a template needs
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        if isinstance(error, TemplateError):
            raise
        raise refused from None
    if isinstance(value, set):
        value = dict.fromkeys(sorted(value, key=str))
    if not isinstance(value, dict) or (not value and processing is None) or not all(isinstance(k, str) for k in value):
        raise TemplateError(
            f"The piece {_cut(source)} of the template text {_cut(text)} is empty or not named by a string. "
            f"Known pieces: {', '.join(KINDS)}."
        )
    return value if processing is None else {**value, "post_processing": processing}


def _take_post_processing(node: ast.expr, source: str) -> PostProcessing | None:
    """Take ``post_processing`` out of a piece, the one entry that need not be a literal, and recognise it."""
    if not isinstance(node, ast.Dict):
        return None
    for at, key in enumerate(node.keys):
        if isinstance(key, ast.Constant) and key.value == "post_processing":
            written = node.values[at]
            del node.keys[at], node.values[at]
            if isinstance(written, ast.Constant) and isinstance(written.value, str):  # OpenPrompt knows both ways
                with contextlib.suppress(SyntaxError):
                    written = ast.parse(written.value.strip(), mode="eval").body
            return _recognised(written, source)
    return None


def _recognised(node: ast.expr, source: str) -> PostProcessing:
    if isinstance(node, ast.Lambda):
        arguments = node.args
        names = [one.arg for one in arguments.args]
        if len(names) == 1 and not (arguments.defaults or arguments.vararg or arguments.kwonlyargs):
            blanks = _Blanks(names[0])
            shape = ast.unparse(blanks.visit(node.body))
            # As many texts as blanks: somebody's own TEXT is none of ours.
            if shape in _PROCESSES and shape.count("TEXT") == len(blanks.texts):
                return PostProcessing(shape, tuple(blanks.texts))
    known = ", ".join(_PROCESSES)
    raise TemplateError(
        f"'post_processing' in {_cut(source)} is none of those that are understood: template texts never run code. "
        f"Write lambda x: and one of: {known}, with any quoted text for TEXT. Anything else is done to the texts "
        "before they reach the template."
    )


class _Blanks(ast.NodeTransformer):
    """Calls the argument of a lambda ``x`` and puts ``TEXT`` for quoted texts, which it keeps."""

    def __init__(self, argument: str) -> None:
        self.argument = argument
        self.texts: list[str] = []

    def visit_Name(self, node: ast.Name) -> ast.Name:
        if node.id == self.argument:
            return ast.Name("x")
        return ast.Name("_") if node.id == "x" else node  # what is called x but is not the argument is none of ours

    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        if not isinstance(node.value, str):
            return node
        self.texts.append(node.value)
        return ast.Name("TEXT")


def _check_piece(piece: Piece) -> None:
    if "soft" in piece or "soft_id" in piece:
        _check_soft_piece(piece)
        return
    unknown = [key for key in piece if key not in KINDS and key not in OPTIONS]
    if unknown:
        name = unknown[0]
        hint = did_you_mean(name, (*KINDS, *OPTIONS))
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
    if "post_processing" in piece and kind not in ("placeholder", "meta"):
        raise TemplateError(f"{_show(piece)}: 'post_processing' is for what a placeholder or meta fills in.")
    if not isinstance(piece["add_prefix_space"], str):
        raise TemplateError(f"{_show(piece)}: 'add_prefix_space' is a string to put before it, as in ' ' or ''.")


def _check_soft_piece(piece: Piece) -> None:
    """OpenPrompt's: ``{"soft"}``, ``{"soft": "words to start from"}``, ``soft_id``, ``duplicate`` and ``same``."""
    unknown = [key for key in piece if key not in ("soft", *SOFT_OPTIONS, "add_prefix_space")]
    if unknown:
        raise TemplateError(
            f"{_show(piece)}: a soft token does not take {_cut(unknown[0])}; it takes {', '.join(SOFT_OPTIONS)}."
        )
    words = piece.get("soft")
    if words is not None and not isinstance(words, str):
        raise TemplateError(f"{_show(piece)}: 'soft' is followed by words to start from, or by nothing.")
    for name in ("soft_id", "duplicate"):
        number = piece.get(name, 1)
        if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= MAX_SOFT_TOKENS:
            raise TemplateError(f"{_show(piece)}: {name!r} is a whole number from 1 to {MAX_SOFT_TOKENS}.")
    if words is not None and "duplicate" in piece:
        raise TemplateError(f"{_show(piece)}: 'duplicate' is for soft tokens without words.")


def has_soft_tokens(pieces: list[Piece]) -> bool:
    """Whether a text has soft tokens of its own, beside the pool."""
    return any("soft" in piece or "soft_id" in piece for piece in pieces)


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
