"""Direct calls of kernels: what is planned, that tensors which live together lie apart, results as of bytecode."""

import random
import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import weft
from tests.pairs import part
from tests.relax.vm.test_vmtir import HEAD, machine, text_of
from weft.relax import transform as t
from weft.relax.pipeline import lowering_passes
from weft.relax.vm import ExecBuilder, vm_codegen, vmtir_codegen
from weft.relax.vm.direct import plan_direct
from weft.runtime.opcodes import Opcode
from weft.script import from_source


def lowered(mod):
    """Take a module to the machine, a kernel for each operator."""
    return weft.ir.Sequential([t.Normalize(), t.lower_ops(), *lowering_passes()])(mod)


def planned(mod, lower=lowered):
    """Plans of the functions of a module: name to (bytecode, builder, plan)."""
    builder = ExecBuilder()
    kernels = vm_codegen(builder, lower(mod))
    named = {v.name_hint: f for v, f in kernels.items()}
    return {name: (body, builder, plan_direct(body, builder, named)) for name, _, body in builder.take_bodies()}


def random_module(rng, n_ops, branches=True):
    """A function of random operators on tensors of some shapes, with a branch and a reshape now and then."""
    shapes = [(4,), (2, 6), (3, 4), (12,), (65,)]
    lines, pool = [], {s: [f"x{i}"] for i, s in enumerate(shapes)}

    def statement(depth, pool, indent):
        shape = rng.choice(shapes)
        n = len(lines)
        kind = rng.random()
        if kind < 0.15 and depth < 2 and branches:
            lines.append(f"{indent}if c{rng.randrange(2)}:")
            ends = []
            for last in (False, True):
                inner = {s: list(v) for s, v in pool.items()}
                for _ in range(rng.randrange(1, 4)):
                    statement(depth + 1, inner, indent + "    ")
                ends.append(rng.choice(inner[shape]))
                lines.append(f"{indent}    b{n} = R.negative({ends[-1]})")
                if not last:
                    lines.append(f"{indent}else:")
            pool[shape].append(f"b{n}")
            return
        if kind < 0.3:
            a, b = rng.sample([(2, 6), (3, 4), (12,)], 2)
            lines.append(f"{indent}v{n} = R.reshape({rng.choice(pool[a])}, {b})")
            pool[b].append(f"v{n}")
            return
        a, b = rng.choice(pool[shape]), rng.choice(pool[shape])
        op = rng.choice(["add", "subtract", "multiply", "maximum"])
        lines.append(f"{indent}v{n} = R.{op}({a}, {b})")
        pool[shape].append(f"v{n}")

    for _ in range(n_ops):
        statement(0, pool, " " * 8)
    results = ", ".join(rng.choice(pool[s]) for s in shapes)
    params = ", ".join(
        [f'x{i}: R.Tensor({s}, "float32")' for i, s in enumerate(shapes)]
        + ['c0: R.Tensor((), "bool")', 'c1: R.Tensor((), "bool")']
    )
    text = f"    @R.function\n    def main({params}):\n" + "\n".join(lines) + f"\n        return ({results})\n"
    return from_source(HEAD + text), shapes


@pytest.mark.parametrize("seed", range(part(12)))
def test_random_programs(seed):
    """Equal bits in both modes, whatever way the branches go, and memory of live tensors is their own."""
    rng = random.Random(seed)
    mod, shapes = random_module(rng, rng.randrange(3, 40))
    for body, builder, plan in planned(mod).values():
        check_arena(body, builder, plan)
    machines = [
        machine(mod, m, relax_pipeline=rng.choice(["zero", "default"]))["main"] for m in ("bytecode", "compiled")
    ]
    for c in range(4):
        values = [np.random.default_rng(c).standard_normal(s).astype(np.float32) for s in shapes]
        found = [main(*values, np.array(bool(c & 1)), np.array(bool(c & 2))) for main in machines]
        for f, e in zip(*found, strict=True):
            np.testing.assert_array_equal(f.numpy(), e.numpy())


def check_arena(body, builder, plan):
    """Direct tensors of different storages whose lives meet do not overlap."""
    alloc = builder.find_function("vm.builtin.alloc_tensor")
    storage, size, life = {}, {}, {}
    for at, insn in enumerate(body):
        if insn.opcode != Opcode.CALL:
            continue
        dst = insn.words[0]
        if insn.words[1] == alloc and dst in plan.addresses:
            storage[dst] = insn.args[0]
            size[dst] = 4 * int(np.prod(builder.constant(insn.args[2] & ((1 << 56) - 1))))
        for tensor in {dst, *insn.args} & plan.addresses.keys():
            life.setdefault(tensor, []).append(at)
    for a in storage:
        assert plan.addresses[a] % 4 == 0 and plan.addresses[a] + size[a] <= plan.arena_bytes
        for b in storage:
            if storage[a] != storage[b] and life[a][0] <= life[b][-1] and life[b][0] <= life[a][-1]:
                first, second = sorted((a, b), key=plan.addresses.get)
                assert plan.addresses[first] + size[first] <= plan.addresses[second]


def chain(length):
    lines = [f"        v{i + 1} = R.add(v{i}, y)" for i in range(length)]
    head = '    @R.function\n    def main(v0: R.Tensor((4,), "float32"), y: R.Tensor((4,), "float32")):\n'
    return from_source(HEAD + head + "\n".join(lines) + f"\n        return v{length}\n")


def test_chain_is_direct():
    """Of a chain only the result is an object: one storage, one tensor, and every kernel is called directly."""
    builder = ExecBuilder()
    kernels = vm_codegen(builder, lowered(chain(10)))
    functions, direct = vmtir_codegen(builder, {v.name_hint: f for v, f in kernels.items()})
    text = functions["__vmtir__main"].script()
    assert direct == {"add"} and text.count("call_kernel") == 10
    assert text.count("anylist_data") == 1 and "arena" in text
    (body, builder, plan) = planned(chain(10))["main"]
    assert len(plan.calls) == 10 and plan.arena_bytes == 64  # each add writes over its input
    assert (
        sum(
            i.words[1] == builder.find_function("vm.builtin.alloc_tensor")
            for n, i in enumerate(body)
            if i.opcode == Opcode.CALL and n not in plan.omitted
        )
        == 1
    )


def test_tensors_that_others_see_are_objects():
    """Results, fields of tuples, arguments of functions and of packed functions are objects."""
    source = """
    @R.function
    def f(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        return R.add(x, x)
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = R.multiply(a, x)
        c = cls.f(b)
        d = R.subtract(c, a)
        e = R.call_packed("test.direct.see", d, ty_args=R.Tensor((4,), "float32"))
        g = R.add(e, a)
        h = R.add(g, x)
        return (h, R.add(h, g))
"""
    _, _, plan = planned(from_source(HEAD + source))["main"]
    assert len(plan.addresses) == 2  # a and g
    seen = []
    weft.register_func("test.direct.see", lambda t: seen.append(t) or t, override=True)
    x = np.array([1, 2, 3, 4], np.float32)
    first = machine(from_source(HEAD + source), "compiled", relax_pipeline="zero")["main"]
    h, last = first(x)
    first(x * 0)
    a = x + x
    d = 2 * a * x - a
    np.testing.assert_array_equal(seen[0].numpy(), d)
    np.testing.assert_array_equal(h.numpy(), d + a + x)
    np.testing.assert_array_equal(last.numpy(), (d + a + x) + (d + a))


@pytest.mark.parametrize(
    "made",
    [
        lambda x: np.ascontiguousarray(x.T).T,
        lambda x: x.astype(np.float64),
        lambda x: x[:2],
        lambda x: x.reshape(-1),
        lambda x: 7,
        lambda x: None,
    ],
)
def test_objects_that_do_not_fit_are_refused_alike(made):
    """A packed function's result is checked where a kernel takes it, with the error that bytecode gives."""
    weft.register_func("test.direct.make", lambda x: made(x.numpy()), override=True)
    source = """
    @R.function(pure=False)
    def main(x: R.Tensor((3, 4), "float32")):
        a = R.add(x, x)
        b = R.call_packed("test.direct.make", a, ty_args=R.Object())
        c = R.match_cast(b, R.Tensor((3, 4), "float32"))
        d = R.add(a, c)
        return d
"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    results = []
    for mode in ("bytecode", "compiled"):
        main = machine(from_source(HEAD + source), mode, relax_pipeline="zero")["main"]
        try:
            results.append(main(x).numpy().tolist())
        except Exception:
            kind, text = text_of(lambda main=main: main(x))
            results.append((kind, re.sub(r"<script \d+>", "<script>", text)))
    assert results[0] == results[1]


def test_frames_of_errors_name_the_call():
    """The traceback has the function, the number of the call and the callee, as in bytecode."""

    def refuse(x):
        raise ValueError("refused")

    weft.register_func("test.direct.fail", refuse, override=True)
    source = """
    @R.function(pure=False)
    def main(x: R.Tensor((4,), "float32")):
        a = R.add(x, x)
        b = R.call_packed("test.direct.fail", a, ty_args=R.Tensor((4,), "float32"))
        return R.add(a, b)
"""
    frames = []
    for mode in ("bytecode", "compiled"):
        with pytest.raises(ValueError, match="refused") as caught:
            machine(from_source(HEAD + source), mode, relax_pipeline="zero")["main"](np.ones(4, np.float32))
        frames.append(
            [(e.lineno, e.frame.code.name) for e in caught.traceback if "weft:main" in str(e.frame.code.path)]
        )
    assert frames[0] == frames[1] and frames[0]


def test_large_tensors_and_threads():
    """An arena beyond the stack, on several threads of one machine."""
    lines = [f"        v{i + 1} = R.add(R.multiply(v{i}, v{i}), y)" for i in range(5)]
    head = '    @R.function\n    def main(v0: R.Tensor((300, 70), "float32"), y: R.Tensor((300, 70), "float32")):\n'
    mod = from_source(HEAD + head + "\n".join(lines) + "\n        return v5\n")
    main = machine(mod, "compiled", relax_pipeline="zero")["main"]

    def run(seed):
        x, y = np.random.default_rng(seed).uniform(-0.5, 0.5, (2, 300, 70)).astype(np.float32)
        for _ in range(20):
            found = main(x, y).numpy()
        for _ in range(5):
            x = x * x + y
        return np.abs(found - x).max()

    with ThreadPoolExecutor(4) as pool:
        assert max(pool.map(run, range(8))) < 1e-5
