"""Train a small decoder on this project's documentation, character by character, and let it continue sentences.

Weft trains it, quantises its products to 4 bits, compiles one call that appends tokens of any number of sequences to
a paged cache and draws the next ones, and streams what it says. Then eight sequences of different length grow together,
and a repetitive one with guesses that are checked several at once. The program fails if the model learned nothing, or
if guesses change what is said.
"""

import argparse
import sys
import time
from pathlib import Path

from examples.chat.generator import Generator, Sampling
from examples.chat.model import Config, compile_decoder
from examples.chat.train import CHARACTERS, decode, encode, trained
from weft.profile import read_bandwidth

PLACE = Path(__file__).resolve().parent.parent.parent / "build" / "demo" / "chat.npz"
PROMPTS = (
    "The compiler",
    "A kernel is",
    "Run the tests with",
    "Errors",
    "Each pass",
    "What a user",
    "Memory",
    "Shapes",
)


def main() -> int:
    """Run the demo; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("prompt", nargs="?", default="The compiler ")
    parser.add_argument("--steps", type=int, default=600, help="of training")
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--retrain", action="store_true")
    options = parser.parse_args()
    if options.retrain:
        PLACE.unlink(missing_ok=True)
    config = Config(len(CHARACTERS))
    weights = trained(config, PLACE, options.steps)
    start = time.perf_counter()
    machine, size = compile_decoder(config, weights)
    print(f"compiled the decoder, {size / 1e6:.2f} MB of weights, in {time.perf_counter() - start:.1f} s\n")
    sampling = Sampling(options.temperature, seed=options.seed, penalty=1.1, memory=8)
    bandwidth = read_bandwidth()
    stream(Generator(machine), options.prompt, sampling, options.tokens, size, bandwidth)
    together(Generator(machine), sampling, options.tokens // 4, size, bandwidth)
    return guessed(machine, options.tokens)


def _rate(label: str, tokens: int, calls: int, seconds: float, size: int, bandwidth: float) -> None:
    read = calls * size / seconds
    print(
        f"{label}: {tokens / seconds:.0f} tokens/s in {calls} calls; weights come at {read / 1e9:.2f} GB/s of the "
        f"{bandwidth:.1f} that memory gives\n"
    )


def stream(made: Generator, prompt: str, sampling: Sampling, count: int, size: int, bandwidth: float) -> None:
    """Continue one prompt, a character as soon as it is there."""
    number = made.add(encode(prompt).tolist(), sampling)
    made.step()
    print(prompt + decode(made.tokens(number))[len(prompt) :], end="")
    start, calls = time.perf_counter(), made.calls
    for _ in range(count):
        print(decode(made.step()[number]), end="", flush=True)
    print()
    _rate("one sequence", count, made.calls - calls, time.perf_counter() - start, size, bandwidth)


def together(made: Generator, sampling: Sampling, count: int, size: int, bandwidth: float) -> None:
    """Continue prompts of different length in the same calls."""
    numbers = [made.add(encode(p).tolist(), sampling) for p in PROMPTS]
    made.step()
    start, calls = time.perf_counter(), made.calls
    tokens = sum(len(t) for _ in range(count) for t in made.step().values())
    seconds = time.perf_counter() - start
    for n in numbers:
        print("  " + decode(made.tokens(n)).replace("\n", " | "))
    _rate("eight sequences", tokens, made.calls - calls, seconds, size, bandwidth)


def guessed(machine: object, count: int) -> int:
    """Continue a list with and without guesses, which has to give the same."""
    prompt, said, times = encode("Read the page. Read the page. Read the page. Read").tolist(), [], []
    for ahead in (0, 4):
        made = Generator(machine, ahead=ahead)
        number, start = made.add(prompt, Sampling(0.0)), time.perf_counter()
        while len(made.tokens(number)) < len(prompt) + count:
            made.step()
        times.append((made.calls, time.perf_counter() - start))
        said.append(decode(made.tokens(number)[: len(prompt) + count]))
    print(f"guessing four ahead: {times[1][0]} calls for {times[0][0]}, {times[1][1]:.2f} s for {times[0][1]:.2f} s")
    if said[0] != said[1]:
        print(f"FAILED: guesses changed what is said:\n  {said[0]!r}\n  {said[1]!r}")
    return int(said[0] != said[1])


if __name__ == "__main__":
    sys.exit(main())
