"""How often a library's random state is read or set through its functions, while it is lent."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

TWISTER_BYTES = 625 * 4


class Count:
    """Of looks at any library's state, in this process.

    Attributes:
        looks: How many there were.
    """

    looks = 0


class Looks:
    """Counts those at one library's state: its functions are replaced, and put back.

    They are replaced while anything is lent, by whichever thread.

    Args:
        found: Gives the functions as they are now.
        put: Puts functions in their place.

    Attributes:
        counting: The functions that count.
    """

    def __init__(
        self,
        found: Callable[[], tuple[Any, ...]],
        put: Callable[[tuple[Any, ...]], None],
    ) -> None:
        self._found = found
        self.put = put
        self._originals = found()
        self.counting = tuple(map(_counting, self._originals))

    def found(self) -> tuple[Any, ...]:
        """The functions as they are now."""
        functions = self._found()
        if functions[0] is not self.counting[0]:
            self._originals = functions
        return functions

    def reset(self) -> None:
        """Puts the library's own functions back; after a fork."""
        if self._found()[0] is self.counting[0]:
            self.put(self._originals)


def _counting(original: Any) -> Any:
    @functools.wraps(original)
    def read(*args: Any, **kwargs: Any) -> Any:
        Count.looks += 1
        return original(*args, **kwargs)

    return read
