"""Policies for jobs of several widths: what size a job is started with, and how running jobs change.

Moldable jobs and folding as in Utrera et al. 2005, malleable jobs as in Kalé et al. 2002.
"""
