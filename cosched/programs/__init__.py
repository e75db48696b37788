"""Programs for the lab to run: NAS-like kernels with mpi4py and numpy, each with a verification."""
