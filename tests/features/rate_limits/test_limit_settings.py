"""Settings of the procedure `identify_limits` that are refused."""

from __future__ import annotations

from typing import Any

import pytest

from iosonde.errors import StudyError
from iosonde.features.rate_limits.procedures import resolved


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"rest": "abc"}, "`abc` is not a time"),
        ({"rests": "1min"}, "`rests` is not a setting of it"),
        ({"operations": "all"}, "`operations`: Input should be 'reads', 'writes' or 'both'"),
        ({"probe": "10min"}, "`probe` must be at least 1 s, at most `drain`"),
        ({"largest": "8KiB"}, "`largest` must be at least 4 times `block_size`"),
    ],
)
def test_an_invalid_setting_is_named(written: dict[str, Any], message: str) -> None:
    with pytest.raises(StudyError, match=message):
        resolved(written, smallest=4096, queue_depth=64)


def test_a_queue_depth_without_a_quarter_is_refused() -> None:
    with pytest.raises(StudyError, match="`queue_depth` from 4 to 4,096"):
        resolved({}, smallest=4096, queue_depth=2)
