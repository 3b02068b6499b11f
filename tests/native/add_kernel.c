// A kernel in the form that Weft's code generator emits: out[i] = a[i] + b[i] for float32 vectors of any shape, checked
// arguments, the loop on the runtime's thread pool.
#include <weft/runtime.h>

struct Work {
  const float* a;
  const float* b;
  float* out;
};

static int32_t body(int64_t begin, int64_t end, void* ctx) {
  struct Work* work = (struct Work*)ctx;
  for (int64_t i = begin; i < end; ++i) work->out[i] = work->a[i] + work->b[i];
  return 0;
}

static const char kSignature[] = "add(a: Tensor([n], float32), b: Tensor([n], float32), out: Tensor([n], float32))";

__attribute__((visibility("default"))) int32_t __tvm_ffi_add(void* self, const TVMFFIAny* args, int32_t num_args,
                                                             TVMFFIAny* ret) {
  (void)self;
  (void)ret;
  if (num_args != 3) return weft_arg_error(kSignature, 0, kWeftArgCount, 0, 3, args, num_args);
  void* data[3];
  int64_t count = 1;
  for (int32_t k = 0; k < 3; ++k) {
    const DLTensor* t;
    if (args[k].type_index == kTVMFFITensor) {
      t = (const DLTensor*)((const char*)args[k].v_ptr + sizeof(TVMFFIObject));
    } else if (args[k].type_index == kTVMFFIDLTensorPtr) {
      t = (const DLTensor*)args[k].v_ptr;
    } else {
      return weft_arg_error(kSignature, k, kWeftArgNotTensor, 0, 0, args, num_args);
    }
    if (t->dtype.code != kDLFloat || t->dtype.bits != 32 || t->dtype.lanes != 1) {
      return weft_arg_error(kSignature, k, kWeftArgDType, 0, kDLFloat | 32 << 8 | 1 << 16, args, num_args);
    }
    int64_t n = 1;
    for (int32_t d = 0; d < t->ndim; ++d) n *= t->shape[d];
    if (k == 0) count = n;
    if (n != count) return weft_arg_error(kSignature, k, kWeftArgSymbol, 0, count, args, num_args);
    data[k] = (char*)t->data + t->byte_offset;
  }
  struct Work work = {(const float*)data[0], (const float*)data[1], (float*)data[2]};
  return weft_parallel_for(body, &work, count, 4096);
}
