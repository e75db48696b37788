"""How long the scheduler has been silent. Times in microseconds, all of one clock that never goes back."""


class Lease:
    """When the scheduler was heard last (None: never), and for how long its silence is borne."""

    def __init__(self) -> None:
        self.heard_us: int | None = None
        self.lease_us = 0

    def begin(self, lease_us: int, now_us: int) -> None:
        """A scheduler has welcomed the agent, and says how long its lease is."""
        self.lease_us = lease_us
        self.heard_us = now_us

    def heard(self, now_us: int) -> None:
        """The scheduler gave a sign of life."""
        self.heard_us = now_us

    def over(self, now_us: int) -> bool:
        """Whether the scheduler was heard once, and has been silent for longer than a lease since."""
        return self.heard_us is not None and now_us - self.heard_us > self.lease_us
