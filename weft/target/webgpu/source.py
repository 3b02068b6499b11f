"""Device functions to WGSL: one text, of which each kernel is an entry point."""

from collections.abc import Mapping

from weft import error, ir, tir
from weft.target.gpu import DeviceCode, rewritten
from weft.target.target import Target
from weft.target.webgpu.emitter import Emitter, check_wide
from weft.tir.transform import NarrowDataType, lower_math

_INTEGER = """\
fn weft_div_{0}(a: {1}, b: {1}) -> {1} {{ if (b == 0) {{ return 0; }} return a / b; }}
fn weft_mod_{0}(a: {1}, b: {1}) -> {1} {{ if (b == 0) {{ return 0; }} return a % b; }}
fn weft_floormod_{0}(a: {1}, b: {1}) -> {1} {{
  let r = weft_mod_{0}(a, b);
  return select(r, r + b, r != 0 && (r < 0) != (b < 0));
}}
fn weft_floordiv_{0}(a: {1}, b: {1}) -> {1} {{
  let r = weft_mod_{0}(a, b);
  let q = weft_div_{0}(a, b);
  return select(q, q - 1, r != 0 && (r < 0) != (b < 0));
}}
fn weft_min_{0}(a: {1}, b: {1}) -> {1} {{ return min(a, b); }}
fn weft_max_{0}(a: {1}, b: {1}) -> {1} {{ return max(a, b); }}
fn weft_abs_{0}(a: {1}) -> {1} {{ return abs(a); }}
fn weft_shift_left_{0}(a: {1}, b: {1}) -> {1} {{ return select(0, a << (u32(b) & 31), u32(b) < 32); }}
fn weft_shift_right_{0}(a: {1}, b: {1}) -> {1} {{ return (a >> min(u32(b), 31)) >> select(0u, 1u, u32(b) > 31); }}
fn weft_popcount_{0}(a: {1}) -> {1} {{ return countOneBits(a); }}
fn weft_clz_{0}(a: {1}) -> {1} {{ return countLeadingZeros(a); }}
fn weft_pow_{0}(a: {1}, n: {1}) -> {1} {{
  if (n < 0) {{ return select(select(0, select(1, a, (n & 1) != 0), a + 1 == 0), 1, a == 1); }}
  var r: {1} = 1;
  var b = a;
  for (var k = n; k != 0; k = k >> 1u) {{
    if ((k & 1) != 0) {{ r *= b; }}
    b *= b;
  }}
  return r;
}}
"""
# What is not a number or infinite is told by its bits: compilers may assume that no comparison meets it.
_FLOAT = """\
fn weft_float(bits: u32) -> f32 { return bitcast<f32>(bits); }
fn weft_isnan_float32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) > 0x7f800000u; }
fn weft_isinf_float32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7fffffffu) == 0x7f800000u; }
fn weft_isfinite_float32(a: f32) -> bool { return (bitcast<u32>(a) & 0x7f800000u) != 0x7f800000u; }
fn weft_div_float32(a: f32, b: f32) -> f32 { return a / b; }
fn weft_min_float32(a: f32, b: f32) -> f32 { return select(b, a, weft_isnan_float32(a) || a < b); }
fn weft_max_float32(a: f32, b: f32) -> f32 { return select(b, a, weft_isnan_float32(a) || a > b); }
fn weft_abs_float32(a: f32) -> f32 { return abs(a); }
fn weft_rsqrt_float32(a: f32) -> f32 { return inverseSqrt(a); }
fn weft_sigmoid_float32(a: f32) -> f32 { return 1 / (1 + exp(-a)); }
fn weft_with_sign(a: f32, b: f32) -> f32 {
  return bitcast<f32>((bitcast<u32>(a) & 0x7fffffffu) | (bitcast<u32>(b) & 0x80000000u));
}
fn weft_mod_float32(a: f32, b: f32) -> f32 {
  var x = abs(a);
  let y = abs(b);
  if (!(y > 0) || !weft_isfinite_float32(a) || weft_isnan_float32(b)) { return weft_float(0x7fc00000u); }
  while (x >= y) {
    let m = frexp(x);
    let n = frexp(y);
    x -= ldexp(y, m.exp - n.exp - select(0, 1, m.fract < n.fract));
  }
  return weft_with_sign(x, a);
}
fn weft_hypot_float32(a: f32, b: f32) -> f32 {
  let most = max(abs(a), abs(b));
  if (weft_isinf_float32(a) || weft_isinf_float32(b)) { return weft_float(0x7f800000u); }
  return select(most * length(vec2<f32>(a / most, b / most)), most, most == 0);
}
fn weft_floormod_float32(a: f32, b: f32) -> f32 {
  let m = weft_mod_float32(a, b);
  if (m == 0) { return weft_with_sign(0, b); }
  return select(m, m + b, (m < 0) != (b < 0) && !weft_isnan_float32(m));
}
fn weft_floordiv_float32(a: f32, b: f32) -> f32 {
  if (b == 0) { return a / b; }
  let m = weft_mod_float32(a, b);
  let q = round((a - m) / b);
  return select(q, q - 1, m != 0 && (m < 0) != (b < 0) && !weft_isnan_float32(m));
}
fn weft_pow_float32(a: f32, b: f32) -> f32 {
  if (b == 0 || a == 1) { return 1; }
  let r = pow(abs(a), b);
  if (a >= 0) { return r; }
  if (b != trunc(b)) { return weft_float(0x7fc00000u); }
  return select(r, -r, abs(b) < 16777216 && (i32(b) & 1) != 0);
}
fn weft_saturate_float32_int32(v: f32) -> i32 {
  if (weft_isnan_float32(v)) { return 0; }
  return select(i32(clamp(v, -2147483648f, 2147483520f)), 2147483647, v >= 2147483648f);
}
fn weft_saturate_float32_uint32(v: f32) -> u32 {
  if (weft_isnan_float32(v)) { return 0; }
  return select(u32(clamp(v, 0f, 4294967040f)), 4294967295u, v >= 4294967296f);
}
fn weft_min_bool(a: bool, b: bool) -> bool { return a && b; }
fn weft_max_bool(a: bool, b: bool) -> bool { return a || b; }
fn weft_abs_bool(a: bool) -> bool { return a; }
fn weft_to_words(v: i32) -> vec2<u32> { return vec2<u32>(u32(v), u32(v >> 31u)); }
fn weft_from_words(v: vec2<u32>) -> i32 {
  return select(select(2147483647, -2147483647 - 1, i32(v.y) < 0), i32(v.x), v.y == u32(i32(v.x) >> 31u));
}
fn weft_float_of_words(v: vec2<u32>) -> f32 {
  if (v.y == u32(i32(v.x) >> 31u)) { return f32(i32(v.x)); }
  return f32(i32(v.y)) * 4294967296f + f32(v.x);
}
"""
_HALF = "fn weft_float16(v: f32) -> f32 { return f32(f16(v)); }\n"
# WGSL lacks the others, and browsers compute the hyperbolic tangent by exponentials that overflow.
_RATIOS = ("tir.erf", "tir.tanh", "tir.exp10", "tir.log10", "tir.log1p")
_GIVEN = {"int32": "i32", "int64": "i32", "uint32": "u32", "float32": "f32", "bool": "u32"}


def _kernel(name: str, func: tir.PrimFunc, number: int, max_threads: int) -> str:
    """Write a device function, as ``lower_for_gpu`` makes them."""
    check_wide(func)
    s = Emitter(number)
    sizes = s.bounds(func, max_threads)
    if sizes is None:
        raise error.CodegenError(
            "target webgpu has groups of constant size",
            where=func.span,
            found=f"kernel {name}",
            help="split the axis by a constant and bind that",
        )
    params = s.body(func)
    fields, taken, bound = ["base: vec3<u32>"], list[str](), list[str]()
    for p in params:
        if p in s.pointers:
            access = "read_write" if p in s.stored else "read"
            at = f"@group(0) @binding({len(bound)}) var<storage, {access}>"
            bound.append(f"{at} {s.names[p]}: array<{s.pointers[p]}>;")
            continue
        of, given = s.type_of(p.dtype, p), _GIVEN.get(str(p.dtype))
        if given is None:
            raise s.refuse(p)
        fields.append(f"{s.names[p]}: {given}")
        value = f"weft_args.{s.names[p]}"
        taken.append(f"  let {s.names[p]}: {of} = {value}{' != 0' if of == 'bool' else ''};")
    text = "\n".join([*taken, *s.lines])
    head = [
        f"struct {s.prefix}Args {{ {', '.join(fields)} }}",
        *bound,
        f"@group(0) @binding({len(bound)}) var<uniform> {s.prefix}args: {s.prefix}Args;",
        *s.declared,
    ]
    given = "@builtin(workgroup_id) weft_block: vec3<u32>, @builtin(local_invocation_id) weft_thread: vec3<u32>"
    entry = f"@compute @workgroup_size({', '.join(map(str, sizes))})\nfn {name}({given}) {{"
    return "\n".join([*head, entry, f"  let weft_args = {s.prefix}args;", text, "}", ""])


def emit_wgsl(functions: Mapping[str, tir.PrimFunc], max_threads: int = 256) -> str:
    """Write device functions as one text of WGSL; a group of a kernel may have `max_threads` threads.

    Each kernel is an entry point of its name. Its tensors are bound to group 0, in the order of its parameters; the
    binding behind them is a uniform: the place of the first group of a dispatch (``vec3<u32>``), which splits grids
    that are larger than one, and then the parameters that are numbers, of 32 bits each.

    Raises
    ------
    CodegenError
        Where a kernel needs what WGSL has not: other types, integers of 64 bits that are no indices.
    """
    lowering = ir.Sequential([lower_math(library=False, functions=_RATIOS), NarrowDataType(32)], name="webgpu.lower")
    narrowed = lowering(ir.IRModule(dict(functions)))
    kernels = list[str]()
    for number, name in enumerate(functions):
        func = narrowed[name]
        assert isinstance(func, tir.PrimFunc)
        kernels.append(_kernel(name, func, number, max_threads))
    body = "\n".join(kernels)
    integers = "".join(_INTEGER.format(*t) for t in (("int32", "i32"), ("int64", "i32"), ("uint32", "u32")))
    half = "f16" in body or "weft_float16" in body
    return "".join([*(["enable f16;\n", _HALF] if half else []), integers, _FLOAT, body])


def webgpu_code(functions: Mapping[str, tir.PrimFunc], target: Target) -> DeviceCode:
    """Make WGSL, which each browser compiles; ``tvm_callback_webgpu_postproc`` may rewrite it."""
    return DeviceCode.of_text(rewritten(emit_wgsl(functions, target.max_num_threads), target), "wgsl")
