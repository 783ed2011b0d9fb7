"""Job files become studies, with notes on options that have no equivalent."""

from __future__ import annotations

import os
import shlex
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
from command_line import CHECKOUT, Iosonde
from inline_snapshot import snapshot

from iosonde.errors import StudyError
from iosonde.interop.fio import Imported, import_job_file, options
from iosonde.planning import expand, parse
from iosonde.storage import open_target

JOBS = Path(__file__).with_name("jobs")
ENVIRONMENT = {"MIX_SIZE": "64m"}


def imported(directory: Path, text: str) -> Imported:
    path = directory / "job.fio"
    path.write_text(text)
    return import_job_file(path, environment={})


def parts(result: Imported) -> list[dict[str, Any]]:
    return tomllib.loads(result.text)["parts"]


def notes(result: Imported) -> list[str]:
    return [str(note) for note in result.notes]


def noted(result: Imported, text: str) -> bool:
    return any(text in note for note in notes(result))


def head(result: Imported) -> str:
    """The comments at the top of the study."""
    return result.text.partition("\n\n")[0] + "\n"


@pytest.mark.parametrize("path", sorted(JOBS.glob("*.fio")), ids=lambda path: path.stem)
def test_every_imported_study_can_be_planned(path: Path) -> None:
    study = parse(import_job_file(path, environment=ENVIRONMENT).text)
    plan = expand(study, open_target("null:1TiB"), settings={"verify": "none"})
    assert [run.case_id for run in plan.runs] == [part.name for part in study.parts] * 3, "in the order of the job file"


@pytest.mark.system
@pytest.mark.needs("fio")
@pytest.mark.parametrize("path", sorted(JOBS.glob("*.fio")), ids=lambda path: path.stem)
def test_the_command_line_that_fio_makes_of_a_job_file_is_imported_alike(path: Path, iosonde: Iosonde) -> None:
    """`fio --showcmd` prints one command line for a job file."""
    command, environment = ["fio", "--showcmd", path], {**os.environ, **ENVIRONMENT}
    shown = subprocess.run(command, cwd=path.parent, env=environment, stdout=subprocess.PIPE, check=True)
    pasted = iosonde("import", *shlex.split(shown.stdout.decode()), **ENVIRONMENT)
    assert pasted.returncode == 0, pasted.stderr
    of_file = import_job_file(path, environment=ENVIRONMENT)
    assert tomllib.loads(pasted.stdout)["parts"] == parts(of_file)


def test_a_study_has_paths_and_commands_of_the_job_file_in_comments_only() -> None:
    text = import_job_file(JOBS / "everything.fio", environment={}).text
    settings = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "/dev" not in settings and "/bin" not in settings
    assert "# - everything.fio:3 [global] `filename=/dev/disk0:/dev/disk1`: a study contains no paths" in text


def test_all_that_is_not_carried_over_is_named_with_place_reason_and_replacement() -> None:
    assert head(import_job_file(JOBS / "everything.fio", environment={})) == snapshot("""\
# Converted from the fio job file `everything.fio` by `iosonde import fio`.
#
# Not carried over unchanged (place, option: reason; replacement):
# - everything.fio:3 [global] `filename=/dev/disk0:/dev/disk1`: a study contains no paths; `--target` names the file
#   or directory when it is run
# - everything.fio:3 [global] `filename=/dev/disk0:/dev/disk1`: a job has one file; one range represents the 2 files
# - everything.fio:6 [global] `iodepth=16`: `ioengine=sync` does one I/O at a time, in fio too; `queue_depth` is 1
# - everything.fio:10 [global] `thinktime=200`: a stream has no pauses; each I/O follows the one before; for a lower
#   rate give `arrival` and `rate`
# - everything.fio:11 [global] `verify=crc32c`: jobs that run together need the same `verify`, and another has
#   `after`; `verify` is `after` for all of them
# - everything.fio:13 [global] `cpus_allowed=0-1`: fio lets every job run on any of these CPUs; job `i` is pinned to
#   the `i`-th of them
# - everything.fio:14 [global] `exec_prerun=/bin/true`: an imported study contains no commands; nothing is executed
# - everything.fio:17 [backwards] `rw=read:-4k`: a stream cannot run backwards; it runs forwards, block after block
# - everything.fio:21 [zones] `random_distribution=zoned:60/10:30/20:10/70`: `distribution` supports `uniform`,
#   `zipfian` and two zones (`hot_cold`); offsets are uniform
# - everything.fio:22 [zones] `rate_iops=1k`: fio waits for the I/Os in flight before it pauses, and measures latency
#   from submission; the rate is kept in open loop, and response latency counts from the intended start
# - everything.fio:25 [delayed] visiting each block once needs a single block size; offsets are drawn independently,
#   as with `norandommap`
# - everything.fio:29 [delayed] `bs=4k,16k`: reads and writes of one stream have the same block sizes; each I/O has
#   one of these sizes, in their proportion
# - everything.fio:30 [delayed] `rate=,4m`: only one of reads and writes has a rate, and a stream has one rate for
#   all; the stream runs in a closed loop, as fast as it can
# - everything.fio:32 [delayed] `ioengine=sync`: jobs that run together need the same `backend`, and another has
#   `uring`; `backend` is `uring` for all of them
# - everything.fio:34 [network] `ioengine=net` is no block I/O: it sends data over a network; it is left out
""")


def test_tuning_is_carried_over_whole() -> None:
    result = import_job_file(JOBS / "tuned.fio", environment={})
    assert notes(result) == []
    assert head(result).endswith("\n# Everything in it is carried over.\n")
    assert parts(result)[0]["measurement"] == (
        {"access": "random", "coverage": "with_replacement", "distribution": "zipfian:1.1", "read_fraction": 0.9}
        | {"block_size": "4KiB/60:8KiB/20:16KiB/20", "jobs": 2, "queue_depth": 32, "io_mode": "direct"}
        | {"payload": "zeros", "cpus": [0, 1], "span": "256MiB", "duration": "2s", "ramp": "500ms", "interval": "250ms"}
        | {"backend": "uring", "registered_files": True, "registered_buffers": True}
        | {"submission_polling": True, "completion_polling": True}
        | {"page_cache": "keep", "layout": "missing", "files": "per_job"}
    )


def test_sections_run_concurrently_until_stonewall_starts_a_part() -> None:
    result = import_job_file(JOBS / "phases.fio", environment={})
    assert [part["name"] for part in parts(result)] == ["fill", "scan", "lookups", "some"]
    (beside,) = parts(import_job_file(JOBS / "beside.fio", environment={}))
    assert [stream["name"] for stream in beside["streams"]] == ["readers", "writer"]
    assert beside["measurement"]["files"] == "per_job"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ("numjobs=3\nloops=2\nnumber_ios=10", {"jobs": 3, "limit_bytes": "384MiB", "limit_operations": 60}),
        # Size ends a job unless time does.
        ("runtime=5", {"limit_bytes": "64MiB", "duration": "5s"}),
        ("runtime=5\ntime_based\nio_size=1m", {"limit_bytes": None, "duration": "5s"}),
        ("", {"duration": "none", "page_cache": "drop"}),
        ("io_size=50%", {"limit_bytes": "32MiB"}),
        ("filesize=16m\noffset=4m", {"span": "12MiB", "offset": "4MiB", "limit_bytes": "12MiB"}),
        # Engines are backends, and psync is fio's default.
        ("ioengine=libaio\niodepth=8\ndirect=1", {"backend": "uring", "queue_depth": 8, "registered_buffers": False}),
        ("ioengine=libaio\niodepth=8", {"backend": "sync", "queue_depth": 1}),
        ("ioengine=posixaio\niodepth=8\ndirect=1", {"backend": "sync", "queue_depth": 1}),
        ("ioengine=io_uring\niodepth=8", {"backend": "uring", "queue_depth": 8}),
        ("ioengine=sync\niodepth=8", {"backend": "sync", "queue_depth": 1}),
        ("iodepth=1", {"backend": "sync"}),
        # Directions.
        ("rw=read", {"access": "sequential", "read_fraction": 1.0}),
        ("rw=randwrite", {"access": "random", "read_fraction": 0.0}),
        ("rw=randrw\nrwmixread=70", {"access": "random", "read_fraction": 0.7}),
        ("rw=rw\nrwmixread=70\nrwmixwrite=40", {"access": "sequential", "read_fraction": 0.6}),
        ("rw=trim", {"access": "sequential", "read_fraction": 0.0, "trim_fraction": 1.0}),
        ("rw=randtrimwrite", {"access": "random", "trim_fraction": 0.5, "limit_bytes": "128MiB"}),
        ("rw=read:12k", {"access": "strided", "stride": "16KiB"}),
        ("rw=randread:8", {"access": "random"}),
        # Sizes of blocks.
        ("bs=8k,64k\nrw=write", {"block_size": "64KiB"}),
        ("bs=,64k\nrw=read", {"block_size": "4KiB"}),
        ("bsrange=4k-12k", {"block_size": "4KiB/1:8KiB/1:12KiB/1"}),
        ("bsrange=4k-10k", {"block_size": "4KiB/1:8KiB/1:10KiB/0.5"}),
        ("bssplit=4k/60:64k/", {"block_size": "4KiB/60:64KiB/40"}),
        ("bs=4k,64k\nrw=rw\nrwmixread=75", {"block_size": "4KiB/75:64KiB/25"}),
        ("bs=4kib\nkb_base=1000", {"block_size": "4KiB"}),
        ("bs=1Mi", {"block_size": "1MiB"}),
        # Rates are of all jobs, and of the mean block.
        ("rate_iops=500\nnumjobs=2", {"rate": 1000}),
        ("rate=8m\nbs=64k", {"rate": 128}),
        (
            "rate_iops=300,100\nrw=randrw\nrate_process=poisson",
            {"rate": 400, "read_fraction": 0.75, "arrival": "poisson"},
        ),
        # Durability and mode.
        ("rw=write\nfdatasync=8", {"durability": "flush:8"}),
        ("rw=write\nsync=dsync\nfsync=2", {"durability": "dsync"}),
        ("rw=read\nfsync=2", {"durability": None}),
        ("direct=1", {"io_mode": "direct"}),
        ("direct=1\nbuffered=1", {"io_mode": "buffered"}),
        ("buffered=0", {"io_mode": "direct"}),
        # Data, also of the file that is laid out.
        ("rw=write\ndedupe_percentage=100", {"duplicate_fraction": 1.0, "duplicate_size": "4KiB"}),
        ("rw=write\nbs=4k,64k\ndedupe_percentage=30", {"duplicate_fraction": 0.3, "duplicate_size": "64KiB"}),
        ("rw=write\nbs=4m\ndedupe_percentage=30", {"duplicate_fraction": 0.3, "duplicate_size": "1MiB"}),
        ("rw=write\nbuffer_compress_percentage=100", {"payload": "zeros"}),
        ("rw=write\nbuffer_compress_percentage=99", {"compression_ratio": 32}),
        ("rw=write\nzero_buffers\nbuffer_compress_percentage=50", {"payload": None, "compression_ratio": 2}),
        ("rw=write\nbs=512\ndedupe_percentage=30", {"duplicate_fraction": None}),
        ("rw=write\nzero_buffers\ndedupe_percentage=30", {"payload": None, "duplicate_fraction": 0.3}),
        ("rw=read\nbuffer_compress_percentage=75", {"compression_ratio": 4}),
        ("rw=trim\nzero_buffers", {"payload": None}),
        # Verification.
        ("rw=randwrite\nverify=md5\nverify_fatal=1", {"verify": "after"}),
        ("rw=randrw\nverify=crc32c", {"verify": "after"}),
        ("rw=randread\nverify=crc32c", {"verify": "during"}),
        *(
            (f"rw=write\n{lines}", {"verify": None})
            for lines in ("verify=0", "verify=null", "verify=md5\ndo_verify=0", "verify=md5\nzero_buffers")
        ),
        ("rw=trimwrite\nverify=md5", {"verify": None}),
        # Places of access.
        ("rw=randread", {"coverage": "each_once"}),
        ("rw=randread\nnorandommap", {"coverage": "with_replacement"}),
        ("rw=randread\nrandom_distribution=zipf:0.9:0.5", {"distribution": "zipfian:0.9"}),
        ("rw=randread\nrandom_distribution=zoned:10/90:90/10", {"distribution": "hot_cold:0.1:0.9"}),
        # Jobs with offsets in one file have disjoint parts of it, if these do not overlap.
        ("filename=x\nnumjobs=4\noffset_increment=64m", {"span": "256MiB", "span_sharing": "split"}),
        ("filename=x\nnumjobs=4\noffset_increment=32m", {"span": "160MiB", "span_sharing": None}),
        ("filename=x\nsize=25%\noffset=50%", {"span": "25%", "offset": "50%", "limit_spans": 1}),
        ("filename=x\nsize=50%\noffset=0%", {"span": "50%", "offset": None}),
        ("numjobs=4", {"files": "per_job"}),
        ("filename=x\nnumjobs=4", {"files": None}),
        ("filename_format=data.$jobname\nnumjobs=4", {"files": None}),
        # fio's files are written before they are read, and not before they are written.
        ("rw=write", {"layout": "never"}),
        ("rw=write\noverwrite=1", {"layout": "missing"}),
        ("rw=randrw", {"layout": "missing"}),
        ("invalidate=0", {"page_cache": "keep"}),
        ("pre_read=1", {"page_cache": "warm"}),
    ],
)
def test_options_become_parameters(tmp_path: Path, lines: str, expected: dict[str, Any]) -> None:
    """Of a job of 64 MiB; None is for a parameter that is not set."""
    (part,) = parts(imported(tmp_path, f"[job]\nsize=64m\n{lines}\n"))
    assert {name: part["measurement"].get(name) for name in expected} == expected


def test_a_wide_range_of_block_sizes_has_each_multiple_of_its_least(tmp_path: Path) -> None:
    (part,) = parts(imported(tmp_path, "[a]\nsize=64m\nbsrange=512-1m\n"))
    assert part["measurement"]["block_size"].count(":") == 63


def test_a_file_bounds_what_its_job_addresses(tmp_path: Path) -> None:
    (part,) = parts(result := imported(tmp_path, "[a]\nfilesize=4m\nnrfiles=2\n"))
    assert part["measurement"]["span"] == "8MiB" and noted(result, "a job has one file")
    (part,) = parts(imported(tmp_path, "[a]\nsize=25%\nfilesize=16m\n"))
    assert part["measurement"]["span"] == "4MiB"


def test_a_job_that_ends_with_the_target_ends_with_its_span(tmp_path: Path) -> None:
    result = imported(tmp_path, "[a]\nfilename=/dev/x\n[b]\nstonewall\nfilename=y\nsize=20%\nruntime=2\n")
    first, second = (part["measurement"] for part in parts(result))
    assert (first["span"], first["duration"], first["limit_spans"]) == ("1GiB", "none", 1)
    assert (second["span"], second["duration"], second["limit_spans"]) == ("20%", "2s", 1)
    assert noted(result, "job.fio:1 [a] it extends to the end of the target, whose size is unknown to the study")
    assert noted(result, "job.fio:5 [b] `filename=y`: a study contains no paths")


def test_preconditioning_of_a_target_of_unknown_size_is_as_long_as_in_fio(tmp_path: Path) -> None:
    for size in ("100%", "100%%"):
        (part,) = parts(imported(tmp_path, f"[a]\nfilename=/dev/x\nrw=write\nsize={size}\nloops=2\n"))
        assert (part["measurement"]["span"], part["measurement"]["limit_spans"]) == ("100%", 2)
        assert part["measurement"]["duration"] == "none"
    for place, spans in (("filename=x", 3), ("", 1)):
        (part,) = parts(imported(tmp_path, f"[a]\n{place}\nsize=100%\nio_size=50%\nloops=2\nnumjobs=3\n"))
        assert part["measurement"]["limit_spans"] == spans, "jobs with files of their own address a range each"


def test_a_reversed_unit_prefix_is_noted(tmp_path: Path) -> None:
    (note,) = notes(imported(tmp_path, "[a]\nsize=64m\nbs=4kib\nname=4kib\n"))
    assert note.startswith("job.fio:3 [a] `bs=4kib`: `kib` is a power of 1000 with `kb_base=1024`")
    assert notes(imported(tmp_path, "[a]\nsize=64Mi\nbs=4Ki\n[b]\nkb_base=1000\nsize=64mib\nbs=4kib\n")) == []


def test_rates_of_reads_and_writes_determine_the_mix_of_sizes_too(tmp_path: Path) -> None:
    lines = "[a]\nsize=64m\nrw=randrw\nrate=10m,5m\nbs=8k,16k\nrwmixread=70\n"
    (part,) = parts(result := imported(tmp_path, lines))
    assert (part["measurement"]["read_fraction"], part["measurement"]["block_size"]) == (0.8, "8KiB/80:16KiB/20")
    assert noted(result, "[a] `rwmixread=70`: where reads and writes have rates")
    ranged = imported(tmp_path, "[a]\nsize=64m\nrw=randrw\nrate=10m,5m\nbsrange=4k-16k\n")
    assert noted(ranged, "`rate=10m,5m`: fio paces bytes")
    assert noted(ranged, "`rate=10m,5m`: where reads and writes have rates")


def test_jobs_that_run_together_are_verified_all_or_none(tmp_path: Path) -> None:
    result = imported(tmp_path, "[global]\nsize=64m\n[sealed]\nrw=write\nverify=md5\n[zeros]\nrw=write\nzero_buffers\n")
    assert "verify" not in parts(result)[0]["measurement"]
    assert noted(result, "`verify=md5`: a concurrent job cannot be verified")
    lines = "[global]\nsize=64m\nrw=write\nverify=md5\n[cached]\ndirect=0\n[direct]\ndirect=1\n"
    assert noted(
        imported(tmp_path, lines), "cannot be verified: jobs that run together use the page cache and bypass it"
    )
    both = "[global]\nsize=64m\nverify=md5\n[writer]\nrw=write\n[reader]\nrw=randread\n"
    assert parts(imported(tmp_path, both))[0]["measurement"]["verify"] == "after"


def test_several_names_become_ranges_of_one_file(tmp_path: Path) -> None:
    text = "[global]\nsize=8m\n[a]\nfilename=x\n[b]\nfilename=y\noffset=4m\n[c]\nnumjobs=2\n[d]\nfilename=x\n"
    result = imported(tmp_path, text)
    ranges = {stream["name"]: stream["set"] for stream in parts(result)[0]["streams"]}
    expected = {"a": ("0", "8MiB"), "b": ("12MiB", "8MiB"), "c": ("20MiB", "16MiB"), "d": ("0", "8MiB")}
    assert {name: (each.get("offset", "0"), each["span"]) for name, each in ranges.items()} == expected
    assert ranges["c"]["span_sharing"] == "split"
    assert noted(result, "are consecutive ranges of one file")


def test_jobs_that_start_late_or_end_early_are_active_in_their_time(tmp_path: Path) -> None:
    text = "[global]\nsize=1m\ntime_based\n[a]\nruntime=10\n[b]\nruntime=4\nstartdelay=2\n"
    (part,) = parts(imported(tmp_path, text + "[c]\nruntime=20\nstartdelay=5s\n"))
    assert part["measurement"]["duration"] == "25s"
    assert [stream["set"]["active"] for stream in part["streams"]] == ["0-10s", "2s-6s", "5s-"]


def test_a_delay_before_all_jobs_is_not_measured(tmp_path: Path) -> None:
    result = imported(tmp_path, "[a]\nsize=1m\ntime_based\nstartdelay=3\nruntime=2\n")
    assert parts(result)[0]["measurement"]["duration"] == "2s"
    assert noted(result, "`startdelay=3`: no job runs in the first 3s")
    both = "[global]\nsize=1m\ntime_based\nruntime=2\n[a]\nstartdelay=3\n[b]\nstartdelay=4\n"
    (part,) = parts(imported(tmp_path, both))
    assert part["measurement"]["duration"] == "3s"
    assert [stream["set"]["active"] for stream in part["streams"]] == ["0-2s", "1s-"]


def test_a_section_that_only_creates_files_is_left_out_and_still_separates_parts(tmp_path: Path) -> None:
    result = imported(tmp_path, "[global]\nsize=1m\n[a]\n[files]\nstonewall\ncreate_only=1\n[b]\n[c]\n")
    assert [part["name"] for part in parts(result)] == ["a", "b-and-c"]
    assert noted(result, "[files] `create_only=1`: the section creates files")
    assert len(parts(imported(tmp_path, "[a]\nsize=1m\ncreate_only=0\n"))) == 1


def test_shares_of_the_target_under_several_names_do_not_overlap(tmp_path: Path) -> None:
    result = imported(tmp_path, "[global]\nsize=100%\n[a]\nfilename=x\n[b]\nfilename=y\nsize=50%\n[c]\nnumjobs=2\n")
    ranges = [stream["set"] for stream in parts(result)[0]["streams"]]
    expected = [("0", "1GiB"), ("1GiB", "512MiB"), ("1536MiB", "2GiB")]
    assert [(each.get("offset", "0"), each["span"]) for each in ranges] == expected
    assert noted(result, "`size=50%`: the size of the target is unknown")


def test_halves_of_a_target_of_unknown_size_are_disjoint(tmp_path: Path) -> None:
    for names in (("x", "x"), ("x", "y")):
        first, second = (f"[{job}]\nfilename={name}\nsize=50%\n" for job, name in zip("ab", names, strict=True))
        result = imported(tmp_path, f"{first}{second}offset=50%\n[c]\nfilename=z\nsize=1m\nstonewall\n")
        streams = [each["set"] for each in parts(result)[0]["streams"]]
        ranges = [(each.get("offset", "0"), each["span"]) for each in streams]
        expected = [("0", "50%"), ("50%", "50%")] if names[0] == names[1] else [("0", "512MiB"), ("1GiB", "512MiB")]
        assert ranges == expected
    study = parse(imported(tmp_path, "[a]\nfilename=x\nsize=75%\noffset=50%\n").text)
    (run, *_) = expand(study, open_target("null:1GiB")).runs
    assert run.spec["workload"]["streams"][0]["span"] == {
        "offset_bytes": 1 << 29,
        "bytes": 1 << 29,
        "sharing": "shared",
    }


def test_a_section_named_like_a_device_is_on_that_device(tmp_path: Path) -> None:
    result = imported(tmp_path, "[/dev/sdb]\nnumjobs=2\nsize=100%\n[a]\nfilename=/dev/sdb\nsize=1m\n")
    (part,) = parts(result)
    assert "files" not in part["measurement"]
    assert [stream["set"]["span"] for stream in part["streams"]] == ["100%", "1MiB"]
    assert noted(result, "[/dev/sdb] fio takes the name of the section for its device")


def test_a_missing_filename_is_named_where_jobs_have_shares_of_a_device(tmp_path: Path) -> None:
    result = imported(tmp_path, "[a]\nnumjobs=2\nsize=100%\n")
    assert noted(result, "`size=100%`: the line `filename=` is missing")
    assert not noted(imported(tmp_path, "[a]\nsize=100%\n"), "is missing")


def test_concurrent_jobs_with_different_contents_in_one_file_are_noted(tmp_path: Path) -> None:
    text = "[global]\nsize=1m\n[a]\nrw=read\nzero_buffers\n[b]\nrw=write\n"
    assert not noted(imported(tmp_path, text), "laid out"), "in files of their own they have their own contents"
    named = text.replace("[a]", "[a]\nfilename=x").replace("[b]", "[b]\nfilename=y")
    assert noted(imported(tmp_path, named), "it is laid out with incompressible data")


def test_a_job_reads_its_own_kind_of_data_or_that_of_the_file_it_names(tmp_path: Path) -> None:
    """fio lays each file out with the buffers of the first job that reads it, before any job starts."""
    text = "[w]\n{name}rw=write\ndedupe_percentage=100\n[r]\nstonewall\n{name}rw=read\nzero_buffers\n"
    for name, payload, layout in (("", "zeros", "always"), ("filename=x\n", "random", "missing")):
        study = parse(imported(tmp_path, "[global]\nsize=1m\n" + text.format(name=name)).text)
        plan = expand(study, open_target(str(tmp_path)), repeats=1)
        read = plan.cases[1].parameters
        assert (read["payload"], read["layout"]) == (payload, layout)
        assert read["duplicate_fraction"] == (0 if payload == "zeros" else 1)


def test_names_that_a_study_cannot_bear_are_changed(tmp_path: Path) -> None:
    result = imported(tmp_path, "[global]\nsize=1m\n[a b/c]\n[a b/c]\n[control]\nstonewall\n")
    first, second = parts(result)
    assert [stream["name"] for stream in first["streams"]] == ["a-b-c", "a-b-c-2"]
    assert second["name"] == "control-2"


def test_text_of_the_job_file_cannot_break_out_of_the_study(tmp_path: Path) -> None:
    path = tmp_path / 'x"\n[evil].fio'
    path.write_text('[a"]\nsize=1m\ndescription=say "hi" \\ [[parts]]\nthinktime=1\x85[[parts]]\n')
    result = import_job_file(path, environment={})
    assert parts(result)[0]["title"] == 'say "hi" \\ [[parts]]'
    assert len(parts(result)) == 1


UNITS = "fio's units are explained in docs/fio.md"
ENGINES = "iosonde does I/O on files and block devices; see docs/fio.md, Engines"


@pytest.mark.parametrize(
    ("lines", "what", "where", "hint"),
    [
        ("blokcsize=4k", "unknown option `blokcsize` (fio 3.42)", 3, "did you mean `blocksize`?"),
        ("bs=1.5k", "`1.5k` is not a whole number with a unit such as `k`, `m`, `g`", 3, UNITS),
        ("bs=100", "`block_size` cannot be `100B`: 100 B is not a block", 1, "it has 512 B to 64 MiB"),
        ("rw=raednand", "`rw=raednand` is not known", 3, "it is one of `read`, `write`, `trim`, `rw`, `trimwrite`"),
        ("size=${NOWHERE}", "requires the environment variable `NOWHERE`", 3, "`NOWHERE=... iosonde import fio ...`"),
        ("rwmixread=170\nrw=rw", "`170` is not a percentage, 0 to 100", 3, UNITS),
        ("runtime=soon", "`soon` is not a whole number with a unit of time such as `us`, `ms`, `s`, `m`", 3, UNITS),
        ("random_distribution=zoned:50/0:50/100\nrw=randread", "each zone has a share of accesses and", 3, UNITS),
        ("ioengine=net", "has no load that iosonde measures", "`ioengine=net` is no block I/O", ENGINES),
        ("read_iolog=trace.log", "has no load that iosonde measures", "traces are not replayed", ENGINES),
        ("bs=4k\nsize=1k", "`limit_bytes` is less than one block", "in case `job` of the study", "its section"),
    ],
)
def test_errors_have_a_place_and_a_hint(tmp_path: Path, lines: str, what: str, where: int | str, hint: str) -> None:
    with pytest.raises(StudyError) as error:
        imported(tmp_path, f"[job]\nsize=1m\n{lines}\n")
    assert what in error.value.what
    place = f"in section `[job]`, line {where} of `job.fio`" if isinstance(where, int) else where
    assert place in error.value.where
    assert hint in error.value.hint


def test_a_file_without_jobs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="has no jobs"):
        imported(tmp_path, "[global]\nbs=4k\n")


def test_every_option_of_fio_is_known() -> None:
    """`fio_options.txt` lists every name and alias in the source of fio 3.42."""
    of_fio = (Path(__file__).parent / "fio_options.txt").read_text().split()
    assert len(of_fio) > 370
    assert [name for name in of_fio if name not in options.NAMES] == []


NOT_CARRIED = " ".join([*options.NOTED, options.RARE, options.OF_ENGINES])


def test_every_option_that_is_not_carried_over_is_named(tmp_path: Path) -> None:
    names = [name.partition("/")[0] for name in NOT_CARRIED.split() if name not in ("read_iolog", "name")]
    result = imported(tmp_path, "[a]\nsize=1m\n" + "".join(f"{name}=7\n" for name in names))
    assert [note.option for note in result.notes] == [f"{name}=7" for name in names]


def test_a_value_without_effect_is_not_noted(tmp_path: Path) -> None:
    lines = "thinktime=0\nzonemode=none\niodepth_batch=1\nrw_sequencer=sequential\nfallocate=native\n"
    assert notes(imported(tmp_path, f"[a]\nsize=1m\n{lines}percentage_random=100\n")) == []
    in_effect = imported(tmp_path, "[a]\nsize=1m\npercentage_random=0\nnuma_cpu_nodes=0\nbuffer_pattern=0\nthinktime\n")
    assert len(in_effect.notes) == 4


def test_the_command_writes_a_new_file_and_lists_what_is_missing(iosonde: Iosonde, tmp_path: Path) -> None:
    study = tmp_path / "made.toml"
    done = iosonde("import", "fio", JOBS / "phases.fio", "--output", study)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr.startswith(f"converted `{JOBS}/phases.fio` to the study `phases` in `{study}`\n")
    assert "- phases.fio:6 [global] `filename=data`: a study contains no paths;" in done.stderr
    assert done.stderr.endswith(f"\nnext: iosonde plan {study} --target PATH\n")
    assert iosonde("plan", study, "--target", "null:1GiB").returncode == 0
    again = iosonde("import", "fio", JOBS / "phases.fio", "--output", study)
    assert again.returncode == 1 and "already exists" in again.stderr
    shown = iosonde("import", "fio", JOBS / "tuned.fio")
    assert tomllib.loads(shown.stdout)["name"] == "tuned" and "all options are carried over" in shown.stderr
    nowhere = iosonde("import", "fio", JOBS / "tuned.fio", "--output", CHECKOUT / "none/there.toml")
    assert nowhere.returncode == 1 and "cannot write" in nowhere.stderr
