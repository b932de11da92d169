"""The files for Kubernetes hold together: they parse, name each other, and the pipeline in them is one that we accept."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from atonce.config import load

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
PARTS: list[dict[str, Any]] = list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def of(kind: str) -> dict[str, Any]:
    (found,) = [part for part in PARTS if part["kind"] == kind]
    return found


def test_manifest_names_its_own_parts() -> None:
    pod = of("Deployment")["spec"]["template"]
    assert pod["spec"]["serviceAccountName"] == of("ServiceAccount")["metadata"]["name"]
    assert of("RoleBinding")["roleRef"]["name"] == of("Role")["metadata"]["name"]
    assert of("RoleBinding")["subjects"][0]["name"] == of("ServiceAccount")["metadata"]["name"]
    labels = pod["metadata"]["labels"]
    assert of("Service")["spec"]["selector"] == of("Deployment")["spec"]["selector"]["matchLabels"] == labels
    assert pod["spec"]["volumes"][0]["configMap"]["name"] == of("ConfigMap")["metadata"]["name"]
    assert of("Deployment")["spec"]["replicas"] == 1


def test_pipeline_of_the_manifest_is_one_and_executors_find_its_driver(tmp_path: Path) -> None:
    (name, text), *others = of("ConfigMap")["data"].items()
    assert not others
    (tmp_path / name).write_text(text)
    pipeline, _ = load(tmp_path / name)
    settings = pipeline.spark
    assert settings["spark.driver.host"] == of("Service")["metadata"]["name"]
    ports = {str(port["port"]) for port in of("Service")["spec"]["ports"]}
    assert ports == {settings["spark.driver.port"], settings["spark.driver.blockManager.port"]}
    container = of("Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert settings["spark.kubernetes.container.image"] == container["image"]
    assert container["args"][:3] == ["atonce", "run", f"/etc/atonce/{name}"]


def test_container_file_copies_what_is_there() -> None:
    lines = (DEPLOY / "Containerfile").read_text().splitlines()
    copied = [word for line in lines if line.startswith("COPY") for word in line.split()[1:-1] if word[0] not in "-d"]
    assert copied == ["requirements.txt"] and (ROOT / "requirements.txt").exists()
    assert any("deploy/entrypoint" in line for line in lines) and (DEPLOY / "entrypoint").exists()
    assert next(line.split()[0] for line in lines if line and line[0].isupper()) == "FROM"


def test_entry_point_runs_commands_and_says_what_an_executor_lacks() -> None:
    done = subprocess.run([DEPLOY / "entrypoint", "echo", "here"], capture_output=True, text=True, check=True)
    assert done.stdout == "here\n"
    lacking = subprocess.run([DEPLOY / "entrypoint", "executor"], capture_output=True, text=True, check=False)
    assert lacking.returncode != 0 and "SPARK_DRIVER_URL" in lacking.stderr
