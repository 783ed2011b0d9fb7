"""The container image and the Job for Kubernetes, as far as their text shows it.

`tests/lab/test_fresh_machine.py` carries out the steps of the image.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from command_line import CHECKOUT

from iosonde.cli import COMMANDS, manual
from iosonde.data import shipped

DIRECTORY = CHECKOUT / "packaging" / "container"
OLDEST_KUBERNETES = "1.27"


@pytest.mark.unit
@pytest.mark.parametrize("path", sorted(DIRECTORY.glob("*.yaml")), ids=lambda path: path.name)
def test_manifests_follow_the_schema_of_kubernetes(path: Path) -> None:
    documents = list(yaml.safe_load_all(path.read_text()))
    assert documents
    for document in documents:
        kubernetes_validate.validate(document, OLDEST_KUBERNETES, strict=True)


@pytest.mark.unit
def test_the_schema_refuses_a_misspelt_field() -> None:
    _, job = yaml.safe_load_all((DIRECTORY / "qualify-job.yaml").read_text())
    job["spec"]["template"]["spec"]["restartpolicy"] = "Never"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(job, OLDEST_KUBERNETES, strict=True)


@pytest.mark.unit
def test_the_job_calls_commands_and_options_that_exist() -> None:
    volume, job = yaml.safe_load_all((DIRECTORY / "qualify-job.yaml").read_text())
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == volume["metadata"]["name"]
    assert container["volumeMounts"][0]["name"] == pod["volumes"][0]["name"]
    options = {
        entry.name: {name for names, _ in entry.parameters for name in re.findall(r"--[a-z-]+", names)}
        for entry in manual.entries()
    }
    called = [shlex.split(line) for line in container["args"][0].splitlines() if line.startswith("iosonde ")]
    assert {words[1] for words in called} <= set(COMMANDS)
    for words in called:
        assert {word for word in words if word.startswith("--")} <= options[words[1]], words
        assert words[1] != "run" or words[2] in shipped()
        assert (
            "--target" not in words or words[words.index("--target") + 1] == container["volumeMounts"][0]["mountPath"]
        )
