"""What Prometheus may know (``/metrics``): read from the published view and from counts, never from the core.

Each file has the series of its subject, and ``exposition`` puts them together; names and labels are those of
:mod:`cosched.monitoring.series`.
"""
