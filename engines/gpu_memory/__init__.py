"""What of a GPU an engine of TensorRT-LLM takes: arithmetic, nothing here touches a GPU or, but for `known`, a file."""
