"""The chart for Kubernetes: Helm renders it, the schemas of Kubernetes accept it, and its commands run."""

from __future__ import annotations

import secrets
import signal
import subprocess
import sysconfig
import time
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import kubernetes_validate
import pytest
import yaml

from cli.the_command import Command
from faults.cluster import free_port
from patience import DEADLINE
from windlass.config import Settings

CHART = Path(__file__).parents[2] / "deploy/helm/windlass"
NEEDED = {
    "publicUrl": "https://crews.example.com",
    "database": {"existingSecret": "postgres"},
    "masterKey": {"existingSecret": "windlass"},
}
EVERYTHING = {
    **NEEDED,
    "database": {"existingSecret": "postgres", "caSecret": "authority"},
    "image": {"pullSecrets": ["registry"]},
    "settings": {"WINDLASS_LOG_LEVEL": "DEBUG", "WINDLASS_MAX_WAITING": 5},
    "settingsFromSecrets": ["sign-in"],
    "api": {"podAnnotations": {"team": "a"}, "nodeSelector": {"disk": "ssd"}, "tolerations": [{"operator": "Exists"}]},
    "workers": {
        "autoscaling": {"enabled": True},
        "pools": {
            "default": {},
            "gpu": {
                "deployments": ["see", "hear"],
                "slots": 1,
                "autoscaling": {"minReplicas": 0},
                "resources": {"limits": {"nvidia.com/gpu": 1}},
                "affinity": {"nodeAffinity": {}},
            },
        },
    },
    "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::111122223333:role/windlass"}},
    "podLabels": {"azure.workload.identity/use": "true"},
    "ingress": {"enabled": True, "className": "nginx", "host": "crews.example.com", "tlsSecret": "tls"},
    "networkPolicy": {
        "ingressFrom": [{"namespaceSelector": {}}],
        "egressTo": [{"to": [{"ipBlock": {"cidr": "10.1.0.0/16"}}], "ports": [{"port": 5432}]}],
    },
    "serviceMonitor": {"enabled": True, "tokenSecret": "prometheus"},
}
LEAST = {
    **NEEDED,
    "migration": {"enabled": False},
    "api": {"autoscaling": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    "serviceAccount": {"create": False},
    "networkPolicy": {"enabled": False},
}
HELM = Path(sysconfig.get_path("scripts"), "helm")
OF_OTHERS = {"ScaledObject", "ServiceMonitor"}
"""Kinds of KEDA and of Prometheus, which the schemas of Kubernetes do not have."""

pytestmark = pytest.mark.skipif(not HELM.exists(), reason="no package brings helm for this machine")


def helm(values: object, folder: Path) -> subprocess.CompletedProcess[str]:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    return subprocess.run(
        [HELM, "template", "crews", CHART, "--values", file],
        check=False,
        capture_output=True,
        text=True,
        env={"HOME": str(folder), "PATH": ""},
        timeout=DEADLINE,
    )


def rendered(values: object, folder: Path) -> list[dict[str, Any]]:
    done = helm(values, folder)
    assert done.returncode == 0, done.stderr
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def of_kind(objects: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [one for one in objects if one["kind"] == kind]


def container(one: dict[str, Any]) -> dict[str, Any]:
    (found,) = one["spec"]["template"]["spec"]["containers"]
    return dict(found)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("helm")


@pytest.fixture(scope="module")
def everything(folder: Path) -> list[dict[str, Any]]:
    return rendered(EVERYTHING, folder)


@pytest.mark.parametrize("values", [NEEDED, EVERYTHING, LEAST], ids=["needed", "everything", "least"])
@pytest.mark.parametrize("version", ["1.27", "1.37"])
def test_kubernetes_accepts_all_objects(values: object, version: str, folder: Path) -> None:
    objects = rendered(values, folder)
    for one in objects:
        if one["kind"] not in OF_OTHERS:
            kubernetes_validate.validate(one, version, strict=True)
    assert {"Deployment", "Service"} <= {one["kind"] for one in objects}


def test_all_kinds_are_rendered(everything: list[dict[str, Any]]) -> None:
    assert {one["kind"] for one in everything} == {
        "Deployment",
        "HorizontalPodAutoscaler",
        "Ingress",
        "Job",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "ScaledObject",
        "Service",
        "ServiceAccount",
        "ServiceMonitor",
    }


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({**NEEDED, "publicUrl": ""}, "publicUrl: the address at which clients reach the server"),
        ({**NEEDED, "database": {}}, "database.existingSecret: name a secret with the URL of a PostgreSQL"),
        ({**NEEDED, "masterKey": {}}, "masterKey.existingSecret: name a secret with the output of: openssl rand"),
        ({**NEEDED, "api": {"replica": 3}}, "Additional property replica is not allowed"),
        ({**NEEDED, "workers": {"slots": 0}}, "workers.slots: Must be greater than or equal to 1"),
        ({**NEEDED, "workers": {"pools": {"gpu": {"slot": 1}}}}, "Additional property slot is not allowed"),
        ({**NEEDED, "settings": {"LOG_LEVEL": "x"}}, 'Property name of "LOG_LEVEL" does not match'),
        ({**NEEDED, "ingress": {"enabled": True}}, "ingress.host: the name of the server"),
    ],
)
def test_a_wrong_value_is_named(values: object, message: str, folder: Path) -> None:
    done = helm(values, folder)
    assert done.returncode == 1
    assert message in done.stderr


def test_selectors_find_the_pods_of_their_own(everything: list[dict[str, Any]]) -> None:
    deployments = of_kind(everything, "Deployment")
    labels = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one in deployments}
    selectors = {one["metadata"]["name"]: one["spec"]["selector"]["matchLabels"] for one in deployments}
    (service,) = of_kind(everything, "Service")
    selectors["service"] = service["spec"]["selector"]
    found = {
        name: {pod for pod, own in labels.items() if selector.items() <= own.items()}
        for name, selector in selectors.items()
    }
    assert found == {
        "crews-windlass-api": {"crews-windlass-api"},
        "crews-windlass-worker-default": {"crews-windlass-worker-default"},
        "crews-windlass-worker-gpu": {"crews-windlass-worker-gpu"},
        "service": {"crews-windlass-api"},
    }


def test_a_pool_takes_from_all_what_it_leaves_out(everything: list[dict[str, Any]]) -> None:
    pools = {one["metadata"]["labels"].get("windlass/pool"): one for one in of_kind(everything, "Deployment")}
    assert container(pools["default"])["args"] == ["worker", "--exclude", "hear,see"]
    gpu = container(pools["gpu"])
    assert gpu["args"] == ["worker", "--deployments", "see,hear"]
    assert gpu["resources"] == {
        "requests": {"cpu": "1", "memory": "4Gi"},
        "limits": {"memory": "8Gi", "nvidia.com/gpu": 1},
    }
    scaled = {one["metadata"]["name"]: one["spec"] for one in of_kind(everything, "ScaledObject")}
    assert (scaled["crews-windlass-worker-default"]["minReplicaCount"], pools["default"]["spec"].get("replicas")) == (
        1,
        None,
    )
    assert scaled["crews-windlass-worker-gpu"]["minReplicaCount"] == 0
    (trigger,) = scaled["crews-windlass-worker-gpu"]["triggers"]
    (others,) = scaled["crews-windlass-worker-default"]["triggers"]
    assert others["metadata"]["query"] == 'max(windlass_queue_oldest_seconds{deployment!~"hear|see"})'
    assert trigger["metadata"]["query"] == 'max(windlass_queue_oldest_seconds{deployment=~"see|hear"})'


def test_a_drain_ends_before_its_pod_is_killed(everything: list[dict[str, Any]]) -> None:
    for one in of_kind(everything, "Deployment"):
        variables = {entry["name"]: entry.get("value") for entry in container(one)["env"]}
        drain = float(variables["WINDLASS_DRAIN_GRACE"]) + float(variables.get("WINDLASS_STOP_DELAY", 0))
        assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] >= drain + 30


def test_every_variable_is_a_setting(everything: list[dict[str, Any]]) -> None:
    known = {f"WINDLASS_{name.upper()}" for name in Settings.model_fields} | {"TMPDIR"}
    used = {
        entry["name"]
        for one in [*of_kind(everything, "Deployment"), *of_kind(everything, "Job")]
        for entry in container(one)["env"]
    }
    assert used <= known


def test_servers_wait_for_the_migration_where_the_chart_runs_one(folder: Path) -> None:
    for values, waits in ((NEEDED, True), (LEAST, False)):
        for one in of_kind(rendered(values, folder), "Deployment"):
            given = {"name": "WINDLASS_MIGRATE_AT_START", "value": "false"}
            assert (given in container(one)["env"]) == waits


def test_no_secret_is_in_what_is_rendered(everything: list[dict[str, Any]]) -> None:
    for one in [*of_kind(everything, "Deployment"), *of_kind(everything, "Job")]:
        sealed = {entry["name"]: entry for entry in container(one)["env"]}
        assert all(
            set(sealed[name]) == {"name", "valueFrom"} for name in ("WINDLASS_DATABASE_URL", "WINDLASS_MASTER_KEY")
        )
    assert not of_kind(everything, "Secret")


@pytest.fixture
def variables(database_url: str, tmp_path: Path) -> dict[str, str]:
    """What a cluster would put in place of secrets, volumes and addresses."""
    return {
        "WINDLASS_DATABASE_URL": database_url,
        "WINDLASS_MASTER_KEY": b64encode(secrets.token_bytes(32)).decode(),
        "WINDLASS_HOME": str(tmp_path / "home"),
        "WINDLASS_HOST": "127.0.0.1",
        "WINDLASS_PORT": str(free_port()),
        "TMPDIR": str(tmp_path),
    }


@pytest.mark.timeout(300)
def test_the_commands_of_the_containers_serve_a_crew(variables: dict[str, str], folder: Path, tmp_path: Path) -> None:
    here = f"http://127.0.0.1:{variables['WINDLASS_PORT']}"
    objects = rendered({**NEEDED, "publicUrl": here}, folder)
    (job,) = of_kind(objects, "Job")
    ended = _command(job, variables, tmp_path)(*container(job)["args"])
    assert ended.code == 0, ended.err
    started = [
        _command(one, variables, tmp_path).started(*container(one)["args"]) for one in of_kind(objects, "Deployment")
    ]
    try:
        (api,) = (one for one in of_kind(objects, "Deployment") if container(one)["name"] == "api")
        probe = container(api)["readinessProbe"]["httpGet"]["path"]
        _until_ready(f"{here}{probe}")
        person = _command(api, variables, tmp_path)
        project = tmp_path / "doubler"
        project.mkdir()
        (project / "pyproject.toml").write_text(
            '[project]\nname = "doubler"\n[tool.windlass]\nentrypoint = "main:run"\n'
        )
        (project / "main.py").write_text("def run(number: int) -> int:\n    return 2 * number\n")
        deployed = person("deploy", str(project))
        assert deployed.code == 0, deployed.err
        ended = person("kickoff", "--deployment", "doubler", "-i", "number=21", "--watch")
        assert (ended.code, ended.out) == (0, "42\n"), ended.err
    finally:
        for one in started:
            one.process.send_signal(signal.SIGTERM)
            assert one.end() == 0, one.err


def _command(one: dict[str, Any], variables: dict[str, str], home: Path) -> Command:
    wanted = {entry["name"]: entry.get("value", "") for entry in container(one)["env"]}
    return Command(home, {name: variables.get(name, value) for name, value in wanted.items()})


def _until_ready(address: str) -> None:
    until = time.monotonic() + DEADLINE
    while time.monotonic() < until:
        try:
            if httpx.get(address, trust_env=False).status_code == 200:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.2)
    pytest.fail(f"{address} is not ready")
