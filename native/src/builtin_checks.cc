// Checks of values against their annotations, and what builtins say of values that were not expected.
#include "builtin.h"

#include <cstring>

namespace weft {

int wrong_argument(const char* name, int32_t i, const char* expected, const TVMFFIAny& found) {
  return fail("TypeError", "vm.builtin.%s: argument %d: expected %s, found %s", name, i, expected, describe(found).c_str());
}

int too_few_arguments(const char* name, int32_t expected, int32_t found) {
  return fail("TypeError", "vm.builtin.%s: expected %d arguments or more, found %d", name, expected, found);
}

std::string text_of(const TVMFFIAny& value) {
  switch (value.type_index) {
    case kTVMFFIRawStr: return value.v_c_str;
    case kTVMFFISmallStr: return std::string(value.v_bytes, value.small_str_len);
    case kTVMFFIStr: {
      auto* bytes = reinterpret_cast<TVMFFIByteArray*>(value.v_obj + 1);
      return std::string(bytes->data, bytes->size);
    }
    default: return "";
  }
}

std::string where_of(const TVMFFIAny& context) {
  std::string text = text_of(context);
  auto field = [&text](const char* key) {
    size_t at = text.find(key);
    if (at == std::string::npos) return std::string();
    at += std::strlen(key);
    return text.substr(at, text.find(", ", at) - at);
  };
  if (text.compare(0, 13, "ErrorContext(") != 0) {
    while (!text.empty() && text.back() == ' ') text.pop_back();
    return text.empty() ? "a value" : text;
  }
  std::string function = field("fn="), param = field("param="), loc = field("loc=");
  size_t at = text.find("annotation=");
  std::string annotation = at == std::string::npos ? "" : text.substr(at + 11, text.rfind(')') - at - 11);
  while (!loc.empty() && (loc.back() == ' ' || loc.back() == ')')) loc.pop_back();
  std::string out = function.empty() ? "" : function + ": ";
  out += !param.empty() ? "argument '" + param + "'" : loc == "return" ? "the result" : loc.empty() ? "a value" : loc;
  if (!annotation.empty()) out += " (" + annotation + ")";
  return out;
}

// A relation between operands that does not hold. The context is "check", then a line for each relation: the error's
// class, what is compared, and the place, with tabs between them.
[[gnu::cold]] static int broken_relation(const std::string& context, int64_t index, int64_t expected, int64_t found) {
  size_t at = 0;
  for (int64_t i = 0; i <= index && at != std::string::npos; ++i) at = context.find('\n', at + (i > 0));
  std::string line = at == std::string::npos ? "" : context.substr(at + 1, context.find('\n', at + 1) - at - 1);
  size_t first = line.find('\t'), second = first == std::string::npos ? first : line.find('\t', first + 1);
  if (second == std::string::npos) return fail("ShapeMismatch", "%s", context.c_str());
  return fail(line.substr(0, first).c_str(), "%s\n  --> %s\n  expected %lld, found %lld",
              line.substr(first + 1, second - first - 1).c_str(), line.substr(second + 1).c_str(),
              static_cast<long long>(expected), static_cast<long long>(found));
}

int mismatch(const Call& c, int64_t code, int64_t dim, int64_t expected, int64_t found, const std::string* shape) {
  std::string context = text_of(c.args[c.n - 1]);
  if (context.compare(0, 6, "check\n") == 0) return broken_relation(context, dim, expected, found);
  std::string dimension = dim >= 0 ? "dimension " + std::to_string(dim) + " " : std::string();
  return fail("ShapeMismatch", "%s: %smust be %s%lld%s, found %lld%s%s", where_of(c.args[c.n - 1]).c_str(), dimension.c_str(),
              code >= kAtMostImm ? "at most " : code >= kAtLeastImm ? "at least " : "", static_cast<long long>(expected),
              code % 2 == 1 ? " (the value of this symbol in an earlier argument)" : "", static_cast<long long>(found),
              shape != nullptr ? " in shape " : "", shape != nullptr ? shape->c_str() : "");
}

// ---- checks of values against their annotations ---------------------------------------------------------------------

// check_tensor_info(value, ndim, [dtype,] context); ndim -1 when unknown
static int check_tensor_info(const Call& c) {
  if (c.n != 3 && c.n != 4) return c.wrong_count(3);
  const DLTensor* t = tensor_of(c.args[0]);
  if (t == nullptr) {
    return fail("TypeError", "%s: expected a tensor, found %s", where_of(c.args[c.n - 1]).c_str(), describe(c.args[0]).c_str());
  }
  int64_t ndim, nbytes;
  if (t->data == nullptr && !(tensor_nbytes(t->shape, t->ndim, t->dtype, &nbytes) && nbytes == 0)) {
    return fail("ValueError", "%s: expected a tensor with memory, found a null pointer: %s",
                where_of(c.args[c.n - 1]).c_str(), describe(c.args[0]).c_str());
  }
  if (!int_at(c, 1, &ndim)) return c.wrong(1, "the number of dimensions");
  if (ndim >= 0 && t->ndim != ndim) {
    return fail("ValueError", "%s: expected ndim %lld, found %d: %s", where_of(c.args[c.n - 1]).c_str(),
                static_cast<long long>(ndim), t->ndim, describe(c.args[0]).c_str());
  }
  if (c.n == 3) return 0;
  if (c.args[2].type_index == kTVMFFINone) return 0;
  DLDataType want = c.args[2].v_dtype;
  if (c.args[2].type_index != kTVMFFIDataType) {  // Python's callers name it
    std::string name = text_of(c.args[2]);
    TVMFFIByteArray bytes{name.data(), name.size()};
    if (name.empty() || TVMFFIDataTypeFromString(&bytes, &want) != 0) return c.wrong(2, "a dtype");
  }
  if (want.bits == 0 && want.lanes == 0) return 0;  // void: unknown
  if (t->dtype.code == want.code && t->dtype.bits == want.bits && t->dtype.lanes == want.lanes) return 0;
  return fail("TypeError", "%s: expected dtype %s, found %s", where_of(c.args[3]).c_str(), dtype_name(want).c_str(),
              dtype_name(t->dtype).c_str());
}

static int check_shape_info(const Call& c) {
  if (c.n != 3) return c.wrong_count(3);
  const TVMFFIShapeCell* shape = shape_at(c, 0);
  if (shape == nullptr) {
    return fail("TypeError", "%s: expected a shape, found %s", where_of(c.args[2]).c_str(), describe(c.args[0]).c_str());
  }
  int64_t ndim;
  if (!int_at(c, 1, &ndim)) return c.wrong(1, "the number of dimensions");
  if (ndim < 0 || static_cast<int64_t>(shape->size) == ndim) return 0;
  return fail("ValueError", "%s: expected a shape of %lld dimensions, found %s", where_of(c.args[2]).c_str(),
              static_cast<long long>(ndim), describe(c.args[0]).c_str());
}

// Whether an integer type has a number; of those of 64 bits each number is one.
static bool can_hold(DLDataType type, int64_t number) {
  if ((type.code != kDLInt && type.code != kDLUInt) || type.bits >= 64) return true;
  return number >> (type.bits - (type.code == kDLInt)) == (type.code == kDLInt ? number >> 63 : 0);
}

static int check_prim_value_info(const Call& c) {
  if (c.n != 3) return c.wrong_count(3);
  if (c.args[1].type_index != kTVMFFIDataType) return c.wrong(1, "a dtype");
  DLDataType want = c.args[1].v_dtype;
  int32_t t = c.args[0].type_index;
  bool ok = t == kTVMFFIInt || t == kTVMFFIBool;
  if (want.code == kDLFloat || want.code == kDLBfloat) ok = ok || t == kTVMFFIFloat;
  if (want.code == kDLOpaqueHandle) ok = t == kTVMFFIOpaquePtr || t == kTVMFFINone;
  if (ok && can_hold(want, c.args[0].v_int64)) return 0;
  return fail(ok ? "ValueError" : "TypeError", "%s: expected a %s, found %s", where_of(c.args[2]).c_str(), dtype_name(want).c_str(),
              describe(c.args[0]).c_str());
}

static int check_tuple_info(const Call& c) {
  if (c.n != 3) return c.wrong_count(3);
  const TVMFFISeqCell* tuple = tuple_at(c, 0);
  int64_t size;
  if (!int_at(c, 1, &size)) return c.wrong(1, "a size");
  if (tuple != nullptr && tuple->size == size) return 0;
  return fail(tuple == nullptr ? "TypeError" : "ValueError", "%s: expected a tuple of %lld elements, found %s",
              where_of(c.args[2]).c_str(), static_cast<long long>(size), describe(c.args[0]).c_str());
}

static int check_func_info(const Call& c) {
  if (c.n != 2) return c.wrong_count(2);
  if (c.args[0].type_index == kTVMFFIFunction || c.args[0].type_index == ClosureObj::RuntimeTypeIndex()) return 0;
  return fail("TypeError", "%s: expected a function, found %s", where_of(c.args[1]).c_str(), describe(c.args[0]).c_str());
}

WEFT_CHECKS(WEFT_WRAP)

}  // namespace weft
