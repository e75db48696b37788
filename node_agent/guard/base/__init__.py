"""What both rooms of the guard stand on: its loop and children, sockets, records, requests, settings."""
