"""Public cases of group E that are about pickling."""

from __future__ import annotations

import multiprocessing
from typing import Any

import pytest

from stoker.errors import NotPicklable
from tests.contract.methods import loader
from tests.datasets import Plain


class Storage:
    """As h5py's files: it says itself that it can't be pickled."""

    def __reduce__(self) -> Any:
        raise TypeError("h5py objects cannot be pickled")


class Stored(Plain):
    def __init__(self) -> None:
        super().__init__(4)
        self.options = {"a": 1}
        self.local_storage = Storage()


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")
def test_c046_the_attribute_that_does_not_pickle_is_named_before_a_process_starts() -> None:
    """Pickle's own error, as ever; its cause names the attribute."""
    with pytest.raises(TypeError, match="h5py objects cannot be pickled") as caught:
        iter(loader(Stored(), "spawn"))
    assert not multiprocessing.active_children()
    cause = caught.value.__cause__
    assert isinstance(cause, NotPicklable)
    assert "A worker can't be sent dataset: dataset.local_storage is a " in str(cause)
    assert "test_e_pickling.Storage" in str(cause)
