"""What an installation consists of: accounts, directories, units and settings, as values (docs/guide/installation.md).

The one source of all of them: ``cosched node render`` shows it, ``cosched node add`` and Ansible lay it out. Nothing
here touches the machine. ``layout`` has the values and the places, ``units`` the services' units, ``settings`` a node's
``node.toml``, ``roles`` puts together what a node, a scheduler or a synthetic user needs.
"""
