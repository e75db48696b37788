"""The lab in a box: workstations made out of one Linux machine, with agents, a scheduler and users at the desks."""
