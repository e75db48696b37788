"""The fault simulator: both cores, the real wire codec and the real journal on a virtual clock and network."""
