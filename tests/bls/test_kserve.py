"""Our messages are those of Triton's own client, as far as they go."""

from __future__ import annotations

import pytest
from tritonclient.grpc import service_pb2

from bls import kserve

MESSAGES = [name for name in vars(kserve) if name.startswith(("Model", "Server"))]


def fields(descriptor):
    return {field.name: field for field in descriptor.fields}


@pytest.mark.parametrize("name", MESSAGES)
def test_each_field_is_tritons(name):
    ours, theirs = getattr(kserve, name).DESCRIPTOR, getattr(service_pb2, name).DESCRIPTOR
    compare(ours, theirs)


def compare(ours, theirs):
    for name, field in fields(ours).items():
        other = fields(theirs)[name]
        assert (field.number, field.type, field.is_repeated) == (other.number, other.type, other.is_repeated), name
        if field.message_type is not None:
            compare(field.message_type, other.message_type)


def test_a_request_reads_the_same_on_the_other_side():
    request = kserve.ModelInferRequest(model_name="m", id="1")
    request.parameters["priority"].uint64_param = 2
    request.inputs.add(name="x", datatype="INT32", shape=[1, 1])
    request.raw_input_contents.append(b"\1\0\0\0")
    found = service_pb2.ModelInferRequest.FromString(request.SerializeToString())
    assert (found.model_name, found.parameters["priority"].uint64_param, list(found.inputs[0].shape)) == (
        "m",
        2,
        [1, 1],
    )
