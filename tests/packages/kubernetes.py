"""Checks Kubernetes manifests against the schemas of Kubernetes (the package kubernetes-validate), strictly: unknown
keys are errors. Of an MPIJob, which Kubernetes does not know, the templates of its pods are checked.

    kubernetes.py FILE...
"""

import sys
from collections.abc import Iterator

import kubernetes_validate
import yaml

VERSION = "1.31"


def checkable(manifest: dict) -> Iterator[dict]:
    if manifest["kind"] != "MPIJob":
        yield manifest
        return
    for replicas in manifest["spec"]["mpiReplicaSpecs"].values():
        yield {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, **replicas["template"]}


def main() -> None:
    count = 0
    for file in sys.argv[1:]:
        for manifest in yaml.safe_load_all(open(file)):
            for part in checkable(manifest):
                try:
                    kubernetes_validate.validate(part, VERSION, strict=True)
                except kubernetes_validate.ValidationError as problem:
                    sys.exit(f"{file}: {part['kind']}: {problem.message} ({'.'.join(map(str, problem.path))})")
                count += 1
    if count == 0:
        sys.exit("kubernetes: there is nothing to check.")


if __name__ == "__main__":
    main()
