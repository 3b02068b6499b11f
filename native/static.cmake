# weft::static: the runtime and tvm-ffi in one static library, for programs that open no library: models are linked into
# them. Included by weft-config.cmake, which sets weft_SOURCE_DIR, weft_INCLUDE_DIR and weft_TVM_FFI.
enable_language(C CXX)
find_package(Threads REQUIRED)

file(GLOB weft_sources "${weft_SOURCE_DIR}/src/*.cc" "${weft_TVM_FFI}/src/ffi/*.cc" "${weft_TVM_FFI}/src/ffi/extra/*.cc")
add_library(weft_static STATIC ${weft_sources} "${weft_SOURCE_DIR}/static/no_libraries.cc")
target_compile_features(weft_static PUBLIC cxx_std_17)
set_target_properties(weft_static PROPERTIES OUTPUT_NAME weft POSITION_INDEPENDENT_CODE ON)
target_include_directories(weft_static PRIVATE "${weft_SOURCE_DIR}/src" PUBLIC "${weft_INCLUDE_DIR}" "${weft_TVM_FFI}/include")
target_compile_definitions(weft_static PRIVATE
  TVM_FFI_USE_LIBBACKTRACE=0 TVM_FFI_BACKTRACE_ON_SEGFAULT=0
  # Whatever asks for a library, a driver or a model, is told that there are none.
  dlopen=weft_no_dlopen dlsym=weft_no_dlsym dlclose=weft_no_dlclose dlerror=weft_no_dlerror)
target_compile_options(weft_static PRIVATE -w $<$<NOT:$<CONFIG:Debug>>:-Os> -ffunction-sections -fdata-sections)
# Reading the headers takes most of the time.
target_precompile_headers(weft_static PRIVATE <tvm/ffi/container/map.h> <tvm/ffi/container/tensor.h> <tvm/ffi/extra/module.h>
  <tvm/ffi/function.h> <tvm/ffi/reflection/registry.h> <map> <string> <vector>)
target_link_libraries(weft_static PUBLIC Threads::Threads)

# All of it is linked: functions register themselves when the program starts, and nothing else refers to them.
add_library(weft_static_whole INTERFACE)
target_link_libraries(weft_static_whole INTERFACE weft_static)
if(APPLE)
  target_link_options(weft_static_whole INTERFACE "LINKER:-force_load,$<TARGET_FILE:weft_static>")
else()
  target_link_options(weft_static_whole INTERFACE
    "LINKER:--whole-archive" "$<TARGET_FILE:weft_static>" "LINKER:--no-whole-archive" "LINKER:--gc-sections")
endif()
add_library(weft::static ALIAS weft_static_whole)
