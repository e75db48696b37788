"""The service's HTTP API from the caller's side, over a Unix socket or TLS, with the standard library."""
