"""The end of what a trial's process wrote before it hung or died, cut to what tells. Pure."""

from __future__ import annotations

from collections.abc import Iterable

FRAMES = 6
STACK_STARTS = ("Stack (most recent", "Current thread", "Thread 0x")


def shortened(lines: Iterable[str], most: int) -> str:
    """The last ``most`` lines, of faulthandler's stacks only the innermost frames."""
    kept: list[str] = []
    frames_left: int | None = None
    for line in lines:
        if line.startswith(STACK_STARTS):
            frames_left = FRAMES
        elif frames_left is not None and line.startswith("  File"):
            frames_left -= 1
            if frames_left < 0:
                continue
        elif line.startswith("Extension modules:") or (frames_left is not None and not line):
            continue
        else:
            frames_left = None
        kept.append(line)
    return "\n".join(kept[-most:])
