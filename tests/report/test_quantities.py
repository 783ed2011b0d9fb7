"""Scaling of metrics on axes."""

from __future__ import annotations

import pytest

from iosonde.report.material.quantities import metric_scale, metric_text


@pytest.mark.parametrize(
    ("maximum", "title", "divisor", "column"),
    [
        (1000, "(B)", 1, "cache_dirty_bytes_mean_bytes"),
        (8_000_000, "(MiB)", 1 << 20, "cache_dirty_bytes_mean_mib"),
        (1 << 30, "(GiB)", 1 << 30, "cache_dirty_bytes_mean_gib"),
    ],
)
def test_bytes_have_the_largest_binary_unit_that_their_maximum_reaches(
    maximum: float, title: str, divisor: float, column: str
) -> None:
    """Ticks are round numbers of the unit: 2, 4, 6 MiB, and not 1.907, 3.815, 5.722 MiB."""
    scale = metric_scale("cache_dirty_bytes_mean", maximum)
    assert scale.title.endswith(title)
    assert (scale.divisor, scale.column, scale.label) == (divisor, column, None)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "0"), (4.82e-6, "<0.0001"), (0.000393, "0.000393"), (0.509, "0.509"), (None, "-")]
)
def test_tiny_shares_have_no_exponent(value: float | None, text: str) -> None:
    assert metric_text("minor_fault_fraction", value) == text
