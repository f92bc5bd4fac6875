# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# What an install puts under a prefix, by component (cmake --install ... --component NAME): mux, dev, direct, tools, compat, verbs, docs.
# Nothing in it knows the prefix, so the tree may be moved as a whole. CMAKE_INSTALL_LIBDIR names the folder of libraries (Debian: lib/<triplet>).
set(libraries "${CMAKE_INSTALL_LIBDIR}")
set(private "${CMAKE_INSTALL_LIBDIR}/weft")
set(headers "${CMAKE_INSTALL_INCLUDEDIR}")
set(documents "${CMAKE_INSTALL_DOCDIR}")

if(TARGET weft)
  install(TARGETS weft RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT tools)
endif()
if(TARGET weft_conformance)
  install(TARGETS weft_conformance RUNTIME DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/weft COMPONENT tools)
endif()
if(TARGET weft_compat)
  install(TARGETS weft_compat LIBRARY DESTINATION ${private}/compat NAMELINK_SKIP COMPONENT compat)
endif()
if(TARGET weft_verbs)
  install(TARGETS weft_verbs LIBRARY DESTINATION ${private}/compat NAMELINK_SKIP COMPONENT verbs)
endif()
if(TARGET weft_plugin)
  install(TARGETS weft_plugin weft_plugin_tcp weft_plugin_udp LIBRARY DESTINATION ${private}/plugin COMPONENT compat)
endif()

install(DIRECTORY include/ DESTINATION ${headers} COMPONENT dev FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(TARGETS weft_mux LIBRARY DESTINATION ${libraries} COMPONENT mux NAMELINK_COMPONENT dev)
install(DIRECTORY "${WEFT_MUX_INCLUDE}/" DESTINATION ${headers}/weft/mux COMPONENT dev)
install(TARGETS weft_common weft_plugin_core ARCHIVE DESTINATION ${libraries} COMPONENT dev)
install(FILES "${PROJECT_SOURCE_DIR}/cmake/plugin.map" DESTINATION ${private} COMPONENT dev)
install(TARGETS ${WEFT_DIRECT_TARGETS} weft_direct_nic ARCHIVE DESTINATION ${libraries} COMPONENT direct)
install(DIRECTORY "${WEFT_DIRECT_INCLUDE}/weft/src" "${WEFT_DIRECT_INCLUDE}/weft/direct" DESTINATION ${headers}/weft COMPONENT direct)

# How pkg-config and find_package reach the prefix from where their files lie.
set(WEFT_LIBDIR "${libraries}")
file(RELATIVE_PATH WEFT_PC_PREFIX "/prefix/${libraries}/pkgconfig" "/prefix")
file(RELATIVE_PATH WEFT_CMAKE_PREFIX "/prefix/${libraries}/cmake/weft" "/prefix")
string(REGEX REPLACE "/$" "" WEFT_PC_PREFIX "${WEFT_PC_PREFIX}")
string(REGEX REPLACE "/$" "" WEFT_CMAKE_PREFIX "${WEFT_CMAKE_PREFIX}")
foreach(name IN ITEMS mux provider)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-${name}.pc.in" "${PROJECT_BINARY_DIR}/weft-${name}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/weft-${name}.pc" DESTINATION ${libraries}/pkgconfig COMPONENT dev)
endforeach()
foreach(provider IN LISTS WEFT_DIRECT_PROVIDERS)
  configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-direct.pc.in" "${PROJECT_BINARY_DIR}/weft-direct-${provider}.pc" @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/weft-direct-${provider}.pc" DESTINATION ${libraries}/pkgconfig COMPONENT direct)
endforeach()
configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-direct-nic.pc.in" "${PROJECT_BINARY_DIR}/weft-direct-nic.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/weft-direct-nic.pc" DESTINATION ${libraries}/pkgconfig COMPONENT direct)
string(REPLACE ";" " " WEFT_DIRECT_PROVIDERS_WORDS "${WEFT_DIRECT_PROVIDERS}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in" "${PROJECT_BINARY_DIR}/weft-config.cmake" @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/weft-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/weft-config.cmake" "${PROJECT_BINARY_DIR}/weft-config-version.cmake"
              "${PROJECT_SOURCE_DIR}/cmake/libfabric_headers.cmake" DESTINATION ${libraries}/cmake/weft COMPONENT dev)

install(FILES README.md ARCHITECTURE.md CHANGELOG.md SECURITY.md LICENSE DESTINATION ${documents} COMPONENT docs)
install(DIRECTORY LICENSES DESTINATION ${documents} COMPONENT docs)
install(DIRECTORY docs/ DESTINATION ${documents}/docs COMPONENT docs FILES_MATCHING PATTERN "*.md" PATTERN "*.svg" PATTERN "man" EXCLUDE)
# The examples that documents speak of.
install(DIRECTORY examples DESTINATION ${documents} COMPONENT docs FILES_MATCHING PATTERN "*.md" PATTERN "*.[ch]" PATTERN "*.[ch]pp" PATTERN "Makefile"
        PATTERN "CMakeLists.txt")
# The links of the documents point to what is installed.
install(CODE "set(WEFT_DOCUMENTS \"${documents}\")\nset(WEFT_HEADERS \"${headers}\")" COMPONENT docs)
install(SCRIPT "${PROJECT_SOURCE_DIR}/cmake/installed_docs.cmake" COMPONENT docs)
file(GLOB manual_commands CONFIGURE_DEPENDS docs/man/*.1)
file(GLOB manual_subjects CONFIGURE_DEPENDS docs/man/*.7)
install(FILES ${manual_commands} DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT tools)
install(FILES ${manual_subjects} DESTINATION ${CMAKE_INSTALL_MANDIR}/man7 COMPONENT tools)

install(FILES tools/completions/weft.bash DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions RENAME weft COMPONENT tools)
install(FILES tools/completions/_weft DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/vendor-completions COMPONENT tools)

# All that is installed: what `./dev build` builds.
add_custom_target(weft_installed)
add_dependencies(weft_installed weft weft_compat weft_verbs weft_plugin weft_plugin_tcp weft_plugin_udp weft_mux weft_public_headers weft_common
                                weft_plugin_core ${WEFT_DIRECT_TARGETS} weft_direct_nic)
if(TARGET weft_conformance)
  add_dependencies(weft_installed weft_conformance)
endif()
