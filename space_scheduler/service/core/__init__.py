"""The live host of the core: the core with its journal, and the one thread in which it runs."""
