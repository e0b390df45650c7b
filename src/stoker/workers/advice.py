"""Which other way of starting workers is advised, in words, and whether it would do."""

from __future__ import annotations

import multiprocessing
import multiprocessing.spawn
import os
import sys

from stoker.workers.by_value import MAIN

FRESH = "worker_method='fresh', without multiprocessing_context="


def or_forked() -> str:
    """The advice to fork, at the end of others; empty where the system has no fork."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return ""
    return "; or worker_method='fork', without multiprocessing_context="


def main_that_is_no_file() -> str | None:
    """The path by which a spawned process would import the main module, where it will not find it.

    So it is for a program on standard input, which Python calls ``<stdin>``, and for one that was
    removed. None where there is a file, and where none would be asked for: in a notebook, or
    with ``-c``.
    """
    path = multiprocessing.spawn.get_preparation_data("").get("init_main_from_path")
    if path is None or getattr(sys, "frozen", False) or os.path.exists(path):
        return None
    return str(path)


def main_is_not_imported() -> bool:
    """Whether there is nothing that a spawned process could import the main module by."""
    told = multiprocessing.spawn.get_preparation_data("")
    return not any(name.startswith("init_main_from") for name in told)


def is_of_main(why: str) -> bool:
    """Whether pickle's words are of a name that the main module lacks in another process."""
    return any(f"<module '{name}'" in why for name in MAIN)
