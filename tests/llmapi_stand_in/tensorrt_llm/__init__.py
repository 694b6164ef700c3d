"""What stands in for TensorRT-LLM's LLM API: its names and its manners, no model. See llmapi.py beside this file."""

__version__ = "1.1.0"
