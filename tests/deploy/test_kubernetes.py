"""The manifests are valid, belong together, and give Tailfold settings that it accepts."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from proxy.settings import load
from tests.deploy.tools import DEPLOY, accepts, read_yaml

FOLDER = DEPLOY / "kubernetes"
SCHEMA = Path(__file__).parent / "servicemonitor.schema.json"
KUSTOMIZATIONS = sorted(FOLDER.rglob("kustomization.yaml"))
SETTINGS = FOLDER / "tailfold.yaml"
OWN_KINDS = sorted((FOLDER / "monitoring").glob("servicemonitor.yaml"))
MANIFESTS = sorted({*FOLDER.rglob("*.yaml")} - {*KUSTOMIZATIONS, *OWN_KINDS, SETTINGS})

DEPLOYMENT = read_yaml(FOLDER / "deployment.yaml")
POD = DEPLOYMENT["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
SECRET = read_yaml(FOLDER / "secret.example.yaml")


def named(file: Path) -> str:
    return str(file.relative_to(FOLDER))


def test_there_is_a_manifest_for_each_need() -> None:
    assert {read_yaml(file)["kind"] for file in [*MANIFESTS, *OWN_KINDS]} == {
        "Deployment",
        "Service",
        "ServiceAccount",
        "Secret",
        "HorizontalPodAutoscaler",
        "PodDisruptionBudget",
        "NetworkPolicy",
        "ServiceMonitor",
    }


@pytest.mark.parametrize("file", MANIFESTS, ids=named)
def test_a_manifest_is_valid(file: Path) -> None:
    accepts("kubernetes-validate", "--strict", "--no-warn", file)


def test_the_operators_kind_is_valid() -> None:
    accepts("check-jsonschema", "--schemafile", SCHEMA, *OWN_KINDS)
    accepts("check-jsonschema", "--check-metaschema", SCHEMA)


@pytest.mark.parametrize("file", KUSTOMIZATIONS, ids=named)
def test_a_kustomization_lists_every_file_of_its_folder_but_the_example(file: Path) -> None:
    said = read_yaml(file)
    generated = [name for maker in said.get("configMapGenerator", []) for name in maker["files"]]
    listed = sorted([*said["resources"], *generated])
    there = sorted(
        other.name for other in file.parent.glob("*.yaml") if not other.name.endswith(".example.yaml")
    )
    assert listed == [name for name in there if name != file.name]


@pytest.mark.parametrize("file", KUSTOMIZATIONS, ids=named)
def test_kustomize_puts_them_together(file: Path) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:  # no registry that is reached from everywhere has it, so it is never demanded
        pytest.skip("kubectl is not installed")
    made = subprocess.run(
        [kubectl, "kustomize", file.parent], capture_output=True, text=True, timeout=60, check=False
    )
    assert made.returncode == 0, made.stderr
    objects = {each["kind"]: each for each in yaml.safe_load_all(made.stdout)}
    assert "Secret" not in objects
    if "Deployment" in objects:
        volumes = objects["Deployment"]["spec"]["template"]["spec"]["volumes"]
        config = objects["ConfigMap"]["metadata"]["name"]
        assert config in [volume.get("configMap", {}).get("name") for volume in volumes]


def environment(secret: dict[str, str]) -> dict[str, str]:
    """What the container finds, the file with the settings where it lies here."""
    found: dict[str, str] = {}
    for variable in CONTAINER["env"]:
        if "valueFrom" in variable:
            source = variable["valueFrom"]["secretKeyRef"]
            assert source["name"] == SECRET["metadata"]["name"]
            assert not source.get("optional")
            found[variable["name"]] = secret[source["key"]]
        else:
            found[variable["name"]] = variable["value"]
    assert found["TAILFOLD_CONFIG"] == f"{mounted('config')}/{SETTINGS.name}"
    return found | {"TAILFOLD_CONFIG": str(SETTINGS)}


def mounted(volume: str) -> str:
    [place] = [mount["mountPath"] for mount in CONTAINER["volumeMounts"] if mount["name"] == volume]
    return str(place)


FILLED = {
    "secret": "a secret of this test",
    "admin-token": "a-token-of-this-test",
    "store": "rediss://:password@store.example:6379/0",
}


def test_the_settings_are_accepted() -> None:
    settings = load({}, environment(FILLED)).settings
    assert settings.host == "0.0.0.0"
    assert settings.port == CONTAINER["ports"][0]["containerPort"]
    assert settings.store == FILLED["store"]
    assert settings.secret
    assert settings.admin.token
    assert not settings.metrics.open


def test_the_example_of_a_secret_has_the_keys_and_no_values() -> None:
    assert SECRET["stringData"] == dict.fromkeys(FILLED, "")


def test_tailfold_does_not_start_on_the_example() -> None:
    with pytest.raises(Exception, match="store"):
        load({}, environment(SECRET["stringData"]))


@pytest.mark.parametrize(
    ("missing", "told"), [("admin-token", r"admin\.token"), ("store", "store"), ("secret", "secret")]
)
def test_nor_while_one_of_its_values_is_missing(missing: str, told: str) -> None:
    """Without a store each pod would have a file of its own."""
    with pytest.raises(Exception, match=told):
        load({}, environment(FILLED | {missing: ""}))
    with pytest.raises(Exception, match="store"):
        load({}, environment(dict.fromkeys(FILLED, "") | {"admin-token": FILLED["admin-token"]}))


def test_no_variable_of_a_service_is_taken_for_a_setting() -> None:
    # A Service named tailfold makes TAILFOLD_PORT=tcp://… in every pod of its namespace.
    assert read_yaml(FOLDER / "service.yaml")["metadata"]["name"] == "tailfold"
    assert POD["enableServiceLinks"] is False


def test_a_pod_gets_longer_to_stop_than_it_takes_to_drain() -> None:
    drain = load({}, environment(FILLED)).settings.timeouts.drain
    leave = float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1])
    assert POD["terminationGracePeriodSeconds"] >= leave + drain + 10


def test_the_service_has_forgotten_a_pod_before_it_drains() -> None:
    # What is sent there meanwhile would be refused.
    probe = CONTAINER["readinessProbe"]
    assert float(CONTAINER["lifecycle"]["preStop"]["exec"]["command"][1]) >= probe["periodSeconds"]


@pytest.mark.parametrize(
    ("probe", "path"),
    [("startupProbe", "/healthz"), ("livenessProbe", "/healthz"), ("readinessProbe", "/readyz")],
)
def test_a_probe_asks_what_anybody_may_ask(probe: str, path: str) -> None:
    assert CONTAINER[probe]["httpGet"] == {"path": path, "port": "http"}


def test_a_pod_can_do_nothing_that_it_need_not() -> None:
    assert POD["securityContext"] | {"runAsUser": 0, "runAsGroup": 0, "fsGroup": 0} == {
        "runAsNonRoot": True,
        "runAsUser": 0,
        "runAsGroup": 0,
        "fsGroup": 0,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    assert CONTAINER["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "privileged": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert POD["automountServiceAccountToken"] is False
    assert read_yaml(FOLDER / "serviceaccount.yaml")["automountServiceAccountToken"] is False


def test_the_user_is_the_images_own() -> None:
    said = POD["securityContext"]
    assert f"USER {said['runAsUser']}:{said['runAsGroup']}\n" in (DEPLOY / "Dockerfile").read_text()


def test_what_is_written_to_lies_in_volumes() -> None:
    volumes = {volume["name"]: volume for volume in POD["volumes"]}
    assert "emptyDir" in volumes["tmp"]
    assert mounted("tmp") == "/tmp"
    assert "emptyDir" in volumes["state"]
    assert f"VOLUME {mounted('state')}\n" in (DEPLOY / "Dockerfile").read_text()


def test_bodies_that_are_held_fit_the_memory() -> None:
    settings = load({}, environment(FILLED)).settings
    assert CONTAINER["resources"]["limits"]["memory"] == "1Gi"
    assert settings.limits.in_flight * 4 <= 2**30 * settings.workers


SELECTING = ["service.yaml", "pdb.yaml", "networkpolicy.yaml", "monitoring/servicemonitor.yaml"]


@pytest.mark.parametrize("file", SELECTING)
def test_what_selects_pods_selects_these(file: str) -> None:
    spec = read_yaml(FOLDER / file)["spec"]
    selector: dict[str, Any] = spec.get("selector") or spec["podSelector"]
    assert selector.get("matchLabels", selector) == DEPLOYMENT["spec"]["selector"]["matchLabels"]


def test_the_autoscaler_keeps_two_replicas_and_the_budget_takes_one() -> None:
    hpa = read_yaml(FOLDER / "hpa.yaml")["spec"]
    assert hpa["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]
    assert hpa["minReplicas"] >= 2
    assert read_yaml(FOLDER / "pdb.yaml")["spec"]["maxUnavailable"] == 1
    # Two that say how many there are would contradict each other at every apply.
    assert "replicas" not in DEPLOYMENT["spec"]


def test_prometheus_asks_with_the_admin_token() -> None:
    [endpoint] = read_yaml(FOLDER / "monitoring/servicemonitor.yaml")["spec"]["endpoints"]
    credentials = endpoint["authorization"]["credentials"]
    assert credentials["name"] == SECRET["metadata"]["name"]
    assert credentials["key"] in SECRET["stringData"]
    assert endpoint["port"] in [port["name"] for port in read_yaml(FOLDER / "service.yaml")["spec"]["ports"]]


def test_the_job_has_the_name_that_alerts_ask_for() -> None:
    # The operator names it after the Service.
    assert "jobLabel" not in read_yaml(FOLDER / "monitoring/servicemonitor.yaml")["spec"]
    assert read_yaml(FOLDER / "service.yaml")["metadata"]["name"] == "tailfold"
