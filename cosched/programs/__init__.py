"""Programs for the lab to run: NAS-like kernels of our own with mpi4py and numpy, each with a verification.

    mpirun python -m cosched.programs cg --class A --json

They stand in for the NAS benchmarks of Hanzich et al. 2005 (Table 1): two that communicate much (``cg``, ``is``), two
that compute much (``mg``, ``bt``). What each does is in its module; sizes and measured profiles are in
docs/guide/programs.md.
"""
