"""Job selection: which queued jobs start now (Hanzich et al. 2005, section 2, "Job Selection")."""
