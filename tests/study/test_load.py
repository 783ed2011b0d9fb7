"""Study files: what is wrong in one is named with its place, and what would be right."""

from __future__ import annotations

from pathlib import Path

import pytest
from inline_snapshot import snapshot

from iosonde.errors import StudyError
from iosonde.planning import load, parse
from iosonde.study.location import StudyFile

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


def refusal(old: str, new: str) -> str:
    assert old in GOOD
    with pytest.raises(StudyError) as caught:
        parse(GOOD.replace(old, new, 1), name="mine.toml")
    return str(caught.value)


def test_a_good_study_is_read() -> None:
    study = parse(GOOD)
    assert [part.name for part in study.parts] == ["grid", "together"]
    assert study.repeats == 3


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_known_one() -> None:
    assert [
        refusal("question =", "qestion ="),
        refusal("[control]", "[contol]"),
        refusal("every = 4", "every = 4\nevry = 4"),
        refusal('span = "1GiB"', 'spam = "1GiB"'),
        refusal("queue_depth = [1, 4]", "queue_dept = [1, 4]"),
        refusal('"writer.queue_depth"', '"writter.queue_depth"'),
        refusal("set = { read_fraction = 1.0 }", "sets = { read_fraction = 1.0 }"),
        refusal("set = { read_fraction = 1.0 }", "set = { reed_fraction = 1.0 }"),
        refusal('duration = "200ms"', 'durration = "200ms"'),
    ] == snapshot(
        [
            """\
there is no key `qestion` here
  at `qestion`, line 3 of `mine.toml`

hint: did you mean `question`?\
""",
            """\
there is no key `contol` here
  at `contol`, line 29 of `mine.toml`

hint: did you mean `control`?\
""",
            """\
there is no key `evry` here
  at `control.evry`, line 31 of `mine.toml`

hint: did you mean `every`?\
""",
            """\
there is no parameter `spam`
  at `measurement.spam`, line 6 of `mine.toml`

hint: did you mean `span`?\
""",
            """\
there is no parameter `queue_dept`
  at `parts[grid].factors.queue_dept`, line 16 of `mine.toml`

hint: did you mean `queue_depth`?\
""",
            """\
there is no stream `writter`
  at `parts[together].factors.writter.queue_depth`, line 27 of `mine.toml`

hint: did you mean `writer`?\
""",
            """\
there is no key `sets` here
  at `parts[grid].factors.operation[1].sets`, line 17 of `mine.toml`

hint: did you mean `set`?\
""",
            """\
there is no parameter `reed_fraction`
  at `parts[grid].factors.operation[1].set.reed_fraction`, line 17 of `mine.toml`

hint: did you mean `read_fraction`?\
""",
            """\
there is no parameter `durration`
  at `profiles.quick.measurement.durration`, line 35 of `mine.toml`

hint: did you mean `duration`?\
""",
        ]
    )


def test_a_wrong_value_is_named_with_its_line() -> None:
    assert [
        refusal('duration = "1s"', "duration = 10"),
        refusal('duration = "1s"', 'duration = "10 sec"'),
        refusal('span = "1GiB"', 'span = "1GIGA"'),
        refusal("[1, 4]", "[1, 0]"),
        refusal("[1, 4]", "[]"),
        refusal("[1, 4]", "[4, 4]"),
        refusal('access = "random"', 'access = "radnom"'),
        refusal("every = 4", "every = 0"),
        refusal('kind = "lines"', 'kind = "line"'),
        refusal("{ read_fraction = 0.0 }", "{ read_fraction = 2.0 }"),
    ] == snapshot(
        [
            """\
`duration` is wrong: `10` has no unit
  at `measurement.duration`, line 7 of `mine.toml`

hint: write it like `10s`\
""",
            """\
`duration` cannot be `10 sec`: `sec` is not a unit of time
  at `measurement.duration`, line 7 of `mine.toml`

hint: did you mean `s`?\
""",
            """\
`span` cannot be `1GIGA`: `GIGA` is not a unit of size
  at `measurement.span`, line 6 of `mine.toml`

hint: write it like `4KiB`\
""",
            """\
`queue_depth` cannot be `0`: it should be greater than or equal to 1
  at `parts[grid].factors.queue_depth`, line 16 of `mine.toml`\
""",
            """\
the factor `queue_depth` has no levels
  at `parts[grid].factors.queue_depth`, line 16 of `mine.toml`\
""",
            """\
the factor `queue_depth` has the level `4` twice
  at `parts[grid].factors.queue_depth`, line 16 of `mine.toml`\
""",
            """\
`access` cannot be `radnom`
  at `parts[grid].measurement.access`, line 13 of `mine.toml`

hint: did you mean `random`? it is one of `sequential`, `random`, `strided`, `aging`\
""",
            """\
`every` is wrong: it should be greater than or equal to 1
  at `control.every`, line 30 of `mine.toml`\
""",
            """\
`kind` is wrong: it should be 'lines', 'heatmap', 'tradeoff', 'percentiles', 'timeseries', 'bars', 'table', 'accounts', 'limits', 'improvements' or 'stack'
  at `views[IOPS].kind`, line 46 of `mine.toml`\
""",
            """\
`read_fraction` cannot be `2.0`: it should be less than or equal to 1
  at `parts[grid].factors.operation[2].set.read_fraction`, line 17 of `mine.toml`\
""",
        ]
    )


def test_a_wrong_name_in_a_view_or_reference_is_reported_with_the_known_ones() -> None:
    assert [
        refusal('x = "queue_depth"', 'x = "depth"'),
        refusal('part = "grid"', 'part = "gird"'),
        refusal('reference = "published"', 'reference = "publshed"'),
        refusal("davidovic2019_raid0.csv", "davidovic2019.csv"),
        refusal("davidovic2019_raid0.csv", "../secrets.csv"),
        refusal('op = "operation"', 'op = "direction"'),
    ] == snapshot(
        [
            """\
there is no factor `depth`
  at `views[IOPS].x`, line 49 of `mine.toml`

hint: did you mean `queue_depth`?\
""",
            """\
there is no part `gird`
  at `views[IOPS].part`, line 48 of `mine.toml`

hint: did you mean `grid`?\
""",
            """\
there is no reference `publshed`
  at `views[IOPS].reference`, line 52 of `mine.toml`

hint: did you mean `published`?\
""",
            """\
there are no published values `davidovic2019.csv`
  at `references[published].csv`, line 39 of `mine.toml`

hint: `csv` names a file in `reference/`; a study contains no paths\
""",
            """\
there are no published values `../secrets.csv`
  at `references[published].csv`, line 39 of `mine.toml`

hint: `csv` names a file in `reference/`; a study contains no paths\
""",
            """\
there is no factor `direction`
  at `references[published].columns`, line 41 of `mine.toml`

hint: there are `queue_depth`, `operation`, `writer.queue_depth`, `stream`\
""",
        ]
    )


def test_a_wrong_name_elsewhere_is_reported_with_the_known_ones() -> None:
    assert [
        refusal('over = "queue_depth"', 'over = "jobs"'),
        refusal("[profiles.standard]", "[profiles.standard.parts.gird]"),
        refusal("[profiles.standard]", "[profiles.standard.factors]\njobs = [1, 2]"),
        refusal('name = "together"', 'name = "grid"'),
        refusal('{ name = "reader" }', '{ name = "writer" }'),
        refusal('{ name = "reader" }', '{ name = "../reader" }'),
    ] == snapshot(
        [
            """\
there is no factor `jobs`
  at `analysis[1].over`, line 57 of `mine.toml`

hint: there are `queue_depth`, `operation`, `stream`\
""",
            """\
there is no part `gird`
  at `profiles.standard.parts.gird`, line 32 of `mine.toml`

hint: did you mean `grid`?\
""",
            """\
there is no factor `jobs`
  at `profiles.standard.factors.jobs`, line 33 of `mine.toml`

hint: there are `queue_depth`, `operation`, `writer.queue_depth`\
""",
            """\
a part cannot be called `grid`
  at `parts[grid]`, line 22 of `mine.toml`

hint: use a unique name without `/`, other than `control`\
""",
            """\
two streams are called `writer`
  at `parts[together].streams[writer]`, line 24 of `mine.toml`\
""",
            """\
a stream cannot be called `../reader`
  at `parts[together].streams[../reader]`, line 24 of `mine.toml`

hint: files are named after streams: at most 128 bytes, no `/`, no `.` in front\
""",
        ]
    )


def test_a_missing_or_malformed_file_is_an_error() -> None:
    assert [
        refusal('title = "Mine"\n', ""),
        refusal("[1, 4]", "[1, 4"),
        refusal('name = "mine"', 'name = "My Study"'),
        refusal('label = "read", ', ""),
    ] == snapshot(
        [
            """\
`title` is missing
  in `mine.toml`

hint: see docs/studies.md\
""",
            """\
the study is not TOML: Unclosed array (at line 17, column 1)
  in `mine.toml`

hint: see docs/studies.md\
""",
            """\
`name` is wrong: it should match pattern '^[a-z0-9][a-z0-9-]*$'
  at `name`, line 1 of `mine.toml`\
""",
            """\
`label` is missing
  at `parts[grid].factors.operation[1]`, line 17 of `mine.toml`

hint: see docs/studies.md\
""",
        ]
    )


def test_a_study_has_profiles() -> None:
    beginning = GOOD.partition("[profiles")[0]
    for text in (beginning, beginning + "[profiles]\n"):
        with pytest.raises(StudyError, match="profiles"):
            parse(text)


def test_an_unknown_study_is_an_error_with_the_closest_name(tmp_path: Path) -> None:
    def unknown(name: str) -> str:
        with pytest.raises(StudyError) as caught:
            load(name)
        return str(caught.value).replace(str(tmp_path), "DIR")

    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    (tmp_path / "folder.toml").mkdir()
    names = ["quikc", "zzz", "etcd", f"{tmp_path}/mine.toml", f"{tmp_path}/binary.toml", f"{tmp_path}/folder.toml"]
    assert [unknown(name) for name in names] == snapshot(
        [
            """\
there is no study `quikc`

hint: did you mean `quick`? `iosonde list` shows those that come with iosonde; name a file of your own by its path\
""",
            """\
there is no study `zzz`

hint: `iosonde list` shows those that come with iosonde; name a file of your own by its path\
""",
            """\
`etcd` is an application, not a study

hint: `iosonde qualify etcd --target DIR` decides whether storage is good enough for it\
""",
            "cannot read the study `DIR/mine.toml`: No such file or directory",
            "cannot read the study `DIR/binary.toml`: it is not UTF-8 text",
            "cannot read the study `DIR/folder.toml`: Is a directory",
        ]
    )


def test_a_study_of_ones_own_is_read_from_its_file(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_text(GOOD)
    assert load(tmp_path / "mine.toml") == parse(GOOD)


def test_every_key_of_a_file_is_found_on_its_line() -> None:
    text = 'a = 1\n[b]\nc.d = 2\n[[e]]\n[[e]]\n[[e.f]]\n"g.h" = 3\n[e.i]\nj = { k = 4 }\n'
    source = StudyFile(name="x", text=text)
    places = [("a",), ("b", "c", "d"), ("e", 1), ("e", 1, "f", 0, "g.h"), ("e", 1, "i", "j", "k"), ("e", 0)]
    assert [source.where(*keys).rpartition("line ")[2].split()[0] for keys in places] == ["1", "3", "5", "7", "9", "4"]
