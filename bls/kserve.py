"""The protobuf messages of Triton's gRPC endpoint, as far as the gateway and remote tiers use them.

Declared here rather than taken from tritonclient, which would bring numpy into the gateway's process. They live in a
pool of their own, so both can be loaded; a test holds each field to tritonclient's. Fields that aren't named are
skipped.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SERVICE = "inference.GRPCInferenceService"

# message: field, number, type. `*` is repeated, `map` is string -> InferParameter.
_TABLE = """
ServerLiveRequest
ServerLiveResponse
    live                 1  bool
ModelReadyRequest
    name                 1  string
    version              2  string
ModelReadyResponse
    ready                1  bool
InferParameter
    bool_param           1  bool
    int64_param          2  int64
    string_param         3  string
    double_param         4  double
    uint64_param         5  uint64
InferInputTensor
    name                 1  string
    datatype             2  string
    shape                3  int64*
InferRequestedOutputTensor
    name                 1  string
InferOutputTensor
    name                 1  string
    datatype             2  string
    shape                3  int64*
ModelInferRequest
    model_name           1  string
    id                   3  string
    parameters           4  map
    inputs               5  InferInputTensor*
    outputs              6  InferRequestedOutputTensor*
    raw_input_contents   7  bytes*
ModelInferResponse
    model_name           1  string
    id                   3  string
    parameters           4  map
    outputs              5  InferOutputTensor*
    raw_output_contents  6  bytes*
ModelStreamInferResponse
    error_message        1  string
    infer_response       2  ModelInferResponse
"""
_Field = descriptor_pb2.FieldDescriptorProto
_ONE_OF = "parameter_choice"  # of InferParameter: setting one field clears the others


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="kserve.proto", package="inference", syntax="proto3")
    for line in _TABLE.strip().splitlines():
        if not line.startswith(" "):
            message = file.message_type.add(name=line)
            if line == "InferParameter":
                message.oneof_decl.add(name=_ONE_OF)
            continue
        name, number, kind = line.split()
        _add_field(message, name, int(number), kind)
    return file


def _add_field(message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str) -> None:
    field = message.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
    if kind == "map":
        entry = message.nested_type.add(name="ParametersEntry")
        entry.options.map_entry = True
        _add_field(entry, "key", 1, "string")
        _add_field(entry, "value", 2, "InferParameter")
        kind = f"{message.name}.ParametersEntry*"
    if kind.endswith("*"):
        field.label, kind = _Field.LABEL_REPEATED, kind[:-1]
    if kind[0].islower():
        field.type = getattr(_Field, f"TYPE_{kind.upper()}")
    else:
        field.type, field.type_name = _Field.TYPE_MESSAGE, f".inference.{kind}"
    if message.name == "InferParameter":
        field.oneof_index = 0


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"inference.{name}"))


ServerLiveRequest = _message("ServerLiveRequest")
ServerLiveResponse = _message("ServerLiveResponse")
ModelReadyRequest = _message("ModelReadyRequest")
ModelReadyResponse = _message("ModelReadyResponse")
ModelInferRequest = _message("ModelInferRequest")
ModelInferResponse = _message("ModelInferResponse")
ModelStreamInferResponse = _message("ModelStreamInferResponse")


def method(channel: Any, name: str, response: Any, is_stream: bool = False) -> Any:
    """The call of SERVICE's method `name` on a gRPC channel; `response` is the type of message that comes back.

    `is_stream`: any number of them comes, for one message that is sent.
    """
    make = channel.unary_stream if is_stream else channel.unary_unary
    return make(
        f"/{SERVICE}/{name}",
        request_serializer=lambda request: request.SerializeToString(),
        response_deserializer=response.FromString,
    )
