"""deploy/helm/maestro: rendered by Helm, valid by the schemas of Kubernetes, and its settings as the pods read them."""

import base64
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]
import pytest
import yaml

from maestro.settings.loading import load
from tests.support.helm import (
    CHART,
    KEYS,
    NEEDED,
    OWN_KINDS,
    ChartRefused,
    environment_of,
    find_object,
    list_pods,
    render,
)
from tests.unit.architecture.source import ROOT

EVERYTHING: Mapping[str, Any] = {
    **NEEDED,
    "temporal": {"address": "temporal.example.org:7233", "namespace": "agents", "tls": True},
    "secrets": {
        **NEEDED["secrets"],
        "temporalApiKey": {"name": "temporal", "key": "api-key"},
        "mediaAccessKeyId": {"name": "bucket", "key": "id"},
        "mediaSecretAccessKey": {"name": "bucket", "key": "secret"},
        "files": {"model-key": {"name": "models", "key": "anthropic"}},
    },
    "config": {
        "agents": [{"slug": "helper"}],
        "llm": {
            "accounts": [{"name": "main", "provider": "anthropic", "apiKey": "file:/run/secrets/maestro/model-key"}]
        },
    },
    "media": {"url": "s3://acme/media", "endpoint": "https://s3.example.org", "region": "eu-1"},
    "env": {"HTTPS_PROXY": "http://proxy:3128"},
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/maestro"}},
    "worker": {"promote": True, "workspacesClaim": "workspaces", "autoscaling": {"enabled": True}},
    "api": {
        "publicUrl": "https://maestro.example.org:8443/",
        "trustedProxies": ["10.0.0.0/8"],
        "ingress": {"enabled": True, "className": "nginx", "host": "maestro.example.org", "tlsSecret": "tls"},
    },
    "connectors": [{"platform": "web", "replicas": 2}, {"platform": "discord", "also": ["slack"]}],
    "connectorDefaults": {"persistent": True, "storageClass": "fast"},
    "networkPolicy": {"enabled": True, "fromClients": [{"podSelector": {"matchLabels": {"app": "ingress"}}}]},
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "tolerations": [{"key": "agents", "operator": "Exists"}],
    "podAnnotations": {"acme.org/team": "agents"},
    "image": {"repository": "registry.example.org/maestro", "digest": f"sha256:{'0' * 64}", "pullSecrets": ["pull"]},
}
both = pytest.mark.parametrize("values", [NEEDED, EVERYTHING], ids=["the fewest values", "every value"])


@both
@pytest.mark.parametrize("release", ["1.27", "1.33", "1.37"])
def test_every_object_is_valid_in_kubernetes(values: Mapping[str, Any], release: str) -> None:
    objects = render(values)
    assert {"Deployment", "StatefulSet", "Job", "Service", "PodDisruptionBudget", "ConfigMap"} <= {
        o["kind"] for o in objects
    }
    for one in objects:
        if one["kind"] not in OWN_KINDS:
            kubernetes_validate.validate(one, release, strict=True)


def test_an_invalid_object_would_be_found() -> None:
    [worker] = [one for one in render(NEEDED) if one["metadata"]["name"] == "acme-maestro-worker" and "spec" in one][:1]
    worker["spec"]["template"]["spec"]["containers"][0]["readOnly"] = True
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(worker, "1.33", strict=True)


@both
def test_no_pod_has_rights_or_can_write_its_root(values: Mapping[str, Any]) -> None:
    for name, pod in list_pods(render(values)).items():
        security = pod["securityContext"]
        assert (security["runAsNonRoot"], security["runAsUser"]) == (True, 10001), name
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            writable = {mount["mountPath"] for mount in container["volumeMounts"] if not mount.get("readOnly")}
            assert writable <= {"/data", "/tmp", "/data/workspaces"}


@both
def test_secrets_are_references_to_objects_that_the_chart_does_not_make(values: Mapping[str, Any]) -> None:
    objects = render(values)
    assert not [one for one in objects if one["kind"] == "Secret"]
    for name, pod in list_pods(objects).items():
        [mounted] = [volume for volume in pod["volumes"] if volume["name"] == "secrets"]
        files = {item["path"] for source in mounted["projected"]["sources"] for item in source["secret"]["items"]}
        for variable in pod["containers"][0]["env"]:
            assert "valueFrom" not in variable
            place = variable["value"].removeprefix("file:/run/secrets/maestro/")
            assert place == variable["value"] or place in files, (name, variable)


@both
def test_the_pods_read_their_settings(values: Mapping[str, Any], tmp_path: Path) -> None:
    key = base64.b64encode(bytes(32)).decode()
    content = {"store-url": "postgresql://maestro:pw@db/maestro", "signing-key": key, "secrets-key": key}
    objects = render(values)
    configuration = find_object(objects, "ConfigMap", "acme-maestro")["data"]["maestro.json"]
    (tmp_path / "maestro.json").write_text(configuration.replace("/run/secrets/maestro", str(tmp_path / "secrets")))
    (tmp_path / "secrets").mkdir()
    for name, pod in list_pods(objects).items():
        for source in next(volume for volume in pod["volumes"] if volume["name"] == "secrets")["projected"]["sources"]:
            file = source["secret"]["items"][0]["path"]
            (tmp_path / "secrets" / file).write_text(content.get(file, f"the {file}") + "\n")
        environment = environment_of(pod, tmp_path)
        settings = load(Path(environment["MAESTRO_CONFIG"]), environment, {}).settings
        assert settings.database == content["store-url"], name
        assert settings.keys.signing.get_secret_value() == key
        assert settings.webui.password.get_secret_value() == "the webui-password"
        assert {"acme-maestro-api", "acme-maestro-web.agents.svc"} <= set(settings.webui.allowed_hosts)
        if values is EVERYTHING:
            assert settings.media.url == "s3://acme/media"
            assert settings.media.secret_access_key.get_secret_value() == "the media-secret-access-key"
            assert settings.llm.accounts[0].api_key.get_secret_value() == "the model-key"
            assert "maestro.example.org" in settings.webui.allowed_hosts
            assert list(map(str, settings.web.allowed_origins)) == ["https://maestro.example.org:8443"]


@both
def test_probes_ask_the_port_on_which_the_process_answers(values: Mapping[str, Any]) -> None:
    ports = {"worker": 9091, "api": 8080}
    for name, pod in list_pods(render(values)).items():
        [container] = pod["containers"]
        if container["name"] == "migrate":
            assert "livenessProbe" not in container
            continue
        [health] = [port for port in container["ports"] if port["name"] == "health"]
        assert health["containerPort"] == ports.get(container["name"], 9092), name
        assert container["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "health"}
        ready = "/healthz" if container["name"] == "api" else "/readyz"
        assert container["readinessProbe"]["httpGet"]["path"] == ready


def test_a_pod_has_more_time_to_end_than_its_running_work() -> None:
    for pod in list_pods(render(EVERYTHING)).values():
        drain = {v["name"]: v["value"] for v in pod["containers"][0]["env"]}.get("MAESTRO_JOBS_DRAIN_SECONDS")
        assert drain is None or pod["terminationGracePeriodSeconds"] >= int(drain) + 10


def test_workers_are_promoted_and_have_time_to_finish_the_jobs_of_their_release() -> None:
    worker = list_pods(render(NEEDED))["acme-maestro-worker"]
    assert worker["containers"][0]["args"] == ["worker", "--promote"]
    assert worker["terminationGracePeriodSeconds"] > 2 * 60


def test_the_migration_runs_before_everything_else_and_needs_nothing_of_the_release() -> None:
    objects = render(EVERYTHING)
    job = find_object(objects, "Job", "acme-maestro-migrate")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    pod = job["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["containers"][0]["args"]) == ("default", ["migrate"])
    [copy] = [volume["configMap"]["name"] for volume in pod["volumes"] if "configMap" in volume]
    hooked = find_object(objects, "ConfigMap", copy)
    assert hooked["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    assert int(hooked["metadata"]["annotations"]["helm.sh/hook-weight"]) < 0
    assert hooked["data"] == find_object(objects, "ConfigMap", "acme-maestro")["data"]


def test_connectors_that_stand_by_do_not_block_an_upgrade() -> None:
    objects = render(EVERYTHING)
    strategies = {
        name: find_object(objects, "StatefulSet", name)["spec"]["updateStrategy"]["type"]
        for name in ("acme-maestro-web", "acme-maestro-discord")
    }
    assert strategies == {"acme-maestro-web": "OnDelete", "acme-maestro-discord": "RollingUpdate"}
    assert find_object(objects, "PodDisruptionBudget", "acme-maestro-web")["spec"]["maxUnavailable"] == 1


def test_a_process_may_run_several_platforms() -> None:
    pods = list_pods(render(EVERYTHING))
    assert pods["acme-maestro-web"]["containers"][0]["args"] == ["connect", "web"]
    assert pods["acme-maestro-discord"]["containers"][0]["args"] == ["connect", "discord", "slack"]


def test_workers_scale_by_a_metric_that_maestro_has() -> None:
    documented = (ROOT / "docs/reference/metrics.md").read_text()
    assert "| `maestro_jobs_ready_age_seconds` | gauge |" in documented
    [hpa] = [one for one in render(EVERYTHING) if one["kind"] == "HorizontalPodAutoscaler"]
    external = hpa["spec"]["metrics"][0]["external"]
    assert external["metric"] == {"name": "maestro_jobs_ready_age_seconds"}
    assert external["target"] == {"type": "Value", "value": "5"}
    deployment = find_object(render(EVERYTHING), "Deployment", "acme-maestro-worker")
    assert "replicas" not in deployment["spec"]
    scaling = {"enabled": True, "kind": "keda", "prometheus": "http://prometheus:9090"}
    [scaled] = [one for one in render({**NEEDED, "worker": {"autoscaling": scaling}}) if one["kind"] == "ScaledObject"]
    [trigger] = scaled["spec"]["triggers"]
    assert trigger["metadata"]["query"] == "max(maestro_jobs_ready_age_seconds)"
    assert (trigger["metricType"], trigger["metadata"]["threshold"]) == ("Value", "5")


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "storeUrl"),
        ({**NEEDED, "temporal": {"address": "temporal"}}, "/temporal/address"),
        ({**NEEDED, "worker": {"replica": 2}}, "replica"),
        ({**NEEDED, "env": {"MAESTRO_WEBUI_PASSWORD": "open"}}, "MAESTRO_WEBUI_PASSWORD"),
        ({**NEEDED, "secrets": {**NEEDED["secrets"], "storeUrl": "postgresql://pw"}}, "storeUrl"),
        ({**NEEDED, "worker": {"autoscaling": {"enabled": True, "kind": "keda"}}}, "the address of Prometheus"),
        ({**NEEDED, "api": {"ingress": {"enabled": True}}}, "api.ingress.host is needed"),
    ],
)
def test_values_that_cannot_work_are_refused_by_name(values: Mapping[str, Any], problem: str) -> None:
    with pytest.raises(ChartRefused, match=problem):
        render(values)


def test_every_default_is_in_the_schema() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    assert set(KEYS) == set(schema["properties"]["secrets"]["required"])


def test_the_chart_is_of_this_release() -> None:
    release = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"] == release
