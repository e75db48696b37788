"""How long the scheduler has been silent. Times in microseconds, all of one clock that never goes back."""

from dataclasses import dataclass


@dataclass
class Lease:
    """When the scheduler was heard last (None: never), and for how long its silence is borne."""

    heard_us: int | None = None
    lease_us: int = 0

    def over(self, now_us: int) -> bool:
        """Whether the scheduler was heard once, and has been silent for longer than a lease since."""
        return self.heard_us is not None and now_us - self.heard_us > self.lease_us
