"""Parameter files: what is written is read, and what is damaged is refused."""

import ml_dtypes
import numpy as np

from tests.refusals import refuses
from weft.error import ExecutableError
from weft.runtime import load_param_dict, load_param_dict_from_file, save_param_dict, save_param_dict_to_file

PARAMS = {
    "a.weight": np.arange(35, dtype="float32").reshape(5, 7),
    "": np.zeros((0, 3), "int8"),
    "é": np.array(True),
    "half": np.arange(3, dtype="float16"),
    "brain": np.arange(4).astype(ml_dtypes.bfloat16),
}


def test_files_are_what_the_bytes_are(tmp_path):
    save_param_dict_to_file(PARAMS, tmp_path / "p")
    assert (tmp_path / "p").read_bytes() == bytes(save_param_dict(PARAMS))
    for found in (load_param_dict_from_file(tmp_path / "p"), load_param_dict((tmp_path / "p").read_bytes())):
        assert list(found) == list(PARAMS)
        for name, value in PARAMS.items():
            array = found[name].numpy()
            assert (array.dtype, array.shape, array.tobytes()) == (value.dtype, value.shape, value.tobytes())


def test_tensors_do_not_need_the_file(tmp_path):
    save_param_dict_to_file(PARAMS, tmp_path / "p")
    found = load_param_dict_from_file(tmp_path / "p")
    (tmp_path / "p").write_bytes(bytes(len((tmp_path / "p").read_bytes())))
    found["half"].numpy()[:] += 1
    np.testing.assert_array_equal(found["half"].numpy(), [1, 2, 3])
    np.testing.assert_array_equal(found["a.weight"].numpy(), PARAMS["a.weight"])


def test_every_cut_is_an_error(tmp_path):
    data = bytes(save_param_dict(PARAMS))
    for n in range(0, len(data), 7):
        (tmp_path / "p").write_bytes(data[:n])
        refuses(ExecutableError, "", load_param_dict_from_file, tmp_path / "p")
