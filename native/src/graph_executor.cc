// Binding and running. Tensors of one storage are made together, whenever the storage is bound to other memory.
#include "graph_executor.h"

#include <tvm/ffi/container/tensor.h>

#include <algorithm>

#include "error.h"
#include "guard.h"
#include "memory.h"
#include "module.h"
#include "register.h"

namespace weft {

namespace {

bool is_on(const DLTensor& t, DLDevice device) {
  return t.device.device_type == device.device_type && t.device.device_id == device.device_id;
}

bool is_aligned(const DLTensor& t) { return (reinterpret_cast<uintptr_t>(t.data) + t.byte_offset) % kAlignment == 0; }

// "__copy": the second argument becomes the first, which may be on another device.
int copy_kernel(void*, const TVMFFIAny* args, int32_t n, TVMFFIAny*) {
  if (n != 2) return fail("TypeError", "__copy: expected 2 arguments, found %d", n);
  return tensor_copy(*tensor_of(args[0]), const_cast<DLTensor*>(tensor_of(args[1])));
}

// The names of nodes, at most 20, for messages.
std::string names_of(const Graph& graph, bool inputs) {
  std::string out;
  size_t n = inputs ? graph.inputs.size() : graph.nodes.size();
  for (size_t i = 0; i < n && i < 20; ++i) {
    if (i != 0) out += ", ";
    out += graph.nodes[inputs ? static_cast<size_t>(graph.inputs[i]) : i].name;
  }
  if (n > 20) out += ", ...";
  return out;
}

// An index below n.
size_t index_of(const Any& value, size_t n, const char* what) {
  auto index = argument<int64_t>(raw(&value), 0);
  if (index < 0 || index >= static_cast<int64_t>(n)) {
    raise_error("IndexError", "%s %lld of a graph of %zu", what, static_cast<long long>(index), n);
  }
  return static_cast<size_t>(index);
}

bool is_string(const Any& value) {
  return raw(&value)->type_index == kTVMFFIStr || raw(&value)->type_index == kTVMFFISmallStr || raw(&value)->type_index == kTVMFFIRawStr;
}

}  // namespace

GraphExecutor::GraphExecutor(std::shared_ptr<const Graph> graph, const std::vector<Any>& imports,
                             std::vector<DLDevice> devices, const Params& params)
    : graph_(std::move(graph)), devices_(std::move(devices)), kept_(imports),
      storages_(static_cast<size_t>(graph_->num_storages)), tensors_(graph_->entries.size()), flat_(graph_->entries.size()), wants_flat_(graph_->entries.size()) {
  if (devices_.empty()) raise_error("ValueError", "a graph executor needs a device");
  for (size_t i = 0; i < graph_->entries.size(); ++i) {
    storages_[static_cast<size_t>(graph_->entries[i].storage)].entries.push_back(static_cast<int32_t>(i));
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < graph_->nodes.size(); ++i) {
    const GraphNode& node = graph_->nodes[i];
    auto add = [&](int32_t entry) {
      arg_entries_.push_back(node.flatten ? ~entry : entry);
      args_.push_back(TVMFFIAny{});
      if (node.flatten) wants_flat_[static_cast<size_t>(entry)] = true;
    };
    if (node.function.empty() || node.function == "__nop") continue;
    Callee callee{copy_kernel, nullptr};
    if (node.function != "__copy") callee = find_callee(imports, node.function, &kept_);
    if (callee.call == nullptr && std::find(missing.begin(), missing.end(), node.function) == missing.end()) {
      missing.push_back(node.function);
    }
    Insn insn{callee.call, callee.self, static_cast<int32_t>(args_.size()), 0, static_cast<int32_t>(i)};
    for (int32_t entry : node.inputs) add(entry);
    for (int32_t entry = node.begin; entry < node.end; ++entry) add(entry);
    insn.n = static_cast<int32_t>(args_.size()) - insn.args;
    insns_.push_back(insn);
  }
  raise_missing(missing);
  load_params(params);
  for (int32_t i = 0; i < graph_->num_storages; ++i) {
    if (const auto& entries = storages_[static_cast<size_t>(i)].entries; !entries.empty()) {
      if (raw(&tensor(entries[0]))->type_index == kTVMFFINone) allocate(i);
    }
  }
  ready_ = true;
  point_arguments();
}

DLDevice GraphExecutor::device(const GraphEntry& entry) const {
  if (entry.device == 0) return devices_[0];
  for (const DLDevice& d : devices_) {
    if (d.device_type == entry.device) return d;
  }
  raise_error("ExecutableError", "graph: it is for a device of type %d, which the executor does not have", entry.device);
}

void GraphExecutor::allocate(int32_t storage) {
  Storage& s = storages_[static_cast<size_t>(storage)];
  int64_t nbytes = 0;
  for (int32_t e : s.entries) nbytes = std::max(nbytes, graph_->entries[static_cast<size_t>(e)].nbytes);
  DLDevice where = device(graph_->entries[static_cast<size_t>(s.entries[0])]);
  Any owner = take(tensor_empty(&nbytes, 1, DLDataType{kDLUInt, 8, 1}, where, Allocator::kPooled));
  make_tensors(storage, owner, tensor_of(*raw(&owner))->data);
  s.shared = false;
}

void GraphExecutor::make_tensors(int32_t storage, const Any& owner, void* data) {
  DLDevice where = tensor_of(*raw(&owner))->device;
  for (int32_t e : storages_[static_cast<size_t>(storage)].entries) {
    const GraphEntry& entry = graph_->entries[static_cast<size_t>(e)];
    auto ndim = static_cast<int32_t>(entry.shape.size());
    TVMFFIObject* keep = raw(&owner)->v_obj;
    tensors_[static_cast<size_t>(e)] = take(tensor_new(keep, data, where, entry.dtype, entry.shape.data(), ndim));
    int64_t n = 1;
    for (int64_t d : entry.shape) n *= d;
    if (wants_flat_[static_cast<size_t>(e)]) {
      flat_[static_cast<size_t>(e)] = take(tensor_new(keep, data, where, entry.dtype, &n, 1));
    }
  }
  if (ready_) point_arguments();
}

void GraphExecutor::point_arguments() {
  for (size_t i = 0; i < args_.size(); ++i) {
    int32_t e = arg_entries_[i];
    args_[i] = e < 0 ? *raw(&flat_[static_cast<size_t>(~e)]) : *raw(&tensors_[static_cast<size_t>(e)]);
  }
}

int GraphExecutor::call(const Insn& insn) {
  TVMFFIAny ret{};
  const TVMFFIAny* args = args_.data() + insn.args;
  const char* name = graph_->nodes[static_cast<size_t>(insn.node)].function.c_str();
  int rc = guarded() ? guard_call(name, insn.call, insn.self, args, insn.n, &ret) : insn.call(insn.self, args, insn.n, &ret);
  release(ret);
  if (__builtin_expect(rc != 0, 0)) {
    const GraphNode& node = graph_->nodes[static_cast<size_t>(insn.node)];
    return append_frame(message("graph node %s", node.name.c_str()), insn.node, node.function, rc);
  }
  return 0;
}

void GraphExecutor::run() {
  for (const Insn& insn : insns_) check(call(insn));
}

void GraphExecutor::run_node(int32_t node) {
  for (const Insn& insn : insns_) {
    if (insn.node == node) check(call(insn));
  }
}

int32_t GraphExecutor::node(const Any& name_or_index) const {
  if (!is_string(name_or_index)) return static_cast<int32_t>(index_of(name_or_index, graph_->nodes.size(), "node"));
  std::string name = argument<String>(raw(&name_or_index), 0);
  auto it = graph_->by_name.find(name);
  if (it != graph_->by_name.end()) return it->second;
  raise_error("ValueError", "the graph has no node '%s'; it has: %s", name.c_str(), names_of(*graph_, false).c_str());
}

int32_t GraphExecutor::input(const Any& name_or_index) const {
  const auto& inputs = graph_->inputs;
  if (!is_string(name_or_index)) {
    return graph_->nodes[static_cast<size_t>(inputs[index_of(name_or_index, inputs.size(), "input")])].begin;
  }
  std::string name = argument<String>(raw(&name_or_index), 0);
  int32_t entry = find_input(name);
  if (entry >= 0) return entry;
  raise_error("ValueError", "the graph has no input '%s'; it has: %s", name.c_str(), names_of(*graph_, true).c_str());
}

int32_t GraphExecutor::find_input(const std::string& name) const {
  auto it = graph_->by_name.find(name);
  if (it == graph_->by_name.end()) return -1;
  const GraphNode& node = graph_->nodes[static_cast<size_t>(it->second)];
  return node.function.empty() ? node.begin : -1;
}

int32_t GraphExecutor::head(const Any& index) const {
  return graph_->heads[index_of(index, graph_->heads.size(), "output")];
}

std::string GraphExecutor::label(int32_t entry) const {
  const GraphNode* found = &graph_->nodes[0];
  for (const GraphNode& node : graph_->nodes) {
    if (entry >= node.begin && entry < node.end) found = &node;
  }
  if (found->end - found->begin == 1) return found->name;
  return message("%s output %d", found->name.c_str(), entry - found->begin);
}

void GraphExecutor::check_same(int32_t entry, const DLTensor& value, const char* what) const {
  const GraphEntry& expected = graph_->entries[static_cast<size_t>(entry)];
  auto ndim = static_cast<int32_t>(expected.shape.size());
  bool same = std::memcmp(&value.dtype, &expected.dtype, sizeof(DLDataType)) == 0 && value.ndim == ndim &&
              std::equal(expected.shape.begin(), expected.shape.end(), value.shape);
  if (same) return;
  raise_error("ValueError", "%s '%s': expected %s%s, found %s%s", what, label(entry).c_str(),
              dtype_name(expected.dtype).c_str(), shape_text(expected.shape.data(), ndim).c_str(),
              dtype_name(value.dtype).c_str(), shape_text(value.shape, value.ndim).c_str());
}

void GraphExecutor::set(int32_t entry, const DLTensor& value) {
  check_same(entry, value, "set_input");
  int32_t storage = graph_->entries[static_cast<size_t>(entry)].storage;
  if (storages_[static_cast<size_t>(storage)].shared) allocate(storage);
  check(tensor_copy(value, const_cast<DLTensor*>(tensor_of(*raw(&tensor(entry))))));
}

void GraphExecutor::bind(int32_t entry, const Any& value, bool shared) {
  const DLTensor* t = tensor_of(*raw(&value));
  if (raw(&value)->type_index != kTVMFFITensor) {
    raise_error("TypeError", "'%s': expected a tensor, found %s", label(entry).c_str(), describe(*raw(&value)).c_str());
  }
  check_same(entry, *t, "binding");
  const GraphEntry& own = graph_->entries[static_cast<size_t>(entry)];
  Storage& storage = storages_[static_cast<size_t>(own.storage)];
  const char* fault = nullptr;
  for (int32_t e : storage.entries) {
    if (graph_->entries[static_cast<size_t>(e)].nbytes > own.nbytes) fault = "shares its storage with larger tensors";
  }
  if (!is_on(*t, device(own))) fault = "is on another device";
  if (!is_aligned(*t)) fault = "does not begin at a multiple of 64 bytes";
  if (!is_contiguous(*t)) fault = "is not contiguous";
  if (fault != nullptr) raise_error("ValueError", "binding '%s' without a copy: the tensor %s", label(entry).c_str(), fault);
  make_tensors(own.storage, value, static_cast<char*>(t->data) + t->byte_offset);
  storage.shared = shared;
}

void GraphExecutor::copy_out(int32_t entry, const DLTensor& to) const {
  check_same(entry, to, "get_output");
  check(tensor_copy(*tensor_of(*raw(&tensor(entry))), const_cast<DLTensor*>(&to)));
}

void GraphExecutor::load_params(const Params& params) {
  for (const auto& [name, value] : params) {
    int32_t entry = find_input(name);
    if (entry < 0) continue;
    const DLTensor* t = tensor_of(*raw(&value));
    const GraphEntry& own = graph_->entries[static_cast<size_t>(entry)];
    check_same(entry, *t, "parameter");
    bool alone = !guarded() && storages_[static_cast<size_t>(own.storage)].entries.size() == 1;
    if (alone && is_on(*t, device(own)) && is_contiguous(*t) && is_aligned(*t)) {
      bind(entry, value, true);
      continue;
    }
    if (raw(&tensor(entry))->type_index == kTVMFFINone) allocate(own.storage);
    set(entry, *t);
  }
}

void GraphExecutor::share_params(GraphExecutor* other, const Params& names) {
  for (const auto& [name, value] : names) {
    int32_t from = other->input(Any(String(name))), to = input(Any(String(name)));
    bind(to, other->tensor(from), true);
    other->storages_[static_cast<size_t>(other->graph_->entries[static_cast<size_t>(from)].storage)].shared = true;
  }
}

}  // namespace weft
