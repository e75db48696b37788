"""Programs that jobs run, each a file that is put onto the node by itself: ``cosched-rsh`` and the witness of ranks."""
