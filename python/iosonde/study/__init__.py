"""Studies: read, validate, expand. What to measure is data (TOML); how is code elsewhere."""

from iosonde.study.expand import Outline, expand, outline
from iosonde.study.load import load, parse
from iosonde.study.shipped import reference_file, shipped

__all__ = ["Outline", "expand", "load", "outline", "parse", "reference_file", "shipped"]
