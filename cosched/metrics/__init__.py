"""Measures of a schedule: wait, response, bounded slowdown, utilisation, makespan; by group; with intervals."""
