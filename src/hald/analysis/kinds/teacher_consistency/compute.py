"""Does a student answer as its teacher does?"""

from hald.analysis.consistency import agreement
from hald.analysis.subjects import Found, Lab


def measure(lab: Lab, number: int) -> Found:
    """Agreement of a student with its teacher on crops of the test pictures."""
    return agreement(lab, lab.spec.subjects[number], None)
