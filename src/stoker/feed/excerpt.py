"""What of a worker's stack is worth reading. Pure."""

from __future__ import annotations

_OURS = __file__.rpartition("feed")[0] + "workers"
_FRAMES = 16
_THREADS = 8
_NOISE = "Extension modules:"


def excerpt(text: str) -> str:
    """The stacks that `faulthandler` wrote, without what lies beneath the user's code.

    Args:
        text: Of one or more threads, the most recent call first; may be empty.

    Returns:
        The same form, at most 8 threads of 16 frames. The frames of this library below the
        data set, and what started it, are left out; a thread that is in this library only
        keeps its last ones.
    """
    blocks = [block.splitlines() for block in text.split("\n\n") if block.strip()]
    kept = [_thread(block) for block in blocks if not block[0].startswith(_NOISE)]
    more = [f"... {len(kept) - _THREADS} more threads"] if len(kept) > _THREADS else []
    return "\n".join(line for lines in [*kept[:_THREADS], more] for line in lines)


def _thread(block: list[str]) -> list[str]:
    head = [line for line in block if not _is_frame(line) and not line.startswith(_NOISE)]
    frames = [line for line in block if _is_frame(line)]
    ours = next((n for n, frame in enumerate(frames) if _OURS in frame), len(frames))
    frames = frames[: ours or 2]
    if len(frames) > _FRAMES:
        frames = [*frames[:_FRAMES], f"  ... {len(frames) - _FRAMES} more calls"]
    return [*head, *frames]


def _is_frame(line: str) -> bool:
    return line.startswith("  File ")
