"""D. G. Feitelson and A. Mu'alem Weil, "Utilization and predictability in scheduling the IBM SP2 with backfilling",
IPPS 1998: its tables and figures, one file each.
"""
