"""Whether NVIDIA's cuDNN computes anything here: it does not; kernels are Weft's own (``contrib.cudnn``)."""


def exists() -> bool:
    """Whether kernels may be cuDNN's."""
    return False
