/*!
 * \file weft/runtime.h
 * \brief The C ABI that generated kernels call. Everything here is exported by libweft_runtime with C linkage.
 *
 * Conventions: a function that can fail returns 0 on success and a nonzero code after it has set the tvm-ffi raised
 * error of the calling thread. No C++ exception leaves a function of this file.
 */
#ifndef WEFT_RUNTIME_H_
#define WEFT_RUNTIME_H_

#include <stdint.h>
#include <tvm/ffi/c_api.h>

#if defined(_WIN32)
#define WEFT_API __declspec(dllexport)
#else
#define WEFT_API __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/*! \brief Version of this ABI; grows when a function is added, never changes the meaning of an old one. */
#define WEFT_ABI_VERSION 1
WEFT_API int32_t weft_abi_version(void);

/* ---- threads -------------------------------------------------------------------------------------------------- */

/*! \brief One piece of a parallel loop: iterations [begin, end). Returns 0, or nonzero with the raised error set. */
typedef int32_t (*weft_parallel_body)(int64_t begin, int64_t end, void* ctx);

/*!
 * \brief Run body over [0, extent) on the thread pool, in pieces of at least grain iterations.
 *
 * A negative grain says that the loop is light, hardly worth a thread: pieces have at least -grain iterations, and
 * sleeping threads are not woken for it unless such loops keep coming.
 *
 * Runs inline when extent < 2 * grain, when the pool has one thread, inside another parallel region, and when another
 * thread is using the pool. Returns the first nonzero code of a body, with that body's error raised in the caller.
 */
WEFT_API int32_t weft_parallel_for(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain);

/*!
 * \brief Run a loop whose iterations ask memory for what the next ones read, like weft_parallel_for.
 *
 * Threads take pieces in ascending order, where they would begin every other loop at the end.
 */
WEFT_API int32_t weft_parallel_forwards(weft_parallel_body body, void* ctx, int64_t extent, int64_t grain);

/*! \brief Number of threads that weft_parallel_for may use, the caller included. */
WEFT_API int32_t weft_num_threads(void);

/*! \brief Set the number of threads; n <= 0 restores the default (affinity, cgroup quota, WEFT_NUM_THREADS). */
WEFT_API void weft_set_num_threads(int32_t n);

/* ---- the processor --------------------------------------------------------------------------------------------- */

/*!
 * \brief Ask the operating system, once, for the processor's matrix tiles (AMX), which this process may use then.
 *
 * WEFT_MATRIX_TILES=off in the environment refuses them; "emulated" grants them to what carries them out in software.
 * Returns 0, or nonzero where there are none or they are refused; raises nothing.
 */
WEFT_API int32_t weft_request_tiles(void);

/* ---- scratch memory -------------------------------------------------------------------------------------------- */

/*! \brief 64-byte aligned scratch of the calling thread, cached between calls; NULL with MemoryError raised. */
WEFT_API void* weft_workspace_alloc(int64_t nbytes);

/*! \brief Give scratch back, on the thread that took it. NULL is allowed. */
WEFT_API void weft_workspace_free(void* ptr);

/* ---- errors ---------------------------------------------------------------------------------------------------- */

/*! \brief What was wrong with an argument of a kernel; the code of weft_arg_error. */
enum WeftArgError {
  kWeftArgCount = 0,      /*!< number of arguments; expected = count */
  kWeftArgNotTensor = 1,  /*!< not a tensor */
  kWeftArgDType = 2,      /*!< dtype; expected = code | bits << 8 | lanes << 16 */
  kWeftArgNdim = 3,       /*!< number of dimensions */
  kWeftArgShape = 4,      /*!< shape[dim] against a constant */
  kWeftArgStrides = 5,    /*!< not contiguous */
  kWeftArgDevice = 6,     /*!< device; expected = DLDeviceType */
  kWeftArgAlignment = 7,  /*!< data pointer alignment in bytes */
  kWeftArgNotInt = 8,     /*!< not an integer */
  kWeftArgNotFloat = 9,   /*!< not a number */
  kWeftArgSymbol = 10,    /*!< shape[dim] against a symbolic dimension bound earlier */
  kWeftArgRange = 11,     /*!< an integer that does not fit; expected = code | bits << 8 of its dtype */
  kWeftArgDeviceId = 12   /*!< another device than an earlier argument's; expected = its index */
};

/*!
 * \brief Raise the error of a failed argument check: names the function, the argument, what was expected and found.
 * \param signature The kernel's signature, for example "add4(a: Tensor[[4], float32], ...)".
 * \param arg_index Position of the argument, from 0.
 * \param code A WeftArgError.
 * \param dim The dimension for shape errors.
 * \param expected The expected value, see WeftArgError.
 * \param args, num_args The arguments of the call.
 * \return -1
 */
WEFT_API int32_t weft_arg_error(const char* signature, int32_t arg_index, int32_t code, int64_t dim, int64_t expected,
                                const TVMFFIAny* args, int32_t num_args);

/*! \brief Raise an error of a kind ("ValueError", ...) with a message. Returns -1. */
WEFT_API int32_t weft_set_error(const char* kind, const char* message);

/* ---- modules --------------------------------------------------------------------------------------------------- */

/*! \brief Open a library that Weft or Apache TVM exported; *out owns a tvm-ffi Module. */
WEFT_API int32_t weft_load_module(const char* path, TVMFFIObjectHandle* out);

/*!
 * \brief Make a virtual machine for an executable module on a device; *out owns a tvm-ffi Module whose functions are
 * the executable's.
 */
WEFT_API int32_t weft_vm_create(TVMFFIObjectHandle executable, DLDevice device, TVMFFIObjectHandle* out);

#ifdef __cplusplus
}  // extern "C"
#endif
#endif  // WEFT_RUNTIME_H_
