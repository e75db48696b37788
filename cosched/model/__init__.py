"""The ground vocabulary: jobs, their states, allocations and time. Pure: no clock, file or randomness."""
