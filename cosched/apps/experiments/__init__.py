"""Experiments that anyone can repeat on a lab or a cluster of his own: what is claimed of the live system, measured."""
