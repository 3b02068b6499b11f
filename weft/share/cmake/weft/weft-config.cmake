# find_package(weft) for programs in C and C++.
#
#   cmake -S . -B build -Dweft_DIR=$(python -m weft config --cmake)
#
# Targets: weft::runtime, the shared library with its headers; weft::headers, the headers alone; and with
# find_package(weft COMPONENTS static) weft::static, runtime and tvm-ffi built from source into the program, without
# dlopen. Installed packages lie side by side and need no Python here; a source checkout asks the Python that it finds.
cmake_minimum_required(VERSION 3.20)
get_filename_component(weft_PACKAGE "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

set(weft_INCLUDE_DIR "${weft_PACKAGE}/include")
set(weft_LIBRARY "${weft_PACKAGE}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}weft_runtime${CMAKE_SHARED_LIBRARY_SUFFIX}")
set(weft_SOURCE_DIR "${weft_PACKAGE}/native")
set(weft_TVM_FFI "${weft_PACKAGE}/../tvm_ffi")
if(NOT EXISTS "${weft_INCLUDE_DIR}" OR NOT EXISTS "${weft_LIBRARY}" OR NOT EXISTS "${weft_TVM_FFI}")
  find_package(Python COMPONENTS Interpreter REQUIRED)
  execute_process(
    COMMAND "${Python_EXECUTABLE}" -m weft config --includes --library --sources --tvm-ffi
    OUTPUT_VARIABLE weft_answer ERROR_VARIABLE weft_problem RESULT_VARIABLE weft_failed)
  if(weft_failed)
    set(weft_FOUND FALSE)
    set(weft_NOT_FOUND_MESSAGE "${Python_EXECUTABLE} -m weft config failed; set Python_EXECUTABLE to the Python that \
has weft:\n${weft_problem}")
    return()
  endif()
  string(REGEX REPLACE "\n$" "" weft_answer "${weft_answer}")
  string(REPLACE "\n" ";" weft_answer "${weft_answer}")
  list(GET weft_answer 0 weft_INCLUDE_DIR)
  list(GET weft_answer 1 weft_LIBRARY)
  list(GET weft_answer 2 weft_SOURCE_DIR)
  list(GET weft_answer 3 weft_TVM_FFI)
endif()

foreach(component IN LISTS weft_FIND_COMPONENTS)
  if(NOT component STREQUAL "static")
    set(weft_FOUND FALSE)
    set(weft_NOT_FOUND_MESSAGE "weft has no component '${component}'; it has: static")
    return()
  endif()
endforeach()

if(NOT TARGET weft::headers)
  add_library(weft::headers INTERFACE IMPORTED)
  target_compile_features(weft::headers INTERFACE cxx_std_17)
  target_include_directories(weft::headers INTERFACE "${weft_INCLUDE_DIR}" "${weft_TVM_FFI}/include")

  add_library(weft::tvm_ffi SHARED IMPORTED)
  set_target_properties(weft::tvm_ffi PROPERTIES IMPORTED_LOCATION
    "${weft_TVM_FFI}/lib/${CMAKE_SHARED_LIBRARY_PREFIX}tvm_ffi${CMAKE_SHARED_LIBRARY_SUFFIX}")
  add_library(weft::runtime SHARED IMPORTED)
  set_target_properties(weft::runtime PROPERTIES IMPORTED_LOCATION "${weft_LIBRARY}"
                                                 INTERFACE_LINK_LIBRARIES "weft::headers;weft::tvm_ffi")
endif()

if("static" IN_LIST weft_FIND_COMPONENTS AND NOT TARGET weft::static)
  include("${weft_SOURCE_DIR}/static.cmake")
endif()
