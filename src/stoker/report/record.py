"""The JSON record of ``stoker tune``, schema 1; docs/json.md names every key. Pure.

Keys are only ever added within one schema number. Units are in the names; a rate is in
batches or samples a second, a share of 0.03 is 3 %.
"""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from typing import Any

from stoker.tuning.answer import Answer, Rate, Report
from stoker.tuning.result import Failure

SCHEMA = 1


def report_record(report: Report) -> dict[str, Any]:
    """``report`` as plain lists, dicts, numbers and strings; what is endless is None."""
    loaders = [_loader(answer) for answer in report.answers]
    is_target = report.kind == "target"
    one = report.answers[0] if is_target and report.answers else None
    advice = one.advice if one else None
    recommended = advice and {
        "num_workers": advice.num_workers,
        "batches_per_s": advice.batches_per_s,
        "certain": advice.certain,
        "partial": bool(report.failures),
    }
    record = {
        "schema": SCHEMA,
        "kind": report.kind,
        "command": report.command,
        "target": report.command if is_target else None,
        "recommended": recommended,
        "reason": advice.reason if advice else None,
        "trials": loaders[0]["rates"] if one else [],
        "loader": loaders[0]["loader"] if one else None,
        "loaders": loaders,
        "host": {
            "cpus": asdict(report.cpus),
            "memory_bytes": asdict(report.memory),
            **asdict(report.software),
        },
        "errors": [_error(failure) for failure in report.failures],
        "elapsed_s": report.elapsed_s,
        "ended": report.ended,
        "exit_code": report.exit_code,
    }
    return {key: _plain(value) for key, value in record.items()}


def report_json(report: Report) -> str:
    """The record as text that ends with a newline."""
    return json.dumps(report_record(report), indent=2, allow_nan=False) + "\n"


def _loader(answer: Answer) -> dict[str, Any]:
    batch_size = answer.loader.batch_size if answer.loader else None
    return {**asdict(answer), "rates": [_rate(rate, batch_size) for rate in answer.rates]}


def _rate(rate: Rate, batch_size: int | None) -> dict[str, Any]:
    """A measured setting, flat: the summary's keys and the rest side by side."""
    rest = asdict(rate)
    told: dict[str, Any] = rest.pop("summary")
    if batch_size is not None:
        told["samples_per_s"] = rate.summary.batches_per_s * batch_size
    return {**told, **rest}


def _error(failure: Failure) -> dict[str, Any]:
    return {
        "kind": failure.kind,
        "num_workers": failure.num_workers,
        "batches": failure.batches,
        "message": failure.what,
        "doing": failure.doing,
        "likely": failure.likely,
        "change": failure.change,
        "detail": failure.detail,
    }


def _plain(value: Any) -> Any:
    """As JSON has it: lists for tuples, and None for numbers that have no end."""
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
