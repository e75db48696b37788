"""What stands on everything else: the command, the lab in a box, experiments, replications, enrolment.

Nothing outside of this room imports from it (import-linter holds that).
"""
