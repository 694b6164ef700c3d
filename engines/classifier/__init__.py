"""The text classifier: MiniLM-L6 as ONNX, and a linear head fitted to the example prompts of this folder."""
