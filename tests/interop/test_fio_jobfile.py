"""fio's job files as text, and fio's units."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iosonde.errors import StudyError
from iosonde.interop.fio import command_line, given, jobfile


def sections(directory: Path, text: str, **environment: str) -> list[jobfile.Section]:
    path = directory / "a.fio"
    path.write_text(text)
    return jobfile.read(path, environment=environment)


def options(section: jobfile.Section) -> list[str]:
    return [str(setting) for setting in section.settings]


def test_a_global_section_applies_to_the_sections_after_it_and_a_later_one_adds_to_it(tmp_path: Path) -> None:
    first, second = sections(tmp_path, "[global]\nbs=4k\n[one]\nrw=read\n[global]\nsize=1m\n[two]\nrw = write\n")
    assert options(first) == ["bs=4k", "rw=read"]
    assert options(second) == ["bs=4k", "size=1m", "rw=write"]


def test_whatever_follows_a_comment_sign_is_no_value(tmp_path: Path) -> None:
    (only,) = sections(tmp_path, "; a\n# b\n\n[one] # name\n  rw=read;c\nbs = 4k # d\n  thread\n")
    assert (only.name, only.line, options(only)) == ("one", 4, ["rw=read", "bs=4k", "thread"])


def test_variables_are_filled_in_and_the_machine_can_be_calculated_with(tmp_path: Path) -> None:
    text = "[a]\nsize=${SIZE}m\nbs=2*$pagesize\nnumjobs=$ncpus\nfilename=${UNSET}/x\n"
    (only,) = sections(tmp_path, text, SIZE="7")
    page = os.sysconf("SC_PAGE_SIZE")
    assert options(only) == ["size=7m", f"bs={2 * page}", f"numjobs={os.cpu_count()}", "filename=${UNSET}/x"]
    assert jobfile.unset_variables(only.settings[-1]) == ["UNSET"]


def test_an_included_file_counts_from_the_one_that_names_it_and_keeps_its_own_lines(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/one").write_text("include two\n")
    (tmp_path / "sub/two").write_text("\nbs=8k\n")
    (only,) = sections(tmp_path, "[a]\ninclude sub/one\nrw=read\n")
    assert options(only) == ["bs=8k", "rw=read"]
    assert only.settings[0].where() == "in section `[a]`, line 2 of `two`"


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        ("size=1m\n[a]\n", "the option `size` is outside of any section", "line 1 of `a.fio`"),
        ("[a]\n[]\n", "a section has no name", "line 2 of `a.fio`"),
        ("[a]\ninclude missing.inc\n", "cannot read the job file", "included in line 2 of `a.fio`"),
        ("[a]\ninclude a.fio\n", "job file includes must not be nested more than", "included in line 2 of `a.fio`"),
    ],
)
def test_errors_name_the_line(tmp_path: Path, text: str, what: str, where: str) -> None:
    with pytest.raises(StudyError) as error:
        sections(tmp_path, text)
    assert error.value.what.startswith(what)
    assert error.value.where == where


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "link"])
def test_a_file_outside_the_directory_of_the_job_file_is_not_included(tmp_path: Path, name: str) -> None:
    (tmp_path / "secret").write_text("password = 1234\n")
    jobs = tmp_path / "jobs"
    jobs.mkdir()
    (jobs / "link").symlink_to("../secret")
    with pytest.raises(StudyError) as error:
        sections(jobs, f"[a]\ninclude {name}\n")
    assert f"it is outside the directory `{jobs}`" in error.value.what
    assert error.value.hint == "copy the file into the directory of the job file"


def test_a_missing_or_binary_file_is_an_error_and_a_byte_order_mark_is_not(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="No such file"):
        jobfile.read(tmp_path / "none.fio", environment={})
    (tmp_path / "binary.fio").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(StudyError, match="it is not text"):
        jobfile.read(tmp_path / "binary.fio", environment={})
    (only,) = sections(tmp_path, "\ufeff[a]\nrw=read\n")
    assert only.name == "a"


@pytest.mark.parametrize(
    ("text", "kb_1024", "kb_1000"),
    [
        ("512", 512, 512),
        ("4k", 4096, 4000),
        ("4KB", 4096, 4000),
        ("4kib", 4000, 4096),
        ("1mi", 1 << 20, 10**6),
        ("1MiB", 10**6, 1 << 20),
        ("1Pib", 10**15, 1 << 50),
        ("2G", 2 << 30, 2 * 10**9),
        ("0x1000", 4096, 4096),
        ("100b", 100, 100),
    ],
)
def test_only_prefixes_of_three_letters_mean_the_opposite_of_kb_base(text: str, kb_1024: int, kb_1000: int) -> None:
    assert given.size(text, kb_base=1024) == kb_1024
    assert given.size(text, kb_base=1000) == kb_1000


@pytest.mark.parametrize("text", ["", "1.5m", "4x", "k", "-4k", "1 g"])
def test_what_fio_would_cut_off_in_silence_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="is not a whole number"):
        given.size(text, kb_base=1024)


def test_times_are_in_seconds_unless_they_or_their_option_have_another_unit() -> None:
    seconds = {
        "2": 2,
        "3s": 3,
        "4sec": 4,
        "1m": 60,
        "2h": 7200,
        "1d": 86400,
        "5ms": 0.005,
        "6msec": 0.006,
        "7usec": 7e-6,
    }
    assert {text: given.time_ns(text) / 10**9 for text in seconds} == seconds
    assert given.time_ns("250", "ms") == 250 * 10**6
    with pytest.raises(ValueError, match="longer than three centuries"):
        given.time_ns("9" * 5000)
    with pytest.raises(ValueError, match="is not a whole number with a unit of time"):
        given.time_ns("0.5s")


@pytest.mark.parametrize(
    ("line", "value"),
    [
        # For reads, writes and trims.
        ("rate_iops=4k", [4096, 4096, 4096]),
        ("rate_iops=4k,8k", [4096, 8192, 8192]),
        ("rate_iops=,8k", [None, 8192, 8192]),
        ("rate_iops=4k,", [4096, None, None]),
        ("bssplit=4k/60:8k/:16k/", [[(4096, 60.0), (8192, 20.0), (16384, 20.0)]] * 3),
        ("cpus_allowed=0-2,8", [0, 1, 2, 8]),
        ("cpumask=0xb", [0, 1, 3]),
    ],
)
def test_lists_of_values(tmp_path: Path, line: str, value: object) -> None:
    (section,) = sections(tmp_path, f"[a]\n{line}\n")
    assert given.Given(section, {}).get(line.partition("=")[0]) == value


@pytest.mark.parametrize(
    "pasted",
    [
        ["fio --bs=4k --name=a --rw=read --thread --size 1m --output-format=json --name=b --size=2m"],
        [
            "sudo fio --bs=4k \\\n  --name=a --rw=read --thread --size=1m --output result.json --name=b --size=2m # mine\n"
        ],
        ["--bs=4k", "-name=a", "--rw", "read", "--thread", "--size=1m", "--eta=never", "--name=b", "--size=2m"],
    ],
)
def test_a_command_line_is_read_as_its_job_file_is(tmp_path: Path, pasted: list[str]) -> None:
    jobs = command_line.read(command_line.split(pasted), environment={})
    text = "[global]\nbs=4k\n[a]\nrw=read\nthread\nsize=1m\n[b]\nsize=2m\n"
    assert [(job.name, options(job)) for job in jobs] == [(job.name, options(job)) for job in sections(tmp_path, text)]


def test_a_comment_sign_is_a_part_of_a_value_on_the_command_line_and_a_wrong_one_is_an_error() -> None:
    (only,) = command_line.read(command_line.split(["fio --name=a --description='x;y #1'"]), environment={})
    assert options(only) == ["description=x;y #1"]
    for line, message in {
        "fio --name=a job.fio": "`job.fio` is neither an option of fio nor a job file",
        "fio --name='a": "cannot be split",
        "fio --name=a --read=x": "the option `read` is ambiguous",
        "fio --name=a; fio --name=b": "has 2 commands of fio",
        "fio --section=b --name=a": "there is no section `b`",
    }.items():
        with pytest.raises(StudyError, match=message):
            command_line.read(command_line.split([line]), environment={})


@pytest.mark.parametrize(
    "line",
    [
        "$ fio LOAD",
        "# fio LOAD",
        "~ # fio LOAD",
        "[user@host ~]# fio LOAD",
        "(venv) user@host:/mnt/x$ sudo -u root fio LOAD",
        "SIZE=9 /usr/local/bin/fio LOAD",
        "time numactl -N 0 ./fio LOAD",
        "# fio with small blocks\nsync; echo 3 > /proc/sys/vm/drop_caches && fio LOAD",
        "fio LOAD > result.txt 2>&1",
        "fio LOAD | tee 'my result'",
        "fio LOAD &",
        "fio LOAD; rm data",
        "fio LOAD 2>/dev/null",
        "LOAD",
    ],
)
def test_a_command_line_is_read_as_people_copy_it(line: str) -> None:
    for load in (
        "--name=a --rw=read --numjobs 2",
        "--nam=a --readw=read --numj=2",
        "\u2013name=a --rw=read\n  --numjobs=2",
    ):
        command = command_line.split([line.replace("LOAD", load)])
        (job,) = command_line.read(command, environment={})
        assert (job.name, [setting.value for setting in job.settings]) == ("a", ["read", "2"])
    assert command_line.is_command_line([line.replace("LOAD", "--name=a")])


def test_a_command_line_sets_variables_and_selects_sections_of_job_files(tmp_path: Path) -> None:
    first, second = tmp_path / "one.fio", tmp_path / "two.fio"
    first.write_text("[global]\nsize=${SIZE}\n[a]\nbs=4k\n[b]\n")
    second.write_text("[b]\nsize=2m\n")
    words = ["SIZE=1m", "fio", "--rw=write", "--section=b", str(first), "--output=x", str(second)]
    jobs = command_line.read(command_line.split(words), environment={"SIZE": "7m"})
    assert [(job.name, options(job)) for job in jobs] == [
        ("b", ["rw=write", "size=1m"]),
        ("b", ["size=2m", "stonewall"]),
    ], "job files after the first wait, without global options of the others"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('{\n  "fio version" : "fio-3.33",\n', "a result of fio in JSON"),
        ("fio version 3 iolog\n29 /f add\n", "an I/O log of fio"),
        ("3;fio-3.33;a;0;0;64;9142;2285;7\n", "a result of fio in terse format"),
        ("1, 204800, 0, 4096, 0, 0\n2, 204800, 0, 4096, 0, 0\n", "a log of fio"),
        ("a: (g=0): rw=read, bs=(R) 4096B-4096B, ioengine=psync, iodepth=1\nfio-3.33\n", "the output of fio"),
    ],
)
def test_another_file_of_fio_is_named_as_what_it_is(tmp_path: Path, text: str, kind: str) -> None:
    with pytest.raises(StudyError, match=f"is {kind}") as caught:
        sections(tmp_path, text)
    assert "not a job file" in caught.value.what
