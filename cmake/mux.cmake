# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The multiplexer: libweft.so.1, which exports every public call as a function, and the headers that lead a program's standard source to
# it. Both are made from src/api/mux/calls.txt and the standard headers of this machine, whose inline functions keep their text and get
# another name (docs/linking.md).

set(mux "${PROJECT_SOURCE_DIR}/src/api/mux")
set(WEFT_MUX_INCLUDE "${PROJECT_BINARY_DIR}/include/weft/mux")
file(STRINGS "${mux}/calls.txt" WEFT_MUX_CALLS REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${mux}/calls.txt")

function(weft_write_mux_header header)
  set(rename "")
  set(restore "")
  set(declare "")
  foreach(line IN LISTS WEFT_MUX_CALLS)
    string(REGEX MATCH "^([^ ]+) ([^ ]+)( = (.*) (\\(.*\\)))?$" matched "${line}")
    set(call "${CMAKE_MATCH_2}")
    if(CMAKE_MATCH_1 STREQUAL header)
      string(APPEND rename "#define ${call}(...) weft_inline_${call}(__VA_ARGS__)\n")
      string(APPEND restore "#undef ${call}\n")
      if(CMAKE_MATCH_3)
        string(APPEND declare "extern ${CMAKE_MATCH_4} ${call}${CMAKE_MATCH_5};\n")
      else()
        string(APPEND declare "extern __typeof__(weft_inline_${call}) ${call};\n")
      endif()
    endif()
  endforeach()
  set(generation "")
  if(header STREQUAL "fabric.h")
    set(generation "#include <weft/libfabric_generation.h>\n")
  endif()
  string(MAKE_C_IDENTIFIER "WEFT_MUX_${header}" guard)
  string(TOUPPER "${guard}" guard)
  file(CONFIGURE OUTPUT "${WEFT_MUX_INCLUDE}/rdma/${header}" @ONLY CONTENT
"/* <rdma/${header}> for programs that link the multiplexer: the calls that are inline there are functions of libweft.so here. */
#ifndef ${guard}
#define ${guard}
#pragma GCC system_header
#ifdef FABRIC_DIRECT
#error \"a program is linked to the multiplexer or directly: compile with the flags of weft-mux, or of one of weft-direct-*\"
#endif
#if defined(__has_include_next)
#if !__has_include_next(<rdma/${header}>)
#error \"libfabric's headers are not there: install libfabric-dev (1.17 to 2.6 are what Weft is tested with)\"
#endif
#endif
${rename}#include_next <rdma/${header}>
${restore}#include <weft/libfabric_headers.h>
${generation}#ifdef __cplusplus
extern \"C\" {
#endif
${declare}#ifdef __cplusplus
}
#endif
#endif
")
endfunction()

set(headers "")
set(source "/* The inline calls of the standard headers as functions of libweft.so. Generated from src/api/mux/calls.txt. */\n")
foreach(line IN LISTS WEFT_MUX_CALLS)
  string(REGEX REPLACE " .*" "" header "${line}")
  list(APPEND headers "${header}")
endforeach()
list(REMOVE_DUPLICATES headers)
foreach(header IN LISTS headers)
  weft_write_mux_header("${header}")
  string(APPEND source "#include <rdma/${header}>\n")
endforeach()
string(APPEND source "#pragma GCC diagnostic ignored \"-Wdeprecated-declarations\"\n")
foreach(line IN LISTS WEFT_MUX_CALLS)
  if(line MATCHES " = ")
    continue()
  endif()
  string(REGEX REPLACE ".* " "" call "${line}")
  string(APPEND source "extern __typeof__(weft_inline_${call}) ${call} __attribute__((alias(\"weft_inline_${call}\"), visibility(\"default\")));\n")
endforeach()
file(CONFIGURE OUTPUT "${PROJECT_BINARY_DIR}/mux_calls.c" CONTENT "${source}" @ONLY)

add_library(weft_mux SHARED "${mux}/entry_mux.cpp" "${PROJECT_BINARY_DIR}/mux_calls.c")
# Before the standard headers' folder, wherever that is.
set_property(SOURCE "${PROJECT_BINARY_DIR}/mux_calls.c" PROPERTY INCLUDE_DIRECTORIES "${WEFT_MUX_INCLUDE}")
set_property(SOURCE "${PROJECT_BINARY_DIR}/mux_calls.c" PROPERTY COMPILE_DEFINITIONS WEFT_MUX_LIBRARY)
weft_self_contained(weft_mux "${mux}/libweft.map")
set_target_properties(weft_mux PROPERTIES OUTPUT_NAME weft VERSION 1.0.0 SOVERSION 1
                                          LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
# What find_package gives programs, for those in this tree.
add_library(weft::mux ALIAS weft_mux)
target_include_directories(weft_mux INTERFACE "$<BUILD_INTERFACE:${WEFT_MUX_INCLUDE}>" "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>" "$<BUILD_INTERFACE:${LIBFABRIC_INCLUDE_DIRS}>")
