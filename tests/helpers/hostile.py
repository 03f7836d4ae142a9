"""What untrusted people may write into the files that this package reads."""

from __future__ import annotations

__all__ = ["BAD_ENCODINGS", "TEMPLATES", "YAMLS"]


def billion_laughs(kind: str) -> str:
    opening, closing = {"list": "[]", "mapping": "{}"}[kind]
    lines = [f"a0: &a0 {opening}{'x, ' * 8 if kind == 'list' else 'x: lol'}{closing}"]
    for level in range(1, 30):
        items = [f"*a{level - 1}" if kind == "list" else f"k{i}: *a{level - 1}" for i in range(9)]
        lines.append(f"a{level}: &a{level} {opening}{', '.join(items)}{closing}")
    return "\n".join(lines) + "\n"


YAMLS = {
    "a billion laughs in lists": billion_laughs("list"),
    "a billion laughs in mappings": billion_laughs("mapping"),
    "a list that holds itself": "run: {seeds: &a [*a, *a]}",
    "eighty thousand keys": "".join(f"k{i}: 1\n" for i in range(80_000)),
    "half a million values": "run: {seeds: [" + "1," * 490_000 + "1]}",
    "seventy thousand anchors": "".join(f"- &a{i} x\n" for i in range(70_000)),
    "a list in a list in a list": "run: " + "[" * 400_000,
    "a mapping in a mapping": "run: " + "{a: " * 200_000,
    "steps without end": "".join(" " * depth + "a:\n" for depth in range(1_300)),
    "questions without end": "? " * 400_000,
    "an int of a megabyte": "meta: {way: " + "9" * 990_000 + "}",
    "an int in base sixty": "meta: {way: " + "1:" * 400_000 + "1}",
    "a hexadecimal of a megabyte": "meta: {way: 0x" + "f" * 900_000 + "}",
    "a float of a megabyte": "meta: {inner_lr: " + "1" * 900_000 + ".5}",
    "a text of a megabyte as a number": "meta: {way: " + "x" * 990_000 + "}",
    "a key of a megabyte": "k" * 990_000 + ": 1",
    "a file of two megabytes": "# " + "x" * 2_000_000,
    "nothing but zero bytes": "\0" * 1000,
    "a zero byte in a path": 'run: {folder: "a\\0b"}',
    "half a character": 'run: {folder: "\\uD800"}',
    "a path as a name": "dataset: {name: ../../elsewhere, path: x}",
    "an absolute path as a name": "dataset: {name: /tmp/elsewhere, path: x}",
    "an inherited device": "inherit: /dev/zero",
    "an inherited folder": "inherit: .",
    "itself": "inherit: run.yaml",
    "a name too long for a file": "inherit: " + "x" * 1000,
    "a template of a megabyte": "prompt_pool_template: {text: '" + '{"mask"} ' * 90_000 + "'}",
}

BAD_ENCODINGS = {
    "UTF-16": "meta: {way: 3} # ä\n".encode("utf-16"),
    "UTF-16 without its mark": "meta: {way: 3}\n".encode("utf-16-le"),
    "UTF-32": "meta: {way: 3}\n".encode("utf-32"),
    "Latin-1": "dataset: {name: caf\xe9}\n".encode("latin-1"),
    "cut in the middle of a character": "dataset: {name: ä}".encode()[:-2],
    "overlong": b"dataset: {name: \xc0\xaf}",
    "halves of a character": b"dataset: {name: \xed\xa0\x80}",
    "a zero byte": b"meta: {way: 3}\0\n",
    "two byte order marks": b"\xef\xbb\xbf\xef\xbb\xbfmeta: {way: 3}",
}

_MASKED = '{"placeholder": "text_a"} {"mask"} '
TEMPLATES = {
    "a call": _MASKED + "{__import__('os').mkdir('planted')}",
    "a call inside a piece": '{"placeholder": open("planted", "w")} {"mask"}',
    "a lambda": '{"placeholder": "text_a", "post_processing": lambda x: open("planted", "w")} {"mask"}',
    "an f-string": _MASKED + '{f\'{open("planted", "w")}\'}',
    "a comprehension": _MASKED + "{x: 1 for x in [open('planted', 'w')]}",
    "an attribute": _MASKED + "{().__class__.__bases__}",
    "an operator": _MASKED + "{'text': 9 ** 9 ** 9}",
    "a repeated string": _MASKED + "{'text': 'x' * 10 ** 10}",
    "braces without end": "{" * 19_000,
    "brackets without end": _MASKED + "{'text': " + "(" * 9_000 + ")" * 9_000 + "}",
    "signs without end": _MASKED + "{'text': " + "-" * 19_000 + "1}",
    "sums without end": _MASKED + "{'text': " + "1+" * 9_000 + "1}",
    "a number too long to show": _MASKED + "{0x" + "f" * 15_000 + "}",
    "a number too long to show as a value": _MASKED + "{'text': 0x" + "f" * 15_000 + "}",
    "a number too long to read": _MASKED + "{'text': " + "9" * 15_000 + "}",
    "a quote that never ends": '{"placeholder": "text_a} {"mask"}',
    "a brace that never ends": '{"placeholder": "text_a"',
    "an escape at the end": '{"placeholder": "text_a\\',
    "a list as a member": _MASKED + "{[]}",
    "two thousand masks": '{"mask"}' * 2_000,
    "a million masks": '{"mask"}' * 1_000_000,
    "a long piece": _MASKED + '{"soft": "' + "x" * 15_000 + '", "shortenable": True}',
    "a long unknown piece": _MASKED + '{"' + "x" * 15_000 + '"}',
    "a zero byte": _MASKED + '{"text": "\0"}',
    "half a character": _MASKED + '{"text": "\ud800"}',
    "bytes": _MASKED + '{"text": b"x"}',
    "a number as a name": _MASKED + "{1: 2}",
}
