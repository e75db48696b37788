"""Ngubiri & van Vliet 2006: processor co-allocation in multi-cluster systems, by groups of jobs."""
