"""A workload played live: its jobs submitted to a service at their times, and what became of them."""
