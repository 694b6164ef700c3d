"""TensorRT-LLM's LLM API as an engine on GPUs: PyTorch on a Hugging Face model, nothing to build.

Written for TensorRT-LLM 1.1.0 (container 25.12-trtllm-python-py3) from its sources, and tested against a stand-in of
the same names (tests/llmapi_stand_in). It was not run on a GPU here.
"""
