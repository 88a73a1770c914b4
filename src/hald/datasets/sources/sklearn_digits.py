"""scikit-learn's handwritten digits."""

import numpy as np
from PIL import Image

from hald.datasets.decode import Pixels
from hald.datasets.raw import RawData, RawSplit
from hald.datasets.spec import DatasetSpec


def read(spec: DatasetSpec) -> RawData:
    """1,797 handwritten digits of 8 x 8 pixels, enlarged; the last 500 are the test split."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    grey = np.rint(bunch.images * (255 / 16)).astype(np.uint8)

    def pixels(i: int) -> Pixels:
        image = Image.fromarray(grey[i]).resize((spec.size, spec.size), Image.Resampling.BILINEAR)
        return np.asarray(image.convert("RGB"))

    targets = bunch.target.astype(np.int64)
    border = len(targets) - 500
    train = RawSplit(targets[:border], pixels, lambda i: f"digit {i}")
    test = RawSplit(targets[border:], lambda i: pixels(border + i), lambda i: f"digit {border + i}")
    return RawData([str(name) for name in bunch.target_names], train, test)
