"""Takes what is needed of schemas that lie in packages on PyPI, descriptions left out.

In an environment with check-jsonschema, kubernetes-validate and dask-kubernetes:
`python extract.py SITE_PACKAGES`. The tests read only what it wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
COMPOSE = "check_jsonschema/builtin_schemas/vendor/compose-spec.json"
KUBERNETES = "kubernetes_validate/kubernetes-json-schema/v1.37.0-local-strict/_definitions.json"
DASK_CLUSTER = (
    "dask_kubernetes/operator/deployment/helm/dask-kubernetes-operator/crds/daskcluster.yaml"
)
KINDS = {
    "ConfigMap": "io.k8s.api.core.v1.ConfigMap",
    "Deployment": "io.k8s.api.apps.v1.Deployment",
    "Job": "io.k8s.api.batch.v1.Job",
    "Namespace": "io.k8s.api.core.v1.Namespace",
    "NetworkPolicy": "io.k8s.api.networking.v1.NetworkPolicy",
    "Service": "io.k8s.api.core.v1.Service",
    "StatefulSet": "io.k8s.api.apps.v1.StatefulSet",
}


def plain(schema: Any) -> Any:
    """Return a schema without descriptions; properties of that name stay."""
    if isinstance(schema, list):
        return [plain(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: plain(each) for name, each in value.items()}
        if key in ("properties", "definitions", "$defs", "patternProperties")
        else plain(value)
        for key, value in schema.items()
        if key != "description"
    }


def kubernetes(all_definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions of `KINDS` and of what they refer to."""
    kept: dict[str, Any] = {}
    waiting = list(KINDS.values())
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = plain(all_definitions[name])
            waiting += references(kept[name])
    kinds = {kind: {"$ref": f"#/definitions/{name}"} for kind, name in KINDS.items()}
    return {"kinds": kinds, "definitions": dict(sorted(kept.items()))}


def references(schema: Any) -> list[str]:
    """Return the names of the definitions that a schema refers to, and make it refer to ours."""
    if isinstance(schema, list):
        return [name for each in schema for name in references(each)]
    if not isinstance(schema, dict):
        return []
    found = []
    if isinstance(schema.get("$ref"), str):
        name = schema["$ref"].rpartition("/")[2]
        schema["$ref"] = f"#/definitions/{name}"
        found.append(name)
    return found + [name for each in schema.values() for name in references(each)]


def write(name: str, schema: Any) -> None:
    (HERE / name).write_text(json.dumps(schema, separators=(",", ":")) + "\n")


def main(packages: Path) -> None:
    write("compose.json", plain(json.loads((packages / COMPOSE).read_text())))
    definitions = json.loads((packages / KUBERNETES).read_text())["$defs"]
    write("kubernetes.json", kubernetes(definitions))
    resource = yaml.safe_load((packages / DASK_CLUSTER).read_text())
    [version] = resource["spec"]["versions"]
    write("daskcluster.json", plain(version["schema"]["openAPIV3Schema"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
