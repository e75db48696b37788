"""Whether a job may be queued yet: a chain of rules before the queue, a rule a file (``docs/design/eligibility.md``).

A job that a rule keeps back is *waiting*. Policies do not see it.
"""
