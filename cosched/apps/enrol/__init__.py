"""How a workstation becomes a node, over ssh, and how it ceases to be one (docs/design/identity.md).

``ssh`` talks to a host and believes no key that is not known, ``enrolment`` goes the steps, ``remote`` is the part that
runs on the host (installed there with everything else), ``services`` starts and stops guard and agent on it.
"""
