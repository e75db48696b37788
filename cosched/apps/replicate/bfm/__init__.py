"""Replication of Utrera et al. 2005, "Another approach to backfilled jobs: applying virtual malleability"."""
