"""SIGKILL at any moment: what is in the folder is whole, and going on ends at the same bits.

``OPENPROMPT_META_KILLS=500`` makes the loops longer and draws other moments every time.
"""

from __future__ import annotations

import os
import random
import signal
from pathlib import Path

import pytest

from openprompt_meta.errors import RunError
from openprompt_meta.runs.run import Run
from tests.helpers.victims import SmallRun, VictimServer, assert_same_results, assert_sound, timed, wait_for

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="processes are forked")

KILLS = int(os.environ.get("OPENPROMPT_META_KILLS", "0"))
GENERATOR = random.Random(None if KILLS else 8)


def test_a_run_killed_again_and_again_ends_at_the_same_bits(
    victims: VictimServer, small_run: SmallRun, straight: Path, tmp_path: Path
) -> None:
    whole = min(timed(victims, small_run.yaml, tmp_path / f"timed-{number}") for number in range(2))
    assert_same_results(straight, tmp_path / "timed-0")
    kills = finished = 0
    while kills < (KILLS or 12):
        folder = tmp_path / f"run-{finished}"
        # On a machine that has become slower all might be killed before they begin; the last is left alone.
        for kill_after in [*(GENERATOR.uniform(0, whole) for _ in range(8)), None]:
            ended = victims.run(small_run.yaml, folder, kill_after=kill_after)
            assert_sound(folder, small_run.config)
            if ended["signal"] is None:
                break
            kills += 1
        assert ended["code"] == 0, ended
        assert_same_results(straight, folder)
        finished += 1
    print(f"{kills} kills at random moments, {finished} runs ended as the straight one")


def test_a_run_killed_before_any_change_of_a_file_ends_at_the_same_bits(
    victims: VictimServer, small_run: SmallRun, straight: Path, tmp_path: Path
) -> None:
    events = victims.run(small_run.yaml, tmp_path / "counted")["events"]
    assert events > 40
    moments = range(events) if KILLS else sorted(GENERATOR.sample(range(events), 4))
    for moment in moments:
        folder = tmp_path / f"run-{moment}"
        assert victims.run(small_run.yaml, folder, die_at=moment)["signal"] == signal.SIGKILL
        assert_sound(folder, small_run.config)
        assert victims.run(small_run.yaml, folder)["code"] == 0
        assert_same_results(straight, folder)
    print(f"{len(moments)} kills, each before another of {events} changes of files")


def test_a_second_process_is_refused_and_the_first_is_not_disturbed(
    victims: VictimServer, small_run: SmallRun, straight: Path, tmp_path: Path
) -> None:
    with victims.started(small_run.yaml, tmp_path / "run") as pid:
        wait_for(tmp_path / "run" / "config.yaml")
        os.kill(pid, signal.SIGSTOP)  # so that it cannot end before the second has tried
        with pytest.raises(RunError, match="Another process is running in"):
            Run(small_run.config, tmp_path / "run", show_progress=False).train()
        assert victims.kill(pid)["signal"] == signal.SIGKILL
    # The lock ends with the process that holds it, however it ends.
    assert victims.run(small_run.yaml, tmp_path / "run")["code"] == 0
    assert_same_results(straight, tmp_path / "run")
