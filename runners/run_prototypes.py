"""What needs no training, on the test tasks of a run's YAML: class means of the frozen encoder's features."""

from __future__ import annotations

import argparse
import sys

from openprompt_meta.cli import exit_code_of
from openprompt_meta.config import load_config


def main() -> int:
    """Judge and print, for each seed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("yaml", help="a run's YAML")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="changes to it")
    options = parser.parse_args()
    return exit_code_of("run_prototypes", lambda: _judge(options.yaml, options.overrides))


def _judge(yaml: str, overrides: list[str]) -> int:
    config = load_config(yaml, overrides)
    from openprompt_meta.data.configured import open_dataset
    from openprompt_meta.methods import build_metaprompter, load_language_model
    from openprompt_meta.methods.prototypes import plain_features
    from openprompt_meta.runs.evaluation import judge_prototypes

    dataset, loaded = open_dataset(config.dataset), load_language_model(config)
    for seed in config.run.seeds:
        source = build_metaprompter(config, loaded, dataset, seed).sources["test"]
        for name, features in plain_features(source, dataset.test.texts, loaded).items():
            accuracy = judge_prototypes(features, source, config.meta.test_tasks, name)
            setting = f"{config.dataset.name} {config.meta.way}-way {config.meta.shot}-shot seed {seed}"
            print(f"{setting}: {name:<42} {accuracy} over {accuracy.tasks} tasks")
    return 0


if __name__ == "__main__":
    sys.exit(main())
