"""The demo: a small lab, a user at one desk, a dozen parallel jobs within a minute, and an account of what happened."""
