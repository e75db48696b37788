"""The page: what a browser shows of a running cluster, from the published view, and never by asking the core for it."""
