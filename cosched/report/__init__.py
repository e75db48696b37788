"""What a person or another program reads: tables, schedules, plots, manifests."""
