"""The pure state machine of jobs and cluster: ``handle(event, now) -> instructions``."""
