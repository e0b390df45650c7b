"""What is shown of a stack: the user's code, and not what called it."""

from __future__ import annotations

from pathlib import Path

from stoker.feed import excerpt as module
from stoker.feed.excerpt import excerpt

WORKERS = Path(module.__file__).parent.parent / "workers"
USERS = f"""Current thread 0x00007f0a (most recent call first):
  File "/home/me/sets.py", line 12 in read
  File "/home/me/sets.py", line 40 in __getitem__
  File "{WORKERS / "making.py"}", line 180 in _unseeded
  File "{WORKERS / "job.py"}", line 240 in _make
  File "/usr/lib/python3.11/multiprocessing/process.py", line 108 in run
  File "/home/me/train.py", line 3 in <module>"""
OTHERS = """Thread 0x00007f0b (most recent call first):
  File "/usr/lib/python3.11/threading.py", line 331 in wait
  File "/home/me/sets.py", line 99 in prefetch"""


def test_the_frames_below_the_data_set_are_left_out() -> None:
    assert excerpt(USERS) == "\n".join(USERS.splitlines()[:3])


def test_all_threads_are_shown() -> None:
    assert excerpt(f"{OTHERS}\n\n{USERS}") == "\n".join([OTHERS, *USERS.splitlines()[:3]])


def test_a_fatal_error_keeps_its_name_and_loses_the_list_of_modules() -> None:
    text = f"Fatal Python error: Bus error\n\n{USERS}\n\nExtension modules: numpy, torch (total: 2)"
    assert excerpt(text).splitlines() == ["Fatal Python error: Bus error", *USERS.splitlines()[:3]]


def test_a_worker_that_is_in_this_library_shows_where() -> None:
    text = f"""Current thread 0x00007f0a (most recent call first):
  File "{WORKERS / "waiting.py"}", line 51 in wait
  File "{WORKERS / "job.py"}", line 200 in serve
  File "{WORKERS / "job.py"}", line 130 in run"""
    assert excerpt(text).splitlines() == text.splitlines()[:3]


def test_nothing_stays_nothing() -> None:
    assert excerpt("") == ""


def test_long_stacks_and_many_threads_are_cut() -> None:
    frames = "\n".join(f'  File "a.py", line {n} in f' for n in range(50))
    text = "\n\n".join(f"Thread {n} (most recent call first):\n{frames}" for n in range(30))
    shown = excerpt(text)
    assert "... 34 more calls" in shown
    assert "... 22 more threads" in shown
    assert len(shown.splitlines()) < 150
