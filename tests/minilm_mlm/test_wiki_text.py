"""Markup in, sentences out."""

from __future__ import annotations

import pytest

from tools.minilm_mlm.wiki_text import articles, paragraphs

LONG = "is a sentence that goes on for long enough to be taken for a paragraph of an article, which it is."

DUMP = """<mediawiki>
  <page>
    <title>Rivers &amp; lakes</title>
    <text xml:space="preserve">Water.
More &lt;b&gt;water&lt;/b&gt;.</text>
  </page>
  <page>
    <title>River</title>
    <text xml:space="preserve">#REDIRECT [[Rivers &amp; lakes]]</text>
  </page>
  <page>
    <title>Talk:River</title>
    <text xml:space="preserve">I disagree.</text>
  </page>
</mediawiki>
"""


def test_articles_are_pages_but_not_pages_about_pages() -> None:
    ((title, markup),) = articles(DUMP.splitlines(keepends=True))
    assert title == "Rivers & lakes"
    assert markup == "Water.\nMore <b>water</b>."


@pytest.mark.parametrize(
    ("markup", "expected"),
    [
        (f"The '''Rhine''' {LONG}", f"The Rhine {LONG}"),
        (f"The [[Rhine|river]] in [[Europe]] {LONG}", f"The river in Europe {LONG}"),
        (f"{{{{infobox|name={{{{name}}}}}}}}It {LONG}", f"It {LONG}"),
        (f"[[Image:a.jpg|thumb|A [[boat]] on it]]It {LONG}", f"It {LONG}"),
        (f"It {LONG}<ref>A book, page 3</ref>", f"It {LONG}"),
        (f"It<!-- is it? --> {LONG}", f"It {LONG}"),
        (f"It, [http://a.b/c as they say], {LONG}", f"It, as they say, {LONG}"),
        (f"{{| class=x\n|-\n| cell\n|}}\nIt {LONG}", f"It {LONG}"),
        (f"Caf&eacute;s ({{{{IPA|x}}}}) {LONG}", f"Cafés {LONG}"),
    ],
)
def test_markup_goes_and_the_sentence_stays(markup: str, expected: str) -> None:
    assert list(paragraphs(markup)) == [expected]


@pytest.mark.parametrize("line", ["== A heading that is as long as a paragraph " + LONG, f"* {LONG}", "Short."])
def test_headings_lists_and_scraps_are_left_out(line: str) -> None:
    assert list(paragraphs(f"{line}\nThis {LONG}")) == [f"This {LONG}"]
