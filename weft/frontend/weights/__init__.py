"""Files of weights of models: GGUF and safetensors, mapped. Read ``blocks``, ``files``, ``quantize``, ``binding``."""

from weft.frontend.weights.binding import bind_weights
from weft.frontend.weights.blocks import FORMATS, Format
from weft.frontend.weights.files import GGUF, Groups, Stored, load_gguf, load_safetensors
from weft.frontend.weights.quantize import quantize_matrix
