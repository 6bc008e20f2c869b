"""What is in a recording, and what is not: fields that no decision reads."""

import asyncio
import gzip
from pathlib import Path

from dra_extender.cli.demo_stories import Story
from dra_extender.config.settings import Settings
from dra_extender.recording.recording_file import read_recording
from dra_extender.recording.records import Called, Delivered, TermBegan, TermEnded
from dra_extender.recording.replay import replay
from dra_extender.simulator.demo.manifests import load_texts

from tests.support.recording.recorded_story import record

SECRET = "planted-secret"  # noqa: S105 - planted to be looked for
MANIFEST = f"""
apiVersion: v1
kind: Node
metadata: {{name: n1, annotations: {{example.com/token: {SECRET}}}}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {{name: gpu}}
spec:
  selectors: [{{cel: {{expression: device.driver == "gpu.example.com"}}}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {{name: s}}
spec:
  driver: gpu.example.com
  nodeName: n1
  pool: {{name: n1, generation: 1, resourceSliceCount: 1}}
  devices: [{{name: gpu-0}}]
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {{name: c, namespace: default}}
spec:
  devices:
    requests: [{{name: r, exactly: {{deviceClassName: gpu}}}}]
    config: [{{opaque: {{driver: gpu.example.com, parameters: {{token: {SECRET}}}}}}}]
---
apiVersion: v1
kind: Pod
metadata: {{name: p, namespace: default, annotations: {{example.com/token: {SECRET}}}}}
spec:
  schedulerName: dra-extender-scheduler
  resourceClaims: [{{name: c, resourceClaimName: c}}]
  containers:
  - name: main
    image: pause
    args: [{SECRET}]
    env: [{{name: TOKEN, value: {SECRET}}}]
    resources: {{claims: [{{name: c}}]}}
"""


async def test_recording_has_deliveries_calls_and_terms_and_no_field_that_no_decision_reads(tmp_path: Path) -> None:
    file = tmp_path / "r.gz"
    await record(Story("a story", load_texts([("manifest", MANIFEST)])), file)

    records = list(read_recording(file).records)
    assert {each.kind for each in records if isinstance(each, Delivered) and each.change == "changed"} >= {
        "nodes",
        "pods",
        "resourceclaims",
        "resourceslices",
    }
    assert [each.verb for each in records if isinstance(each, Called)][:2] == ["filter", "bind"]
    assert [type(each) for each in records if isinstance(each, TermBegan | TermEnded)] == [TermBegan, TermEnded]
    assert SECRET.encode() not in gzip.decompress(file.read_bytes())


def test_parameters_for_drivers_that_are_left_out_change_no_answer(tmp_path: Path) -> None:
    file = tmp_path / "r.gz"
    asyncio.run(record(Story("a story", load_texts([("manifest", MANIFEST)])), file))
    report = replay(read_recording(file))
    assert (report.different, report.other_requests) == ((), ())
    assert report.equal == {"filter": 1, "bind": 1}


def test_nothing_is_recorded_unless_it_is_asked_for() -> None:
    assert Settings().recording.file is None
