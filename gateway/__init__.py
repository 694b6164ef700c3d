"""An OpenAI-compatible front door for llm_router: HTTP in, one gRPC stream to Triton for each answer out."""
