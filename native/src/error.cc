// Error text of the runtime: what was expected and what was found. Everything here is cold.
#include "error.h"

#include <tvm/ffi/error.h>

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "weft/runtime.h"

namespace weft {

static std::string format_text(const char* format, va_list args) {
  va_list again;
  va_copy(again, args);
  int size = std::vsnprintf(nullptr, 0, format, args);
  std::string text(size > 0 ? static_cast<size_t>(size) : 0, '\0');
  if (size > 0) std::vsnprintf(&text[0], text.size() + 1, format, again);
  va_end(again);
  return text;
}

// The class in weft/error.py that is Weft's own and of Python's kind, too.
static const char* own_kind(const char* kind) {
  static constexpr const char* kOwn[][2] = {
      {"IndexError", "IndexOutOfRange"}, {"MemoryError", "OutOfMemory"},  {"RecursionError", "NestedTooDeep"},
      {"RuntimeError", "EvaluationError"}, {"TypeError", "InvalidArgument"}, {"ValueError", "InvalidArgument"},
  };
  for (const auto& row : kOwn) {
    if (std::strcmp(kind, row[0]) == 0) return row[1];
  }
  return kind;
}

int fail(const char* kind, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = format_text(format, args);
  va_end(args);
  TVMFFIErrorSetRaisedFromCStr(own_kind(kind), text.c_str());
  return -1;
}

void raise_error(const char* kind, const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = format_text(format, args);
  va_end(args);
  throw tvm::ffi::Error(own_kind(kind), text, "");
}

std::string message(const char* format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = format_text(format, args);
  va_end(args);
  return text;
}

std::string dtype_name(DLDataType dtype) {
  const char* base = nullptr;
  bool bits = true;
  switch (dtype.code) {
    case kDLInt: base = "int"; break;
    case kDLUInt: base = "uint"; break;
    case kDLFloat: base = "float"; break;
    case kDLBfloat: base = "bfloat"; break;
    case kDLComplex: base = "complex"; break;
    case kDLBool: base = "bool"; bits = dtype.bits != 8; break;
    case kDLOpaqueHandle: base = "handle"; bits = false; break;
    default: base = nullptr;
  }
  if (dtype.bits == 0 && dtype.lanes == 0) return "void";
  std::string text = base != nullptr ? base : "dtype(" + std::to_string(dtype.code) + ")";
  if (bits) text += std::to_string(dtype.bits);
  if (dtype.lanes != 1) text += "x" + std::to_string(dtype.lanes);
  return text;
}

std::string shape_text(const int64_t* shape, int64_t ndim) {
  std::string text = "[";
  for (int64_t i = 0; i < ndim; ++i) text += (i != 0 ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

std::string describe(const TVMFFIAny& value) {
  if (const DLTensor* t = tensor_of(value)) {
    return "a tensor " + dtype_name(t->dtype) + shape_text(t->shape, t->ndim);
  }
  switch (value.type_index) {
    case kTVMFFINone: return "None";
    case kTVMFFIInt: return "the int " + std::to_string(value.v_int64);
    case kTVMFFIBool: return value.v_int64 != 0 ? "the bool True" : "the bool False";
    case kTVMFFIFloat: return "the float " + std::to_string(value.v_float64);
    case kTVMFFIOpaquePtr: return "a pointer";
    case kTVMFFIDataType: return "the dtype " + dtype_name(value.v_dtype);
    case kTVMFFIDevice: return "a device";
    case kTVMFFIRawStr:
    case kTVMFFISmallStr:
    case kTVMFFIStr: return "a str";
    case kTVMFFIFunction: return "a function";
    case kTVMFFIArray: return "a tuple of " + std::to_string(reinterpret_cast<TVMFFISeqCell*>(value.v_obj + 1)->size);
    case kTVMFFIShape: {
      TVMFFIShapeCell* cell = TVMFFIShapeGetCellPtr(value.v_obj);
      return "a shape " + shape_text(cell->data, static_cast<int64_t>(cell->size));
    }
    case kTVMFFIOpaquePyObject: return "a Python object";
    default: break;
  }
  const TVMFFITypeInfo* info = value.type_index >= kTVMFFIStaticObjectBegin ? TVMFFIGetTypeInfo(value.type_index) : nullptr;
  if (info == nullptr) return "a value of type " + std::to_string(value.type_index);
  return "an object " + std::string(info->type_key.data, info->type_key.size);
}

// The parameter's own text in "f(a: Tensor[[4], float32], n: int)", or "" when the signature has another form.
static std::string parameter_text(const char* signature, int32_t index) {
  const char* p = std::strchr(signature, '(');
  if (p == nullptr) return "";
  int depth = 0;
  int32_t at = 0;
  const char* begin = ++p;
  for (; *p != '\0'; ++p) {
    if (*p == '(' || *p == '[') ++depth;
    if ((*p == ',' && depth == 0) || (*p == ')' && depth == 0)) {
      if (at == index) {
        while (*begin == ' ') ++begin;
        return std::string(begin, p);
      }
      if (*p == ')') break;
      ++at;
      begin = p + 1;
    } else if (*p == ')' || *p == ']') {
      --depth;
    }
  }
  return "";
}

static std::string device_name(int32_t type) {
  switch (type) {
    case kDLCPU: return "cpu";
    case kDLCUDA: return "cuda";
    case kDLCUDAHost: return "cuda_host";
    case kDLOpenCL: return "opencl";
    case kDLVulkan: return "vulkan";
    default: return "device type " + std::to_string(type);
  }
}

}  // namespace weft

using weft::describe;

extern "C" int32_t weft_abi_version(void) { return WEFT_ABI_VERSION; }

extern "C" int32_t weft_set_error(const char* kind, const char* message) {
  TVMFFIErrorSetRaisedFromCStr(kind, message);
  return -1;
}

// What the lines behind a signature say of a field, "1.shape[0]=A.shape[0]": where its expected value comes from.
static std::string origin_text(const std::string& lines, const std::string& field) {
  size_t at = lines.find("\n" + field + "=");
  if (at == std::string::npos) return "";
  at += field.size() + 2;
  return lines.substr(at, lines.find('\n', at) - at);
}

extern "C" int32_t weft_arg_error(const char* signature, int32_t arg_index, int32_t code, int64_t dim, int64_t expected,
                                  const TVMFFIAny* args, int32_t num_args) {
  std::string lines = signature != nullptr ? signature : "a kernel", sig = lines.substr(0, lines.find('\n'));
  if (code == kWeftArgCount) {
    return weft::fail("TypeError", "Expected %lld arguments when calling:\n  `%s`,\n  found %d",
                      static_cast<long long>(expected), sig.c_str(), num_args);
  }
  const TVMFFIAny none{};
  const TVMFFIAny& value = args != nullptr && arg_index >= 0 && arg_index < num_args ? args[arg_index] : none;
  const DLTensor* tensor = weft::tensor_of(value);
  std::string name = weft::parameter_text(sig.c_str(), arg_index), what = "type";
  name = name.substr(0, name.find(':')) + ".";
  const char *kind = "ValueError", *how = "Mismatched ";
  std::string index = "[" + std::to_string(dim) + "]", want = std::to_string(expected), found = describe(value);
  auto field = [&](const std::string& of) {  // an extent or a stride
    std::string origin = origin_text(lines, std::to_string(arg_index) + "." + of);
    what = name + of;
    if (code != kWeftArgSymbol) how = "Invalid ";
    if (!origin.empty()) want = (code == kWeftArgSymbol ? "to match " : "") + origin + " == " + want;
  };
  switch (code) {
    case kWeftArgNotTensor: kind = "TypeError"; want = "Tensor"; break;
    case kWeftArgNotInt: kind = "TypeError"; want = expected != 0 ? "boolean" : "int"; break;
    case kWeftArgNotFloat: kind = "TypeError"; want = "float"; break;
    case kWeftArgRange:
    case kWeftArgDType: {
      DLDataType dtype{static_cast<uint8_t>(expected), static_cast<uint8_t>(expected >> 8),
                       static_cast<uint16_t>(expected >> 16)};
      if (code == kWeftArgRange) {
        dtype.lanes = 1;
        what = "value", want = "an int that " + weft::dtype_name(dtype) + " can hold";
        break;
      }
      kind = "TypeError", what = name + "dtype", want = weft::dtype_name(dtype);
      if (tensor != nullptr) found = weft::dtype_name(tensor->dtype);
      break;
    }
    case kWeftArgNdim:
      what = name + "ndim";
      if (tensor != nullptr) found = std::to_string(tensor->ndim) + ": " + found;
      break;
    case kWeftArgShape:
    case kWeftArgSymbol:
      field("shape" + index);
      if (tensor != nullptr && dim >= 0 && dim < tensor->ndim) found = std::to_string(tensor->shape[dim]) + ": " + found;
      break;
    case kWeftArgStrides:
      if (dim < 0) what = name + "strides", want = "to be compact array";
      else field("strides" + index);
      found = "strides " +
        (tensor != nullptr && tensor->strides != nullptr ? weft::shape_text(tensor->strides, tensor->ndim) : "") +
        " of " + found;
      break;
    case kWeftArgDevice:
      what = name + "device_type", want = weft::device_name(static_cast<int32_t>(expected));
      if (tensor != nullptr) found = weft::device_name(tensor->device.device_type);
      break;
    case kWeftArgDeviceId:
      what = name + "device_id", want += " (the device of an earlier argument)";
      if (tensor != nullptr) found = std::to_string(tensor->device.device_id);
      break;
    case kWeftArgAlignment: {
      if (tensor != nullptr && tensor->data == nullptr) {
        how = "Missing ", what = "Tensor data", want = "memory", found = "a null pointer";
        break;
      }
      how = "Misaligned ", what = "Tensor data", want = "data alignment=" + want + " bytes";
      char address[32];
      std::snprintf(address, sizeof(address), "address %p", tensor != nullptr
          ? static_cast<void*>(static_cast<char*>(tensor->data) + tensor->byte_offset) : nullptr);
      found = address;
      break;
    }
    default: want = "another value (code " + std::to_string(code) + ")";
  }
  return weft::fail(kind, "%s%s on argument #%d when calling:\n  `%s`,\n  expected %s, found %s", how, what.c_str(),
                    arg_index, sig.c_str(), want.c_str(), found.c_str());
}
