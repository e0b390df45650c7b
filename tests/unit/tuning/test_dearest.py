from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stoker.tuning.dearest import Counted, collating, merge


def counted(
    line: int, seconds: float, *, callee: str = "", file: str = "data.py", collates: bool = False
) -> Counted:
    return Counted(
        file=file,
        line=line,
        function="read",
        callee=callee,
        collating=collates,
        looks=int(seconds * 100),
        seconds=seconds,
    )


def test_counts_of_all_processes_are_one() -> None:
    first = [counted(3, 1.0, callee="PIL.open"), counted(4, 1.0)]
    second = [counted(3, 2.0, callee="PIL.load"), counted(0, 1.0, file="")]
    found = merge([first, second], source=lambda file, line: f"    {file} line {line}\n")
    assert [(one.line, one.share, one.samples, one.callee) for one in found] == [
        (3, 0.6, 300, "PIL.load"),
        (4, 0.2, 100, ""),
    ]
    assert found[0].code == "data.py line 3"


def test_a_function_called_now_and_then_is_not_named_for_the_lines_own_work() -> None:
    found = merge([[counted(3, 5.0), counted(3, 1.0, callee="json.loads")]])
    assert found[0].callee == ""


def test_at_most_eight_lines_and_none_that_do_not_matter() -> None:
    assert len(merge([[counted(at, 1.0) for at in range(1, 30)]])) == 8
    found = merge([[counted(1, 98.5), counted(2, 1.5)]])
    assert [one.line for one in found] == [1]


def test_no_looks_are_no_lines() -> None:
    assert merge([]) == ()
    assert merge([[], []]) == ()
    assert merge([[counted(1, 0.0)]]) == ()
    assert collating([]) is None


def test_the_share_of_the_collate_function() -> None:
    assert collating([[counted(3, 3.0), counted(9, 1.0, collates=True)]]) == 0.25


counts = st.builds(
    counted,
    st.integers(0, 20),
    st.floats(0, 1e6),
    callee=st.sampled_from(["", "a.b", "c.d"]),
    file=st.sampled_from(["", "data.py", "more.py"]),
    collates=st.booleans(),
)


@given(st.lists(st.lists(counts)))
def test_shares_are_shares_and_the_dearest_is_first(of_processes: list[list[Counted]]) -> None:
    found = merge(of_processes)
    assert len(found) <= 8
    assert sum(one.share for one in found) <= 1 + 1e-9
    assert [one.share for one in found] == sorted((one.share for one in found), reverse=True)
    assert found == merge(reversed(of_processes)) or len(of_processes) > 1
