"""A board: seen from outside, left behind by nobody, and never seen half."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import stoker.errors
from stoker.transport import board, board_memory, board_scan
from stoker.transport.board import publish, read_boards, withdraw
from stoker.transport.board_bytes import (
    ENTRY_BYTES,
    HEAD_BYTES,
    Head,
    read_head,
    read_texts,
    write_area,
    write_head,
)

LINUX = sys.platform == "linux"
KEYS = range(64)
PACKAGE = str(Path(stoker.errors.__file__).parents[1])
PRELUDE = """
import os, signal, sys, time
from pathlib import Path
from stoker.transport import board, board_memory
from stoker.transport.board import publish, read_boards, withdraw
if sys.argv[1] == "file":
    board_memory.kind_here = lambda: "file"
board_memory.folder = lambda: Path(sys.argv[2]) / "boards"
def say(*words):
    print(*words, flush=True)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Boards in files are in a folder of the test's; at its end no board is left."""
    place = tmp_path / "boards"
    monkeypatch.setattr(board_memory, "folder", lambda: place)
    yield place
    for key in KEYS:
        withdraw(key)


@pytest.fixture(
    params=[pytest.param("memfd", marks=pytest.mark.skipif(not LINUX, reason="Linux")), "file"]
)
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(board_memory, "kind_here", lambda: request.param)
    return str(request.param)


def texts_of(pid: int) -> dict[int, bytes]:
    return next((seen.texts for seen in read_boards(pid)), {})


def mine() -> dict[int, bytes]:
    return texts_of(os.getpid())


def start(body: str, kind: str, folder: Path) -> subprocess.Popen[str]:
    """A process that publishes."""
    return subprocess.Popen(
        [sys.executable, "-c", PRELUDE + body, kind, str(folder.parent)],
        env={**os.environ, "PYTHONPATH": PACKAGE},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def next_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


class TestPublishing:
    def test_what_is_published_is_seen_until_it_is_withdrawn(self, kind: str) -> None:
        publish(1, b"one")
        assert mine() == {1: b"one"}
        publish(2, b"two")
        publish(1, b"uno")
        assert mine() == {1: b"uno", 2: b"two"}
        withdraw(1)
        withdraw(1)
        assert mine() == {2: b"two"}
        withdraw(2)
        assert mine() == {}

    def test_it_is_among_all_boards(self, kind: str) -> None:
        publish(-5, b"here")
        try:
            assert {seen.pid: seen.texts for seen in read_boards()}[os.getpid()] == {-5: b"here"}
        finally:
            withdraw(-5)

    def test_with_the_last_key_everything_goes(self, kind: str, folder: Path) -> None:
        before = set(os.listdir("/proc/self/fd")) if LINUX else set()
        publish(1, b"one")
        assert (len(list(folder.glob("*"))) == 1) == (kind == "file")
        withdraw(1)
        assert not list(folder.glob("*"))
        assert not LINUX or set(os.listdir("/proc/self/fd")) == before

    def test_it_keeps_one_descriptor(self, kind: str) -> None:
        if not LINUX:
            pytest.skip("counts descriptors in /proc")
        before = len(os.listdir("/proc/self/fd"))
        for key in KEYS:
            publish(key, b"x" * 1000)
        assert len(os.listdir("/proc/self/fd")) == before + 1

    def test_it_grows_with_texts_and_with_keys(self, kind: str) -> None:
        random_state = random.Random(0)
        expected: dict[int, bytes] = {}
        for _ in range(300):
            key = random_state.choice(KEYS)
            if random_state.random() < 0.3:
                withdraw(key)
                expected.pop(key, None)
            else:
                expected[key] = random_state.randbytes(random_state.choice([1, 100, 5000, 40_000]))
                publish(key, expected[key])
            assert mine() == expected

    def test_an_empty_text_shows_nothing(self, kind: str) -> None:
        publish(1, b"one")
        publish(1, b"")
        assert mine() == {}
        publish(1, b"again")
        assert mine() == {1: b"again"}

    def test_threads_publish_at_once(self, kind: str) -> None:
        def work(key: int) -> None:
            for count in range(200):
                publish(key, b"%d" % count)

        threads = [threading.Thread(target=work, args=(key,)) for key in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert mine() == dict.fromkeys(range(4), b"199")

    def test_who_finds_somebody_at_the_board_does_not_wait(self, kind: str) -> None:
        """As a finalizer does that runs in the middle of a publish of the same thread."""
        publish(1, b"one")
        with board._board._busy:
            publish(2, b"two")
            withdraw(1)
            assert mine() == {1: b"one"}
        publish(3, b"three")
        assert mine() == {2: b"two", 3: b"three"}

    def test_without_memory_nothing_is_seen_and_nothing_raised(
        self, kind: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(_size: int) -> None:
            raise OSError("no memory")

        with monkeypatch.context() as patch:
            patch.setattr(board, "BoardMemory", full)
            publish(1, b"one")
            publish(2, b"two")
            assert mine() == {}
        publish(2, b"TWO")
        assert mine() == {1: b"one", 2: b"TWO"}

    def test_a_write_that_falls_short_is_a_full_disk(
        self, monkeypatch: pytest.MonkeyPatch, kind: str, folder: Path
    ) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(os, "write", lambda descriptor, data: len(data) - 1)
            with pytest.raises(OSError, match="No space"):
                board_memory.BoardMemory(100)
        assert not list(folder.glob("*"))


class TestEndings:
    def test_nothing_is_left_of_a_process_that_is_killed(self, kind: str, folder: Path) -> None:
        with start("publish(7, b'alive'); say('up'); time.sleep(100)", kind, folder) as process:
            assert next_line(process) == "up"
            assert texts_of(process.pid) == {7: b"alive"}
            process.kill()
        assert texts_of(process.pid) == {}
        assert process.pid not in [seen.pid for seen in read_boards()]
        assert not list(folder.glob("*"))

    def test_a_process_that_ends_takes_its_board_along(self, kind: str, folder: Path) -> None:
        with start("publish(7, b'alive')", kind, folder) as process:
            assert process.wait() == 0
        assert not list(folder.glob("*"))

    @pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
    def test_a_stopped_process_is_still_seen(self, kind: str, folder: Path) -> None:
        with start("publish(7, b'alive'); say('up'); time.sleep(100)", kind, folder) as process:
            next_line(process)
            process.send_signal(signal.SIGSTOP)
            assert texts_of(process.pid) == {7: b"alive"}
            process.kill()

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_copy_has_a_board_of_its_own(self, kind: str, folder: Path) -> None:
        body = """
publish(7, b"parent")
child = os.fork()
if not child:
    withdraw(7)
    say(len(read_boards(os.getpid())), read_boards(os.getppid())[0].texts)
    publish(7, b"child")
    say(read_boards(os.getpid())[0].texts, read_boards(os.getppid())[0].texts)
    sys.exit()
os.waitpid(child, 0)
say(read_boards(os.getpid())[0].texts)
"""
        with start(body, kind, folder) as process:
            assert next_line(process) == "0 {7: b'parent'}"
            assert next_line(process) == "{7: b'child'} {7: b'parent'}"
            assert next_line(process) == "{7: b'parent'}"

    @pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
    def test_a_forked_copy_does_not_keep_the_board_of_a_dead_parent(
        self, kind: str, folder: Path
    ) -> None:
        body = """
publish(7, b"parent")
reader, writer = os.pipe()
child = os.fork()
if not child:
    os.close(writer)
    os.read(reader, 1)  # the parent's end
    say("orphan", [seen for seen in read_boards() if b"parent" in seen.texts.values()])
    os._exit(0)
os.kill(os.getpid(), signal.SIGKILL)
"""
        with start(body, kind, folder) as process:
            process.wait()
            assert next_line(process) == "orphan []"

    def test_a_copy_forked_behind_pythons_back_begins_anew(
        self, kind: str, folder: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        publish(1, b"parent")
        before = board._board
        monkeypatch.setattr(before, "_pid", before._pid + 1)
        path = before._memory and before._memory.path
        withdraw(1)
        assert board._board is not before
        assert path is None or path.exists()
        publish(2, b"copy")
        assert mine() == {2: b"copy"}


class TestReading:
    def test_no_text_is_seen_half(self, kind: str, folder: Path) -> None:
        body = """
import itertools
for count in itertools.count():
    publish(7, bytes([65 + count % 26]) * (1 + count * 37 % 3000))
    if count == 0:
        say("up")
    if count % 4 == 0:
        time.sleep(0.0002)  # else it is always in the middle of a write
"""
        with start(body, kind, folder) as process:
            next_line(process)
            until, seen = time.monotonic() + 0.5, set()
            while time.monotonic() < until:
                text = texts_of(process.pid).get(7)
                if text is not None:
                    assert text == text[:1] * len(text)
                    seen.add(text)
            process.kill()
        assert len(seen) > 10

    def test_a_writer_that_stopped_in_the_middle_hides_that_text_only(self, kind: str) -> None:
        publish(1, b"one")
        publish(2, b"two")
        state = board._board
        assert state._memory is not None
        at = HEAD_BYTES + state._areas[1] * state._head.area_bytes
        state._memory.mapping[at] |= 1
        assert mine() == {2: b"two"}
        publish(1, b"mended")
        assert mine() == {1: b"mended", 2: b"two"}

    @pytest.mark.skipif(not LINUX, reason="needs memfd")
    def test_an_inherited_board_is_not_its_holders(self) -> None:
        publish(1, b"mine")
        links = {name: os.readlink(f"/proc/self/fd/{name}") for name in _descriptors()}
        number = int(next(name for name, link in links.items() if "stoker-board" in link))
        with subprocess.Popen(
            [sys.executable, "-c", "input()"], stdin=subprocess.PIPE, pass_fds=[number]
        ) as heir:
            assert os.readlink(f"/proc/{heir.pid}/fd/{number}") == links[str(number)]
            assert texts_of(heir.pid) == {}
            heir.communicate(b"\n")

    @pytest.mark.skipif(not LINUX, reason="needs memfd")
    @pytest.mark.parametrize("size", [0, 10, 64, 5000])
    def test_garbage_in_memory_is_passed_over(self, size: int) -> None:
        descriptor = os.memfd_create(board_memory.LABEL)
        try:
            os.write(descriptor, random.Random(size).randbytes(size))
            assert mine() == {}
            publish(1, b"beside it")
            assert mine() == {1: b"beside it"}
        finally:
            os.close(descriptor)

    def test_garbage_in_files_is_passed_over_and_the_dead_ones_go(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        living, dead, other = f"{os.getpid()}.board", f"{2**31 - 2}.board", "notes.board"
        for name in (living, dead, other):
            (folder / name).write_bytes(b"\xff" * 100)
        assert mine() == {}
        read_boards()
        assert sorted(path.name for path in folder.iterdir()) == [living, other]

    def test_a_file_of_an_earlier_process_with_this_pid_goes(self, folder: Path) -> None:
        folder.mkdir(mode=0o700)
        head = Head(os.getpid(), board_memory.start_of(os.getpid()) - 100, 4096, 1)
        memory = bytearray(head.size_bytes)
        write_head(memory, head)
        write_area(memory, head, 0, 1, b"long ago")
        (folder / f"{os.getpid()}.board").write_bytes(memory)
        assert mine() == {}
        assert not list(folder.iterdir())

    @pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs POSIX permissions")
    @pytest.mark.parametrize("how", ["open to others", "a link", "a file"])
    def test_a_folder_that_is_not_the_users_alone_is_not_used(
        self, folder: Path, how: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(board_memory, "kind_here", lambda: "file")
        if how == "open to others":
            folder.mkdir()
            folder.chmod(0o755)
        elif how == "a link":
            (folder.parent / "elsewhere").mkdir(mode=0o700)
            folder.symlink_to("elsewhere")
        else:
            folder.touch()
        publish(1, b"one")
        assert mine() == {}

    @pytest.mark.skipif(not LINUX, reason="reads /proc")
    @pytest.mark.parametrize("error", [PermissionError, FileNotFoundError, ProcessLookupError])
    @pytest.mark.parametrize("name", ["listdir", "readlink"])
    def test_what_may_not_be_read_or_has_vanished_is_passed_over(
        self, monkeypatch: pytest.MonkeyPatch, error: type[OSError], name: str
    ) -> None:
        publish(1, b"one")
        real: Callable[[str], object] = getattr(os, name)

        def refuse(path: object) -> object:
            if str(path).startswith("/proc/1/") or str(path).endswith("/0"):
                raise error
            return real(str(path))

        monkeypatch.setattr(board_scan, "_own_processes", lambda: [1, 2**22 + 1, os.getpid()])
        monkeypatch.setattr(os, name, refuse)
        assert [seen.pid for seen in read_boards()] == [os.getpid()]

    @pytest.mark.skipif(not LINUX, reason="reads /proc")
    def test_other_users_processes_are_passed_over(self, monkeypatch: pytest.MonkeyPatch) -> None:
        publish(1, b"one")
        assert os.getpid() in [seen.pid for seen in read_boards()]
        monkeypatch.setattr(os, "geteuid", lambda: 54321)
        assert read_boards() == []

    def test_no_such_process(self) -> None:
        assert read_boards(2**31 - 2) == []


class TestBytes:
    """The bytes alone: a reader whose looks fall between a writer's steps."""

    head = Head(1, 2.0, 256, 2)

    def memory(self) -> bytearray:
        memory = bytearray(self.head.size_bytes)
        write_head(memory, self.head)
        return memory

    def test_a_writer_between_two_looks_is_noticed(self) -> None:
        memory, looks, pauses = self.memory(), [], []
        write_area(memory, self.head, 0, 5, b"old old")

        def read(offset: int, size: int) -> bytes:
            data = bytes(memory[offset : offset + size])
            looks.append(offset)
            if len(looks) == 1:
                write_area(memory, self.head, 0, 5, b"new")
            return data

        assert read_texts(read, self.head, lambda: pauses.append(1)) == {5: b"new"}
        assert len(pauses) == 1

    def test_a_text_that_does_not_fit_its_checksum_is_none(self) -> None:
        memory = self.memory()
        write_area(memory, self.head, 1, 5, b"text")
        memory[HEAD_BYTES + 256 + ENTRY_BYTES] ^= 1
        assert read_texts(_reader(memory), self.head, lambda: None) == {}

    def test_a_board_cut_short_has_what_is_there(self) -> None:
        memory = self.memory()
        write_area(memory, self.head, 0, 5, b"first")
        write_area(memory, self.head, 1, 6, b"second")
        cut = memory[: HEAD_BYTES + 256 + 3]
        assert read_texts(_reader(cut), self.head, lambda: None) == {5: b"first"}

    @pytest.mark.parametrize("damage", [b"", b"stoker-1", b"stoker-9" + bytes(56)])
    def test_no_head(self, damage: bytes) -> None:
        assert read_head(_reader(damage)) is None

    def test_absurd_sizes_are_no_head(self) -> None:
        memory = bytearray(HEAD_BYTES)
        for area_bytes, areas in ((1, 1), (1 << 62, 1), (4096, 1 << 50), (4096, 1 << 63)):
            write_head(memory, Head(1, 0.0, area_bytes, areas))
            assert read_head(_reader(memory)) is None

    def test_the_head_is_read_as_written(self) -> None:
        assert read_head(_reader(self.memory())) == self.head


def _reader(memory: bytes) -> Callable[[int, int], bytes]:
    return lambda offset, size: bytes(memory[offset : offset + size])


def _descriptors() -> list[str]:
    return [
        name for name in os.listdir("/proc/self/fd") if os.path.lexists(f"/proc/self/fd/{name}")
    ]
