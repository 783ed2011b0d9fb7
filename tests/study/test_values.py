"""Numbers and texts that no study may have are refused with their place, whatever parameter or title they are of."""

from __future__ import annotations

import time
from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.planning import study_size
from iosonde.study.load import read_text, validate
from iosonde.study.model import Study

STUDY = """
name = "values"
title = "Values"
question = "Are they checked?"
[measurement]
span = "1MiB"
duration = "1s"
{measurement}
[[parts]]
name = "main"
factors.queue_depth = [1, 2]
[[views]]
kind = "lines"
title = "{title}"
part = "main"
x = "queue_depth"
y = "iops"
[profiles.standard]
"""


def study(measurement: str = "", title: str = "Views") -> Study:
    return validate(read_text(STUDY.format(measurement=measurement, title=title), name="values.toml"))


def test_the_study_of_these_tests_is_valid() -> None:
    assert study().views[0].title == "Views"


@pytest.mark.parametrize(
    "parameter",
    [
        *(f"rate = {number}" for number in ("nan", "inf", "-inf", "1e400")),
        *("limit_spans = 1e400", 'limit_spans = "1e400"', "limit_spans = nan", 'limit_spans = "nan"'),
        *("read_fraction = nan", 'rate = "nan"', "think_time = inf"),
        *('block_size = "4KiB/1e400:8KiB/1"', 'block_size = "4KiB/nan:8KiB/1"'),
        *('distribution = "zipfian:inf"', 'distribution = "zipfian:nan"', 'distribution = "zipfian:1e400"'),
        *("distribution = {kind = 'zipfian', theta = inf}", "swap = {}", "kernel_trace = {}", 'mount_options = "ro"'),
        'mount_options = "noatime,ro"',
    ],
)
def test_a_value_that_no_parameter_can_have_is_refused_with_its_place(parameter: str) -> None:
    with pytest.raises(StudyError) as error:
        study(parameter)
    assert "measurement" in error.value.where
    assert "values.toml" in error.value.where


@pytest.mark.parametrize("character", [r"\u0000", r"\u0001", r"\u001b", r"\u0085", r"\u202e", r"\u007f"])
def test_a_control_character_is_refused_in_every_text(character: str) -> None:
    with pytest.raises(StudyError, match="must not contain control characters") as error:
        study(title=f"Views{character}")
    assert "views" in error.value.where
    with pytest.raises(StudyError, match="must not contain control characters"):
        study(f'"a{character}b" = 1')


def test_combinations_are_counted_before_they_are_expanded() -> None:
    factors: dict[str, Any] = {key: list(range(1, 101)) for key in ("queue_depth", "jobs", "rate", "limit_operations")}
    large = study()
    large = large.model_copy(update={"parts": [large.parts[0].model_copy(update={"factors": factors})]})
    begin = time.process_time()
    with pytest.raises(StudyError, match="at most 20,000 combinations of levels, got 100,000,000") as error:
        study_size(large, profile="standard")
    assert time.process_time() - begin < 30
    assert "100 of `queue_depth` x 100 of `jobs`" in error.value.where
