// Each row of a tensor once: rows are sorted by keys, integers in the order of the elements that they stand for.
#include <algorithm>
#include <cstring>
#include <vector>

#include "builtin.h"

namespace weft {

using tvm::ffi::Any;
using Numbers = std::vector<int64_t>;

namespace {

// The greatest magnitude that is a number; 0 for types that are no floats of this kind.
uint64_t infinity_of(DLDataType t) {
  if (t.code == kDLBfloat) return 0x7F80;
  if (t.code != kDLFloat) return 0;
  return t.bits == 16 ? 0x7C00 : t.bits == 32 ? 0x7F800000 : 0x7FF0000000000000;
}

bool has_order(DLDataType t) {
  const bool whole = t.code == kDLInt || t.code == kDLUInt || t.code == kDLBool;
  return t.lanes == 1 && (whole ? t.bits % 8 == 0 : t.code == kDLBfloat || (t.code == kDLFloat && t.bits >= 16));
}

// NaN stands behind everything, and the two zeros are one.
constexpr int64_t kNaN = INT64_MAX;

int64_t key_of(const char* at, DLDataType t, uint64_t infinity) {
  uint64_t bits = 0;
  std::memcpy(&bits, at, t.bits / 8);
  const uint64_t sign = uint64_t{1} << (t.bits - 1), magnitude = bits & (sign - 1);
  if (t.code == kDLUInt || t.code == kDLBool) return static_cast<int64_t>(bits ^ (uint64_t{1} << 63));
  if (infinity == 0) return static_cast<int64_t>((bits ^ sign) - sign);
  if (magnitude > infinity) return kNaN;
  return (bits & sign) != 0 ? -static_cast<int64_t>(magnitude) : static_cast<int64_t>(magnitude);
}

// Rows of keys, and their order.
struct Rows {
  Numbers keys, order;
  int64_t width;

  bool less(int64_t a, int64_t b) const {
    const int64_t *x = keys.data() + a * width, *y = keys.data() + b * width, *end = x + width;
    while (x != end && *x == *y) ++x, ++y;
    return x != end && *x < *y;
  }
  // By the bytes in which keys differ, the last first; each pass leaves those with equal bytes in their order.
  void sort_by_bytes() {
    Numbers moved(order.size());
    int64_t varying = 0;
    for (int64_t key : keys) varying |= key ^ keys[0];
    for (int shift = 0; shift < 64; shift += 8) {
      if ((varying >> shift & 255) == 0) continue;
      auto byte = [&](int64_t row) { return (keys[static_cast<size_t>(row)] >> shift & 255) ^ (shift == 56 ? 128 : 0); };
      size_t at[257] = {};
      for (int64_t row : order) ++at[byte(row) + 1];
      for (int i = 0; i < 256; ++i) at[i + 1] += at[i];
      for (int64_t row : order) moved[at[byte(row)]++] = row;
      std::swap(order, moved);
    }
  }
  // Merges runs, so that equal rows stay in their order. Which side gives the next one no processor can foresee, so it
  // is no branch.
  void sort() {
    if (width == 1) return sort_by_bytes();
    Numbers merged(order.size());
    for (size_t run = 1; run < order.size(); run *= 2) {
      for (size_t i = 0; i < order.size(); i += 2 * run) {
        int64_t *left = &order[i], *middle = left + std::min(run, order.size() - i);
        int64_t *right = middle, *end = left + std::min(2 * run, order.size() - i), *to = &merged[i];
        while (left != middle && right != end) {
          const int64_t second = less(*right, *left);
          *to++ = *left ^ ((*left ^ *right) & -second);
          right += second;
          left += 1 - second;
        }
        std::copy(right, end, std::copy(left, middle, to));
      }
      std::swap(order, merged);
    }
  }
};

// The data of a new tensor, or null.
char* fresh(const int64_t* shape, size_t ndim, DLDataType dtype, TVMFFIAny* out) {
  TVMFFIObject* made = tensor_empty(shape, static_cast<int32_t>(ndim), dtype, DLDevice{kDLCPU, 0}, Allocator::kPooled);
  if (made == nullptr) return nullptr;
  *out = object_any(made);
  return static_cast<char*>(TVMFFITensorGetDLTensorPtr(made)->data);
}

}  // namespace

// unique(tensor, in_order, index, inverse, counts, axis?): the rows along an axis, or all elements, once each; then, as
// the flags ask, where each stands first, which one stands at each place, how often it stands there. NaN is one
// element; a row that has one equals no other.
int unique(const Call& c) {
  if (c.n < 5 || c.n > 6) return c.wrong_count(6);
  Any copied;
  const DLTensor* t = host_tensor(c, 0, &copied);
  if (t == nullptr || !has_order(t->dtype)) return c.wrong(0, "a tensor of integers, booleans or floats");
  int64_t flags[4], axis = -1;
  for (int32_t i = 0; i < 4; ++i) {
    if (!int_at(c, i + 1, &flags[i])) return c.wrong(i + 1, "a flag");
  }
  const bool flat = c.n == 5 || t->ndim == 0;
  if (!flat && (!int_at(c, 5, &axis) || axis < -t->ndim || axis >= t->ndim)) return c.wrong(5, "an axis");
  if (axis < 0) axis += t->ndim;
  int64_t outer = 1, n = 1, inner = 1;
  for (int32_t d = 0; d < t->ndim; ++d) (flat || d == axis ? n : d < axis ? outer : inner) *= t->shape[d];
  const int64_t width = outer * inner, size = t->dtype.bits / 8;
  const char* data = static_cast<const char*>(t->data) + t->byte_offset;
  const uint64_t infinity = infinity_of(t->dtype);

  const auto count_of_rows = static_cast<size_t>(n);
  Rows rows{Numbers(static_cast<size_t>(n * width)), Numbers(count_of_rows), width};
  int64_t* key = rows.keys.data();
  for (int64_t i = 0; i < n; ++i) {
    rows.order[static_cast<size_t>(i)] = i;
    for (int64_t j = 0; j < width; ++j) {
      *key++ = key_of(data + ((j / inner * n + i) * inner + j % inner) * size, t->dtype, infinity);
    }
  }
  rows.sort();

  // Rows of a group stand one behind the other, the first of the tensor in front.
  Numbers first(count_of_rows), often(count_of_rows), group_of(count_of_rows);
  int64_t found = 0, before = -1;
  for (int64_t row : rows.order) {
    const int64_t* keys = rows.keys.data() + row * width;
    const bool alone = !flat && infinity != 0 && std::count(keys, keys + width, kNaN) != 0;
    if (before < 0 || alone || rows.less(before, row)) first[static_cast<size_t>(found++)] = row;
    ++often[static_cast<size_t>(found - 1)];
    group_of[static_cast<size_t>(row)] = found - 1;
    before = row;
  }
  // Groups in the order of their keys, or of their first rows; and where each of them is then.
  Numbers listed(count_of_rows), place(count_of_rows);
  int64_t next = 0;
  for (int64_t i = 0; i < (flags[0] != 0 ? found : n); ++i) {
    const int64_t group = flags[0] != 0 ? i : group_of[static_cast<size_t>(i)];
    if (flags[0] == 0 && first[static_cast<size_t>(group)] != i) continue;
    place[static_cast<size_t>(group)] = next;
    listed[static_cast<size_t>(next++)] = group;
  }

  Numbers shape(t->shape, t->shape + t->ndim);
  if (flat) shape.assign(1, found);
  else shape[static_cast<size_t>(axis)] = found;
  TVMFFIAny results[4] = {};
  char* values = fresh(shape.data(), shape.size(), t->dtype, &results[0]);
  if (values == nullptr) return -1;
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t i = 0; i < found; ++i, values += inner * size) {
      const int64_t row = first[static_cast<size_t>(listed[static_cast<size_t>(i)])];
      std::memcpy(values, data + (o * n + row) * inner * size, static_cast<size_t>(inner * size));
    }
  }
  int32_t count = 1;
  for (int32_t flag = 1; flag < 4; ++flag) {
    if (flags[flag] == 0) continue;
    const int64_t length = flag == 2 ? n : found;
    auto* to = reinterpret_cast<int64_t*>(fresh(&length, 1, DLDataType{kDLInt, 64, 1}, &results[count++]));
    const Numbers &from = flag == 1 ? first : flag == 2 ? place : often, &at = flag == 2 ? group_of : listed;
    for (int64_t i = 0; to != nullptr && i < length; ++i) {
      to[i] = from[static_cast<size_t>(at[static_cast<size_t>(i)])];
    }
  }
  bool whole = true;
  for (int32_t i = 0; i < count; ++i) whole = whole && results[i].v_obj != nullptr;
  const char* kind = count > 1 ? "vm.builtin.make_tuple" : "vm.builtin.copy";
  const int code = whole ? find_builtin(kind)(nullptr, results, count, c.ret) : -1;
  for (TVMFFIAny& result : results) release(result);
  return code;
}

}  // namespace weft
