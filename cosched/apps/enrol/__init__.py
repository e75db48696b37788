"""How a workstation becomes a node, over ssh, and how it ceases to be one (docs/design/identity.md).

``ssh`` talks to a host and believes no key that is not known, ``enrolment`` goes the steps. On the host, installed
there with everything else: ``remote`` takes a step, ``identity`` makes the key and puts the certificate beside it,
``laying`` lays out what :mod:`cosched.install` describes, ``services`` starts and stops guard and agent.
"""
