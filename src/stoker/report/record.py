"""The JSON record of ``stoker tune``, schema 1. Pure.

Keys are only ever added within one schema number. Units are in the names; a rate is in
batches or samples a second, a share of 0.03 is 3 %.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from stoker.tuning.recommend import CountSummary
from stoker.tuning.result import Failure, TuneResult

SCHEMA = 1


def tune_record(result: TuneResult) -> dict[str, Any]:
    """``result`` as plain lists, dicts, numbers and strings."""
    found = result.recommendation
    batch_size = result.loader.batch_size if result.loader else None
    recommended = found and {
        "num_workers": found.num_workers,
        "batches_per_s": found.batches_per_s,
        "certain": found.certain,
        "partial": bool(result.failures),
    }
    return {
        "schema": SCHEMA,
        "target": result.target,
        "recommended": recommended,
        "reason": found.reason if found else None,
        "trials": [_trial(summary, batch_size) for summary in result.counts],
        "loader": asdict(result.loader) if result.loader else None,
        "host": {"cpus": asdict(result.cpus), **asdict(result.software)},
        "errors": [_error(failure) for failure in result.failures],
        "elapsed_s": result.elapsed_s,
    }


def tune_json(result: TuneResult) -> str:
    """The record as text that ends with a newline."""
    return json.dumps(tune_record(result), indent=2, allow_nan=False) + "\n"


def _trial(summary: CountSummary, batch_size: int | None) -> dict[str, Any]:
    told = asdict(summary)
    if batch_size is not None:
        told["samples_per_s"] = summary.batches_per_s * batch_size
    return told


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
