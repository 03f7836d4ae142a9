"""Keys, types, ranges and what goes together: each error with its path, all of them at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from openprompt_meta.config.schema import RunConfig, describe
from openprompt_meta.config.validation import config_from_mapping, notes
from openprompt_meta.errors import ConfigError


def nested(path: str, value: object) -> dict[str, Any]:
    section, _, name = path.rpartition(".")
    return {section: {name: value}} if section else {name: value}


def message(mapping: dict[Any, Any]) -> str:
    with pytest.raises(ConfigError) as caught:
        config_from_mapping(mapping)
    return str(caught.value)


def test_an_empty_mapping_is_the_default_configuration() -> None:
    assert config_from_mapping({}) == RunConfig()


def test_an_empty_section_is_its_defaults() -> None:
    assert config_from_mapping({"meta": None, "run": {}}) == RunConfig()


def test_values_that_are_given_replace_defaults_and_no_others() -> None:
    config = config_from_mapping({"meta": {"way": 3}, "verbalizer": "warp_verbalizer"})
    assert (config.meta.way, config.meta.shot, config.verbalizer) == (3, 5, "warp_verbalizer")


def test_all_problems_are_listed_at_once_each_under_its_path() -> None:
    lines = message(
        {
            "meta": {"way": 1, "loss": "meen"},
            "plm": {"dropout": "perhaps"},
            "colour": "blue",
            "prompt_pool_template": {"top_n": 9, "text": "no mask"},
        }
    ).splitlines()
    assert lines[0] == "The configuration has 6 problems:"
    paths = {line.strip().partition(":")[0] for line in lines[1:]}
    assert paths == {
        "meta.way",
        "meta.loss",
        "plm.dropout",
        "colour",
        "prompt_pool_template.top_n",
        "prompt_pool_template.text",
    }


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("meta.inner_lrr", "meta.inner_lr"),
        ("meta.shots", "meta.shot"),
        ("inner_lr", "meta.inner_lr"),
        ("plm.inner_lr", "meta.inner_lr"),
        ("plm.innerlr", "meta.inner_lr"),
        ("temperature", "rep_verbalizer.temperature"),
        ("rep_verbalizer.inner_steps", "meta.inner_steps"),
        ("seed", "run.seeds"),
        ("verbaliser", "verbalizer"),
        ("metta", "meta"),
        ("meta.mix_lambda", "rep_verbalizer.mix_lambda"),
        ("rep_verbalizer.lambda", "rep_verbalizer.mix_lambda"),
        ("inherits", "inherit"),
    ],
)
def test_an_unknown_key_is_refused_with_the_key_that_was_meant(path: str, meant: str) -> None:
    assert f"  {path}: unknown key. Did you mean {meant!r}?" in message(nested(path, 1))


def test_a_prefix_and_what_cannot_stand_beside_it_are_refused() -> None:
    strength = {"prompt_pool_template": {"prefix_strength": 0.5}}
    assert "prompt_pool_template.prefix_strength: got 0.5, which is of a prompt that is a prefix" in message(strength)
    template = {"as_prefix": True, "features": "mean"}
    mixed = {
        "plm": {"model_path": "minilm-mlm"},
        "prompt_pool_template": template,
        "rep_verbalizer": {"mix_lambda": 0.5},
    }
    told = "rep_verbalizer.mix_lambda: 0.5 has the [MASK] predict words, but prompt_pool_template.as_prefix"
    assert told in message(mixed)
    for fine in (
        {"rep_verbalizer": {}},
        {"method": "verbalizer"},
        {"prompt_pool_template": {**template, "features": "both"}},
    ):
        config_from_mapping({**mixed, **fine})


def test_a_shared_key_is_looked_for_in_the_chosen_verbalizer() -> None:
    text = message({"verbalizer": "dart_verbalizer", "meta": {"mix_lambda": 1}})
    assert "Did you mean 'dart_verbalizer.mix_lambda'?" in text


def test_an_unknown_key_that_resembles_nothing_is_refused_with_the_known_ones() -> None:
    assert "run.xyzzy: unknown key. Known keys of run: seeds, folder" in message({"run": {"xyzzy": 1}})


def test_a_dotted_key_in_a_file_is_refused_with_where_it_belongs() -> None:
    assert "in a file write way in the section meta" in message({"meta.way": 3})


def test_a_key_that_is_no_text_is_refused() -> None:
    assert "5: unknown key" in message({5: 1})
    assert "None: unknown key" in message({None: 1})
    assert "meta.True: unknown key" in message({"meta": {True: 1}})


@pytest.mark.parametrize(
    ("path", "value", "told"),
    [
        ("meta.way", "five", "got the text 'five', expected a whole number of at least 2"),
        ("meta.shot", True, "got true, expected a whole number"),
        ("meta.way", 5.0, "got 5.0, expected a whole number"),
        ("meta.way", [5], "got the list [5], expected a whole number"),
        ("meta.way", {"a": 5}, "got a section with keys of its own, expected a whole number"),
        ("meta.way", None, "got nothing (null), expected a whole number"),
        ("meta.inner_lr", True, "got true, expected a number above 0"),
        ("meta.inner_lr", "fast", "got the text 'fast', expected a number above 0"),
        ("meta.inner_lr", "1e-3x", "expected a number above 0"),
        ("plm.dropout", 1, "got 1, expected true or false"),
        ("plm.model_path", 7, "got 7, expected text"),
        ("plm.model_path", None, "got nothing (null), expected text"),
        ("run.seeds", 0, "got 0, expected a list, each item a whole number"),
        ("run.seeds", [0, "1"], "got the list [0, the text '1'], expected a list"),
        ("meta", 5, "got 5, expected a section with the keys way, shot, query"),
        ("meta", [], "got the list [], expected a section"),
        ("verbalizer", "rep_verbaliser", "Did you mean 'rep_verbalizer'?"),
        ("verbalizer", {"temperature": 5}, "got a section with keys of its own, expected one of rep_verbalizer"),
        ("rep_verbalizer.centring", "transductiv", "Did you mean 'transductive'?"),
        ("plm.attn_implementation", "eagr", "Did you mean 'eager'?"),
    ],
)
def test_an_ill_typed_value_is_refused_with_what_was_given_and_what_is_expected(
    path: str, value: object, told: str
) -> None:
    text = message(nested(path, value))
    assert f"  {path}: got " in text
    assert told in text


@pytest.mark.parametrize(
    ("path", "refused", "taken"),
    [
        ("meta.way", 1, 2),
        ("meta.shot", 0, 1),
        ("meta.query", 0, 1),
        ("meta.inner_steps", -1, 0),
        ("meta.inner_steps_eval", -1, 0),
        ("meta.inner_lr", 0, 1e-9),
        ("meta.outer_lr", -0.1, 1),
        ("meta.iterations", 0, 1),
        ("meta.patience", 0, 1),
        ("meta.min_gain", 1.1, 0),
        ("meta.meta_batch", 0, 1),
        ("dataset.max_seq_length", 7, 16),
        ("prompt_pool_template.num_prompts", 0, 1),
        ("prompt_pool_template.prompt_length", 0, 1),
        ("prompt_pool_template.top_n", 0, 1),
        ("rep_verbalizer.mix_lambda", 1.01, 1),
        ("rep_verbalizer.mix_lambda", -0.01, 1.0),
        ("rep_verbalizer.temperature", 0, 0.1),
        ("rep_verbalizer.inner_temperature", 0, None),
        ("warp_verbalizer.fit_lr", 0, 0.1),
        ("warp_verbalizer.fit_steps", -1, 0),
        ("run.threads", 0, 1),
        ("run.seeds", [-1], [2**32 - 1]),
        ("run.seeds", [2**32], [0]),
    ],
)
def test_a_number_outside_its_range_is_refused_and_its_edge_is_taken(
    path: str, refused: object, taken: object
) -> None:
    assert f"  {path}: got " in message(nested(path, refused))
    config = config_from_mapping(nested(path, taken))
    section, _, name = path.rpartition(".")
    assert getattr(getattr(config, section), name) == taken


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 10**400])
def test_a_float_must_be_finite(value: float) -> None:
    assert "meta.inner_lr: got" in message({"meta": {"inner_lr": value}})


def test_a_number_too_long_to_print_is_refused_like_any_other() -> None:
    assert "meta.way: got a number of more than 18 digits" in message({"meta": {"way": 16**9000}})


def test_a_long_text_is_cut_in_the_message() -> None:
    assert len(message({"meta": {"way": "x" * 100_000}})) < 500


@pytest.mark.parametrize("text", ["1e-3", "1E-3", "+1e-3", "1.e-3", "10e-4"])
def test_a_float_without_a_point_is_taken_though_yaml_reads_it_as_text(
    text: str, load: Callable[..., RunConfig]
) -> None:
    assert load(f"meta: {{outer_lr: {text}}}").meta.outer_lr == 1e-3


def test_a_whole_number_is_taken_for_a_float_and_becomes_one() -> None:
    value = config_from_mapping({"rep_verbalizer": {"temperature": 5}}).rep_verbalizer.temperature
    assert isinstance(value, float)


@pytest.mark.parametrize("key", describe(), ids=lambda key: key.path)
def test_null_is_taken_only_where_the_default_may_be_absent(key: Any) -> None:
    if "or null" in key.type:
        config_from_mapping(nested(key.path, None))
    else:
        assert f"  {key.path}: got nothing (null)" in message(nested(key.path, None))


@pytest.mark.parametrize("key", describe(), ids=lambda key: key.path)
def test_every_key_has_a_meaning_and_takes_its_own_default(key: Any) -> None:
    assert len(key.doc) > 10
    assert config_from_mapping(nested(key.path, key.default)) == RunConfig()


@pytest.mark.parametrize(
    "verbalizer", ["rep_verbalizer", "adaptive_verbalizer", "warp_verbalizer", "dart_verbalizer", "proto_verbalizer"]
)
def test_mixing_needs_a_vocabulary_head_which_minilm_lacks(verbalizer: str) -> None:
    mixed: dict[str, Any] = {"verbalizer": verbalizer, verbalizer: {"mix_lambda": 0.5}}
    text = message(mixed)
    assert f"{verbalizer}.mix_lambda: 0.5 needs a model with a vocabulary head" in text
    assert "bert-base-uncased" in text
    config_from_mapping({**mixed, "plm": {"model_path": "bert-base-uncased"}})


def test_a_mix_of_a_verbalizer_that_is_not_chosen_does_no_harm() -> None:
    config_from_mapping({"verbalizer": "warp_verbalizer", "rep_verbalizer": {"mix_lambda": 0.5}})


def test_hand_crafted_words_need_a_vocabulary_head() -> None:
    assert "verbalizer: manual_verbalizer needs a model" in message({"verbalizer": "manual_verbalizer"})
    multi: dict[str, Any] = {"verbalizer": "proto_verbalizer", "proto_verbalizer": {"multi_verb": "multi"}}
    assert "proto_verbalizer.multi_verb: multi needs a model" in message(multi)
    bert = {"plm": {"model_path": "bert-base-uncased"}}
    config_from_mapping({"verbalizer": "manual_verbalizer", **bert})
    config_from_mapping({**multi, **bert})


def test_proto_verbalizer_takes_one_way_of_hand_crafted_words() -> None:
    section = {"multi_verb": "multi", "mix_lambda": 0.5}
    both = {"verbalizer": "proto_verbalizer", "proto_verbalizer": section, "plm": {"model_path": "roberta-base"}}
    assert "choose one" in message(both)


def test_prompts_may_start_from_label_words_without_a_vocabulary_head() -> None:
    config_from_mapping({"plm": {"model_path": "minilm"}, "prompt_pool_template": {"init": "label_words"}})


def test_top_n_is_at_most_the_size_of_the_pool() -> None:
    config_from_mapping({"prompt_pool_template": {"top_n": 4, "num_prompts": 4}})
    text = message({"prompt_pool_template": {"top_n": 5, "num_prompts": 4}})
    assert "top_n: got 5, expected at most num_prompts = 4" in text


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"placeholder": "text_a"} {"pool"} Topic is', "exactly one"),
        ('{"placeholder": "text_a"} {"mask"', "never closed"),
        ('{"placeholder": "text_a"} {"maks"} {"mask"}', "Did you mean 'mask'?"),
        ('{"placeholder": "text_a"} {__import__("os").getcwd()} {"mask"}', "is not a literal"),
    ],
)
def test_a_template_text_that_cannot_be_laid_out_is_refused(text: str, told: str) -> None:
    refused = message({"prompt_pool_template": {"text": text}})
    assert "prompt_pool_template.text: " in refused
    assert told in refused


def test_a_prompt_leaves_room_for_the_text() -> None:
    mapping = {"dataset": {"max_seq_length": 12}, "prompt_pool_template": {"prompt_length": 9}}
    assert "leaves no room" in message(mapping)


def test_a_data_set_of_ones_own_needs_a_path() -> None:
    assert "dataset.path: is needed for dataset.name = 'tickets'" in message({"dataset": {"name": "tickets"}})
    assert "Did you mean 'hwu64'?" in message({"dataset": {"name": "hwu46"}})
    config_from_mapping({"dataset": {"name": "tickets", "path": "tickets.csv"}})
    config_from_mapping({"dataset": {"name": "someone/tickets", "format": "huggingface"}})
    config_from_mapping({"dataset": {"name": "hwu64"}})


def test_a_path_without_a_name_would_be_reported_as_the_demo_and_is_refused() -> None:
    assert "Name your data set" in message({"dataset": {"path": "tickets.csv"}})


@pytest.mark.parametrize(
    ("counts", "told"),
    [(None, "is needed"), ([8, 8], "three numbers"), ([8, 4, 8], "at least meta.way = 5")],
)
def test_random_splits_need_three_counts_with_enough_classes_for_a_task(counts: object, told: str) -> None:
    text = message({"dataset": {"splits": "random", "split_counts": counts}})
    assert "dataset.split_counts: " in text
    assert told in text
    config_from_mapping({"dataset": {"splits": "random", "split_counts": [8, 5, 5]}})


def test_second_order_gradients_refuse_sdpa() -> None:
    assert "no second derivatives" in message({"meta": {"first_order": False}, "plm": {"attn_implementation": "sdpa"}})


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_are_some_and_distinct(seeds: list[int]) -> None:
    assert "run.seeds: got" in message({"run": {"seeds": seeds}})


@pytest.mark.parametrize("device", ["gpu", "cuda:", "cuda:x", "cpuu"])
def test_an_unknown_device_is_refused(device: str) -> None:
    assert "run.device: got" in message({"run": {"device": device}})
    config_from_mapping({"run": {"device": "cuda:1"}})


def test_a_check_between_keys_waits_until_each_is_right_by_itself() -> None:
    text = message({"prompt_pool_template": {"top_n": 20, "num_prompts": "many"}})
    assert "top_n" not in text


def test_what_only_looks_odd_is_a_note_and_no_error(
    load: Callable[..., RunConfig], caplog: pytest.LogCaptureFixture
) -> None:
    config = load("meta: {iterations: 10, validate_every: 20, min_gain: 0.1}")
    assert len(notes(config)) == 2
    assert "meta.min_gain has no effect" in caplog.text
    assert notes(RunConfig()) == []


@pytest.mark.parametrize(
    ("keys", "note"),
    [
        ("method: verbalizer", "learn has no effect with method: verbalizer"),
        ("meta: {learner: reptile}", "learn has no effect with meta.learner: reptile"),
    ],
)
def test_scalars_that_cannot_be_learned_are_a_note(keys: str, note: str, load: Callable[..., RunConfig]) -> None:
    config = load(f"rep_verbalizer: {{learn: [temperature]}}\n{keys}")
    assert [note in found for found in notes(config)] == [True]
    assert notes(load("rep_verbalizer: {learn: [temperature]}")) == []
