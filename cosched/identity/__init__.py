"""The cluster's own certificate authority, and the TLS settings made from it."""
