"""Replication of Hanzich et al. 2005, "What to consider for applying backfilling on non-dedicated environments"."""
