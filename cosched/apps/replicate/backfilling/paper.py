"""The numbers that the paper prints, and those of a reference run of its algorithms outside this project.

The paper's own version of the KTH log had 28 240 jobs; the archive's cleaned version has 28 476. The reference run is a
plain reading of the paper's Figures 2 and 5 and of the compression of its section 2.1 on the cleaned log.
"""

from typing import Final, NamedTuple

LOG: Final = "KTH-SP2-1996-2.1-cln"
#: Jobs of the paper's version of the log, by its text. (The months of its Table 2 add up to 28 290.)
JOBS: Final = 28_240


class Month(NamedTuple):
    """A row of Table 2: jobs and mean bounded slowdowns."""

    jobs: int
    easy: int
    conservative: int


TABLE_2: Final[dict[str, Month]] = {
    "1996-09": Month(86, 2, 2),
    "1996-10": Month(2377, 93, 76),
    "1996-11": Month(1988, 128, 135),
    "1996-12": Month(2294, 86, 124),
    "1997-01": Month(2899, 97, 81),
    "1997-02": Month(2908, 122, 134),
    "1997-03": Month(2078, 104, 118),
    "1997-04": Month(2820, 83, 92),
    "1997-05": Month(4061, 67, 60),
    "1997-06": Month(2694, 37, 31),
    "1997-07": Month(2160, 32, 34),
    "1997-08": Month(1925, 50, 57),
}


class Estimated(NamedTuple):
    """A row of Table 3, and what the reference run has for it."""

    easy: float
    conservative: float
    reference_easy: float
    reference_conservative: float


USERS: Final = "users"
TABLE_3: Final[dict[str, Estimated]] = {
    "1": Estimated(62, 61, 71, 67),
    "4": Estimated(57, 53, 63, 49),
    "11": Estimated(51, 44, 64, 50),
    "31": Estimated(57, 45, 64, 49),
    "101": Estimated(62, 57, 65, 53),
    "301": Estimated(59, 52, 64, 54),
    USERS: Estimated(81, 84, 91.9, 88.9),
}

#: Fig. 11: records, those at "exactly 100 %" of their request, and those of them that the system had killed.
FIG_11_JOBS: Final = 20_054
FIG_11_AT_100: Final = 3215
FIG_11_KILLED: Final = 3204
