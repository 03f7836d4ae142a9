"""Template texts: OpenPrompt's language, read without running any of it."""

from __future__ import annotations

import ast
import builtins
import string

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from openprompt.prompts import ManualTemplate

from openprompt_meta.config.template_text import check_pieces, parse_template_text
from openprompt_meta.config.validation import config_from_mapping
from openprompt_meta.errors import ConfigError, TemplateError
from tests.helpers.prompts import PAPER_LAYOUT

pytestmark = pytest.mark.prompts

BENIGN = [
    '{"placeholder": "text_a"} It was {"mask"}.',
    '{"placeholder":"text_a"}{"placeholder":"text_b", "shortenable":False}{"mask"}',
    '  {"mask"}   :  {"placeholder": "text_a"}  ',
    "{'placeholder': 'text_a', 'shortenable': True} in {'meta': 'place'} is {'mask'}",
    '{"special": "<eos>"} {"text": "What is it? "} {"placeholder": "text_a"} {"mask": None}',
    '{"placeholder": "text_a", "add_prefix_space": " "}{"mask"}!',
    "Überraschung: {'placeholder': 'text_a'} — {'mask'} 😀",
    PAPER_LAYOUT,
]

# ``tripwire`` is a function that the test puts within reach of any code that would run.
HOSTILE = [
    "{tripwire('a call')}",
    "{'placeholder': tripwire('a value')}",
    "{tripwire('a key'): 'text_a'}",
    "{'placeholder': 'text_a', 'post_processing': lambda x: tripwire(x)}",
    "{'placeholder': (lambda: tripwire('a lambda'))()}",
    "{'placeholder': ().__class__.__bases__}",
    "{__import__('os').system('true')}",
    "{tripwire(x) for x in (1, 2)}",
    "{k: tripwire(v) for k, v in [('mask', 1)]}",
    "{f'{tripwire(1)}'}",
    "{'placeholder': f'{tripwire(2)}'}",
    "{'text': 'a' * 10**9}",
    "{'text': 'a' + 'b'}",
    "{**{'mask': 1}}",
    "{'mask' if tripwire('a condition') else 'pool'}",
    "{(m := tripwire('a walrus'))}",
    "{mask}",
    "{'mask'",
    "{" * 5000,
    "{" * 3000 + "}" * 3000,
    "{" + "-" * 50_000 + "1}",
    "{'placeholder': " + "(" * 400 + ")" * 400 + "}",
    "{'placeholder': " + "[" * 150 + "]" * 150 + "}",
    "{'a': '\ud800'}",
    "{'mask\x00'}",
]


@pytest.mark.parametrize("text", BENIGN)
def test_a_benign_text_is_parsed_as_openprompt_parses_it(text, tiny):
    upstream = ManualTemplate(tiny("bert").tokenizer).parse_text(text)
    assert parse_template_text(text) == upstream


_piece = st.sampled_from(
    ['{"mask"}', '{"placeholder": "text_a"}', '{"meta":"x"}', '{"text": "a b "}', '{"special": "<sep>"}', '{"pool"}']
)
_words = st.text(alphabet="ab .,😀\t", max_size=6)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(st.lists(_piece | _words, max_size=8).map("".join))
@example("")
@example("   ")
def test_any_mixture_of_pieces_and_words_is_parsed_as_openprompt_parses_it(text):
    assert parse_template_text(text) == ManualTemplate(tokenizer=None).parse_text(text)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_a_text_that_is_no_literal_is_refused_and_nothing_of_it_runs(text, monkeypatch):
    calls: list[object] = []
    monkeypatch.setattr(builtins, "tripwire", calls.append, raising=False)
    with pytest.raises(TemplateError) as caught:
        check_pieces(parse_template_text('{"placeholder": "text_a"} ' + text + ' {"mask"}'))
    assert calls == []
    refusal = str(caught.value)
    assert repr(text[:6])[1:-1] in refusal.replace("\\'", "'")
    assert len(refusal) < 1000


def test_the_refusal_quotes_the_offending_piece_and_says_what_a_piece_is():
    with pytest.raises(TemplateError) as caught:
        parse_template_text('{"placeholder": "text_a"} {open("secret").read()} {"mask"}')
    message = str(caught.value)
    assert '{open("secret").read()}' in message
    assert "never run code" in message
    assert '{"placeholder": "text_a", "shortenable": True}' in message


@settings(max_examples=150, deadline=None, derandomize=True)
@given(st.text(alphabet="{}\"'\\:, maskpool()[]*-+1fx.\n\x00", max_size=30))
def test_any_text_is_parsed_into_named_pieces_or_refused(text):
    try:
        pieces = parse_template_text(text)
    except TemplateError:
        return
    for piece in pieces:
        assert all(isinstance(key, str) for key in piece)
        assert "add_prefix_space" in piece


def test_braces_and_escapes_inside_quotes_belong_to_the_string():
    (piece,) = parse_template_text(r"""{'text': 'a } { \' b'}""")
    assert piece["text"] == "a } { ' b"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"placeholder": "text_a"}', ["exactly one", "found none", "paper's layout"]),
        ('{"mask"} {"placeholder": "text_a"} {"mask"}', ["exactly one", "found 2 of them"]),
        ('{"placeholder": "text_a"} {"pool"} {"pool"} {"mask"}', ["once", "found 2 of them", "prompt_length"]),
        ('{"mask"} is what', ["shows the model no text", '{"placeholder": "text_a"}']),
        ('{"placeholder": "text_a"} {"maks"}', ["'maks'", "Did you mean 'mask'?", "Known pieces"]),
        ('{"placeholder": "text_a", "shortenabel": True} {"mask"}', ["Did you mean 'shortenable'?"]),
        ('{"placeholder": "text_a"} {"soft": 3} {"mask"}', ["'soft'", "words to start from"]),
        ('{"placeholder": "text_a"} {"soft", "mask"}', ["soft token does not take", "mask"]),
        ('{"placeholder": "text_a"} {"soft": None, "duplicate": 0} {"mask"}', ["'duplicate'", "from 1 to 512"]),
        ('{"placeholder": "text_a", "post_processing": 1} {"mask"}', ["'post_processing'", "never run code"]),
        ('{"placeholder": "text_a"} {"text": "x", "post_processing": lambda x: x} {"mask"}', ["placeholder or meta"]),
        ('{"placeholder": None} {"mask"}', ["'placeholder' needs a string"]),
        ('{"placeholder": "text_a", "meta": "x"} {"mask"}', ["exactly one of", "['placeholder', 'meta']"]),
        ('{"shortenable": True} {"placeholder": "text_a"} {"mask"}', ["is none"]),
        ('{"placeholder": "text_a", "shortenable": "True"} {"mask"}', ["True or False, without quotes"]),
        ('{"placeholder": "text_a", "add_prefix_space": True} {"mask"}', ["'add_prefix_space'", "string"]),
        ('{"placeholder": "text_a"} {"mask": None, "shortenable": True}', ["mask", "cannot be cut"]),
        ('{"placeholder": "text_a"} {"pool": None, "shortenable": True} {"mask"}', ["pool", "cannot be cut"]),
        ('{} {"mask"}', ["'{}'", "empty"]),
        ('{1} {"mask"}', ["'{1}'", "not named by a string"]),
        ('{"placeholder": "text_a" {"mask"}', ["position 0", "never closed"]),
        (7, ["must be a string", "int"]),
    ],
)
def test_a_text_that_cannot_be_laid_out_is_refused_with_the_reason(text, says):
    with pytest.raises(TemplateError) as caught:
        check_pieces(parse_template_text(text))
    for part in says:
        assert part in str(caught.value)


# What OpenPrompt's scripts and documentation write, and what Python makes of it.
LAMBDAS = [
    'lambda x:x+"."',
    "lambda s: s[:-1]",
    "lambda s: s[:1].lower() + s[1:]",
    "lambda s: s.rstrip(string.punctuation)",
    "lambda x:x.strip('.')",
    "\"lambda x:x.strip('.')\"",
    "lambda text: text.strip()",
    "lambda x: x.lower()",
    "lambda x: '<' + x",
]


@pytest.mark.parametrize("written", LAMBDAS)
@pytest.mark.parametrize("value", ["", ".", "A dog barks!?.", "  Ein Hund. "])
def test_the_lambdas_of_openprompts_scripts_do_what_python_would(written, value):
    piece = parse_template_text('{"placeholder": "text_a", "post_processing": ' + written + "}")[0]
    source = ast.literal_eval(written) if written.startswith('"') else written
    expected = eval(source, {"string": string})  # noqa: S307 - the oracle
    assert piece["post_processing"](value) == expected(value)
    # What it is shown as says the same again.
    again = parse_template_text('{"placeholder": "text_a", "post_processing": ' + repr(piece["post_processing"]) + "}")
    assert again[0]["post_processing"] == piece["post_processing"]


def test_a_list_is_joined():
    piece = parse_template_text('{"meta": "context", "post_processing": lambda x: "\\n\\n".join(x)}')[0]
    assert piece["post_processing"](["a", "b"]) == "a\n\nb"


@pytest.mark.parametrize(
    "written",
    [
        "lambda x: tripwire(x)",
        "lambda x: x.strip().lower()",
        "lambda x, y: x",
        "lambda x=tripwire(1): x",
        "lambda *x: x",
        "lambda y: x",
        "lambda s: s + TEXT",
        "lambda string: string.strip(string.punctuation)",
        "lambda x: f'{tripwire(x)}'",
        "str.strip",
        '"tripwire(1)"',
        '"no python at all"',
        "lambda x: " + "(" * 5000,
    ],
)
def test_any_other_lambda_is_refused_with_those_that_are_known_and_does_not_run(written, monkeypatch):
    calls: list[object] = []
    monkeypatch.setattr(builtins, "tripwire", calls.append, raising=False)
    with pytest.raises(TemplateError) as caught:
        parse_template_text('{"placeholder": "text_a", "post_processing": ' + written + "}")
    assert calls == []
    if "(" * 5000 not in written:
        assert "x.rstrip(string.punctuation)" in str(caught.value)


def test_a_run_refuses_soft_tokens_which_only_a_script_learns():
    text = '{"placeholder": "text_a"} {"soft"} {"mask"}'
    check_pieces(parse_template_text(text))
    with pytest.raises(ConfigError, match=r'prompt_pool_template\.text: has \{"soft"\}.*Use \{"pool"\}'):
        config_from_mapping({"prompt_pool_template": {"text": text}})
