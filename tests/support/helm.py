"""The chart in deploy/helm, rendered by Helm itself, and its objects held against the schemas of Kubernetes."""

import json
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.unit.architecture.source import ROOT

CHART = ROOT / "deploy" / "helm" / "maestro"
OWN_KINDS = {"ScaledObject", "ServiceMonitor"}
"""Kinds that operators of a cluster add; Kubernetes itself has no schema for them."""

KEYS = ("storeUrl", "signingKey", "secretsKey", "webuiPassword", "webApiKey")
NEEDED: Mapping[str, Any] = {
    "temporal": {"address": "temporal.example.org:7233"},
    "secrets": {key: {"name": "maestro", "key": key} for key in KEYS},
}
"""The fewest values with which the chart can be installed."""


class ChartRefused(Exception):
    """Helm refused the values or the templates; the text is what it says."""


def render(values: Mapping[str, Any], *, name: str = "acme", namespace: str = "agents") -> list[dict[str, Any]]:
    """Return the objects of a release with these values; raises ``ChartRefused``."""
    texts = _render_texts(values, name, namespace)
    return [found for text in texts for found in yaml.safe_load_all(text) if found]


def _render_texts(values: Mapping[str, Any], name: str, namespace: str) -> Sequence[str]:
    try:
        import helm_python  # noqa: PLC0415 - there is no wheel of it for every platform
    except ImportError:
        return [_render_by_command(values, name, namespace)]
    with helm_python.Chart.load(str(CHART)) as chart:
        try:
            texts = chart.render(dict(values), name=name, namespace=namespace)
        except helm_python.HelmError as error:
            raise ChartRefused(str(error)) from None
    return [text for file, text in texts.items() if not file.endswith(".txt")]


def _render_by_command(values: Mapping[str, Any], name: str, namespace: str) -> str:
    helm = shutil.which("helm")
    assert helm, "install helm: there is no wheel of helm-python-sdk for this platform"
    command = [helm, "template", name, str(CHART), "--namespace", namespace, "--values", "-"]
    done = subprocess.run(command, input=json.dumps(values), capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChartRefused(done.stderr)
    return done.stdout


def find_object(objects: Sequence[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    """Return the object of this kind and name."""
    [found] = [one for one in objects if (one["kind"], one["metadata"]["name"]) == (kind, name)]
    return found


def list_pods(objects: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return the pod of each object that has one, by the object's name."""
    return {
        one["metadata"]["name"]: one["spec"]["template"]["spec"] for one in objects if "template" in one.get("spec", {})
    }


def environment_of(pod: Mapping[str, Any], folder: Path) -> dict[str, str]:
    """Return the variables of a pod's container, with its files in a folder of this machine."""
    [container] = pod["containers"]
    places = {
        "/run/secrets/maestro": str(folder / "secrets"),
        "/etc/maestro": str(folder),
        "/data": str(folder / "data"),
    }
    found = {}
    for variable in container["env"]:
        text = variable["value"]
        for inside, outside in places.items():
            text = text.replace(inside, outside)
        found[variable["name"]] = text
    return found
