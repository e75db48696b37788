"""What Linux offers, without policy, with the standard library alone: cgroups, presence, load, users, namespaces."""
