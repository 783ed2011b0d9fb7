"""Study files: what is wrong in one is named with its place, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from iosonde.errors import StudyError
from iosonde.planning import load, parse, study_size

GOOD = """\
name = "mine"
title = "Mine"
question = "How fast?"

[measurement]
span = "1GiB"
duration = "1s"

[[parts]]
name = "grid"

[parts.measurement]
access = "random"

[parts.factors]
queue_depth = [1, 4]
operation = [
  { label = "read", set = { read_fraction = 1.0 } },
  { label = "write", set = { read_fraction = 0.0 } },
]

[[parts]]
name = "together"
streams = [{ name = "reader" }, { name = "writer", set = { read_fraction = 0.0 } }]

[parts.factors]
"writer.queue_depth" = [1, 8]

[control]
every = 4

[profiles.standard]

[profiles.quick.measurement]
duration = "200ms"

[[references]]
name = "published"
csv = "davidovic2019_raid0.csv"
source = "Davidovic 2019"
columns = { op = "operation", queue_depth = "queue_depth" }
where = { drives = 1 }
value = "bandwidth_mb_s"

[[views]]
kind = "lines"
title = "IOPS"
part = "grid"
x = "queue_depth"
y = "iops"
series = "operation"
reference = "published"

[[analysis]]
kind = "saturation"
part = "grid"
over = "queue_depth"
"""


def refusal(old: str, new: str) -> StudyError:
    assert old in GOOD
    with pytest.raises(StudyError) as caught:
        parse(GOOD.replace(old, new, 1), name="mine.toml")
    return caught.value


def test_a_good_study_is_read(tmp_path: Path) -> None:
    study = parse(GOOD)
    assert [part.name for part in study.parts] == ["grid", "together"]
    assert study.repeats == 3
    (tmp_path / "mine.toml").write_text(GOOD)
    assert load(tmp_path / "mine.toml") == study


def test_an_error_has_what_is_wrong_its_place_and_a_hint() -> None:
    assert str(refusal('x = "queue_depth"', 'x = "depth"')) == snapshot("""\
there is no factor `depth`
  at `views[IOPS].x`, line 49 of `mine.toml`

hint: did you mean `queue_depth`?\
""")


@pytest.mark.parametrize(
    ("old", "new", "unknown", "place", "line", "nearest"),
    [
        ("question =", "qestion =", "key `qestion`", "qestion", 3, "question"),
        ('span = "1GiB"', 'spam = "1GiB"', "parameter `spam`", "measurement.spam", 6, "span"),
        ('"writer.q', '"writter.q', "stream `writter`", "parts[together].factors.writter.queue_depth", 27, "writer"),
        ('part = "grid"', 'part = "gird"', "part `gird`", "views[IOPS].part", 48, "grid"),
        ('ence = "published"', 'ence = "publshed"', "reference `publshed`", "views[IOPS].reference", 52, "published"),
    ],
)
def test_an_unknown_name_is_reported_with_its_place_and_the_nearest_known_one(
    old: str, new: str, unknown: str, place: str, line: int, nearest: str
) -> None:
    error = refusal(old, new)
    assert error.what.startswith(f"there is no {unknown}")
    assert error.where == f"at `{place}`, line {line} of `mine.toml`"
    assert error.hint == f"did you mean `{nearest}`?"


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("[1, 4]", "[1, 0]", "`queue_depth` cannot be `0`: it should be greater than or equal to 1", 16),
        ("[1, 4]", "[]", "the factor `queue_depth` has no levels", 16),
        ('kind = "lines"', 'kind = "line"', "`kind` is wrong: it should be 'lines', 'heatmap'", 46),
        ("davidovic2019_raid0.csv", "../secrets.csv", "there are no published values `../secrets.csv`", 39),
        ('op = "operation"', 'op = "direction"', "there is no factor `direction`", 41),
        ("[profiles.standard]", "[profiles.standard.factors]\njobs = [1, 2]", "there is no factor `jobs`", 33),
        ('name = "together"', 'name = "grid"', "a part cannot be called `grid`", 22),
        ('{ name = "reader" }', '{ name = "writer" }', "two streams are called `writer`", 24),
        ('{ name = "reader" }', '{ name = "../reader" }', "a stream cannot be called `../reader`", 24),
        ('name = "mine"', 'name = "My Study"', "`name` is wrong: it should match pattern", 1),
        ('label = "read", ', "", "`label` is missing", 17),
        ("[1, 4]", "[1, 4", "the study is not TOML: Unclosed array (at line 17, column 1)", None),
    ],
)
def test_a_wrong_value_is_reported_with_its_line(old: str, new: str, what: str, line: int | None) -> None:
    error = refusal(old, new)
    assert what in error.what
    assert error.where.endswith(f"line {line} of `mine.toml`" if line else "in `mine.toml`")


@pytest.mark.parametrize(
    "parameter",
    [
        *("rate = nan", "rate = -inf", "rate = 1e400", 'rate = "nan"', "read_fraction = nan", "think_time = inf"),
        *("limit_spans = 1e400", 'limit_spans = "nan"', 'block_size = "4KiB/1e400:8KiB/1"'),
        *('block_size = "4KiB/nan:8KiB/1"', 'distribution = "zipfian:nan"', 'distribution = "zipfian:1e400"'),
        *("distribution = {kind = 'zipfian', theta = inf}", "swap = {}", "kernel_trace = {}", 'mount_options = "ro"'),
    ],
)
def test_a_value_that_no_parameter_can_have_is_refused_with_its_place(parameter: str) -> None:
    error = refusal('span = "1GiB"', f'span = "1GiB"\n{parameter}')
    assert "measurement" in error.where
    assert "mine.toml" in error.where


@pytest.mark.parametrize("character", [r"\u0000", r"\u001b", r"\u0085", r"\u202e", r"\u007f"])
def test_a_control_character_is_refused_in_every_text(character: str) -> None:
    title = refusal('title = "IOPS"', f'title = "IOPS{character}"')
    assert "must not contain control characters" in title.what and "views" in title.where
    assert "must not contain control characters" in refusal("every = 4", f'every = 4\n"a{character}b" = 1').what


def test_combinations_are_counted_before_they_are_expanded() -> None:
    hundred = list(range(1, 101))
    factors = "\n".join(f"{name} = {hundred}" for name in ("queue_depth", "jobs", "rate", "limit_operations"))
    study = parse(GOOD.replace("queue_depth = [1, 4]", factors, 1))
    with pytest.raises(StudyError, match="at most 20,000 combinations of levels, got 200,000,002") as error:
        study_size(study, profile="standard")
    assert "100 of `queue_depth` x 100 of `jobs`" in error.value.where


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("quikc", "there is no study `quikc`\n\nhint: did you mean `quick`?"),
        ("etcd", "`etcd` is an application, not a study\n\nhint: `iosonde qualify etcd"),
        ("./mine.toml", "No such file or directory"),
        ("./binary.toml", "it is not UTF-8 text"),
        ("./folder.toml", "Is a directory"),
    ],
)
def test_a_study_that_cannot_be_read_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(StudyError) as caught:
        load(name)
    assert message in str(caught.value)
