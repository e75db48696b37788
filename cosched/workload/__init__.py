"""Workloads: logs of real machines in the Standard Workload Format, generated ones, their rules and statistics."""
