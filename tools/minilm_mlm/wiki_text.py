"""Plain paragraphs from a MediaWiki dump: the markup goes, the sentences stay."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

MIN_CHARACTERS = 80
"""Shorter paragraphs are captions, list items and what is left of tables."""

_PAGE = re.compile(r"<title>(.*?)</title>.*?<text[^>]*>(.*?)</text>", re.S)
_NAMESPACE = re.compile(r"(Media|Special|Talk|User|Wikipedia|Image|MediaWiki|Template|Help|Category|Portal)( talk)?:")
_DROPPED = (
    re.compile(r"<!--.*?-->", re.S),
    re.compile(r"<(ref|math|gallery|table|timeline|pre|nowiki|div)\b[^>]*?/>", re.S | re.I),
    re.compile(r"<(ref|math|gallery|table|timeline|pre|div)\b.*?</\1>", re.S | re.I),
)
_INNERMOST_BRACES = re.compile(r"\{\{[^{}]*\}\}|\{\|[^{}]*\|\}")
_LINK_ELSEWHERE = re.compile(r"\[\[[a-z-]*:?[^\[\]:|]*:(?:[^\[\]]|\[\[[^\[\]]*\]\]|\[[^\[\]]*\])*\]\]", re.I)
_LINK = re.compile(r"\[\[(?:[^\[\]|]*\|)?([^\[\]|]*)\]\]")
_WEB_LINK = re.compile(r"\[(?:https?|ftp)://\S+ ?([^\[\]]*)\]")
_TAG = re.compile(r"<[^<>]*>")
_QUOTES = re.compile(r"'{2,}")
_EMPTY_BRACKETS = re.compile(r"\(\s*[,;:]*\s*\)")
_SPACE = re.compile(r"\s+")
_NOT_A_SENTENCE = tuple("*#:;=|!{}-[")


class Article(NamedTuple):
    """A page of the encyclopaedia itself."""

    title: str
    markup: str


def articles(lines: Iterable[str]) -> Iterator[Article]:
    """The articles of a dump, in its order; talk, redirects and other pages about pages are left out."""
    page: list[str] = []
    for line in lines:
        if "<page>" in line:
            page = []
        page.append(line)
        if "</page>" in line:
            found = _PAGE.search("".join(page))
            page = []
            if found is not None:
                title, markup = (html.unescape(part) for part in found.groups())
                if not _NAMESPACE.match(title) and not markup.lstrip().lower().startswith("#redirect"):
                    yield Article(title, markup)


def paragraphs(markup: str) -> Iterator[str]:
    """The sentences of an article, a paragraph at a time, without markup."""
    for pattern in _DROPPED:
        markup = pattern.sub(" ", markup)
    for pattern, replacement in ((_INNERMOST_BRACES, " "), (_LINK_ELSEWHERE, " "), (_LINK, r"\1")):
        markup = _until_nothing_changes(pattern, replacement, markup)
    markup = _TAG.sub(" ", _WEB_LINK.sub(r"\1", markup))
    markup = _QUOTES.sub("", html.unescape(markup))
    for line in markup.split("\n"):
        text = _SPACE.sub(" ", _EMPTY_BRACKETS.sub("", line)).strip()
        if len(text) >= MIN_CHARACTERS and not text.startswith(_NOT_A_SENTENCE):
            yield text


def _until_nothing_changes(pattern: re.Pattern[str], replacement: str, text: str, most: int = 10) -> str:
    """Templates stand in templates and links in links; the innermost go first."""
    for _ in range(most):
        text, count = pattern.subn(replacement, text)
        if not count:
            break
    return text
