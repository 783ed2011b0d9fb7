"""The state of a running study, built from messages. Standard library only: the server imports nothing else."""

from __future__ import annotations

import json
import statistics
from collections import Counter, deque
from threading import Lock
from typing import Any

POINTS = 240
"""Intervals that the page draws."""
NOTES = 20


class State:
    """State of the page. Messages come from one thread, readers from others."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._version = 0
        self._facts: dict[str, Any] = {"study": {}, "progress": {}, "now": {}, "values": {}, "over": None}
        self._points: deque[list[float | None]] = deque(maxlen=POINTS)
        self._notes: deque[str] = deque(maxlen=NOTES)
        self._cases: dict[str, dict[str, Any]] = {}
        self._verdicts: Counter[str] = Counter()

    def apply(self, message: dict[str, Any]) -> None:
        """Apply a message; one of an unknown kind is ignored."""
        with self._lock:
            self._version += 1
            apply = getattr(self, f"_on_{message.get('kind')}", None)
            if apply:
                apply(message)

    def as_json(self, since: int) -> bytes | None:
        """Return the state as JSON; None if it is the one that the reader has."""
        with self._lock:
            if since == self._version:
                return None
            return json.dumps(
                {
                    **self._facts,
                    "version": self._version,
                    "points": list(self._points),
                    "notes": list(self._notes),
                    "verdicts": dict(self._verdicts),
                    "cases": [{**case, **_medians(case)} for case in self._cases.values()],
                }
            ).encode()

    @property
    def is_over(self) -> bool:
        return self._facts["over"] is not None

    @property
    def report(self) -> str:
        """Path of the report; empty before there is one."""
        return str((self._facts["over"] or {}).get("report", ""))

    def _on_study(self, message: dict[str, Any]) -> None:
        self._facts["study"] = message["study"]
        for case in message["cases"]:
            self._case(case["id"], case["load"])["planned"] = case["runs"]

    def _on_run(self, message: dict[str, Any]) -> None:
        self._facts["now"] = message["now"]
        self._facts["values"] = {}
        self._facts["progress"] = message["progress"]
        self._points.clear()
        self._case(message["now"]["case"], message["now"]["load"])["running"] = True

    def _on_phase(self, message: dict[str, Any]) -> None:
        self._facts["now"] = {**self._facts["now"], "phase": message["phase"]}

    def _on_values(self, message: dict[str, Any]) -> None:
        self._on_phase(message)
        self._facts["values"] = message["values"]
        self._facts["progress"] = message["progress"]
        values = message["values"]
        self._points.append([values["seconds"], values["rate"], values["p99_ns"]])

    def _on_ended(self, message: dict[str, Any]) -> None:
        self._facts["progress"] = message["progress"]
        case = self._case(message["case"], message["load"])
        case["running"] = False
        case["done"] += 1
        case["failed"] += message["failed"]
        if message["values"]:
            case["unit"] = message["values"]["unit"]
            case["rates"].append(message["values"]["rate"])
            case["p99s"].append(message["values"]["p99_ns"])
        if message["verdict"]:
            self._verdicts[message["verdict"]] += 1
            case["verdicts"][message["verdict"]] = case["verdicts"].get(message["verdict"], 0) + 1

    def _on_note(self, message: dict[str, Any]) -> None:
        self._notes.append(message["text"])

    def _on_over(self, message: dict[str, Any]) -> None:
        self._facts["over"] = {name: message[name] for name in ("outcome", "text", "report")}
        self._facts["values"] = {}

    def _case(self, case_id: str, load: str) -> dict[str, Any]:
        empty = {"planned": 0, "done": 0, "failed": 0, "running": False, "unit": ""}
        return self._cases.setdefault(
            case_id, {"id": case_id, "load": load, **empty, "rates": [], "p99s": [], "verdicts": {}}
        )


def _medians(case: dict[str, Any]) -> dict[str, Any]:
    p99s = [each for each in case["p99s"] if each is not None]
    return {
        "rate": statistics.median(case["rates"]) if case["rates"] else None,
        "p99_ns": statistics.median(p99s) if p99s else None,
        "rates": None,
        "p99s": None,
    }
