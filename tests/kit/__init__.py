"""What the core's tests share: small workloads, a driver for scenarios, the properties and the mutants they catch."""
