"""What is free now, and what a pass has given away: the same questions for counted processors and for named nodes.

This is the door for a policy of one's own. What it gets is the whole future: besides ``obstacle(job)`` and
``start(job, reason)`` it answers when a job could start, and keeps reservations (``policy.future``).
"""

from space_scheduler.policy.future import future_of as room_of

__all__ = ["room_of"]
