// Reading graphs: JSON of the wrong form is refused at once, wrong indices are collected and raised together.
#include "graph.h"

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/map.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdlib>

#include "error.h"
#include "guard.h"
#include "memory.h"
#include "serial.h"
#include "vm.h"

namespace weft {

using tvm::ffi::Any;
using tvm::ffi::Array;
using tvm::ffi::String;
using Object = tvm::ffi::Map<Any, Any>;

namespace {

constexpr uint64_t kParamsMagic = 0xF7E58D4F05049CB7ULL;
constexpr int kMaxNesting = 64;  // of JSON; the parser recurses
constexpr int64_t kMaxInt = 0x7fffffff;

// A place in the JSON, which becomes text only for an error: the whole, nodes[i], nodes[i].key[j], key[i], ...
struct Where {
  const char* list = "";
  int64_t item = -1;
  const char* key = "";
  int64_t inner = -1;

  std::string text() const {
    std::string out = list;
    if (item >= 0) out += message("[%lld]", static_cast<long long>(item));
    if (*key != '\0') out += message(".%s", key);
    if (inner >= 0) out += message("[%lld]", static_cast<long long>(inner));
    return out.empty() ? "the whole" : out;
  }
  Where at(const char* name, int64_t i = -1) const { return *list == '\0' ? Where{name, i} : Where{list, item, name, i}; }
};

[[noreturn]] [[gnu::cold]] void bad(const Where& where, const std::string& what) {
  raise_error("ExecutableError", "graph: %s: %s", where.text().c_str(), what.c_str());
}

[[noreturn]] [[gnu::cold]] void bad_kind(const Where& where, const char* expected, const Any& found) {
  bad(where, message("expected %s, found %s", expected, describe(*raw(&found)).c_str()));
}

// The parser would run out of stack on what is nested deeper.
void check_nesting(const std::string& json) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < json.size(); ++i) {
    char c = json[i];
    if (in_string) {
      if (c == '\\') ++i;
      else if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxNesting) bad({}, message("nested deeper than %d levels at offset %zu", kMaxNesting, i));
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
}

[[gnu::noinline]] Object object(const Any& value, const Where& where) {
  auto found = value.as<Object>();
  if (!found.has_value()) bad_kind(where, "an object", value);
  return *std::move(found);
}

[[gnu::noinline]] std::vector<Any> list(const Any& value, const Where& where) {
  auto found = value.as<Array<Any>>();
  if (!found.has_value()) bad_kind(where, "a list", value);
  return std::vector<Any>(found->begin(), found->end());
}

[[gnu::noinline]] std::string text(const Any& value, const Where& where) {
  auto found = value.as<String>();
  if (!found.has_value()) bad_kind(where, "a string", value);
  return *found;
}

// An index or size; attributes have them as strings.
[[gnu::noinline]] int64_t number(const Any& value, const Where& where, int64_t most = kMaxInt) {
  int64_t found = -1;
  if (raw(&value)->type_index == kTVMFFIInt) {
    found = raw(&value)->v_int64;
  } else if (raw(&value)->type_index == kTVMFFIStr || raw(&value)->type_index == kTVMFFISmallStr) {
    std::string digits = text(value, where);
    char* end = nullptr;
    found = std::strtoll(digits.c_str(), &end, 10);
    if (digits.empty() || *end != '\0') bad_kind(where, "a whole number", value);
  } else {
    bad_kind(where, "a whole number", value);
  }
  if (found < 0 || found > most) {
    bad(where, message("expected 0 to %lld, found %lld", static_cast<long long>(most), static_cast<long long>(found)));
  }
  return found;
}

bool has(const Object& from, const char* key) { return from.find(String(key)) != from.end(); }

[[gnu::noinline]] Any field(const Object& from, const char* key, const Where& where) {
  auto it = from.find(String(key));
  if (it == from.end()) bad(where, message("has no \"%s\"", key));
  return (*it).second;
}

[[gnu::noinline]] std::vector<Any> list_field(const Object& from, const char* key, const Where& where, size_t n) {
  std::vector<Any> out = list(field(from, key, where), where.at(key));
  if (n != SIZE_MAX && out.size() != n) bad(where.at(key), message("expected %zu items, found %zu", n, out.size()));
  return out;
}

class Parser {
 public:
  std::shared_ptr<const Graph> parse(const std::string& json) {
    check_nesting(json);
    String problem;
    Any root = tvm::ffi::json::Parse(String(json), &problem);
    if (problem.size() != 0) bad({}, message("not JSON: %s", problem.c_str()));
    Object top = object(root, {});
    std::vector<Any> nodes = list_field(top, "nodes", {}, SIZE_MAX);
    std::vector<Any> rows = list_field(top, "node_row_ptr", {}, nodes.size() + 1);
    for (size_t i = 0; i < nodes.size(); ++i) {
      auto index = static_cast<int64_t>(i);
      read_node(nodes[i], number(rows[i], {"node_row_ptr", index}), number(rows[i + 1], {"node_row_ptr", index + 1}));
    }
    listed_.resize(nodes.size());
    graph_->entries.resize(nodes.empty() ? 0 : static_cast<size_t>(graph_->nodes.back().end));
    read_attributes(object(field(top, "attrs", {}), {"attrs"}));
    int64_t at = 0;
    for (const Any& value : list_field(top, "arg_nodes", {}, SIZE_MAX)) read_argument(value, {"arg_nodes", at++});
    for (size_t i = 0; i < nodes.size(); ++i) {
      const GraphNode& node = graph_->nodes[i];
      if (node.function.empty() && !listed_[i]) note({"nodes", static_cast<int64_t>(i)}, "an input that arg_nodes does not name");
    }
    at = 0;
    for (const Any& value : list_field(top, "heads", {}, SIZE_MAX)) {
      int32_t head = read_reference(value, static_cast<int64_t>(nodes.size()), {"heads", at++});
      if (head >= 0) graph_->heads.push_back(head);
    }
    errors_.raise_if_any("graph");
    if (guarded()) part_storages();
    return graph_;
  }

 private:
  [[gnu::noinline]] [[gnu::cold]] void note(const Where& where, const std::string& what) {
    std::string name;
    if (std::strcmp(where.list, "nodes") == 0 && where.item < static_cast<int64_t>(graph_->nodes.size())) {
      name = " '" + graph_->nodes[static_cast<size_t>(where.item)].name + "'";
    }
    errors_.add(message("%s%s: %s", where.text().c_str(), name.c_str(), what.c_str()));
  }

  void read_node(const Any& value, int64_t begin, int64_t end) {
    auto index = static_cast<int64_t>(graph_->nodes.size());
    Where where{"nodes", index};
    Object from = object(value, where);
    int64_t before = index == 0 ? 0 : graph_->nodes.back().end;
    graph_->nodes.emplace_back();
    GraphNode& node = graph_->nodes.back();
    node.name = text(field(from, "name", where), where.at("name"));
    std::string op = text(field(from, "op", where), where.at("op"));
    std::vector<Any> inputs = list_field(from, "inputs", where, SIZE_MAX);
    for (size_t i = 0; i < inputs.size(); ++i) {
      int32_t entry = read_reference(inputs[i], index, where.at("inputs", static_cast<int64_t>(i)));
      if (entry >= 0) node.inputs.push_back(entry);
    }
    int64_t outputs = 1;
    if (op == "tvm_op") {
      Where inside = where.at("attrs");
      Object attrs = object(field(from, "attrs", where), inside);
      node.function = text(field(attrs, "func_name", inside), inside);
      if (node.function.empty()) bad(inside, "func_name is empty");
      outputs = number(field(attrs, "num_outputs", inside), inside);
      int64_t n = number(field(attrs, "num_inputs", inside), inside);
      if (n != static_cast<int64_t>(inputs.size())) {
        note(inside, message("num_inputs is %lld, the node has %zu inputs", static_cast<long long>(n), inputs.size()));
      }
      node.flatten = number(field(attrs, "flatten_data", inside), inside) != 0;
    } else if (op != "null") {
      bad(where.at("op"), "expected \"null\" or \"tvm_op\", found \"" + op + "\"");
    } else if (!inputs.empty()) {
      note(where, "an input has inputs itself");
    }
    if (begin != before || end != begin + outputs) {
      bad(where, message("its %lld outputs begin at entry %lld, but node_row_ptr says %lld to %lld",
                         static_cast<long long>(outputs), static_cast<long long>(before),
                         static_cast<long long>(begin), static_cast<long long>(end)));
    }
    node.begin = static_cast<int32_t>(begin);
    node.end = static_cast<int32_t>(end);
    if (!graph_->by_name.emplace(node.name, static_cast<int32_t>(index)).second) note(where, "another node has this name");
  }

  // The entry of [node, index, version], of one of the first n nodes; -1 with the error noted.
  int32_t read_reference(const Any& value, int64_t n, const Where& where) {
    std::vector<Any> row = list(value, where);
    if (row.size() < 2 || row.size() > 3) bad(where, message("expected [node, index, version], found %zu items", row.size()));
    int64_t node = number(row[0], where), index = number(row[1], where);
    if (node >= n) {
      note(where, message("names node %lld, which is not before it", static_cast<long long>(node)));
      return -1;
    }
    const GraphNode& from = graph_->nodes[static_cast<size_t>(node)];
    if (index < from.end - from.begin) return from.begin + static_cast<int32_t>(index);
    note(where, message("names output %lld of node '%s', which has %d", static_cast<long long>(index), from.name.c_str(),
                        from.end - from.begin));
    return -1;
  }

  void read_argument(const Any& value, const Where& where) {
    int64_t at = number(value, where);
    bool is_input = at < static_cast<int64_t>(graph_->nodes.size()) && graph_->nodes[static_cast<size_t>(at)].function.empty();
    if (!is_input || listed_[static_cast<size_t>(at)]) {
      note(where, message("names node %lld, which is %s", static_cast<long long>(at), is_input ? "named before" : "no input"));
      return;
    }
    listed_[static_cast<size_t>(at)] = true;
    graph_->inputs.push_back(static_cast<int32_t>(at));
  }

  // The list in attribute [kind, list], of one value an entry.
  std::vector<Any> attribute(const Object& attrs, const char* key) {
    std::vector<Any> pair = list_field(attrs, key, {"attrs"}, 2);
    Where where{"attrs", -1, key};
    std::vector<Any> values = list(pair[1], where);
    if (values.size() != graph_->entries.size()) {
      bad(where, message("expected %zu values, one an entry, found %zu", graph_->entries.size(), values.size()));
    }
    return values;
  }

  // What shares a storage would hide overruns: each tensor gets one, but for views, which are their inputs.
  void part_storages() {
    std::vector<GraphEntry>& entries = graph_->entries;
    for (size_t i = 0; i < graph_->nodes.size(); ++i) {
      const GraphNode& node = graph_->nodes[i];
      const size_t views = node.function == "__nop" ? node.inputs.size() : 0;
      for (int32_t e = node.begin; e < node.end; ++e) {
        auto k = static_cast<size_t>(e - node.begin);
        entries[static_cast<size_t>(e)].storage = k < views ? entries[static_cast<size_t>(node.inputs[k])].storage : e;
      }
    }
    graph_->num_storages = static_cast<int32_t>(entries.size());
  }

  void read_attributes(const Object& attrs) {
    std::vector<Any> dtypes = attribute(attrs, "dltype"), shapes = attribute(attrs, "shape");
    std::vector<Any> storages = attribute(attrs, "storage_id"), devices;
    if (has(attrs, "device_index")) devices = attribute(attrs, "device_index");
    std::vector<int32_t> owner(graph_->entries.size(), -1);
    for (size_t i = 0; i < graph_->entries.size(); ++i) {
      GraphEntry& entry = graph_->entries[i];
      auto index = static_cast<int64_t>(i);
      std::string name = text(dtypes[i], {"attrs", -1, "dltype", index});
      TVMFFIByteArray bytes{name.data(), name.size()};
      if (TVMFFIDataTypeFromString(&bytes, &entry.dtype) != 0) {
        TVMFFIObjectHandle error = nullptr;
        TVMFFIErrorMoveFromRaised(&error);
        if (error != nullptr) TVMFFIObjectDecRef(error);
        entry.dtype = DLDataType{};
      }
      Where where{"attrs", -1, "shape", index};
      for (const Any& d : list(shapes[i], where)) entry.shape.push_back(number(d, where, INT64_MAX));
      auto ndim = static_cast<int64_t>(entry.shape.size());
      if (entry.dtype.bits == 0 || !valid_dtype(entry.dtype) || !tensor_nbytes(entry.shape.data(), ndim, entry.dtype, &entry.nbytes)) {
        bad(where, message("no tensor is %s%s", name.c_str(), shape_text(entry.shape.data(), ndim).c_str()));
      }
      where.key = "storage_id";
      entry.storage = static_cast<int32_t>(number(storages[i], where, static_cast<int64_t>(graph_->entries.size()) - 1));
      if (!devices.empty()) entry.device = static_cast<int32_t>(number(devices[i], {"attrs", -1, "device_index", index}));
      graph_->num_storages = std::max(graph_->num_storages, entry.storage + 1);
      int32_t& first = owner[static_cast<size_t>(entry.storage)];
      if (first < 0) first = static_cast<int32_t>(i);
      if (graph_->entries[static_cast<size_t>(first)].device != entry.device) {
        note(where, message("entry %d on another device has this storage, too", first));
      }
    }
  }

  std::shared_ptr<Graph> graph_ = std::make_shared<Graph>();
  std::vector<bool> listed_;  // nodes that arg_nodes names
  ErrorList errors_;
};

}  // namespace

std::shared_ptr<const Graph> parse_graph(const std::string& json) { return Parser().parse(json); }

std::string write_params(const Params& params) {
  std::string out;
  Writer writer(&out);
  writer.pod(kParamsMagic);
  writer.pod<uint64_t>(0);
  writer.pod<uint64_t>(params.size());
  for (const auto& [name, value] : params) writer.str(name);
  writer.pod<uint64_t>(params.size());
  for (const auto& [name, value] : params) {
    const DLTensor* tensor = tensor_of(*raw(&value));
    if (tensor == nullptr) raise_error("ExecutableError", "params: '%s' is no tensor, found %s", name.c_str(), describe(*raw(&value)).c_str());
    write_tensor(&writer, *tensor);
  }
  return out;
}

Params read_params(const char* data, size_t size) {
  Reader in(data, size, nullptr, "params");
  if (in.pod<uint64_t>("magic") != kParamsMagic) in.error("these are not parameters: wrong magic number");
  in.pod<uint64_t>("reserved word");
  in.section("names");
  Params out(in.count(8, "names"));
  for (auto& [name, value] : out) name = in.str("name");
  in.section("tensors");
  auto n = in.pod<uint64_t>("number of tensors");
  if (n != out.size()) in.error(message("%zu names and %zu tensors", out.size(), static_cast<size_t>(n)));
  for (auto& [name, value] : out) value = read_tensor(&in);
  if (in.left() != 0) in.error(message("%zu bytes after the end", in.left()));
  return out;
}

}  // namespace weft
