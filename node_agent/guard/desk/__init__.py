"""The owner's side: the switch and its doors, the contract's limits, and what keeps jobs from being felt."""
