// A graph of kernels as JSON says it (nodes, arg_nodes, heads, attrs, node_row_ptr), checked; and parameters as bytes.
#ifndef WEFT_GRAPH_H_
#define WEFT_GRAPH_H_

#include <tvm/ffi/any.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace weft {

struct GraphNode {
  std::string name;
  std::string function;         // of a "tvm_op"; empty for an input
  std::vector<int32_t> inputs;  // entries
  int32_t begin = 0, end = 0;   // its own entries
  bool flatten = false;         // arguments are vectors
};

// A tensor: one output of a node.
struct GraphEntry {
  DLDataType dtype{};
  std::vector<int64_t> shape;
  int64_t nbytes = 0;
  int32_t storage = 0;
  int32_t device = 0;  // a device type; 0: the first device
};

struct Graph {
  std::vector<GraphNode> nodes;
  std::vector<GraphEntry> entries;
  std::vector<int32_t> inputs;  // nodes
  std::vector<int32_t> heads;   // entries
  int32_t num_storages = 0;
  std::map<std::string, int32_t> by_name;  // nodes
};

// Throws "ExecutableError" that says what is wrong at which node. After it returns, every index is in its bounds, nodes
// use only what is before them, and what shares a storage is on one device.
std::shared_ptr<const Graph> parse_graph(const std::string& json);

using Params = std::vector<std::pair<std::string, tvm::ffi::Any>>;
// Apache TVM's layout: names, then tensors. Reading throws "ExecutableError" with section and offset.
std::string write_params(const Params& params);
Params read_params(const char* data, size_t size);

}  // namespace weft
#endif  // WEFT_GRAPH_H_
