# SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
# The program of ./dev vm: against the installed verbs headers and library, whichever that is; at run time the guest
# chooses. Without them it is left out.
find_path(WEFT_VERBS_INCLUDE infiniband/verbs.h)
find_library(WEFT_VERBS_LIBRARY ibverbs)
if(WEFT_VERBS_INCLUDE AND WEFT_VERBS_LIBRARY)
  file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/vm/peer/*.cpp")
  add_executable(weft_vm_peer ${files})
  target_include_directories(weft_vm_peer PRIVATE "${WEFT_VERBS_INCLUDE}")
  target_link_libraries(weft_vm_peer PRIVATE "${WEFT_VERBS_LIBRARY}")
  set_target_properties(weft_vm_peer PROPERTIES OUTPUT_NAME verbs_peer RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/vm")
else()
  message(STATUS "weft: no libibverbs-dev: the program of ./dev vm is left out")
endif()

# The program of ./dev vm nic: the drivers of network cards over VFIO.
file(GLOB files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/tests/vm/nic/*.cpp")
add_executable(weft_vm_nic ${files})
target_link_libraries(weft_vm_nic PRIVATE weft_os)
set_target_properties(weft_vm_nic PROPERTIES OUTPUT_NAME nic_cases RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/vm")
# And the example that looks at a card by itself, against the headers and the archive that programs get.
add_executable(weft_vm_look "${PROJECT_SOURCE_DIR}/examples/nic/look_at_card.cpp")
target_link_libraries(weft_vm_look PRIVATE weft::direct::nic)
set_target_properties(weft_vm_look PROPERTIES OUTPUT_NAME look_at_card RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/vm")
add_dependencies(weft_vm_nic weft_vm_look)
