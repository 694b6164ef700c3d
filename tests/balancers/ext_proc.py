"""The messages of Envoy's external processing service, as far as an endpoint picker uses them.

Declared by hand, by the numbers of envoy/service/ext_proc/v3/external_processor.proto and what it imports (Envoy 1.40):
names of messages and packages are not on the wire. A Struct's map is the repeated entry that it is on the wire.
"""

from __future__ import annotations

from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

METHOD = "/envoy.service.ext_proc.v3.ExternalProcessor/Process"
_TABLE = """
HeaderValue
    key                1  string
    value              2  string
    raw_value          3  bytes
HeaderMap
    headers            1  HeaderValue*
HeaderValueOption
    header             1  HeaderValue
    append_action      3  int32
HeaderMutation
    set_headers        1  HeaderValueOption*
StreamedBody
    body               1  bytes
    end_of_stream      2  bool
BodyMutation
    streamed_response  3  StreamedBody
CommonResponse
    header_mutation    2  HeaderMutation
    body_mutation      3  BodyMutation
    clear_route_cache  5  bool
HttpHeaders
    headers            1  HeaderMap
    end_of_stream      3  bool
HttpBody
    body               1  bytes
    end_of_stream      2  bool
HttpTrailers
    trailers           1  HeaderMap
Processed
    response           1  CommonResponse
ProcessedTrailers
    header_mutation    1  HeaderMutation
HttpStatus
    code               1  int32
ImmediateResponse
    status             1  HttpStatus
    body               3  bytes
    details            5  string
Struct
    fields             1  Entry*
Entry
    key                1  string
    value              2  Value
Value
    string_value       3  string
    struct_value       5  Struct
ProcessingRequest
    request_headers    2  HttpHeaders
    response_headers   3  HttpHeaders
    request_body       4  HttpBody
    response_body      5  HttpBody
    request_trailers   6  HttpTrailers
    response_trailers  7  HttpTrailers
ProcessingResponse
    request_headers    1  Processed
    response_headers   2  Processed
    request_body       3  Processed
    response_body      4  Processed
    request_trailers   5  ProcessedTrailers
    response_trailers  6  ProcessedTrailers
    immediate_response 7  ImmediateResponse
    dynamic_metadata   8  Struct
"""
_Field = descriptor_pb2.FieldDescriptorProto


def _file() -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name="ext_proc.proto", package="ext_proc", syntax="proto3")
    for line in _TABLE.strip().splitlines():
        if not line.startswith(" "):
            message = file.message_type.add(name=line)
            continue
        name, number, kind = line.split()
        is_list = kind.endswith("*")
        kind = kind.removesuffix("*")
        label = _Field.LABEL_REPEATED if is_list else _Field.LABEL_OPTIONAL
        field = message.field.add(name=name, number=int(number), label=label)
        if kind[0].islower():
            field.type = getattr(_Field, f"TYPE_{kind.upper()}")
        else:
            field.type, field.type_name = _Field.TYPE_MESSAGE, f".ext_proc.{kind}"
    return file


_POOL = descriptor_pool.DescriptorPool()
_POOL.Add(_file())


def _message(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"ext_proc.{name}"))


ProcessingRequest = _message("ProcessingRequest")
ProcessingResponse = _message("ProcessingResponse")
