"""What a worker tells of its log records and warnings, and what the main process makes of it."""

from __future__ import annotations

import gc
import logging
import multiprocessing
import pickle
import sys
import threading
import warnings
from collections.abc import Iterator
from multiprocessing.connection import Connection
from typing import Any

import pytest

from stoker.workers.hearing import hear
from stoker.workers.messages import Made, ShardEnded, Told, dumps, loads
from stoker.workers.speaking import Speaker
from stoker.workers.telling import Wanted, tell_of_this_process

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="knows the room in a pipe")


class Odd(UserWarning):
    pass


@pytest.fixture
def pipe() -> Iterator[tuple[Connection, Connection]]:
    ours, theirs = multiprocessing.Pipe()
    yield ours, theirs
    ours.close()
    theirs.close()


@pytest.fixture
def as_a_worker(monkeypatch: pytest.MonkeyPatch, pipe: tuple[Connection, Connection]) -> Connection:
    """This process tells as worker 3 does; gives the main process's end of the pipe."""
    monkeypatch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    tell_of_this_process(Speaker(pipe[1], 3))
    return pipe[0]


def said(connection: Connection) -> list[Any]:
    found = []
    while connection.poll(0):
        found.append(loads(connection.recv_bytes()))
    return found


def a_warning(text: str = "careful", category: type[Warning] = UserWarning, line: int = 7) -> Any:
    return {
        "text": text,
        "category": pickle.dumps(category),
        "filename": "data.py",
        "lineno": line,
        "module": "data",
    }


@linux_only
def test_a_record_is_told_and_handled_by_the_main_process(
    as_a_worker: Connection, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("data.reader").warning("no %s at %d", "file", 5, extra={"shard": 9})
    (told,) = said(as_a_worker)
    assert not caplog.records
    monkeypatch.undo()
    hear(told)
    (record,) = caplog.records
    assert record.getMessage() == "no file at 5 (DataLoader worker 3)"
    assert (record.name, record.levelname) == ("data.reader", "WARNING")
    assert record.funcName == "test_a_record_is_told_and_handled_by_the_main_process"
    assert vars(record)["shard"] == 9
    assert vars(record)["dataloader_worker"] == 3


@linux_only
def test_a_traceback_in_a_record_is_told(as_a_worker: Connection) -> None:
    try:
        raise ValueError("broken")
    except ValueError:
        logging.getLogger("data").exception("while reading", extra={"lock": threading.Lock()})
    (told,) = said(as_a_worker)
    assert "ValueError: broken" in told.what["exc_text"]
    assert "lock" not in told.what


@linux_only
def test_arguments_that_do_not_fit_are_told_as_they_are(as_a_worker: Connection) -> None:
    logging.getLogger("data").warning("%d samples", "no")
    assert said(as_a_worker)[0].what["msg"] == "'%d samples' with the arguments ('no',)"


@linux_only
def test_a_long_text_is_cut(as_a_worker: Connection) -> None:
    logging.getLogger("data").warning("x" * 10**6)
    (told,) = said(as_a_worker)
    assert len(told.what["msg"]) < 5000
    assert "996,000 characters left out" in told.what["msg"]


@linux_only
def test_what_a_handler_of_the_worker_takes_is_not_told(as_a_worker: Connection) -> None:
    taken = []

    class Taking(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            taken.append(record.getMessage())

    logger, handler = logging.getLogger("data.own"), Taking()
    logger.addHandler(handler)
    logger.addHandler(logging.NullHandler())
    try:
        logger.warning("kept here")
    finally:
        logger.handlers.clear()
    assert taken == ["kept here"]
    assert said(as_a_worker) == []
    logger.addHandler(logging.NullHandler())
    logger.warning("told")
    logger.handlers.clear()
    assert [told.what["msg"] for told in said(as_a_worker)] == ["told"]


@linux_only
def test_a_warning_is_told_with_its_place(pipe: tuple[Connection, Connection]) -> None:
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("always")
        patch.setattr(logging.Logger, "callHandlers", logging.Logger.callHandlers)
        tell_of_this_process(Speaker(pipe[1], 3))
        warnings.warn("careful", Odd, stacklevel=1)
    (told,) = said(pipe[0])
    assert told.kind == "warning"
    assert told.what["text"] == "careful"
    assert told.what["filename"] == __file__
    assert pickle.loads(told.what["category"]) is Odd


def test_one_warning_of_many_workers_is_shown_once() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        for worker in range(4):
            hear(Told(worker, "warning", a_warning()))
        assert [str(w.message) for w in shown] == ["careful (DataLoader worker 0)"]
        assert (shown[0].category, shown[0].filename, shown[0].lineno) == (
            UserWarning,
            "data.py",
            7,
        )
        hear(Told(0, "warning", a_warning(line=8)))
        hear(Told(0, "warning", a_warning("other")))
        assert len(shown) == 3


@pytest.mark.parametrize(("action", "times"), [("always", 3), ("ignore", 0), ("once", 1)])
def test_the_main_process_filters(action: Any, times: int) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        warnings.filterwarnings(action, message="care", category=UserWarning, module="data")
        for line in range(3):
            hear(Told(0, "warning", a_warning(line=line)))
        assert len(shown) == times


def test_filters_that_are_replaced_show_it_again() -> None:
    for _ in range(2):
        with warnings.catch_warnings(record=True) as shown:
            warnings.resetwarnings()
            hear(Told(0, "warning", a_warning("again")))
            hear(Told(1, "warning", a_warning("again")))
            assert len(shown) == 1


def test_a_warning_of_an_unknown_class_is_shown() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.resetwarnings()
        what = {**a_warning(), "category": b"cnowhere\nNothing\n."}
        hear(Told(2, "warning", what))
        assert [str(w.message) for w in shown] == ["careful (DataLoader worker 2)"]


def test_a_level_of_the_main_process_holds(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("data.quiet").setLevel(logging.ERROR)
    what = {"name": "data.quiet", "levelno": 30, "levelname": "WARNING", "msg": "no"}
    hear(Told(0, "log", what))
    assert not caplog.records


def test_a_handler_that_fails_is_printed_and_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise ValueError("bad handler")

    logger = logging.getLogger("data.failing")
    logger.addHandler(Failing())
    try:
        hear(Told(0, "log", {"name": "data.failing", "levelno": 40, "msg": "x"}))
    finally:
        logger.handlers.clear()
    assert "bad handler" in capsys.readouterr().err


@linux_only
def test_telling_never_waits_and_counts_what_it_leaves_out(
    pipe: tuple[Connection, Connection],
) -> None:
    """Nobody reads: a pipe is full long before."""
    speaker = Speaker(pipe[1], 3)
    for number in range(2000):
        speaker.tell("log", {"name": "data", "levelno": 20, "msg": f"{number:04}" * 250})
    first = said(pipe[0])
    assert [told.what["msg"][:4] for told in first] == [f"{n:04}" for n in range(len(first))]
    told: list[Any] = []
    while len(told) < 257:
        speaker.catch_up()
        told += said(pipe[0])
    assert len(told) == 257
    assert f"{2000 - 256 - len(first):,} log records" in told[-1].what["msg"]
    assert told[-1].what["name"] == "stoker"


@linux_only
def test_there_is_room_for_answers_whatever_was_told(pipe: tuple[Connection, Connection]) -> None:
    """A worker whose main process is away can still say what it has made."""
    speaker = Speaker(pipe[1], 3)
    for _ in range(500):
        speaker.tell("log", {"msg": "x" * 4000})
    for _ in range(32):
        speaker.answer(b"answer" * 170)
    found = [pipe[0].recv_bytes() for _ in range(32) if pipe[0].poll(0)]
    assert len(found) == 32


def test_a_finalizer_in_the_middle_of_an_answer_tells_behind_it(
    pipe: tuple[Connection, Connection],
) -> None:
    """And does not come between an answer and the descriptor that follows it."""
    speaker = Speaker(pipe[1], 3)
    answer = Told(3, "log", {"msg": "answer"})

    class Dying:
        def __del__(self) -> None:
            speaker.tell("log", {"msg": "finalizer"})

    def then() -> None:
        thing = Dying()
        del thing
        gc.collect()
        pipe[1].send_bytes(b"descriptor")

    speaker.answer(dumps(answer), then)
    assert loads(pipe[0].recv_bytes()) == answer
    assert pipe[0].recv_bytes() == b"descriptor"
    if sys.platform == "linux":
        assert said(pipe[0])[0].what["msg"] == "finalizer"


def test_threads_do_not_speak_at_the_same_time(pipe: tuple[Connection, Connection]) -> None:
    speaker = Speaker(pipe[1], 3)

    def telling(worker: int) -> None:
        for number in range(50):
            speaker.tell("log", {"msg": (worker, number), "pad": "x" * 3000})

    threads = [threading.Thread(target=telling, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    heard: list[Any] = []
    for number in range(50):
        speaker.answer(dumps(ShardEnded(0, number)))
        heard += said(pipe[0])
    while any(thread.is_alive() for thread in threads):
        heard += said(pipe[0])
    for thread in threads:
        thread.join()
    speaker.answer(dumps(ShardEnded(0, 50)))
    heard += said(pipe[0])
    assert [m.number for m in heard if isinstance(m, ShardEnded)] == list(range(51))
    assert not any(isinstance(m, Made) for m in heard)
    if sys.platform == "linux":
        for worker in range(4):
            told = [m.what["msg"][1] for m in heard if isinstance(m, Told) and "pad" in m.what
                    and m.what["msg"][0] == worker]  # fmt: skip
            assert told == sorted(told)


def test_nobody_there_is_no_error(pipe: tuple[Connection, Connection]) -> None:
    speaker = Speaker(pipe[1], 3)
    pipe[0].close()
    speaker.tell("log", {"msg": "to nobody"})
    with pytest.raises(OSError):  # noqa: PT011
        speaker.answer(b"to nobody")


def test_a_fresh_process_wants_what_the_main_process_does(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("data.wanted")
    logger.setLevel(logging.DEBUG)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="odd.*", category=Odd)
        wanted = pickle.loads(pickle.dumps(Wanted.here()))
    logger.setLevel(logging.NOTSET)
    assert wanted.levels["data.wanted"] == logging.DEBUG
    with warnings.catch_warnings():
        wanted.apply()
        assert logger.level == logging.DEBUG
        assert warnings.filters[0][0] == "ignore"
        warnings.warn("odd one", Odd, stacklevel=1)
    logger.setLevel(logging.NOTSET)
