"""Who may connect, and who it is that calls: sockets and their bounds, certificates, tokens, members, refusals."""
