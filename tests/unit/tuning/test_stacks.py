from stoker.tuning.stacks import FRAMES, shortened


def test_only_the_innermost_frames_of_each_stack_are_kept() -> None:
    frames = [f'  File "deep.py", line {number} in call' for number in range(30)]
    stack = ["Stack (most recent call first):", *frames]
    told = shortened(["before", *stack, *stack, "after"], 100).splitlines()
    assert told[0] == "before"
    assert told[-1] == "after"
    assert len(told) == 2 + 2 * (1 + FRAMES)
    assert told[2] == frames[0]


def test_a_crash_is_told_without_the_list_of_modules() -> None:
    lines = [
        "Fatal Python error: Segmentation fault",
        "",
        "Current thread 0x1 (most recent call first):",
        '  File "x.py", line 1 in f',
        "",
        "Extension modules: numpy, torch (total: 2)",
    ]
    assert shortened(lines, 100).splitlines() == lines[:4]


def test_ordinary_lines_are_cut_to_the_last() -> None:
    assert shortened([str(number) for number in range(100)], 3) == "97\n98\n99"
