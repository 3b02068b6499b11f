"""Ask this project's documentation questions in a browser: MiniLM-L6-v2, compiled to WebAssembly.

``python -m examples.minilm.web`` (``make demo-web``) compiles the model, puts it beside one page, the JavaScript
package and the sentences of the documentation, and serves the folder on this machine. The page computes everything.
"""

import functools
import http.server
import json
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import weft
from examples.minilm.corpus import ROOT, Sentence, sentences
from examples.minilm.demo import QUESTIONS
from examples.minilm.network import load_tokenizer, write_onnx

__all__ = ["compile_model", "main", "write_site"]

SITE = ROOT / "build" / "demo" / "web"
WEB = ROOT / "web"


def compile_model(path: Path) -> None:
    """Compile MiniLM, with any batch and length, for WebAssembly."""
    onnx = path.with_suffix(".onnx")
    write_onnx(onnx)
    weft.relax.build(weft.relax.frontend.onnx.from_onnx(onnx), "wasm32").export_library(path)
    onnx.unlink()


def write_site(folder: Path, texts: Sequence[Sentence], model: Path) -> None:
    """Put everything that the page loads into a folder.

    Parameters
    ----------
    folder : Path
        It is made if it is not there.
    texts : sequence of Sentence
        What answers may be.
    model : Path
        What :func:`compile_model` wrote.
    """
    if not (WEB / "runtime.wasm").exists():
        raise FileNotFoundError("web/runtime.wasm is not built: make web/runtime.wasm")
    shutil.copytree(WEB / "src", folder / "weft" / "src", dirs_exist_ok=True)
    shutil.copy2(WEB / "runtime.wasm", folder / "weft")
    shutil.copy2(Path(__file__).with_name("page.html"), folder / "index.html")
    if not (folder / "minilm.wasm").exists() or not (folder / "minilm.wasm").samefile(model):
        (folder / "minilm.wasm").unlink(missing_ok=True)
        (folder / "minilm.wasm").hardlink_to(model)
    corpus = {"sentences": [s._asdict() for s in texts], "questions": [q for q, _ in QUESTIONS]}
    (folder / "corpus.json").write_text(json.dumps(corpus))
    (folder / "vocabulary.json").write_text(json.dumps(load_tokenizer().get_vocab()))


def main() -> None:
    """Build the site and serve it until the program is interrupted."""
    model = SITE.parent / "minilm.wasm"
    model.parent.mkdir(parents=True, exist_ok=True)
    print("compiling MiniLM for WebAssembly", flush=True)
    compile_model(model)
    write_site(SITE, sentences(), model)
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(SITE))
    with http.server.ThreadingHTTPServer(("127.0.0.1", port), handler) as server:
        print(f"open http://127.0.0.1:{port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
