"""What is watched of a cluster: the series that the scheduler exports, rules and dashboards made of their names."""
