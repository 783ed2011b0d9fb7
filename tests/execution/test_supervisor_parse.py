"""Parsers of a command's output that would not end."""

from __future__ import annotations

import pytest

from iosonde.supervisor import parse
from iosonde.supervisor.failure import FailedError


@pytest.mark.timeout(300)
def test_a_regular_expression_that_takes_exponential_time_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parse, "LIMIT_S", 0.2)
    metric = {"pattern": r"(?P<value>(?:\d+)+)$ ", "scale": 1.0}
    with pytest.raises(FailedError, match=r"found no values within 0\.2 s") as error:
        parse.values({"x": metric}, "1" * 40 + "x", [], 0, 1)
    assert error.value.code == "unparsable_output"
