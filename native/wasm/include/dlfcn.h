// Opening shared libraries, which WebAssembly has none of: JavaScript links a model's kernels (web/).
#ifndef WEFT_WASM_DLFCN_H_
#define WEFT_WASM_DLFCN_H_

enum { RTLD_LAZY = 1, RTLD_LOCAL = 0, RTLD_NOLOAD = 4 };
inline void* dlopen(const char*, int) { return nullptr; }
inline void* dlsym(void*, const char*) { return nullptr; }
inline int dlclose(void*) { return 0; }
inline const char* dlerror() { return "WebAssembly has no shared libraries; load models from JavaScript"; }

#endif  // WEFT_WASM_DLFCN_H_
