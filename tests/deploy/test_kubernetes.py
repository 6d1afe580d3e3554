"""Manifests against Kubernetes' own schemas, and their commands and probes against gpusched's."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deploy.commands import check, merged
from tests.deploy.conftest import Pages
from tests.deploy.jobs import DEPLOY

FOLDER = DEPLOY / "k8s"
SCHEMAS = Path(__file__).parent / "schemas"
KUBERNETES = json.loads((SCHEMAS / "kubernetes.json").read_text())


def strict(schema: Any) -> Any:
    """Return a resource's schema without room for unknown fields, which a server would drop."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        made.setdefault("additionalProperties", False)
    return made


# The server adds these three itself, so the schema of a custom resource need not name them.
DASK_CLUSTER = strict(json.loads((SCHEMAS / "daskcluster.json").read_text()))
DASK_CLUSTER["properties"] |= {name: {} for name in ("apiVersion", "kind", "metadata")}


def documents(path: Path) -> list[dict[str, Any]]:
    """Return the documents of a file."""
    return list(yaml.safe_load_all(path.read_text()))


JOB = documents(FOLDER / "job.yaml")
BASE = [each for path in sorted((FOLDER / "base").glob("*.yaml")) for each in documents(path)]
BASE = [each for each in BASE if each["kind"] != "Kustomization"]
CLUSTER = documents(FOLDER / "daskcluster.yaml")[0]
SETTINGS = next(each for each in BASE if each["kind"] == "ConfigMap")["data"]


def validate(resource: dict[str, Any]) -> None:
    """Raise unless a resource is one that Kubernetes 1.37 takes."""
    kind = KUBERNETES["kinds"][resource["kind"]]
    Draft202012Validator(kind | {"definitions": KUBERNETES["definitions"]}).validate(resource)


def built(folder: str) -> list[dict[str, Any]]:
    """Return what kustomize makes of a folder."""
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("needs kubectl")
    done = subprocess.run(
        [kubectl, "kustomize", FOLDER / folder], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


def name(resource: dict[str, Any]) -> str:
    return f"{resource['kind']}-{resource['metadata']['name']}"


def pods(resources: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the specifications of pods."""
    for each in resources:
        if each["kind"] in ("Deployment", "StatefulSet"):
            yield each["spec"]["template"]["spec"]


PODS = [*pods(BASE), CLUSTER["spec"]["scheduler"]["spec"], CLUSTER["spec"]["worker"]["spec"]]


@pytest.mark.parametrize("resource", [*BASE, *JOB], ids=name)
def test_resource_is_valid(resource: dict[str, Any]) -> None:
    validate(resource)


def test_dask_cluster_is_valid() -> None:
    Draft202012Validator(DASK_CLUSTER).validate(CLUSTER)


def test_schemas_refuse_unknown_fields() -> None:
    wrong = json.loads(json.dumps(CLUSTER))
    wrong["spec"]["worker"]["spec"]["containers"][0]["commands"] = []
    assert not Draft202012Validator(DASK_CLUSTER).is_valid(wrong)
    wrong = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "content": {}}
    kind = KUBERNETES["kinds"]["ConfigMap"] | {"definitions": KUBERNETES["definitions"]}
    assert not Draft202012Validator(kind).is_valid(wrong)


def test_kustomization_names_every_file() -> None:
    for folder, others in (("base", set()), ("gpu", {"../base"})):
        made = documents(FOLDER / folder / "kustomization.yaml")[0]
        files = {path.name for path in (FOLDER / folder).glob("*.yaml")} - {"kustomization.yaml"}
        assert set(made["resources"]) == files | others


@pytest.mark.parametrize("folder", ["base", "gpu"])
@pytest.mark.processes
def test_what_kustomize_makes_is_valid(folder: str) -> None:
    made = built(folder)
    assert {name(each) for each in made} == {name(each) for each in BASE}
    for each in made:
        validate(each)
    for pod in pods(made):
        check_command(pod["containers"][0])


@pytest.mark.processes
def test_gpus_are_for_workers_only() -> None:
    scheduler, worker = pods(built("gpu"))
    assert "nvidia.com/gpu" not in json.dumps(scheduler)
    assert worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert worker["containers"][0]["image"].startswith("gpusched:cuda")
    assert worker["initContainers"][0]["image"] == worker["containers"][0]["image"]
    assert "nvidia.com/gpu" not in json.dumps([*pods(built("base"))])


def check_command(container: dict[str, Any]) -> None:
    program, *words = [*container["command"], *container["args"]]
    assert program == "gpusched"
    check(words)


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["containers"][0]["name"])
def test_pod_runs_a_command_of_gpusched_and_no_more(pod: dict[str, Any]) -> None:
    [container] = pod["containers"]
    check_command(container)
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert not container["securityContext"]["allowPrivilegeEscalation"]
    assert {"requests", "limits"} == set(container["resources"])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_kernels_of_an_image_are_copied_to_the_volume_that_hides_them() -> None:
    worker = next(pod for pod in PODS if "initContainers" in pod)
    [copying] = worker["initContainers"]
    [container] = worker["containers"]
    *_, source, target = copying["command"]
    [mount] = copying["volumeMounts"]
    places = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert (source, target) == (f"{places[mount['name']]}/.", f"{mount['mountPath']}/")
    assert copying["image"] == container["image"]


@pytest.mark.parametrize("pod", PODS, ids=lambda pod: pod["containers"][0]["name"])
def test_probes_ask_pages_that_answer(pod: dict[str, Any], pages: Pages) -> None:
    [container] = pod["containers"]
    probes = {key: value for key, value in container.items() if key.endswith("Probe")}
    assert {"readinessProbe", "livenessProbe"} <= set(probes)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for probe in probes.values():
        page = probe["httpGet"]
        assert pages.get(container["name"], page["path"]) == "ok"
        assert f":{ports[page['port']]}" in " ".join(container["args"])


def test_settings_name_the_files_of_the_secret() -> None:
    from gpusched.cluster import certificates

    made = {certificates.CA, certificates.CERTIFICATE, certificates.KEY}
    files = [Path(value) for key, value in SETTINGS.items() if "__TLS__" in key]
    assert {file.name for file in files} == made
    mounts = [mount for pod in PODS for mount in pod["containers"][0]["volumeMounts"]]
    tls = {mount["mountPath"] for mount in mounts if mount["name"] == "tls"}
    assert {str(file.parent) for file in files} == tls


def test_settings_are_read_as_dask_reads_them() -> None:
    import dask.config
    from distributed.security import Security

    with dask.config.set(merged(SETTINGS)):
        security = Security()
        assert security.require_encryption
        assert security.tls_worker_key == SETTINGS["DASK_DISTRIBUTED__COMM__TLS__WORKER__KEY"]
        assert dask.config.get("scheduler-address") == SETTINGS["DASK_SCHEDULER_ADDRESS"]


def test_services_and_policy_choose_the_pods() -> None:
    kinds = ("Deployment", "StatefulSet")
    labels = [
        each["spec"]["template"]["metadata"]["labels"] for each in BASE if each["kind"] in kinds
    ]
    services = [each["spec"]["selector"] for each in BASE if each["kind"] == "Service"]
    for service, pod in zip(services, labels, strict=True):
        assert service.items() <= pod.items()
    [policy] = [each["spec"] for each in BASE if each["kind"] == "NetworkPolicy"]
    for pod in labels:
        assert policy["podSelector"]["matchLabels"].items() <= pod.items()


def test_job_runs_the_launcher_and_no_more() -> None:
    service, job = JOB
    pod = job["spec"]["template"]["spec"]
    [container] = pod["containers"]
    assert container["command"] == ["python", "-m", "gpusched", "launch"]
    check(["launch", *container["args"]])
    assert pod["securityContext"]["runAsNonRoot"]
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "4"
    # Kubernetes names a Job's pods so, if their subdomain is the Service's.
    first = f"{job['metadata']['name']}-0.{service['metadata']['name']}"
    assert pod["subdomain"] == service["metadata"]["name"]
    assert f"--address=tls://{first}:{service['spec']['ports'][0]['port']}" in container["args"]
