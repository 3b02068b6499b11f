// Keys and values of attention layers in pages, under the names and with the calling conventions of Apache TVM.
//
// Every sequence has one list of pages, forks share them, and a step's new tokens are written before attention reads
// them: so that one kernel sees all that a token may see, whatever was forked from what. The kernels come from the
// program (weft/frontend/nn/llm); this file says where tokens lie, and calls them.
#include <tvm/ffi/container/shape.h>
#include <tvm/ffi/container/tensor.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <set>
#include <utility>

#include "error.h"
#include "kv_state.h"
#include "memory.h"
#include "module.h"
#include "page_table.h"
#include "register.h"
#include "vm.h"

namespace weft {
namespace {

using tvm::ffi::Shape;
using tvm::ffi::Tensor;
using Long = long long;
using Dims = std::vector<int64_t>;
using Ints = std::vector<int32_t>;

constexpr DLDataType kInt32{kDLInt, 32, 1}, kFloat32{kDLFloat, 32, 1};

enum class Rope : int64_t { kNone = 0, kNormal = 1, kInline = 2 };
enum class Kind : int64_t { kHeads = 0, kLatent = 1 };

Tensor own(TVMFFIObject* tensor) {
  if (tensor == nullptr) TVM_FFI_CHECK_SAFE_CALL(-1);
  Any any;
  *raw(&any) = object_any(tensor);
  return any.cast<Tensor>();
}

Tensor make(const Dims& shape, DLDataType dtype) {
  return own(tensor_empty(shape.data(), static_cast<int32_t>(shape.size()), dtype, DLDevice{kDLCPU, 0}, Allocator::kPooled));
}

Tensor ints(const Ints& values, Dims shape = {}) {
  if (shape.empty()) shape = {static_cast<int64_t>(values.size())};
  Tensor out = make(shape, kInt32);
  if (!values.empty()) std::memcpy(out.data_ptr(), values.data(), values.size() * sizeof(int32_t));
  return out;
}

// The first rows of a contiguous tensor.
Tensor rows(const Tensor& tensor, int64_t n) {
  if (tensor.size(0) == n) return tensor;
  Any keep = tensor;
  Dims shape(tensor.shape().begin(), tensor.shape().end());
  shape[0] = n;
  return own(tensor_new(raw(&keep)->v_obj, static_cast<char*>(tensor.data_ptr()) + tensor.byte_offset(), tensor.device(),
                        tensor.dtype(), shape.data(), static_cast<int32_t>(shape.size())));
}

void call(const Function& f, std::initializer_list<AnyView> args, const char* name) {
  if (f == nullptr) raise_error("ValueError", "the cache was created without the function '%s', which this needs", name);
  Any result;
  f.CallPacked(args.begin(), static_cast<int32_t>(args.size()), &result);
}

// A tensor of the cache's data type; -1 fits any size.
void check(const char* name, const Tensor& t, const Dims& shape, DLDataType dtype) {
  bool fits = t.ndim() == static_cast<int32_t>(shape.size()) && t.dtype() == dtype && t.IsContiguous() &&
              t.device().device_type == kDLCPU;
  for (int32_t i = 0; fits && i < t.ndim(); ++i) fits = shape[i] == -1 || shape[i] == t.size(i);
  if (fits) return;
  Any any = t;
  raise_error("ValueError", "%s: expected a contiguous %s of shape %s on the CPU (-1: any size), found %s", name,
              dtype_name(dtype).c_str(), shape_text(shape.data(), static_cast<int64_t>(shape.size())).c_str(),
              describe(*raw(&any)).c_str());
}

// What attention of one step needs to know of the pages.
struct Tables {
  Tensor page_starts, pages, lengths, key_positions;
};

// The sequences of a step, between begin_forward and the next one.
struct Step {
  std::vector<Sequence*> sequences;
  Dims ids, tokens;  // appended to each
  int64_t total = 0;
  bool one_each = true;
  bool tree = false;       // some sequence's new tokens are no chain
  Tensor starts;           // of each sequence's new tokens, and their end
  Tensor positions, places;
  Tensor ragged_positions;  // of the first new token of each sequence
  Tensor tree_starts, tree_orders;
  Tables now, before;      // with the new tokens, and without
};

struct Kernels {
  Function append, append_latent, ragged, prefill, decode, prefill_window, decode_window, tree_paged, tree_ragged, latent;
  std::vector<Function> merge;
  Function rotary, copy_page, debug_get, compact;
};

class PagedCacheObj final : public KVStateObj {
 public:
  explicit PagedCacheObj(PackedArgs args);

  void clear() final {
    step_ = Step();
    table_.clear();
  }
  void add_sequence(int64_t id) final { table_.add(id); }
  void remove_sequence(int64_t id) final {
    finish(id);
    table_.remove(id);
  }
  void fork_sequence(int64_t parent, int64_t child, int64_t tokens) final { table_.fork(parent, child, tokens); }
  void pop(int64_t id, int64_t tokens) final {
    finish(id);
    table_.pop(id, tokens);
  }
  void begin_forward(const Shape& ids, const Shape& tokens, const tvm::ffi::Optional<Shape>& parents) final;
  void end_forward() final {
    for (Sequence* s : step_.sequences) table_.slide(s);
    step_.sequences.clear();
  }

  void enable_window(int64_t id, int64_t window, int64_t sink) {
    if (!windows_) raise_error("ValueError", "the cache was created without support of sliding windows");
    table_.enable_window(id, window, sink);
  }
  void commit(const Shape& ids, const Shape& leaves);
  void attention(int64_t layer, double scale, const Tensor& qkv, const Tensor& out);
  void self_attention(int64_t layer, double scale, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& out,
                      const Tensor& lse);
  void cross_attention(int64_t layer, double scale, const Tensor& q, const Tensor& out, const Tensor& lse);
  void append_latent(int64_t layer, const Tensor& kv);
  void merge(const Tensor& out, const Tensor& lse, const Tensor& other, const Tensor& other_lse) {
    call(kernels_.merge.size() > 1 ? kernels_.merge[1] : kernels_.merge[0], {out, lse, other, other_lse}, "f_merge_inplace");
  }
  void get(int64_t id, int64_t begin, int64_t end, const std::vector<Tensor>& out);
  Tensor positions() const { return step_.positions; }
  const PageTable& table() const { return table_; }

  static constexpr bool _type_mutable = true;
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("relax.vm.PagedAttentionKVCache", PagedCacheObj, KVStateObj);

 private:
  const Tensor& pages_of(int64_t layer, Kind kind) const;
  // A step's tables hold until its sequences change.
  void finish(int64_t id) {
    Sequence* s = &table_.at(id);
    auto& open = step_.sequences;
    if (std::find(open.begin(), open.end(), s) != open.end()) end_forward();
  }
  void grow_trees(const Shape& parents);
  Tables tables(bool before) const;
  void attend(const Tensor& pages, double scale, const Tensor& q, const Tensor& out, const Tensor& lse, bool before);

  Dims partition_;
  int64_t heads_, kv_heads_, head_dim_, value_dim_;
  std::vector<Kind> kinds_;
  Rope rope_;
  double rope_scale_, rope_theta_;
  Any rope_factors_;  // of longrope: a tensor
  DLDataType dtype_;
  Kernels kernels_;
  bool windows_;
  PageTable table_{1, 0};
  std::vector<Tensor> pages_;  // of each layer
  Step step_;
};

Function function_of(const Any& value) { return value.as<Function>().value_or(Function(nullptr)); }

// ["tirx", kernel], or nothing.
Function kernel_of(PackedArgs args, int32_t i) {
  auto parts = argument<Array<Any>>(args, i);
  if (parts.empty()) return Function(nullptr);
  auto backend = parts[0].as<tvm::ffi::String>();
  if (!backend || (*backend != "tirx" && *backend != "tir") || parts.size() < 2) {
    raise_error("ValueError", "argument %d: expected ['tirx', kernel] or [], found kernels of '%s'", i,
                backend ? backend->c_str() : "?");
  }
  return function_of(parts[1]);
}

PagedCacheObj::PagedCacheObj(PackedArgs args) {
  if (args.size() < 28) raise_error("TypeError", "expected 28 arguments, or 29 with a tensor like the pages, found %d", args.size());
  auto sizes = argument<Shape>(args, 0), partition = argument<Shape>(args, 1), kinds = argument<Shape>(args, 6);
  auto large = [](int64_t n) { return n > INT32_MAX; };  // places of tokens are int32
  if (sizes.size() != 5 || std::any_of(sizes.begin(), sizes.end(), large) || partition.size() != 2 || *std::min_element(sizes.begin(), sizes.end()) < 0 || sizes[3] < 1 ||
      partition[0] < 0 || partition[0] > partition[1] || large(partition[1])) {
    raise_error("ValueError", "expected sizes (sequences, tokens, tokens of a step, tokens of a page, windows) and "
                "(first layer, end)");
  }
  partition_ = {partition[0], partition[1]};
  heads_ = argument<int64_t>(args, 2);
  kv_heads_ = argument<int64_t>(args, 3);
  head_dim_ = argument<int64_t>(args, 4);
  value_dim_ = argument<int64_t>(args, 5);
  for (int64_t n : {heads_, kv_heads_, head_dim_, value_dim_}) {
    if (n < 1 || large(n)) raise_error("ValueError", "expected heads and their sizes of 1 or more, found %lld", Long(n));
  }
  for (int64_t kind : kinds) {
    if (kind != 0 && kind != 1) {
      raise_error("ValueError", "a layer of attention of kind %lld: expected 0 (heads) or 1 (latent); windows are for "
                  "sequences here, see attention_kv_cache_enable_sliding_window_for_seq", Long(kind));
    }
    kinds_.push_back(static_cast<Kind>(kind));
  }
  if (argument<int64_t>(args, 7) != 0) raise_error("ValueError", "pages stay on one machine: expected enable_kv_transfer=False");
  rope_ = static_cast<Rope>(argument<int64_t>(args, 8));
  rope_scale_ = argument<double>(args, 9);
  rope_theta_ = argument<double>(args, 10);
  if (AnyView(args[11]).as<Tensor>()) rope_factors_ = args[11];
  auto like = argument<Tensor>(args, 12);
  if (like.device().device_type != kDLCPU) raise_error("ValueError", "pages lie on the CPU: expected a tensor there as argument 12");
  dtype_ = like.dtype();
  kernels_.append = function_of(args[13]);
  kernels_.append_latent = function_of(args[14]);
  Function* in_order[] = {&kernels_.ragged, &kernels_.prefill, &kernels_.decode, &kernels_.prefill_window,
                          &kernels_.decode_window, &kernels_.tree_paged, &kernels_.tree_ragged, &kernels_.latent};
  for (int32_t i = 0; i < 8; ++i) *in_order[i] = kernel_of(args, 15 + i);
  for (const Any& f : argument<Array<Any>>(args, 23)) kernels_.merge.push_back(function_of(f));
  Function* last[] = {&kernels_.rotary, &kernels_.copy_page, &kernels_.debug_get, &kernels_.compact};
  for (int32_t i = 0; i < 4; ++i) *last[i] = function_of(args[24 + i]);
  if (kernels_.merge.empty()) kernels_.merge.emplace_back(nullptr);

  windows_ = sizes[4] != 0;
  if (windows_ && rope_ == Rope::kNormal) rope_ = Rope::kInline;  // positions change when a window slides
  int64_t page = sizes[3], n_pages = (sizes[1] + page - 1) / page + 1;
  // A window slides after the step that fills it, and then ends inside of a page, as its sinks may.
  if (windows_) n_pages += 2 * sizes[0] + (sizes[2] + page - 1) / page;
  if (large(n_pages * page)) raise_error("ValueError", "%lld pages of %lld tokens: expected less than 2^31 tokens", Long(n_pages), Long(page));
  table_ = PageTable(page, n_pages);
  DLDataType stored = args.size() > 28 ? argument<Tensor>(args, 28).dtype() : dtype_;
  int64_t row = head_dim_ + (stored.code == kDLInt ? 4 : 0);  // bytes have their scale behind them
  for (int64_t layer = partition_[0]; layer < partition_[1]; ++layer) {
    bool latent = static_cast<size_t>(layer) < kinds_.size() && kinds_[static_cast<size_t>(layer)] == Kind::kLatent;
    pages_.push_back(latent ? make({n_pages, page, head_dim_}, dtype_) : make({n_pages, 2, kv_heads_, page, row}, stored));
  }
}

const Tensor& PagedCacheObj::pages_of(int64_t layer, Kind kind) const {
  if (layer < partition_[0] || layer >= partition_[1]) {
    raise_error("IndexError", "layer %lld: expected %lld to %lld", Long(layer), Long(partition_[0]), Long(partition_[1] - 1));
  }
  auto i = static_cast<size_t>(layer);
  Kind found = i < kinds_.size() ? kinds_[i] : Kind::kHeads;
  if (found != kind) raise_error("ValueError", "layer %lld is of the other kind of attention", Long(layer));
  return pages_[static_cast<size_t>(layer - partition_[0])];
}

void PagedCacheObj::begin_forward(const Shape& ids, const Shape& tokens, const tvm::ffi::Optional<Shape>& parents) {
  end_forward();
  if (ids.size() != tokens.size()) {
    raise_error("ValueError", "%zu sequences and %zu numbers of new tokens", ids.size(), tokens.size());
  }
  Step step;
  std::set<int64_t> seen;
  Ints starts{0}, positions, places, first;
  for (size_t i = 0; i < ids.size(); ++i) {
    Sequence& s = table_.at(ids[i]);
    if (tokens[i] < 1 || tokens[i] > table_.capacity() || !seen.insert(ids[i]).second) {
      raise_error("ValueError", "sequence %lld: expected one entry of 1 to %lld new tokens, found %lld", Long(ids[i]),
                  Long(table_.capacity()), Long(tokens[i]));
    }
    if (!parents && !s.parents.empty()) {
      raise_error("ValueError", "sequence %lld has a token tree; commit its accepted nodes first", Long(ids[i]));
    }
    step.sequences.push_back(&s);
    step.ids.push_back(ids[i]);
    step.tokens.push_back(tokens[i]);
    step.total += tokens[i];
    step.one_each &= tokens[i] == 1;
    starts.push_back(static_cast<int32_t>(step.total));
    first.push_back(static_cast<int32_t>(s.length - static_cast<int64_t>(s.parents.size())));
  }
  if (parents && (windows_ || rope_ == Rope::kInline)) {
    raise_error("ValueError", "token trees need a cache without sliding windows and inline rotary embeddings");
  }
  step_ = std::move(step);
  auto copy = [this](int32_t from, int32_t to, int64_t n) {
    for (const Tensor& pages : pages_) call(kernels_.copy_page, {pages, int64_t{from}, int64_t{to}, n}, "f_copy_single_page");
  };
  std::vector<size_t> nodes;
  for (const Sequence* s : step_.sequences) nodes.push_back(s->parents.size());
  try {
    if (parents) grow_trees(*parents);
    table_.append(step_.sequences, step_.tokens, copy);
  } catch (...) {
    for (size_t i = 0; i < nodes.size(); ++i) {
      step_.sequences[i]->parents.resize(nodes[i]);
      step_.sequences[i]->depths.resize(nodes[i]);
    }
    step_ = Step();
    throw;
  }
  for (size_t i = 0; i < step_.sequences.size(); ++i) {
    const Sequence& s = *step_.sequences[i];
    int64_t old_nodes = static_cast<int64_t>(s.parents.size()) - step_.tokens[i];
    for (int64_t k = 0; k < step_.tokens[i]; ++k) {
      positions.push_back(static_cast<int32_t>(first[i] + (s.depths.empty() ? k : s.depths[static_cast<size_t>(old_nodes + k)])));
      places.push_back(table_.place(s, s.length - step_.tokens[i] + k));
    }
  }
  step_.starts = ints(starts);
  step_.positions = ints(positions);
  step_.places = ints(places);
  step_.ragged_positions = ints(first);
  step_.now = tables(false);
}

// Adds the new nodes to the sequences' trees. Nodes are numbered so that a node's descendants follow it: (its number, the
// number behind its last descendant) says which nodes see which.
void PagedCacheObj::grow_trees(const Shape& parents) {
  if (static_cast<int64_t>(parents.size()) != step_.total) {
    raise_error("ValueError", "expected the parent of each of %lld new tokens, found %zu", Long(step_.total), parents.size());
  }
  std::vector<std::pair<Ints, Ints>> grown;
  size_t next = 0;
  for (size_t i = 0; i < step_.sequences.size(); ++i) {
    Ints tree = step_.sequences[i]->parents, depths = step_.sequences[i]->depths;
    for (int64_t k = 0; k < step_.tokens[i]; ++k, ++next) {
      auto n = static_cast<int64_t>(tree.size());
      if (parents[next] < -1 || parents[next] >= n) {
        raise_error("ValueError", "node %lld of a token tree has the parent %lld: expected -1 or an earlier node", Long(n), Long(parents[next]));
      }
      tree.push_back(static_cast<int32_t>(parents[next]));
      depths.push_back(parents[next] == -1 ? 0 : depths[static_cast<size_t>(parents[next])] + 1);
      step_.tree |= parents[next] != n - 1;
    }
    grown.emplace_back(std::move(tree), std::move(depths));
  }
  Ints starts{0}, orders;
  for (auto& [tree, depths] : grown) {
    size_t n = tree.size();
    Ints size(n, 1), number(n, 0), used(n, 0);  // nodes of each subtree; how many are numbered below each
    int32_t roots = 0;
    for (size_t k = n; k-- > 0;) {
      if (tree[k] >= 0) size[static_cast<size_t>(tree[k])] += size[k];
      step_.tree |= tree[k] != static_cast<int32_t>(k) - 1;
    }
    for (size_t k = 0; k < n; ++k) {
      auto parent = static_cast<size_t>(tree[k]);
      number[k] = tree[k] < 0 ? roots : number[parent] + 1 + used[parent];
      (tree[k] < 0 ? roots : used[parent]) += size[k];
      orders.push_back(number[k]);
      orders.push_back(number[k] + size[k]);
    }
    starts.push_back(starts.back() + static_cast<int32_t>(n));
  }
  for (size_t i = 0; i < grown.size(); ++i) {
    step_.sequences[i]->parents = std::move(grown[i].first);
    step_.sequences[i]->depths = std::move(grown[i].second);
  }
  step_.tree_starts = ints(starts);
  step_.tree_orders = ints(orders, {starts.back(), 2});
}

Tables PagedCacheObj::tables(bool before) const {
  size_t n = step_.sequences.size();
  Ints starts{0}, pages, lengths(windows_ ? 3 * n : n, 0);
  for (size_t i = 0; i < n; ++i) {
    Sequence s;  // without the pages, as it was
    const Sequence& now = *step_.sequences[i];
    s.length = now.length - (before ? step_.tokens[i] : 0);
    s.sink = now.sink, s.offset = now.offset;
    int64_t page = table_.page_size(), slots = s.slots(), count = (slots + page - 1) / page;
    pages.insert(pages.end(), now.pages.begin(), now.pages.begin() + count);
    starts.push_back(static_cast<int32_t>(pages.size()));
    lengths[i] = static_cast<int32_t>(slots - std::max<int64_t>(count - 1, 0) * page);
    if (windows_) {
      lengths[n + i] = static_cast<int32_t>(s.offset);
      lengths[2 * n + i] = static_cast<int32_t>(s.sink);
    }
  }
  auto batch = static_cast<int64_t>(n);
  return Tables{ints(starts), ints(pages), ints(lengths, windows_ ? Dims{3, batch} : Dims{batch}), ints(Ints(n, 0))};
}

// Attention of all new tokens over the pages; `before`: over what was there before them.
void PagedCacheObj::attend(const Tensor& pages, double scale, const Tensor& q, const Tensor& out, const Tensor& lse,
                           bool before) {
  if (before && !step_.before.pages.defined()) step_.before = tables(true);
  const Tables& t = before ? step_.before : step_.now;
  int64_t mode = rope_ == Rope::kInline;
  if (!before && step_.tree) {
    call(kernels_.tree_paged, {q, step_.starts, pages, t.page_starts, t.pages, t.lengths, t.key_positions, step_.positions,
                               out, lse, mode, rope_scale_, rope_theta_, scale, step_.tree_starts, step_.tree_orders},
         "f_attention_prefill_with_tree_mask_paged_kv_cache");
  } else if (step_.one_each) {
    call(windows_ ? kernels_.decode_window : kernels_.decode,
         {q, pages, t.page_starts, t.pages, t.lengths, t.key_positions, step_.positions, out, lse, mode, rope_scale_,
          rope_theta_, scale}, "f_attention_decode");
  } else {
    call(windows_ ? kernels_.prefill_window : kernels_.prefill,
         {q, step_.starts, pages, t.page_starts, t.pages, t.lengths, t.key_positions, step_.positions, out, lse,
          int64_t{!before}, mode, rope_scale_, rope_theta_, scale}, "f_attention_prefill");
  }
}

void PagedCacheObj::attention(int64_t layer, double scale, const Tensor& qkv, const Tensor& out) {
  const Tensor& pages = pages_of(layer, Kind::kHeads);
  if (step_.sequences.empty()) raise_error("ValueError", "no step is open; call kv_state_begin_forward first");
  check("qkv", qkv, {-1, heads_ + 2 * kv_heads_, head_dim_}, dtype_);
  check("the output", out, {qkv.size(0), heads_, head_dim_}, dtype_);
  if (qkv.size(0) < step_.total) {
    raise_error("ValueError", "qkv has %lld tokens, and the step %lld", Long(qkv.size(0)), Long(step_.total));
  }
  Tensor given = rows(qkv, step_.total), result = rows(out, step_.total);
  Tensor q = make({step_.total, heads_, head_dim_}, dtype_), k = make({step_.total, kv_heads_, head_dim_}, dtype_);
  Tensor v = make({step_.total, kv_heads_, head_dim_}, dtype_), lse = make({step_.total, heads_}, kFloat32);
  AnyView how = int64_t{rope_ == Rope::kNormal};
  if (rope_factors_ != nullptr) how = rope_factors_;
  call(kernels_.rotary, {given, step_.positions, q, k, v, how}, "f_split_rotary");
  call(kernels_.append, {pages, k, v, step_.places}, "f_transpose_append_mha");
  attend(pages, scale, q, result, lse, false);
}

void PagedCacheObj::self_attention(int64_t layer, double scale, const Tensor& q, const Tensor& k, const Tensor& v,
                                   const Tensor& out, const Tensor& lse) {
  (void)layer;
  if (step_.sequences.empty()) raise_error("ValueError", "no step is open; call kv_state_begin_forward first");
  for (const Tensor& t : {q, k, v, out}) check("self attention", t, {step_.total, -1, -1}, dtype_);
  check("lse", lse, {step_.total, q.size(1)}, kFloat32);
  int64_t mode = rope_ == Rope::kInline;
  if (step_.tree) {
    call(kernels_.tree_ragged, {q, step_.starts, k, v, step_.starts, step_.positions, step_.tree_starts, step_.tree_orders,
                                out, lse, mode, rope_scale_, rope_theta_, scale}, "f_attention_prefill_with_tree_mask");
  } else {
    call(kernels_.ragged, {q, step_.starts, k, v, step_.starts, step_.positions, step_.ragged_positions, out, lse,
                           int64_t{1}, mode, rope_scale_, rope_theta_, scale}, "f_attention_prefill_ragged");
  }
}

void PagedCacheObj::cross_attention(int64_t layer, double scale, const Tensor& q, const Tensor& out, const Tensor& lse) {
  Kind kind = static_cast<size_t>(layer) < kinds_.size() ? kinds_[static_cast<size_t>(layer)] : Kind::kHeads;
  const Tensor& pages = pages_of(layer, kind);
  if (step_.sequences.empty()) raise_error("ValueError", "no step is open; call kv_state_begin_forward first");
  check("q", q, {step_.total, heads_, head_dim_}, dtype_);
  check("the output", out, {step_.total, heads_, value_dim_}, dtype_);
  check("lse", lse, {step_.total, heads_}, kFloat32);
  bool before = !step_.one_each;  // a step of one token each has appended it, and has no self attention
  if (kind == Kind::kHeads) return attend(pages, scale, q, out, lse, before);
  if (before && !step_.before.pages.defined()) step_.before = tables(true);
  const Tables& t = before ? step_.before : step_.now;
  call(kernels_.latent, {q, step_.starts, pages, t.page_starts, t.pages, t.lengths, out, lse, int64_t{0}, scale}, "f_mla_prefill");
}

void PagedCacheObj::append_latent(int64_t layer, const Tensor& kv) {
  const Tensor& pages = pages_of(layer, Kind::kLatent);
  check("kv", kv, {step_.total, head_dim_}, dtype_);
  call(kernels_.append_latent, {pages, kv, step_.places}, "f_transpose_append_mla");
}

// Keeps, of the last step's nodes, those from a root to a leaf, and takes the other ones off.
void PagedCacheObj::commit(const Shape& ids, const Shape& leaves) {
  if (ids.size() != leaves.size()) raise_error("ValueError", "%zu sequences and %zu leaves", ids.size(), leaves.size());
  Ints starts{0}, from, to;
  Dims kept;
  std::set<int64_t> seen;
  for (size_t i = 0; i < ids.size(); ++i) {
    const Sequence& s = table_.at(ids[i]);
    auto n = static_cast<int64_t>(s.parents.size());
    if (n == 0 || !seen.insert(ids[i]).second) {
      raise_error("ValueError", "sequence %lld: expected one entry of a sequence with a token tree", Long(ids[i]));
    }
    if (leaves[i] < -1 || leaves[i] >= n) {
      raise_error("ValueError", "sequence %lld has no node %lld to accept: expected -1 to %lld", Long(ids[i]), Long(leaves[i]), Long(n - 1));
    }
    Ints path;
    for (auto node = static_cast<int32_t>(leaves[i]); node != -1; node = s.parents[static_cast<size_t>(node)]) path.push_back(node);
    std::reverse(path.begin(), path.end());
    auto at = std::find(step_.ids.begin(), step_.ids.end(), ids[i]);
    if (at == step_.ids.end()) raise_error("ValueError", "sequence %lld was not in the last step", Long(ids[i]));
    int64_t appended = step_.tokens[static_cast<size_t>(at - step_.ids.begin())], first = s.length - appended;
    if (static_cast<int64_t>(path.size()) > appended || (!path.empty() && path.back() >= appended)) {
      raise_error("ValueError", "sequence %lld: node %lld is not one of the %lld of the last step", Long(ids[i]), Long(leaves[i]), Long(appended));
    }
    for (size_t k = 0; k < path.size(); ++k) {
      if (path[k] == static_cast<int32_t>(k)) continue;
      from.push_back(table_.place(s, first + path[k]));
      to.push_back(table_.place(s, first + static_cast<int64_t>(k)));
    }
    starts.push_back(static_cast<int32_t>(from.size()));
    kept.push_back(appended - static_cast<int64_t>(path.size()));
  }
  if (!from.empty()) {
    auto n = static_cast<int64_t>(from.size());
    from.insert(from.end(), to.begin(), to.end());
    Tensor moved = ints(from, {2, n}), groups = ints(starts);
    for (const Tensor& pages : pages_) {
      call(kernels_.compact, {pages, groups, moved, static_cast<int64_t>(ids.size())}, "f_compact_copy");
    }
  }
  for (size_t i = 0; i < ids.size(); ++i) {
    table_.pop(ids[i], kept[i]);
    Sequence& s = table_.at(ids[i]);
    s.parents.clear();
    s.depths.clear();
  }
}

// (layers, tokens, heads, size) for keys and values, or (layers, tokens, size).
void PagedCacheObj::get(int64_t id, int64_t begin, int64_t end, const std::vector<Tensor>& out) {
  const Sequence& s = table_.at(id);
  if (begin < 0 || begin >= end || end > s.length) {
    raise_error("ValueError", "tokens %lld to %lld of sequence %lld: expected 0 <= begin < end <= %lld", Long(begin), Long(end), Long(id), Long(s.length));
  }
  Ints places;
  for (int64_t token = begin; token < end; ++token) places.push_back(table_.place(s, token));
  auto n_layers = static_cast<int64_t>(pages_.size());
  for (const Tensor& t : out) {
    check("the output", t, out.size() == 2 ? Dims{n_layers, end - begin, kv_heads_, head_dim_} : Dims{n_layers, end - begin, head_dim_}, dtype_);
  }
  Tensor map = ints(places);
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    const Tensor& pages = pages_of(partition_[0] + layer, out.size() == 2 ? Kind::kHeads : Kind::kLatent);
    if (out.size() == 2) call(kernels_.debug_get, {pages, map, out[0], out[1], layer}, "f_debug_get_kv");
    else call(kernels_.debug_get, {pages, map, out[0], layer}, "f_debug_get_kv");
  }
}

class PagedCache : public KVState {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(PagedCache, KVState, PagedCacheObj);
};

}  // namespace

TVM_FFI_STATIC_INIT_BLOCK() {
  Globals()
      .def_packed("vm.builtin.paged_attention_kv_cache_create",
                  [](PackedArgs args, Any* ret) { *ret = KVState(tvm::ffi::make_object<PagedCacheObj>(args)); })
      .def("vm.builtin.kv_state_clear", [](KVState c) { c->clear(); })
      .def("vm.builtin.kv_state_add_sequence", [](KVState c, int64_t id) { c->add_sequence(id); })
      .def("vm.builtin.kv_state_remove_sequence", [](KVState c, int64_t id) { c->remove_sequence(id); })
      .def_packed("vm.builtin.kv_state_fork_sequence",
                  [](PackedArgs args, Any*) {
                    int64_t tokens = args.size() > 3 ? argument<int64_t>(args, 3) : -1;
                    argument<KVState>(args, 0)->fork_sequence(argument<int64_t>(args, 1), argument<int64_t>(args, 2), tokens);
                  })
      .def("vm.builtin.kv_state_popn", [](KVState c, int64_t id, int64_t n) { c->pop(id, n); })
      .def_packed("vm.builtin.kv_state_begin_forward",
                  [](PackedArgs args, Any*) {
                    Optional<Shape> parents;
                    if (args.size() > 3) parents = argument<Optional<Shape>>(args, 3);
                    argument<KVState>(args, 0)->begin_forward(argument<Shape>(args, 1), argument<Shape>(args, 2), parents);
                  })
      .def("vm.builtin.kv_state_end_forward", [](KVState c) { c->end_forward(); })
      .def("vm.builtin.attention_kv_cache_enable_sliding_window_for_seq",
           [](PagedCache c, int64_t id, int64_t window, int64_t sink) { c->enable_window(id, window, sink); })
      .def("vm.builtin.attention_kv_cache_commit_accepted_token_tree_nodes",
           [](PagedCache c, Shape ids, Shape leaves) { c->commit(ids, leaves); })
      .def("vm.builtin.attention_kv_cache_empty", [](PagedCache c) { return c->table().empty(); })
      .def("vm.builtin.attention_kv_cache_get_num_available_pages", [](PagedCache c) { return c->table().free_pages(); })
      .def("vm.builtin.attention_kv_cache_get_total_sequence_length", [](PagedCache c) { return c->table().tokens(); })
      .def("vm.builtin.attention_kv_cache_get_query_positions", [](PagedCache c) { return c->positions(); })
      .def("vm.builtin.attention_kv_cache_debug_get_kv",
           [](PagedCache c, int64_t id, int64_t begin, int64_t end, Tensor k, Tensor v) { c->get(id, begin, end, {k, v}); })
      .def("vm.builtin.attention_kv_cache_debug_get_kv_mla",
           [](PagedCache c, int64_t id, int64_t begin, int64_t end, Tensor kv) { c->get(id, begin, end, {kv}); })
      .def("vm.builtin.attention_kv_cache_attention_with_fused_qkv",
           [](PagedCache c, int64_t layer, double scale, Tensor qkv, Tensor out) { c->attention(layer, scale, qkv, out); })
      .def("vm.builtin.attention_kv_cache_self_attention",
           [](PagedCache c, int64_t layer, double scale, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse) {
             c->self_attention(layer, scale, q, k, v, out, lse);
           })
      .def("vm.builtin.attention_kv_cache_cross_attention",
           [](PagedCache c, int64_t layer, double scale, Tensor q, Tensor out, Tensor lse) {
             c->cross_attention(layer, scale, q, out, lse);
           })
      .def("vm.builtin.attention_kv_cache_append_mla_kv",
           [](PagedCache c, int64_t layer, Tensor kv) {
             c->append_latent(layer, kv);
             return c;
           })
      .def("vm.builtin.attention_kv_cache_merge_attn_output_inplace",
           [](PagedCache c, Tensor out, Tensor lse, Tensor other, Tensor other_lse) {
             c->merge(out, lse, other, other_lse);
             return Array<Tensor>({out, lse});
           });
}

}  // namespace weft
