"""The text classifier: multilingual-e5-small as ONNX, and a linear head fitted to the example prompts here."""
