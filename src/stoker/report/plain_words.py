"""The verdict in words for somebody who has never heard of num_workers. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from stoker.tuning.answer import Answer, LimitKind
from stoker.tuning.wording import count_of, number, percent, times, workers

SAME = 1.02
"""A gain below this is none that anybody would notice."""
LESS = 0.9
"""Of the gain over a whole epoch: a steady rate that gains less is told beside it."""
FAR_ABOVE = 20.0
"""A bound that is so many times the rate now is no aim: loading is all there is to wait for."""

LIMITS: dict[LimitKind, tuple[str, str]] = {
    "consumer": (
        "The limit is the training itself",
        "Batches are ready before they are wanted. To go faster, make the step faster: no setting "
        "of the loader can.",
    ),
    "cpu": (
        "The limit is the CPU",
        "The workers have no more CPU time to get. More CPUs, or less work for each sample, would "
        "help; more workers would not.",
    ),
    "storage": (
        "The limit is what samples wait for",
        "Making a batch mostly waits for storage, the network, a lock or a sleep, and not for the "
        "CPU. Faster storage or fewer, larger reads would help.",
    ),
    "order": (
        "The limit is the order of batches",
        "Later batches are ready, but one slow batch before them holds them up. Samples of more "
        "even cost, or more batches made in advance, would help.",
    ),
    "transport": (
        "The limit is the way from the workers to the training",
        "Batches are made fast enough, but bringing them over takes long. Smaller batches in "
        "fewer, larger pieces would help.",
    ),
    "main process": (
        "The limit is the training's own process",
        "It has too little time to take batches from the workers, or makes them by itself.",
    ),
    "memory": ("The limit is memory", "There is no room for more workers."),
    "start": (
        "The limit is the start of the workers",
        "They are started anew for each epoch, and the epochs are short. Keeping them "
        "(persistent_workers=True) or longer epochs would help.",
    ),
    "unknown": ("The limit is not known", ""),
}


@dataclass(frozen=True)
class Tile:
    """A number that matters, large, with what it is above and what it means below."""

    title: str
    value: str
    unit: str
    meaning: str
    shade: str


def headline(answer: Answer) -> str:
    """What to do, in a few words."""
    advice = answer.advice
    if advice is None:
        return "No recommendation: not enough could be measured"
    if answer.nothing_to_gain and answer.loader is not None and answer.loader.automatic:
        return "Leave it as it is: the loader chooses the number by itself"
    if _nothing_else(answer):
        return f"Keep {_some(advice.num_workers)} for now: nothing else was measured"
    if answer.nothing_to_gain:
        now = advice.num_workers if answer.loader is None else answer.loader.num_workers
        return f"Keep {_some(now)}: there is nothing to gain"
    if answer.loader is not None and answer.loader.num_workers == advice.num_workers:
        return f"Keep {_some(advice.num_workers)}, and change how they are used"
    return f"Use {_some(advice.num_workers)}"


def _nothing_else(answer: Answer) -> bool:
    """Whether the setting that there is stays only because no other was measured."""
    uncertain = answer.advice is not None and not answer.advice.certain
    return answer.nothing_to_gain and uncertain and len(answer.rates) == 1


def _some(count: int) -> str:
    return "no workers (0)" if count == 0 else workers(count)


def gain_sentence(answer: Answer) -> str:
    """What the recommended setting changes; empty where that is not known."""
    advice, now = answer.advice, answer.now_per_s
    if advice is None:
        return ""
    rate = number(advice.batches_per_s)
    if _nothing_else(answer):
        return f"Batches come at {rate} a second; whether others are faster is not known."
    if answer.nothing_to_gain:
        return (
            f"This is a good result: at {rate} batches a second, no other setting that was tried "
            "is notably better."
        )
    if advice.gain is None:
        return f"Batches then come at {rate} a second."
    if advice.gain < SAME:
        return f"Batches come no faster than now ({rate} a second), but with less effort."
    if now and advice.batches_per_s / now < LESS * advice.gain:
        return (
            f"An epoch is then over {times(advice.gain)} as fast, with what starting workers "
            f"takes; once running, batches come at {rate} a second instead of {number(now)}."
        )
    told = f"Batches then come {times(advice.gain)} as fast"
    return f"{told}: {rate} a second instead of {number(now)}." if now else f"{told}."


def waiting_sentence(answer: Answer) -> str:
    """How much of its time the consumer waits now; empty where that was not measured."""
    if answer.waiting is None:
        return ""
    if answer.waiting < 0.0095:
        return "Now the training hardly ever waits for a batch."
    return f"Now the training spends {percent(answer.waiting)} of its time without a batch."


def certainty(answer: Answer) -> tuple[str, str]:
    """A word for a badge, and the sentence that explains it."""
    advice = answer.advice
    if advice is None:
        return "not measured", "Nothing could be measured to its end."
    if advice.certain:
        return "certain", "Measuring for longer would hardly change this."
    return (
        "not certain",
        "Measuring for longer might change this.",
    )


def limit_words(answer: Answer) -> tuple[str, str]:
    """A heading for what keeps batches from coming faster, and what would help."""
    title, help_text = LIMITS.get(answer.limit.kind, LIMITS["unknown"])
    if not help_text and not answer.limit.sentence:
        return title, "Too little was measured to tell."
    return title, help_text


def tiles(answer: Answer) -> list[Tile]:
    """Now, recommended, and the most that any setting can give, as far as they are known."""
    unit = "batches a second"
    found = []
    if answer.now_per_s is not None:
        count = None if answer.loader is None else workers(answer.loader.num_workers)
        share = None if answer.waiting is None else f"waits {percent(answer.waiting)} of the time"
        meaning = ", ".join(text for text in (count, share) if text)
        found.append(Tile("now", number(answer.now_per_s), unit, meaning, "now"))
    advice = answer.advice
    if advice is not None and not answer.nothing_to_gain:
        gain = "" if advice.gain is None else f", {times(advice.gain)} the speed of now"
        meaning = workers(advice.num_workers) + gain
        found.append(Tile("recommended", number(advice.batches_per_s), unit, meaning, "good"))
    if answer.bound_per_s is not None and (answer.most_gain or 1.0) <= FAR_ABOVE:
        meaning = "if every batch were ready in advance"
        found.append(Tile("the most possible", number(answer.bound_per_s), unit, meaning, "bound"))
    return found


def short_verdict(answer: Answer) -> str:
    """A line for the list at the top of a page about several loaders."""
    advice = answer.advice
    if advice is None or answer.nothing_to_gain or advice.gain is None:
        return headline(answer)
    return f"{headline(answer)}: {times(advice.gain)} as fast"


def measured_sentence(answer: Answer) -> str:
    """What was watched: epochs, batches and for how long; empty where nothing was."""
    told = [
        count_of(count, noun)
        for count, noun in ((answer.epochs, "epoch"), (answer.batches, "batch"))
        if count
    ]
    if answer.seconds:
        told.append(f"{answer.seconds:,.1f} s")
    return ", ".join(told)
