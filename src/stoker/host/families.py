"""The processes that a data set has started in its workers, which multiply with their number."""

from __future__ import annotations

from collections.abc import Collection

import psutil

from stoker.sizes import in_words


def family_finding(workers: Collection[int]) -> str:
    """A sentence about the processes below these workers; empty where there are none.

    Looks at every process of the machine once: some ten milliseconds.

    Args:
        workers: Process ids.
    """
    if not workers:
        return ""
    below: dict[int, list[psutil.Process]] = {}
    for process in psutil.process_iter(["ppid", "memory_info"]):
        below.setdefault(process.info["ppid"], []).append(process)
    having = [pid for pid in workers if pid in below]
    found: list[psutil.Process] = []
    parents = list(workers)
    while parents:
        children = [child for pid in parents for child in below.pop(pid, [])]
        found += children
        parents = [child.pid for child in children]
    if not found:
        return ""
    sizes = (child.info["memory_info"] for child in found)
    used = in_words(sum(size.rss for size in sizes if size is not None))
    who = "1 worker has" if len(having) == 1 else f"{len(having)} of {len(workers)} workers have"
    whose = "its" if len(having) == 1 else "their"
    what = "1 process" if len(found) == 1 else f"{len(found)} processes"
    return (
        f"{who} started {what} of {whose} own, with {used} of memory in all: each further "
        "worker adds as many, so give that data set fewer, or the loader fewer workers"
    )
