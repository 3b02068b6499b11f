// A library from outside: a packed function, a type of objects, and a device whose memory is another place of the host's.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/function.h>
#include <tvm/ffi/reflection/registry.h>
#include <tvm/ffi/string.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace ffi = tvm::ffi;

class PointObj : public ffi::Object {
 public:
  int64_t x;
  double weight;
  ffi::String name;
  ffi::Array<ffi::Any> children;

  PointObj(int64_t x, double weight, ffi::String name, ffi::Array<ffi::Any> children)
      : x(x), weight(weight), name(std::move(name)), children(std::move(children)) {}
  explicit PointObj(ffi::UnsafeInit) {}
  TVM_FFI_DECLARE_OBJECT_INFO_FINAL("extension.Point", PointObj, ffi::Object);
};

class Point : public ffi::ObjectRef {
 public:
  TVM_FFI_DEFINE_OBJECT_REF_METHODS_NULLABLE(Point, ffi::ObjectRef, PointObj);
};

static std::atomic<int64_t> live{0};

// Addresses of this device are shifted, so that whoever uses one as the host's own fails at once.
static constexpr uintptr_t kShift = uintptr_t{1} << 62;
static void* shifted(void* p) { return reinterpret_cast<void*>(reinterpret_cast<uintptr_t>(p) ^ kShift); }
static void* host(void* p, int64_t type) { return type == kDLExtDev ? shifted(p) : p; }

TVM_FFI_STATIC_INIT_BLOCK() {
  namespace refl = ffi::reflection;
  refl::ObjectDef<PointObj>()
      .def(refl::init<int64_t, double, ffi::String, ffi::Array<ffi::Any>>())
      .def_ro("x", &PointObj::x)
      .def_ro("weight", &PointObj::weight)
      .def_ro("name", &PointObj::name)
      .def_ro("children", &PointObj::children);
  refl::GlobalDef()
      .def("extension.point",
           [](int64_t x, double weight, ffi::String name, ffi::Array<ffi::Any> children) {
             return ffi::ObjectRef(ffi::make_object<PointObj>(x, weight, name, children));
           })
      .def("extension.live", [] { return live.load(); })
      .def("extension.double_on_device",
           [](const ffi::Tensor& t) {
             if (t.device().device_type != kDLExtDev) {
               TVM_FFI_THROW(ValueError) << "double_on_device: expected a tensor on ext_dev";
             }
             auto* data = static_cast<float*>(shifted(t.data_ptr()));
             for (int64_t i = 0; i < t.numel(); ++i) data[i] *= 2;
           })
      .def("weft.device.ext_dev.count", [] { return 2; })
      .def("weft.device.ext_dev.sync", [](int64_t) {})
      .def("weft.device.ext_dev.alloc",
           [](int64_t id, int64_t nbytes) -> void* {
             if (nbytes > (int64_t{1} << 20)) TVM_FFI_THROW(MemoryError) << "ext_dev:" << id << " has 1 MiB";
             ++live;
             return shifted(std::malloc(nbytes == 0 ? 1 : static_cast<size_t>(nbytes)));
           })
      .def("weft.device.ext_dev.free",
           [](int64_t, void* data) {
             --live;
             std::free(shifted(data));
           })
      .def("weft.device.ext_dev.copy", [](void* from, int64_t from_type, int64_t, void* to, int64_t to_type, int64_t,
                                          int64_t nbytes) {
        std::memcpy(host(to, to_type), host(from, from_type), static_cast<size_t>(nbytes));
      });
}
