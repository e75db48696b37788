"""What makes a plain ``mpirun`` in a job script land in the job's cgroups: one launcher for each system."""
