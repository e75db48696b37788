"""The only writer of the contract's limits, and the parent of supervisors: small, standard library, one thread."""
