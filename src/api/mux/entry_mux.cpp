// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The calls of libweft.so.1 that libfabric.so.1 has as functions too: the provider is chosen in them, at run time. Each only calls the front end.
// The calls that the standard headers define inline are generated from calls.txt (cmake/mux.cmake). Must not know anything else.
#include "api/libfabric/entry/all_providers.inc"
#include "api/libfabric/entry/exported_calls.inc"
#include "api/libfabric/entry/exported_objects.inc"
#include "api/libfabric/entry/unload.inc"
