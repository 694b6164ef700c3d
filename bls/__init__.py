"""The Python that the Triton models of this repository share. Only `triton_io` knows Triton."""
