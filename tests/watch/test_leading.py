"""Processes of one program that have to change at the same batch."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch.distributed

from stoker.watch.leading import Leading


@pytest.fixture(autouse=True)
def _started_by_no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    monkeypatch.delenv("LOCAL_RANK", raising=False)


def test_one_process_has_nobody_to_wait_for(tmp_path: Path) -> None:
    assert not Leading(str(tmp_path)).together


def test_a_group_of_one_is_alone(tmp_path: Path) -> None:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        assert not Leading(str(tmp_path)).together
    finally:
        torch.distributed.destroy_process_group()


def test_a_spawned_rank_waits_for_ranks_that_have_not_come_to_their_loaders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torch.multiprocessing.spawn sets no variable: only the group itself tells."""
    leading = Leading(str(tmp_path))
    assert leading.leads
    assert not leading.together
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 2)
    assert leading.together
    assert leading.followers == 0


def test_a_follower_is_seen_where_there_is_no_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leading = Leading(str(tmp_path))
    assert not Leading(str(tmp_path)).leads
    monkeypatch.setattr("stoker.watch.leading._LOOK_EVERY_S", 0.0)
    assert leading.together
