"""The dashboards for Grafana, as values (``ALL``) and as the JSON that Grafana reads (``render``)."""
