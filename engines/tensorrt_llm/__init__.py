"""Builds TensorRT-LLM engines of Hugging Face models, and explains the commands of older articles."""
