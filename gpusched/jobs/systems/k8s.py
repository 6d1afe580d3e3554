"""Kubernetes, by an indexed Job: one pod a node, the first with the scheduler and the script."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpusched.jobs.launch_options import COMMAND, LaunchOptions
from gpusched.jobs.node_processes import OUT_OF_TIME
from gpusched.jobs.request import Request
from gpusched.jobs.systems.system import System, SystemFailure, refuse_queueing

_PORT = 8786
_INDEX = "batch.kubernetes.io/job-completion-index"
_JOB = "batch.kubernetes.io/job-name"
_TLS = "/etc/gpusched/tls"
_SAFE = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


class Kubernetes(System):
    """By kubectl. A job's number is the name of the Job, in kubectl's present namespace.

    The pods find the first one by its name, which is known in advance, so that nothing but the
    claim is shared. Pods besides the first join whatever scheduler is there until Kubernetes ends
    them, which it does when the first one is done.
    """

    name = "k8s"
    submitter = "kubectl"
    remedy = "install it, or send what --dry-run prints to the cluster in another way"
    unknown = "NotFound"

    def script(self, request: Request) -> str:
        """Return a manifest for kubectl."""
        import yaml

        documents = [_service(request), _job(request)]
        text: str = yaml.safe_dump_all(documents, sort_keys=False, width=100)
        return "# Made by `gpusched submit`; docs/how-to/jobs.md says what becomes of it.\n" + text

    def submit(self, request: Request) -> str:
        """Submit by kubectl; an object of the same name that is there stays as it is."""
        self.ask("kubectl", "create", "--filename=-", text=self.script(request))
        return request.name

    def state(self, number: str) -> str | None:
        """Ask for the Job's conditions and pods."""
        told = self.look_up("kubectl", "get", "job", number, "--output=json")
        if told is None:
            return None
        status = json.loads(told).get("status", {})
        over = {"Complete", "Failed", "SuccessCriteriaMet", "FailureTarget"}
        for condition in status.get("conditions", ()):
            if condition["type"] in over and condition["status"] == "True":
                return None
        return "running" if status.get("ready") else "queued"

    def cancel(self, number: str) -> None:
        """Delete the Job, its pods, and the Service."""
        self.ask("kubectl", "delete", "--ignore-not-found", f"job/{number}", f"service/{number}")

    def code(self, number: str, folder: Path) -> int | None:
        """Return the exit code of the first pod's newest container, once the Job is over."""
        if self.state(number) is not None:
            return None
        told = self.ask("kubectl", "get", "pods", _first(number), "--output=json")
        pods = sorted(
            json.loads(told)["items"], key=lambda pod: pod["metadata"]["creationTimestamp"]
        )
        for pod in reversed(pods):
            for container in pod.get("status", {}).get("containerStatuses", ()):
                ended = container["state"].get("terminated")
                if ended:
                    return int(ended["exitCode"])
        return None

    def log_command(self, number: str) -> list[str]:
        """Return kubectl's."""
        return ["kubectl", "logs", _first(number), "--tail=-1"]

    def node_commands(self, part: LaunchOptions) -> list[list[str]]:
        """Raise: Kubernetes itself starts the pods."""
        raise SystemFailure("on Kubernetes each pod runs its part: give --address, not --backend")

    def settled(self, request: Request) -> Request:
        """Refuse what a Job lacks or cannot be given."""
        if request.image is None:
            raise ValueError("--backend k8s needs --image: one with gpusched that nodes can pull")
        if request.claim is None or not request.claim.partition(":")[2].startswith("/"):
            raise ValueError(
                "--backend k8s needs --claim NAME:PATH: a volume with the script that all pods "
                "see, and where they see it"
            )
        seen = Path(request.claim.partition(":")[2])
        for name in ("directory", "checkpoints"):
            folder = getattr(request, name)
            if folder is not None and not folder.is_relative_to(seen):
                raise ValueError(f"--{name} {folder} is not in {seen}, where pods see the claim")
        refuse_queueing(request, "change what --dry-run prints")
        if not request.name.replace("-", "").isalnum() or request.name != request.name.lower():
            raise ValueError(
                f"--name {request.name}: Kubernetes takes small letters, digits and '-' only"
            )
        return request


def _first(number: str) -> str:
    return f"--selector={_JOB}={number},{_INDEX}=0"


def _service(request: Request) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": request.name},
        "spec": {
            "clusterIP": "None",
            # The scheduler is looked for before its pod is counted as ready.
            "publishNotReadyAddresses": True,
            "selector": {_JOB: request.name},
            "ports": [{"name": "scheduler", "port": _PORT}],
        },
    }


def _job(request: Request) -> dict[str, Any]:
    retries = {"onExitCodes": {"operator": "NotIn", "values": [OUT_OF_TIME]}, "action": "FailIndex"}
    moved = {"onPodConditions": [{"type": "DisruptionTarget"}], "action": "Ignore"}
    spec = {
        "completionMode": "Indexed",
        "completions": request.nodes,
        "parallelism": request.nodes,
        # The first pod's end is the job's. A pod that is moved to another machine is started again,
        # and one that is out of time as often as was asked for.
        "successPolicy": {"rules": [{"succeededIndexes": "0"}]},
        "backoffLimitPerIndex": request.requeues,
        "maxFailedIndexes": 0,
        "podFailurePolicy": {"rules": [*([moved] if request.requeues else []), retries]},
        "template": {"spec": _pod(request)},
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": request.name},
        "spec": spec,
    }


def _pod(request: Request) -> dict[str, Any]:
    claim, _, path = (request.claim or "").partition(":")
    volumes: list[dict[str, Any]] = [
        {"name": "shared", "persistentVolumeClaim": {"claimName": claim}},
        {"name": "scratch", "emptyDir": {}},
        {"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}},
    ]
    mounts: list[dict[str, Any]] = [
        {"name": "shared", "mountPath": path},
        {"name": "scratch", "mountPath": "/tmp"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    if request.tls is not None:
        secret = {"secretName": str(request.tls), "defaultMode": 0o440}
        volumes.append({"name": "tls", "secret": secret})
        mounts.append({"name": "tls", "mountPath": _TLS, "readOnly": True})
    container = {
        "name": "node",
        "image": request.image,
        "command": [request.python, *COMMAND],
        "args": _launch_options(request).words(),
        "workingDir": str(request.directory),
        "env": [
            {"name": "XDG_CACHE_HOME", "value": "/tmp/cache"},
            {"name": "DASK_TEMPORARY_DIRECTORY", "value": "/tmp/dask"},
        ],
        "resources": _resources(request),
        "securityContext": _SAFE,
        "volumeMounts": mounts,
    }
    return {
        "subdomain": request.name,
        "restartPolicy": "Never",
        # Only a backstop: the first pod watches the clock, and the others outlive its starts.
        "activeDeadlineSeconds": int(request.seconds) * (request.requeues + 1),
        "terminationGracePeriodSeconds": int(request.grace),
        "automountServiceAccountToken": False,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 1000,
            "runAsGroup": 1000,
            "fsGroup": 1000,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": volumes,
    }


def _launch_options(request: Request) -> LaunchOptions:
    scheme = "tcp" if request.tls is None else "tls"
    return replace(
        request.launch_options(),
        backend=None,
        requeues=0,
        address=f"{scheme}://{request.name}-0.{request.name}:{_PORT}",
        tls=None if request.tls is None else Path(_TLS),
        checkpoints=request.checkpoints or request.directory / f"{request.name}-checkpoints",
    )


def _resources(request: Request) -> dict[str, Any]:
    asked = {
        "cpu": None if request.cpus is None else str(request.cpus),
        "memory": None if request.mebibytes is None else f"{request.mebibytes}Mi",
        "nvidia.com/gpu": str(request.gpus_per_node) if request.gpus_per_node else None,
    }
    given = {name: value for name, value in asked.items() if value is not None}
    limits = {name: value for name, value in given.items() if name != "cpu"}
    return {"requests": given, "limits": limits} if given else {}


SYSTEM = Kubernetes()
