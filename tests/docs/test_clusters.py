"""The manifests of docs/clusters.md fit the schemas of Kubernetes and the fields of NVIDIA's DRA driver."""

from __future__ import annotations

import re
from typing import Any

import pytest
from helpers.page_examples import FENCE
from helpers.paths import ROOT

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="part of the group docs")
yaml = pytest.importorskip("yaml")
jsonschema = pytest.importorskip("jsonschema")

PAGE = (ROOT / "docs" / "clusters.md").read_text(encoding="utf-8")
BLOCKS = [block[3] for block in FENCE.finditer(PAGE) if block[1] == "yaml"]
#: The first with resource.k8s.io/v1, and the newest of the package of schemas.
VERSIONS = ("1.34", "1.37")

QUANTITY = {"type": "string", "pattern": r"^\d+(Ki|Mi|Gi|k|M|G)?$"}


def fields(required: str, **properties: Any) -> dict[str, Any]:
    closed = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**closed, "required": required.split()}


#: `GpuConfig` of resource.nvidia.com/v1beta1: api/nvidia.com/resource/v1beta1/sharing.go of the driver.
GPU_CONFIG = fields(
    "apiVersion kind sharing",
    apiVersion={"const": "resource.nvidia.com/v1beta1"},
    kind={"const": "GpuConfig"},
    sharing={
        "oneOf": [
            fields(
                "strategy",
                strategy={"const": "TimeSlicing"},
                timeSlicingConfig=fields("", interval={"enum": ["Default", "Short", "Medium", "Long"]}),
            ),
            fields(
                "strategy",
                strategy={"const": "MPS"},
                mpsConfig=fields(
                    "",
                    defaultActiveThreadPercentage={"type": "integer", "minimum": 0, "maximum": 100},
                    defaultPinnedDeviceMemoryLimit=QUANTITY,
                    defaultPerDevicePinnedMemoryLimit={"type": "object", "additionalProperties": QUANTITY},
                    multiUser={"type": "boolean"},
                ),
            ),
        ]
    },
)


def manifests() -> list[dict[str, Any]]:
    """Return all objects of the page; a fragment is that of the container of the Pod before it."""
    objects: list[dict[str, Any]] = []
    for block in BLOCKS:
        for part in yaml.safe_load_all(block):
            if "apiVersion" not in part:
                pod = next(each for each in reversed(objects) if each["kind"] == "Pod")
                container = {**pod["spec"]["containers"][0], **part}
                part = {**pod, "spec": {**pod["spec"], "containers": [container]}}
            objects.append(part)
    return objects


MANIFESTS = manifests()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("number", range(len(MANIFESTS)))
def test_a_manifest_fits_the_schema_of_its_kind(number: int, version: str) -> None:
    assert kubernetes_validate.validate(MANIFESTS[number], version, strict=True) == version


def test_each_block_of_the_page_is_checked() -> None:
    assert len(BLOCKS) == PAGE.count("```yaml\n")
    assert len(MANIFESTS) == len(BLOCKS) + PAGE.count("\n---\n")


def test_the_schema_refuses_an_unknown_field_and_an_absent_one() -> None:
    claim = next(each for each in MANIFESTS if each["kind"] == "ResourceClaim")
    for request in ({"name": "gpu", "deviceClassName": "gpu.nvidia.com"}, {"exactly": {}}):
        wrong = {**claim, "spec": {"devices": {"requests": [request]}}}
        with pytest.raises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(wrong, VERSIONS[0], strict=True)


def devices() -> list[dict[str, Any]]:
    """Return what the claims and templates of the page ask for."""
    specs = [each["spec"] for each in MANIFESTS if each["kind"].startswith("ResourceClaim")]
    return [spec.get("spec", spec)["devices"] for spec in specs]


def test_the_parameters_of_claims_are_those_of_the_dra_driver() -> None:
    configs = [config for each in devices() for config in each.get("config", ())]
    assert {config["opaque"]["driver"] for config in configs} == {"gpu.nvidia.com"}
    parameters = [config["opaque"]["parameters"] for config in configs]
    assert {each["sharing"]["strategy"] for each in parameters} == {"MPS", "TimeSlicing"}
    for each in parameters:
        jsonschema.validate(each, GPU_CONFIG)


def test_claims_ask_for_device_classes_of_the_driver_and_configure_requests_that_they_have() -> None:
    classes = set()
    for each in devices():
        names = {request["name"] for request in each["requests"]}
        classes |= {request["exactly"]["deviceClassName"] for request in each["requests"]}
        assert all(set(config["requests"]) <= names for config in each.get("config", ()))
    assert classes == {"gpu.nvidia.com", "mig.nvidia.com"}


def test_the_pods_name_claims_of_the_page() -> None:
    names = {each["metadata"]["name"] for each in MANIFESTS if each["kind"].startswith("ResourceClaim")}
    used = set(re.findall(r"resourceClaim(?:Template)?Name: ([\w-]+)", PAGE))
    assert used
    assert used <= names
    for pod in (each["spec"] for each in MANIFESTS if each["kind"] == "Pod"):
        claimed = [claim["name"] for claim in pod["containers"][0]["resources"].get("claims", ())]
        assert claimed == [claim["name"] for claim in pod.get("resourceClaims", ())]
