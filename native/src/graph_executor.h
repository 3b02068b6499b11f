// Runs a graph: storage is bound once, a run is a loop over kernels' addresses and ready arguments.
#ifndef WEFT_GRAPH_EXECUTOR_H_
#define WEFT_GRAPH_EXECUTOR_H_

#include <tvm/ffi/any.h>

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "graph.h"
#include "vm.h"

namespace weft {

class GraphExecutor {
 public:
  // Parameters that the graph has are used where they lie. Throws "ExecutableError" when functions or devices are missing.
  GraphExecutor(std::shared_ptr<const Graph> graph, const std::vector<tvm::ffi::Any>& imports,
                std::vector<DLDevice> devices, const Params& params);

  const Graph& graph() const { return *graph_; }

  // All below throw; those with names say what the graph has instead.
  void run();
  void run_node(int32_t node);
  int32_t input(const tvm::ffi::Any& name_or_index) const;  // its entry
  int32_t node(const tvm::ffi::Any& name_or_index) const;
  int32_t head(const tvm::ffi::Any& index) const;            // its entry
  const tvm::ffi::Any& tensor(int32_t entry) const { return tensors_[static_cast<size_t>(entry)]; }
  // Copies into the memory of an entry; one that belongs to others, such as a parameter, is replaced before.
  void set(int32_t entry, const DLTensor& value);
  // Makes an entry, and what shares its storage, lie where `value` does.
  void bind(int32_t entry, const tvm::ffi::Any& value, bool shared);
  void copy_out(int32_t entry, const DLTensor& to) const;
  // Parameters that the graph has; others are passed over.
  void load_params(const Params& params);
  // Inputs of these names lie where `other` has them.
  void share_params(GraphExecutor* other, const Params& names);

  std::mutex mutex;  // of a run, and of what changes storage

 private:
  struct Insn {
    TVMFFISafeCallType call;
    void* self;
    int32_t args, n, node;
  };
  struct Storage {
    std::vector<int32_t> entries;
    bool shared = false;  // others use the memory
  };

  DLDevice device(const GraphEntry& entry) const;
  void make_tensors(int32_t storage, const tvm::ffi::Any& owner, void* data);
  void point_arguments();
  int32_t find_input(const std::string& name) const;  // its entry, or -1
  void allocate(int32_t storage);
  int call(const Insn& insn);
  void check_same(int32_t entry, const DLTensor& value, const char* what) const;
  std::string label(int32_t entry) const;

  std::shared_ptr<const Graph> graph_;
  std::vector<DLDevice> devices_;
  std::vector<tvm::ffi::Any> kept_;     // the modules, and owners of functions
  std::vector<Storage> storages_;
  std::vector<tvm::ffi::Any> tensors_;  // by entry
  std::vector<tvm::ffi::Any> flat_;     // the same as vectors, where a node wants them
  std::vector<bool> wants_flat_;
  bool ready_ = false;                  // arguments point at tensors
  std::vector<Insn> insns_;
  std::vector<TVMFFIAny> args_;         // borrowed from tensors_ and flat_
  std::vector<int32_t> arg_entries_;    // by argument: its entry, or ~entry of a vector
};

}  // namespace weft
#endif  // WEFT_GRAPH_EXECUTOR_H_
