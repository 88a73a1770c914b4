"""How much a teacher's answers vary: the trace of their covariance."""

from torch import Tensor


def total_variance(p: Tensor) -> Tensor:
    """Trace of the unbiased covariance over the first dimension: (K, n, C) -> (n,)."""
    return p.var(dim=0, correction=1).sum(dim=1)
