from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.watch.settings import VARIABLE, Settings

ANY = st.builds(
    Settings,
    mode=st.sampled_from(["tune", "run"]),
    folder=st.text(),
    workers=st.sampled_from(["auto", "keep"]),
    steps=st.none() | st.integers(1, 10**9),
    seconds=st.none() | st.floats(0.1, 1e6),
    counts=st.none() | st.lists(st.integers(0, 64)).map(tuple),
    trace=st.booleans(),
    cache=st.booleans(),
    command=st.integers(0, 2**22),
)


@given(ANY)
def test_what_is_sent_through_the_environment_arrives(settings: Settings) -> None:
    assert Settings.here({VARIABLE: settings.encode()}) == settings


def test_a_process_that_is_not_watched_has_none() -> None:
    assert Settings.here({}) is None
    assert Settings.here({VARIABLE: ""}) is None


@pytest.mark.parametrize("text", ["{", "[]x", '{"mode": "run", "folder": "f", "future": 1}'])
def test_another_text_is_refused(text: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        Settings.decode(text)
