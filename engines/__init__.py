"""Engines behind TensorRT-LLM's tensor contract: what all of them share here, one folder for each library."""
