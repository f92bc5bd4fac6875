# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# Linking directly: for each provider that has endpoints of one type, an archive libweft-<provider>.a and headers that lead a program's standard
# source into it (docs/linking.md). Generated: the wrappers of the standard headers, and copies of ours whose includes start at "weft/src/".

set(WEFT_DIRECT_INCLUDE "${PROJECT_BINARY_DIR}/include")
# Name in files and targets, type and header in src/providers/; those whose endpoints are datagrams have no data path to inline.
set(WEFT_DIRECT_TABLE "shm Shm shm" "loopback Loopback loopback" "weft Weft weft" "tcp Tcp tcp" "tcp-rxm TcpRxm tcp_rxm" "udp-rxd UdpRxd udp_rxd"
                      "udp Udp udp datagrams")
list(TRANSFORM WEFT_DIRECT_TABLE REPLACE " .*" "" OUTPUT_VARIABLE WEFT_DIRECT_PROVIDERS)

# The data path's calls by the header that declares them.
set(calls_fi_endpoint "")
set(calls_fi_tagged "")
set(calls_fi_rma "")
set(calls_fi_atomic "")
set(calls_fi_eq fi_cq_read fi_cq_readfrom)
file(STRINGS "${PROJECT_SOURCE_DIR}/src/api/direct/calls.inc" lines REGEX "^WEFT_DIRECT\\(")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/api/direct/calls.inc")
foreach(line IN LISTS lines)
  string(REGEX MATCH "\\(([a-z]+), (fi_[a-z_]+)," ignored "${line}")
  set(header "fi_${CMAKE_MATCH_1}")
  string(REPLACE fi_msg fi_endpoint header "${header}")
  list(APPEND calls_${header} "${CMAKE_MATCH_2}")
endforeach()

# fi_direct*.h: what the standard headers include right before their inline functions when FABRIC_DIRECT is defined.
function(weft_write_direct_renames folder name calls)
  set(text "")
  foreach(call IN LISTS calls)
    string(APPEND text "#define ${call}(...) weft_vector_${call}(__VA_ARGS__)\n")
  endforeach()
  if(NOT text)
    set(text "/* Nothing is replaced here. */\n")
  endif()
  file(CONFIGURE OUTPUT "${folder}/${name}" @ONLY CONTENT
"/* Included by the standard headers under FABRIC_DIRECT: these calls of theirs get another name, and the proper one is ours. */
${text}")
endfunction()

function(weft_write_direct_header folder provider header calls inlined)
  set(include_calls "")
  if(inlined)
    set(include_calls "#if defined(FABRIC_DIRECT) && defined(WEFT_DIRECT_INLINE)
extern \"C++\" {
#include <weft/direct/${provider}/calls.hpp>
}
#endif
")
  endif()
  set(restore "")
  set(declare "")
  foreach(call IN LISTS calls)
    string(APPEND restore "#undef ${call}\n")
    string(APPEND declare "extern __typeof__(weft_vector_${call}) ${call};\n")
  endforeach()
  set(generation "")
  if(header STREQUAL "fabric")
    set(generation "#include <weft/libfabric_generation.h>\n")
  endif()
  string(MAKE_C_IDENTIFIER "WEFT_DIRECT_${provider}_${header}_H" guard)
  string(TOUPPER "${guard}" guard)
  string(MAKE_C_IDENTIFIER "WEFT_DIRECT_CHOSEN_${provider}" chosen)
  file(CONFIGURE OUTPUT "${folder}/${header}.h" @ONLY CONTENT
"/* <rdma/${header}.h> for programs that link the provider ${provider} directly. */
#ifndef ${guard}
#define ${guard}
#pragma GCC system_header
#include <weft/direct/way.h>
#ifndef WEFT_DIRECT_CHOSEN
#define WEFT_DIRECT_CHOSEN
#define ${chosen}
#ifdef FABRIC_DIRECT
#include <weft/direct/${provider}/program.h>
#endif
#elif !defined(${chosen})
#error \"direct linking takes one provider: compile with the flags of one of weft-direct-*\"
#endif
#ifndef WEFT_DIRECT_NESTED
#define WEFT_DIRECT_NESTED
#define ${guard}_OUTERMOST
#endif
#if defined(__has_include_next)
#if !__has_include_next(<rdma/${header}.h>)
#error \"libfabric's headers are not there: install libfabric-dev (1.17 to 2.6 are what Weft is tested with)\"
#endif
#endif
#include_next <rdma/${header}.h>
#include <weft/libfabric_headers.h>
#ifdef FABRIC_DIRECT
${generation}${restore}#ifndef WEFT_DIRECT_INLINE
#ifdef __cplusplus
extern \"C\" {
#endif
${declare}#ifdef __cplusplus
}
#endif
#endif
#endif
#ifdef ${guard}_OUTERMOST
#undef WEFT_DIRECT_NESTED
${include_calls}#endif
#endif
")
endfunction()

# The bytes of fi_domain_attr in the archives' objects.
if(libfabric_headers_VERSION VERSION_LESS 1.20)
  set(WEFT_DIRECT_DOMAIN_ATTR 192)
elseif(libfabric_headers_VERSION VERSION_LESS 2.0)
  set(WEFT_DIRECT_DOMAIN_ATTR 200)
elseif(libfabric_headers_VERSION VERSION_LESS 2.5)
  set(WEFT_DIRECT_DOMAIN_ATTR 208)
else()
  set(WEFT_DIRECT_DOMAIN_ATTR 224)
endif()
file(CONFIGURE OUTPUT "${WEFT_DIRECT_INCLUDE}/weft/direct/way.h" @ONLY CONTENT
"/* Whether the program inlines the data path: C++20 with exceptions, and a standard library whose types are those of the archive. So must libfabric's
   structures be, whose sizes weft/libfabric_generation.h compares. */
#ifndef WEFT_DIRECT_WAY_H
#define WEFT_DIRECT_WAY_H
#define WEFT_DIRECT_DOMAIN_ATTR ${WEFT_DIRECT_DOMAIN_ATTR}
#if defined(__cplusplus) && __cplusplus >= 202002L && defined(__cpp_exceptions) && !defined(_GLIBCXX_DEBUG)
extern \"C++\" {
#include <version>
}
#ifndef _LIBCPP_VERSION
#define WEFT_DIRECT_INLINE 1
#endif
#endif
#endif
")

# The undefined symbol of every object that is compiled for a provider; entry_direct.cpp defines it in that provider's archive alone. It stands in a
# note, because linkers keep notes and their relocations under --gc-sections, and relative to its place, so that it needs no relocation at run time.
function(weft_write_direct_program folder provider symbol)
  file(CONFIGURE OUTPUT "${folder}/program.h" @ONLY CONTENT
"/* Ties an object to libweft-${provider}.a: linked to anything else, the linker says that ${symbol} is undefined. */
#ifndef WEFT_DIRECT_PROGRAM_H
#define WEFT_DIRECT_PROGRAM_H
__asm__(
    \".pushsection .note.weft,\\\"a\\\",%note\\n\"
    \".balign 4\\n\"
    \".long 5, 4, 1\\n\"
    \".asciz \\\"Weft\\\"\\n\"
    \".balign 4\\n\"
    \".long ${symbol} - .\\n\"
    \".popsection\");
#endif
")
endfunction()

function(weft_write_direct_headers provider type header inlined)
  string(MAKE_C_IDENTIFIER "${provider}" space)
  set(base "${WEFT_DIRECT_INCLUDE}/weft/direct")
  weft_write_direct_program("${base}/${provider}" "${provider}" "weft_direct_program_was_compiled_for_${space}")
  set(folder "${base}/${provider}/rdma")
  foreach(standard IN ITEMS fabric fi_domain fi_eq fi_cm fi_endpoint fi_tagged fi_rma fi_atomic fi_collective fi_trigger fi_ext
                             providers/fi_log providers/fi_prov)
    set(calls "")
    if(inlined)
      set(calls "${calls_${standard}}")
    endif()
    weft_write_direct_header("${folder}" "${provider}" "${standard}" "${calls}" "${inlined}")
  endforeach()
  foreach(name IN ITEMS endpoint tagged rma atomic eq)
    set(calls "")
    if(inlined)
      set(calls "${calls_fi_${name}}")
    endif()
    weft_write_direct_renames("${folder}" "fi_direct_${name}.h" "${calls}")
  endforeach()
  foreach(name IN ITEMS "" _atomic_def _domain _cm _trigger _collective _collective_def)
    weft_write_direct_renames("${folder}" "fi_direct${name}.h" "")
  endforeach()
  set(types "using Provider = ::weft::providers::${type};")
  set(more "")
  if(inlined)
    set(more "#include \"weft/src/api/libfabric/endpoints/extensions.hpp\"\n")
    string(APPEND types "
using Link = Provider::Link;
// The calls of <weft/extensions.h>, to be inlined: InPlace::take(ep, &wanted, &message) and the others.
using InPlace = ::weft::fi::InPlaceOps<::weft::proto::Engine<Link>>;")
    file(CONFIGURE OUTPUT "${base}/${provider}/calls.hpp" @ONLY CONTENT
"// The calls of the data path, inlined. Included by the headers beside it.
#pragma once

#include \"weft/src/providers/${header}.hpp\"

#define WEFT_DIRECT_LINK ::weft::providers::${type}::Link
#include \"weft/src/api/direct/inline.inc\"
")
  endif()
  file(CONFIGURE OUTPUT "${base}/${provider}.hpp" @ONLY CONTENT
"// The provider ${provider} for C++20 programs that link it directly and use its own types: docs/linking.md.
#pragma once

#if __cplusplus < 202002L
#error \"weft/direct/${provider}.hpp needs C++20 (-std=c++20)\"
#elif !defined(FABRIC_DIRECT)
#error \"weft/direct/${provider}.hpp needs the flags of direct linking (pkg-config --cflags weft-direct-${provider})\"
#endif

#include <rdma/fabric.h>

#ifndef WEFT_DIRECT_CHOSEN_${space}
#error \"weft/direct/${provider}.hpp: the flags are those of another way of linking; compile with pkg-config --cflags weft-direct-${provider}\"
#endif

#ifdef WEFT_DIRECT_OTHER_HEADERS
#error \"weft/direct/${provider}.hpp: libweft-${provider}.a was compiled with libfabric-dev ${libfabric_headers_VERSION}, whose structures have other sizes than those here\"
#endif

${more}#include \"weft/src/providers/${header}.hpp\"

namespace weft::direct::${space} {
${types}
}
")
endfunction()

# Our headers under weft/src/, made again when one of them changes.
set(public "")
foreach(module IN LISTS WEFT_MODULES)
  if(NOT module MATCHES "^api/(mux|verbs)$")
    file(GLOB_RECURSE found CONFIGURE_DEPENDS RELATIVE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/src/${module}/*.hpp" "${PROJECT_SOURCE_DIR}/src/${module}/*.inc")
    list(APPEND public ${found})
  endif()
endforeach()
# What tests alone include: simulators, models of cards, suites.
list(FILTER public EXCLUDE REGEX "(^|/)(sim|test)_[^/]*$|_suite[.]hpp$|^nic/model/")
list(TRANSFORM public PREPEND "${PROJECT_SOURCE_DIR}/src/" OUTPUT_VARIABLE public_sources)
list(TRANSFORM public PREPEND "${WEFT_DIRECT_INCLUDE}/weft/src/" OUTPUT_VARIABLE public_copies)
string(REPLACE ";" "\n" public_lines "${public}")
file(WRITE "${PROJECT_BINARY_DIR}/public_headers.txt" "${public_lines}\n")
add_custom_command(
  OUTPUT "${PROJECT_BINARY_DIR}/public_headers.stamp"
  BYPRODUCTS ${public_copies}  # so that this build, not the next one, compiles what includes a copy that changed
  COMMAND "${CMAKE_COMMAND}" -DLIST=${PROJECT_BINARY_DIR}/public_headers.txt -DFROM=${PROJECT_SOURCE_DIR}/src
          -DTO=${WEFT_DIRECT_INCLUDE}/weft/src -P "${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake"
  COMMAND "${CMAKE_COMMAND}" -E touch "${PROJECT_BINARY_DIR}/public_headers.stamp"
  DEPENDS ${public_sources} "${PROJECT_SOURCE_DIR}/cmake/public_headers.cmake"
  COMMENT "Copying headers for direct linking" VERBATIM)
add_custom_target(weft_public_headers ALL DEPENDS "${PROJECT_BINARY_DIR}/public_headers.stamp")

# Where an installed tree has them, too, so that what finds them relative to itself works in both.
foreach(header IN ITEMS provider.hpp plugin.hpp extensions.h libfabric_headers.h libfabric_generation.h statistics.hpp pci.hpp nic_binding.hpp libfabric_retired.hpp libfabric_retired_calls.hpp)
  configure_file("${PROJECT_SOURCE_DIR}/include/weft/${header}" "${WEFT_DIRECT_INCLUDE}/weft/${header}" COPYONLY)
endforeach()

# The drivers of network cards over VFIO, for programs that drive a card themselves (docs/nic.md): weft/direct/nic_*.hpp and libweft-nic.a.
function(weft_write_direct_nic driver)
  file(CONFIGURE OUTPUT "${WEFT_DIRECT_INCLUDE}/weft/direct/nic_${driver}.hpp" @ONLY CONTENT
"// The driver ${driver} over VFIO for C++20 programs that drive a card themselves: docs/nic.md. Link with libweft-nic.a.
#pragma once

#if __cplusplus < 202002L
#error \"weft/direct/nic_${driver}.hpp needs C++20 (-std=c++20)\"
#endif

#include \"weft/src/nic/${driver}/driver.hpp\"
#include \"weft/src/os/vfio/device.hpp\"

namespace weft::direct::nic_${driver} {
using Bus = ::weft::os::vfio::Device;
using Driver = ::weft::nic::${driver}::Driver<Bus>;
using ::weft::nic::DriverSettings;
using ::weft::nic::Fragment;
// Rings, descriptors and registers of the card.
namespace hardware = ::weft::nic::${driver};
}
")
endfunction()
weft_write_direct_nic(e1000e)
weft_write_direct_nic(virtio_net)
set(objects "")
foreach(module IN ITEMS base wire nic os)
  weft_module_target(target "${module}")
  list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,/nic/model/|/roce/>")
endforeach()
add_library(weft_direct_nic STATIC ${objects})
add_dependencies(weft_direct_nic weft_public_headers)
set_target_properties(weft_direct_nic PROPERTIES OUTPUT_NAME "weft-nic" ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib" LINKER_LANGUAGE CXX)
target_include_directories(weft_direct_nic INTERFACE "$<BUILD_INTERFACE:${WEFT_DIRECT_INCLUDE}>")
target_link_libraries(weft_direct_nic PUBLIC Threads::Threads)
add_library(weft::direct::nic ALIAS weft_direct_nic)

# The modules' objects without providers and their list, and without RoCEv2, which no provider there uses and which needs libdeflate.
set(objects "")
foreach(module IN LISTS WEFT_MODULES)
  weft_module_target(target "${module}")
  get_target_property(kind ${target} TYPE)
  if(kind STREQUAL "STATIC_LIBRARY" AND NOT module MATCHES "^api/(mux|direct|verbs)")
    list(APPEND objects "$<FILTER:$<TARGET_OBJECTS:${target}>,EXCLUDE,/registry[.]cpp|/libfabric/providers/|/roce/>")
  endif()
endforeach()

# What is the same for all of them, and for plugins of others.
add_library(weft_common STATIC ${objects})
set_target_properties(weft_common PROPERTIES OUTPUT_NAME "weft-common" ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib" LINKER_LANGUAGE CXX)
target_link_libraries(weft_common PUBLIC Threads::Threads ${CMAKE_DL_LIBS})

set(WEFT_DIRECT_TARGETS "")
function(weft_add_direct provider type header)
  set(inlined ON)
  if("datagrams" IN_LIST ARGN)
    set(inlined OFF)
  endif()
  weft_write_direct_headers("${provider}" "${type}" "${header}" "${inlined}")
  set(target "weft_direct_${provider}")
  set(functions "")
  if(inlined)
    # Each source is compiled once for each provider, so it needs a name of its own.
    set(functions "${PROJECT_BINARY_DIR}/direct_${provider}.cpp")
    file(CONFIGURE OUTPUT "${functions}" @ONLY CONTENT
"// The calls of the data path as functions, for C and for C++ before C++20.
#define WEFT_DIRECT_FUNCTION(call) extern __typeof__(weft_vector_##call) call; __attribute__((visibility(\"hidden\")))
#include <rdma/fi_tagged.h>
")
    # -g0: strip --strip-debug, which packages do to archives, removes the debugging information that the optimiser's code refers to,
    # and no C program links any more.
    set_source_files_properties("${functions}" PROPERTIES
      COMPILE_DEFINITIONS FABRIC_DIRECT COMPILE_OPTIONS "-ffat-lto-objects;-flto;-g0"
      INCLUDE_DIRECTORIES "${WEFT_DIRECT_INCLUDE}/weft/direct/${provider};${WEFT_DIRECT_INCLUDE}")
  endif()
  # The provider is compiled once, for the shared libraries and for this.
  add_library(${target} STATIC "${PROJECT_SOURCE_DIR}/src/api/direct/entry_direct.cpp" ${functions}
                               "$<FILTER:$<TARGET_OBJECTS:weft_api_libfabric>,INCLUDE,/libfabric/providers/${header}[.]cpp>")
  add_dependencies(${target} weft_public_headers)
  string(MAKE_C_IDENTIFIER "weft_direct_program_was_compiled_for_${provider}" symbol)
  target_compile_definitions(${target} PRIVATE "WEFT_DIRECT_PROVIDER=${type}" "WEFT_DIRECT_PROGRAM=${symbol}")
  target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
  set_target_properties(${target} PROPERTIES OUTPUT_NAME "weft-${provider}" ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
  target_link_libraries(${target} PUBLIC weft_common)
  # What find_package gives programs, for those in this tree.
  add_library(weft::direct::${provider} ALIAS ${target})
  target_compile_definitions(${target} INTERFACE FABRIC_DIRECT)
  target_include_directories(${target} INTERFACE "$<BUILD_INTERFACE:${WEFT_DIRECT_INCLUDE}/weft/direct/${provider};${WEFT_DIRECT_INCLUDE}>")
endfunction()

foreach(row IN LISTS WEFT_DIRECT_TABLE)
  separate_arguments(row UNIX_COMMAND "${row}")
  weft_add_direct(${row})
  list(GET row 0 provider)
  list(APPEND WEFT_DIRECT_TARGETS "weft_direct_${provider}")
endforeach()
