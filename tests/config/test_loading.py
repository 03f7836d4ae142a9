"""Files that inherit, presets and the command line: what wins, and what is refused."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from openprompt_meta.config.loading import MAX_DEPTH, load_config
from openprompt_meta.config.schema import RunConfig
from openprompt_meta.errors import ConfigError

WriteYaml = Callable[..., Path]
Load = Callable[..., RunConfig]
Refusal = Callable[..., str]


def refused(path: Path, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load_config(path, overrides)
    return str(caught.value)


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n", "meta:\n", "---\n"])
def test_a_file_that_says_nothing_is_the_default_configuration(text: str, load: Load) -> None:
    assert load(text) == RunConfig()


@pytest.mark.parametrize(("text", "told"), [("- meta", "the list"), ("meta", "the text 'meta'"), ("5", "holds 5")])
def test_a_file_without_sections_is_refused(text: str, told: str, refusal: Refusal) -> None:
    assert told in refusal(text)


def test_problems_are_told_with_the_file_and_the_line_they_stand_on(write_yaml: WriteYaml) -> None:
    base = write_yaml("meta:\n  way: 1\n  query: 0\n", "base.yaml")
    run = write_yaml("inherit: base.yaml\nmeta:\n\n  query: -1\n")
    text = refused(run, "meta.shot=0")
    assert text.startswith(f"{run} has 3 problems:\n")
    assert f"meta.way: got 1, expected a whole number of at least 2. ({base}, line 2)" in text
    assert f"meta.query: got -1, expected a whole number of at least 1. ({run}, line 4)" in text
    assert "meta.shot: got 0, expected a whole number of at least 1. (command line)" in text


# -- inherit ------------------------------------------------------------------------------------------------------


def test_a_file_wins_over_what_it_inherits_key_by_key(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {way: 3, shot: 2}\nrun: {seeds: [1, 2]}", "base.yaml")
    config = load_config(write_yaml("inherit: base.yaml\nmeta: {shot: 1}\nrun: {seeds: [7]}"))
    assert (config.meta.way, config.meta.shot, config.run.seeds) == (3, 1, [7])


def test_of_several_inherited_files_the_later_wins(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {way: 3, shot: 3}", "a.yaml")
    write_yaml("meta: {way: 4}", "b.yaml")
    config = load_config(write_yaml("inherit: [a.yaml, b.yaml]"))
    assert (config.meta.way, config.meta.shot) == (4, 3)


def test_an_empty_section_keeps_what_was_inherited(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {way: 3}", "base.yaml")
    assert load_config(write_yaml("inherit: base.yaml\nmeta:\n")).meta.way == 3


def test_null_takes_back_an_optional_value_that_was_inherited(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {patience: 3}", "base.yaml")
    assert load_config(write_yaml("inherit: base.yaml\nmeta: {patience: null}")).meta.patience is None


def test_inherited_paths_are_relative_to_the_file_that_names_them(
    write_yaml: WriteYaml, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_yaml("meta: {way: 3}", "base/deep/one.yaml")
    write_yaml("inherit: deep/one.yaml", "base/two.yaml")
    run = write_yaml("inherit: ../base/two.yaml", "runs/run.yaml")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_config(os.path.relpath(run)).meta.way == 3


def test_a_base_that_two_files_share_is_no_circle(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {way: 3}", "base.yaml")
    write_yaml("inherit: base.yaml", "a.yaml")
    write_yaml("inherit: base.yaml", "b.yaml")
    assert load_config(write_yaml("inherit: [a.yaml, b.yaml]")).meta.way == 3


def test_files_that_inherit_in_a_circle_are_refused_with_the_circle(write_yaml: WriteYaml) -> None:
    write_yaml("inherit: b.yaml", "a.yaml")
    b = write_yaml("inherit: ./a.yaml", "b.yaml")
    assert "b.yaml -> a.yaml -> b.yaml" in refused(b)


def test_too_long_a_line_of_files_is_refused(write_yaml: WriteYaml) -> None:
    write_yaml("", "0.yaml")
    for number in range(1, MAX_DEPTH + 1):
        write_yaml(f"inherit: {number - 1}.yaml", f"{number}.yaml")
    folder = write_yaml("").parent
    load_config(folder / f"{MAX_DEPTH - 1}.yaml")
    assert "goes deeper" in refused(folder / f"{MAX_DEPTH}.yaml")


def test_files_that_inherit_twice_over_and_over_are_refused(write_yaml: WriteYaml) -> None:
    write_yaml("", "0.yaml")
    for number in range(1, 9):
        write_yaml(f"inherit: [{number - 1}.yaml, {number - 1}.yaml]", f"{number}.yaml")
    assert "takes in more than" in refused(write_yaml("inherit: 8.yaml"))


@pytest.mark.parametrize("value", ["5", "[a.yaml, 5]", "{a: b}", "''", "true"])
def test_inherit_is_a_path_or_a_list_of_paths(value: str, refusal: Refusal) -> None:
    assert "expected a path or a list of paths" in refusal(f"inherit: {value}")


def test_a_missing_file_is_refused_with_the_one_that_was_meant(write_yaml: WriteYaml) -> None:
    write_yaml("", "minilm.yaml")
    assert "Did you mean 'minilm.yaml'?" in refused(write_yaml("inherit: minlm.yaml"))


def test_a_file_name_that_no_system_takes_is_refused(refusal: Refusal) -> None:
    assert "cannot be read" in refusal('inherit: "a\\0b.yaml"')
    assert "cannot be read" in refusal(f"inherit: {'a' * 5000}.yaml")


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(link)
    assert "cannot be read" in refused(link)


def test_a_folder_is_refused(tmp_path: Path) -> None:
    assert "is a folder" in refused(tmp_path)


# -- the command line ---------------------------------------------------------------------------------------------


def test_the_command_line_wins_over_the_file(load: Load) -> None:
    config = load(
        "meta: {way: 3, shot: 2}", "meta.way=4", "rep_verbalizer.temperature=5", "verbalizer=warp_verbalizer"
    )
    assert (config.meta.way, config.meta.shot) == (4, 2)
    assert config.rep_verbalizer.temperature == 5.0
    assert config.verbalizer == "warp_verbalizer"


def test_overrides_are_yaml_values(load: Load) -> None:
    config = load(
        "meta: {patience: 3}",
        "run.seeds=[0, 1, 2]",
        "meta.patience=null",
        "plm.dropout=true",
        "meta.outer_lr=1e-4",
        "meta.way = 6",
    )
    assert config.run.seeds == [0, 1, 2]
    assert config.meta.patience is None
    assert config.plm.dropout is True
    assert config.meta.outer_lr == 1e-4
    assert config.meta.way == 6


def test_a_text_is_taken_from_the_command_line_as_it_stands(load: Load) -> None:
    text = '{"placeholder": "text_a"} = {"pool"} # {"mask"}: yes'
    overrides = [f"prompt_pool_template.text={text}", "dataset.name=007", "dataset.path=no", "run.folder=null"]
    config = load("run: {folder: here}", *overrides)
    assert config.prompt_pool_template.text == text
    assert (config.dataset.name, config.dataset.path, config.run.folder) == ("007", "no", None)


def test_the_last_of_two_overrides_of_a_key_counts(load: Load) -> None:
    assert load("", "meta.way=3", "meta.way=4").meta.way == 4


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("meta.wayz=3", "meta.wayz: unknown key. Did you mean 'meta.way'? (command line)"),
        ("inner_lrr=3", "inner_lrr: unknown key."),
        ("meta.way", "'meta.way': expected key=value"),
        ("=3", "'=3': expected key=value"),
        ("meta.=3", "'meta.=3': expected key=value"),
        ("meta.way=[1", "meta.way: command line, line 1"),
        ("meta.way=many", "meta.way: got the text 'many'"),
        ("meta=5", "meta: got 5, expected a section"),
        ("meta.way.deep=5", "meta.way: got a section"),
        ("a.b.c=5", "a: unknown key"),
        ("preset.x=5", "preset: got a section"),
        ("inherit.x=5", "inherit: stands in a file"),
        ("inherit=other.yaml", "inherit: stands in a file"),
        (
            "preset=author",
            "preset: got the text 'author', expected paper or authors or recommended. Did you mean 'authors'?",
        ),
        ("meta.way=!!python/name:os.system", "is refused"),
    ],
)
def test_an_override_that_is_wrong_is_refused(override: str, told: str, refusal: Refusal) -> None:
    assert told in refusal("", override)


def test_wrong_overrides_and_a_wrong_file_are_told_together(refusal: Refusal) -> None:
    text = refusal("meta: {way: 1}", "nonsense", "meta.shot=[", "run.device=gpu")
    assert "has 4 problems" in text


# -- presets ------------------------------------------------------------------------------------------------------


def test_the_preset_sets_what_the_authors_code_does(load: Load) -> None:
    config = load("preset: authors")
    assert config.rep_verbalizer.centring == "transductive"
    assert (config.rep_verbalizer.temperature, config.rep_verbalizer.inner_temperature) == (10.0, 1.0)
    assert config.rep_verbalizer.aggregation == "logits"
    assert (config.meta.inner_steps, config.meta.inner_steps_eval) == (5, 5)
    assert (config.meta.loss, config.meta.label_embeddings) == ("mean", "adapted")
    assert (config.meta.optimizer, config.meta.outer_lr) == ("adamw", 1e-3)
    assert (config.meta.iterations, config.meta.patience, config.meta.min_gain) == (4000, 3, 0.0005)
    assert (config.meta.valid_tasks, config.meta.test_tasks) == (200, 300)
    assert config.plm.dropout is True
    assert config.dataset.max_seq_length == 220


@pytest.mark.parametrize(("name", "words"), [("hwu64", "Topic is about"), ("reuters", "Topic is {")])
def test_the_presets_words_depend_on_the_data_set(name: str, words: str, load: Load) -> None:
    assert words in load("preset: authors", f"dataset.name={name}").prompt_pool_template.text


@pytest.mark.parametrize(("name", "shot", "steps"), [("huffpost", 1, 15), ("huffpost", 5, 5), ("amazon", 1, 5)])
def test_the_presets_inner_steps_at_test_depend_on_the_task(name: str, shot: int, steps: int, load: Load) -> None:
    config = load(f"preset: authors\ndataset: {{name: {name}}}\nmeta: {{shot: {shot}}}")
    assert config.meta.inner_steps_eval == steps


def test_keys_of_the_file_win_over_its_preset_wherever_they_stand(load: Load) -> None:
    assert load("meta: {iterations: 7}\npreset: authors").meta.iterations == 7
    assert load("preset: authors\nmeta: {iterations: 7}").meta.iterations == 7
    assert load("preset: authors", "meta.iterations=7").meta.iterations == 7


def test_a_preset_wins_over_inherited_files_and_on_the_command_line_over_the_file(write_yaml: WriteYaml) -> None:
    write_yaml("meta: {iterations: 7, way: 3}", "base.yaml")
    run = write_yaml("inherit: base.yaml\npreset: authors")
    assert (load_config(run).meta.iterations, load_config(run).meta.way) == (4000, 3)
    base = load_config(run.with_name("base.yaml"), ["preset=authors", "meta.way=4"])
    assert (base.meta.iterations, base.meta.way) == (4000, 4)


def test_a_preset_can_be_inherited(write_yaml: WriteYaml) -> None:
    write_yaml("preset: authors", "base.yaml")
    assert load_config(write_yaml("inherit: base.yaml")).meta.optimizer == "adamw"


@pytest.mark.parametrize("value", ["author", "5", "[authors]", "{authors: 1}"])
def test_an_unknown_preset_is_refused(value: str, refusal: Refusal) -> None:
    assert "preset: got" in refusal(f"preset: {value}\nmeta: {{way: 1}}")
    assert "has 2 problems" in refusal(f"preset: {value}\nmeta: {{way: 1}}")


def test_a_preset_survives_a_data_section_that_is_wrong(refusal: Refusal) -> None:
    assert "dataset: got 5" in refusal("preset: authors\ndataset: 5\nmeta: {shot: x}")


def test_the_presets_layout_puts_the_prompt_between_sep_and_cls(load: Load, tiny: Callable[..., object]) -> None:
    from openprompt.data_utils import InputExample

    from openprompt_meta import PromptPoolTemplate
    from openprompt_meta.encoder.wrapping import MaskedLMTokenizerWrapper

    text = load("preset: authors", "dataset.name=hwu64").prompt_pool_template.text
    loaded = tiny("bert")
    template = PromptPoolTemplate(loaded.model, loaded.tokenizer, text=text, prompt_length=2)  # type: ignore[attr-defined]
    wrapper = MaskedLMTokenizerWrapper(max_seq_length=32, tokenizer=loaded.tokenizer)  # type: ignore[attr-defined]
    wrapped = template.wrap_one_example(InputExample(text_a="good movie", label=0))
    features = wrapper.tokenize_one_example(wrapped, teacher_forcing=False)
    tokens = loaded.tokenizer.convert_ids_to_tokens(features["input_ids"])  # type: ignore[attr-defined]
    tokens = ["θ" if soft else token for token, soft in zip(tokens, features["soft_token_ids"], strict=True)]
    shown = " ".join(token for token in tokens if token != "[PAD]")  # noqa: S105
    assert shown == "[CLS] good movie [SEP] θ θ [CLS] topic is about [MASK] . [SEP]"


def test_a_key_that_one_section_alone_has_needs_no_section(load: Load, refusal: Refusal) -> None:
    config = load("", "inner_lr=0.3", "init=general", "num_prompts=1", "verbalizer=warp_verbalizer")
    assert config.meta.inner_lr == 0.3
    assert config.prompt_pool_template.init == "general"
    assert config.verbalizer == "warp_verbalizer"
    assert "temperature: unknown key" in refusal("", "temperature=3")  # of several verbalizers


def test_the_papers_preset_takes_back_what_the_others_set(write_yaml: WriteYaml) -> None:
    of_news = "dataset: {name: huffpost}\n"
    defaults = load_config(write_yaml(f"{of_news}meta: {{shot: 5}}", "defaults.yaml"))
    for other in ("authors", "recommended"):
        write_yaml(f"{of_news}preset: {other}", "other.yaml")
        assert load_config(write_yaml("inherit: other.yaml\npreset: paper\nplm: {dropout: false}")) == defaults


def test_the_papers_preset_asks_what_an_intent_is_about(write_yaml: WriteYaml) -> None:
    write_yaml("dataset: {name: liu54}\npreset: recommended", "other.yaml")
    text = load_config(write_yaml("inherit: other.yaml\npreset: paper")).prompt_pool_template.text
    assert text == '{"placeholder": "text_a"} {"pool"} Topic is about {"mask"}.'


def test_the_recommended_preset_reads_names_and_learns_their_weight(load: Load) -> None:
    config = load("preset: recommended")
    assert config.prompt_pool_template.features == "auto"
    assert config.reads_names
    assert config.verbalizer_section.learned == ("name_weight", "temperature")
