"""The policies and the simulator once more: plain, slow, and read literally from the papers and the definitions.

Nothing here shares a line or an idea of structure with the code under test: time is asked of lists of intervals, every
choice starts from scratch, and a pass is as long as it likes. What the two agree on, they found by different ways.
"""
