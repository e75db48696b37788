"""Measurements of cost, as whole processes and as ratios within one run: ``./run bench NAME``."""
