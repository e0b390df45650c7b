"""The parent's side of a trial, with small scripts in the place of the trial's process."""

import json
import subprocess
import sys
import time

import pytest

from stoker.tuning import trial as trials
from stoker.tuning.guardian import Guardian
from stoker.tuning.meter import Plan
from stoker.tuning.result import Outcome
from stoker.tuning.search import Trial
from tests.unit.tuning.invented import observe

LOADED = {
    "event": "loaded",
    "loader": {
        "kind": "k",
        "num_workers": 0,
        "batch_size": 1,
        "epoch_batches": 9,
        "persistent_workers": False,
        "torch": "2",
    },
}
SEEN = {**vars(observe(2, 50.0, complete=False))}
TELL = """
import json, os, sys, time, signal, subprocess, faulthandler
def tell(event): print(json.dumps(event), flush=True)
true, false, null = True, False, None
"""


def run(
    monkeypatch: pytest.MonkeyPatch, script: str, timeout_s: float = 60.0
) -> tuple[Outcome, list[int]]:
    monkeypatch.setattr(trials, "START", TELL + script)
    seen: list[int] = []
    with Guardian() as guardian:
        runner = trials.TrialRunner("x.py:loader", Plan(), timeout_s, guardian)
        outcome = runner(Trial(2, 5), lambda batches, _: seen.append(batches))
    return outcome, seen


def event(**fields: object) -> str:
    return f"tell({json.dumps(fields)})\n"


PROGRESS = event(event="progress", batches=7, observation=SEEN)
BEGIN = f"tell({json.dumps(LOADED)})\n{PROGRESS}"


def test_a_measurement_comes_back_with_its_round(monkeypatch: pytest.MonkeyPatch) -> None:
    done = event(event="observed", observation={**SEEN, "complete": True})
    outcome, seen = run(monkeypatch, BEGIN + done)
    assert outcome.failure is None
    assert outcome.observation is not None
    assert outcome.observation.batches_per_s == 50.0
    assert outcome.observation.repeat == 5
    assert outcome.loader is not None
    assert outcome.loader.epoch_batches == 9
    assert seen == [0, 7]


def test_an_end_without_a_word_keeps_the_last_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    end = "print('last words', file=sys.stderr, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    outcome, _ = run(monkeypatch, BEGIN + end)
    assert outcome.failure is not None
    assert outcome.failure.kind == "died"
    assert "SIGKILL" in outcome.failure.what
    assert outcome.failure.detail == "last words"
    assert outcome.failure.batches == 7
    assert outcome.observation is not None
    assert not outcome.observation.complete


def test_an_exit_code_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    outcome, _ = run(monkeypatch, "os._exit(7)")
    assert outcome.failure is not None
    assert "exit code 7" in outcome.failure.what
    assert outcome.failure.doing == "loading the target"


def test_half_a_line_is_no_event(monkeypatch: pytest.MonkeyPatch) -> None:
    half = 'sys.stdout.write(\'{"event": "obs\'); sys.stdout.flush(); os._exit(0)'
    outcome, _ = run(monkeypatch, BEGIN + half)
    assert outcome.failure is not None
    assert outcome.failure.kind == "died"


def test_a_hang_is_ended_and_its_stack_told(monkeypatch: pytest.MonkeyPatch) -> None:
    hang = """
faulthandler.register(signal.SIGUSR1, all_threads=False)
def stuck(): time.sleep(3600)
stuck()
"""
    outcome, _ = run(monkeypatch, BEGIN + hang, timeout_s=2.0)
    assert outcome.failure is not None
    assert outcome.failure.kind == "hang"
    assert "2.0 s" in outcome.failure.what
    assert "--timeout" in outcome.failure.change
    assert "in stuck" in outcome.failure.detail
    assert outcome.observation is not None


def test_a_flood_on_standard_error_blocks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    flood = "for number in range(20000): print('warning', number, file=sys.stderr)\n"
    done = event(event="observed", observation=SEEN)
    outcome, _ = run(monkeypatch, BEGIN + flood + done)
    assert outcome.failure is None


def test_grandchildren_are_killed_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The grandchild holds the pipes: without killing it, the readers would never end."""
    child = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(3600)'])\n"
    began = time.monotonic()
    outcome, _ = run(monkeypatch, child + "os._exit(3)")
    assert outcome.failure is not None
    assert time.monotonic() - began < 30


def test_a_loader_that_does_not_end_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "GRACE_S", 0.1)
    done = event(event="observed", observation=SEEN)
    outcome, _ = run(monkeypatch, done + "time.sleep(3600)")
    assert outcome.failure is None


def test_an_interrupted_trial_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "START", TELL + BEGIN + "time.sleep(3600)")

    def interrupt(_batches: int, _seen: object) -> None:
        raise KeyboardInterrupt

    with Guardian() as guardian, pytest.raises(KeyboardInterrupt):
        trials.TrialRunner("x.py:loader", Plan(), 60.0, guardian)(Trial(2, 0), interrupt)


def test_a_dead_guardian_stops_nobody() -> None:
    with Guardian() as guardian:
        process = guardian._process
        if process is None:
            pytest.skip("no guardian on this system")
        process.kill()
        process.wait()
        guardian.watch(123)
        guardian.watch(0)


@pytest.mark.skipif(sys.platform == "win32", reason="needs process groups")
def test_the_guardian_kills_what_it_was_told_when_the_pipe_closes() -> None:
    victim = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(3600)"], start_new_session=True
    )
    with Guardian() as guardian:
        guardian.watch(victim.pid)
    assert victim.wait(timeout=60) == -9
