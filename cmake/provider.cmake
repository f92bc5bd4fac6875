# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# For authors of providers (docs/provider-guide.md): libweft-core.a, which with libweft-common.a is all that a plugin over weft/provider.hpp needs.

# weft_common, the generated headers' folder: cmake/direct.cmake.
add_library(weft_plugin_core STATIC "${PROJECT_SOURCE_DIR}/src/api/provider/entry_core.cpp")
add_dependencies(weft_plugin_core weft_public_headers)
target_include_directories(weft_plugin_core PRIVATE "${PROJECT_SOURCE_DIR}/src" "${PROJECT_SOURCE_DIR}/include" ${LIBFABRIC_INCLUDE_DIRS})
target_link_libraries(weft_plugin_core PUBLIC weft_common)
set_target_properties(weft_plugin_core PROPERTIES OUTPUT_NAME "weft-core" ARCHIVE_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/lib")
# Where an installed tree has it, too, so that what finds it relative to itself works in both.
configure_file("${PROJECT_SOURCE_DIR}/cmake/plugin.map" "${PROJECT_BINARY_DIR}/lib/weft/plugin.map" COPYONLY)

# What every plugin is linked with: one symbol goes out, no library of the compiler comes in, and what is missing is missed when it is linked.
set(WEFT_PLUGIN_LINK "-Wl,-z,defs;-Wl,-Bsymbolic;-Wl,--gc-sections;-Wl,-z,now")
if(NOT WEFT_SANITIZE)
  list(APPEND WEFT_PLUGIN_LINK -static-libstdc++ -static-libgcc)
endif()
string(REPLACE ";" " " WEFT_PLUGIN_LINK_WORDS "${WEFT_PLUGIN_LINK}")

# What find_package gives, for projects in this tree.
add_library(weft_provider INTERFACE)
add_library(weft::provider ALIAS weft_provider)
target_link_libraries(weft_provider INTERFACE weft_plugin_core Threads::Threads ${CMAKE_DL_LIBS})
target_include_directories(weft_provider INTERFACE "${WEFT_DIRECT_INCLUDE}" ${LIBFABRIC_INCLUDE_DIRS})
target_compile_features(weft_provider INTERFACE cxx_std_20)
target_link_options(weft_provider INTERFACE "-Wl,--version-script=${PROJECT_BINARY_DIR}/lib/weft/plugin.map" ${WEFT_PLUGIN_LINK})
