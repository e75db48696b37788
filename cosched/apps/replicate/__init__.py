"""Replications: a paper's experiments made again, its numbers beside ours, and a verdict for each of its claims.

What all papers share stands here: ``claims`` (what is predicted, and how it is judged), ``result`` (tables, plots,
claims and their files), ``cells`` (what is simulated, each once, with its seeds), ``pool`` (many simulations on several
processors, in a fixed order), ``paired`` (differences between policies that met the same workloads), ``steady``
(whether a queue grows), ``papers`` (which there are, and how much of each is run). Each paper has a room of its own
with a file for each of its tables and figures.
"""
