"""Models that generate workloads: Poisson/exponential, Feitelson 1996, Lublin and Feitelson 2003."""
