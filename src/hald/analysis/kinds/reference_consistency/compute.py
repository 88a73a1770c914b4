"""Does a student answer as the reference student does?"""

from hald.analysis.consistency import agreement
from hald.analysis.subjects import Found, Lab


def measure(lab: Lab, number: int) -> Found:
    """Agreement of a student with the reference student on crops of the test pictures."""
    assert lab.spec.reference is not None
    return agreement(lab, lab.spec.subjects[number], lab.spec.reference)
