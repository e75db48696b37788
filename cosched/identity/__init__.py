"""Who is who in a cluster: a private authority, certificates of scheduler, nodes and users, the key of grants.

``authority`` makes them (``cosched init``, the lab), ``tls`` and ``grants`` read them at run time: an agent needs no
X.509 library, only ``ssl``.
"""
