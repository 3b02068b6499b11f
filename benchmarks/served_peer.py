"""llama.cpp's part of ``benchmarks.served``, for a Python that has llama-cpp-python and gguf: prints times as JSON.

Run as ``python served_peer.py HIDDEN LAYERS HEADS GROUPS INNER VOCABULARY``. Weights, those of the embedding included,
are random blocks of Q4_0; the cache is llama.cpp's own, of float16, in place; one thread, CPU time.
"""

import ctypes
import importlib
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

PAST, REPEATS = 512, 12


def write(path: str, hidden: int, layers: int, heads: int, groups: int, inner: int, vocabulary: int) -> None:
    """Write the model's file."""
    gguf: Any = importlib.import_module("gguf")
    rng, file = np.random.default_rng(0), gguf.GGUFWriter(path, "llama")

    def matrix(name: str, n: int, k: int) -> None:
        blocks = rng.integers(0, 256, (n, k // 32, 18), np.uint8)
        blocks[:, :, :2] = rng.uniform(0.005, 0.015, (n, k // 32, 1)).astype(np.float16).view(np.uint8)
        file.add_tensor(f"{name}.weight", blocks.reshape(n, -1), raw_dtype=gguf.GGMLQuantizationType.Q4_0)

    def norm(name: str) -> None:
        file.add_tensor(f"{name}.weight", np.ones(hidden, np.float32))

    file.add_context_length(8192)
    file.add_embedding_length(hidden)
    file.add_block_count(layers)
    file.add_feed_forward_length(inner)
    file.add_head_count(heads)
    file.add_head_count_kv(groups)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(hidden // heads)
    file.add_vocab_size(vocabulary)
    file.add_tokenizer_model("no_vocab")
    for name in ("token_embd", "output"):
        matrix(name, vocabulary, hidden)
    norm("output_norm")
    for i in range(layers):
        keys, block = groups * (hidden // heads), f"blk.{i}."
        for name in ("attn_norm", "ffn_norm"):
            norm(block + name)
        for name, n, k in (
            ("attn_q", hidden, hidden),
            ("attn_k", keys, hidden),
            ("attn_v", keys, hidden),
            ("attn_output", hidden, hidden),
            ("ffn_gate", inner, hidden),
            ("ffn_up", inner, hidden),
            ("ffn_down", hidden, inner),
        ):
            matrix(block + name, n, k)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def times(c: Any, path: str, sequences: int, vocabulary: int) -> tuple[float, float]:
    """Return milliseconds of a prompt and of a step of some sequences behind it."""
    rng = np.random.default_rng(0)
    model = c.llama_model_load_from_file(path.encode(), c.llama_model_default_params())
    options = c.llama_context_default_params()
    options.n_ctx, options.n_batch, options.n_seq_max = sequences * (PAST + 128), 2048, sequences
    options.n_threads = options.n_threads_batch = 1
    context, batch = c.llama_init_from_model(model, options), c.llama_batch_init(2048, 0, 1)

    def run(places: list[tuple[int, int]], last: bool) -> float:
        batch.n_tokens = len(places)
        for i, (sequence, position) in enumerate(places):
            batch.token[i], batch.pos[i] = int(rng.integers(vocabulary)), position
            batch.n_seq_id[i], batch.seq_id[i][0] = 1, sequence
            batch.logits[i] = not last or i == len(places) - 1
        start = time.process_time()
        if c.llama_decode(context, batch):
            raise RuntimeError("llama.cpp did not run a batch")
        return 1e3 * (time.process_time() - start)

    prompts = [run([(s, i) for i in range(PAST)], last=True) for s in range(sequences)]
    steps = [run([(s, PAST + i) for s in range(sequences)], last=False) for i in range(REPEATS)]
    return min(prompts), min(steps)


def main() -> None:
    """Run as a program."""
    llama_cpp = importlib.import_module("llama_cpp")
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()
    sizes = [int(a) for a in sys.argv[1:]]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model.gguf")
        write(path, *sizes)
        (prompt, token), (_, eight) = (times(llama_cpp, path, n, sizes[-1]) for n in (1, 8))
    print(json.dumps({"token, cache 512": token, "8 tokens, cache 512": eight, "prompt of 512": prompt}))


if __name__ == "__main__":
    main()
