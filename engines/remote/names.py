"""The metrics of tiers on other machines."""

DRAINING = "llm_router_server_draining"  # of scripts/serve: it ends once its requests have
IN_FLIGHT = "llm_router_remote_in_flight"
ERRORS = "llm_router_remote_errors_total"
EJECTED = "llm_router_remote_ejected"
