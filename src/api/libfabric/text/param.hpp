// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Configuration variables of the libfabric front end: defined by name, read from the environment, listed for
// `fi_info --env`. See fi_provider(3). Must not know which variables exist.
#pragma once

#include <rdma/fabric.h>

#include <cstddef>
#include <string_view>

namespace weft::fi {

// Defines variable FI_<PROVIDER>_<NAME>, in capitals; FI_<NAME> when `provider` is null, empty or "core".
// Texts are copied. A second definition with the same type changes nothing. Returns 0, -FI_EINVAL (no name,
// no help, an unknown type, a name of other characters than letters, digits, '_', '-' and ';') or -FI_ENOMEM.
// Any thread.
int param_define(const char* provider, const char* name, fi_param_type type, const char* help) noexcept;

// Reads a defined variable into *value: `char*` (ours, stays valid), `int`, `int` 0 or 1, or `size_t` by its
// type. 0; -FI_ENODATA when it is not set; -FI_ENOENT when it was not defined; -FI_EINVAL when the text is
// not of the type, which is also said at warn, once for each text. *value is touched only on 0. Any thread.
int param_get(const char* provider, const char* name, void* value) noexcept;

// Define and read in one step, `otherwise` when it is unset or malformed.
size_t param_size(const char* provider, const char* name, size_t otherwise, const char* help) noexcept;
bool param_bool(const char* provider, const char* name, bool otherwise, const char* help) noexcept;
const char* param_string(const char* provider, const char* name, const char* otherwise,
                         const char* help) noexcept;

// fi_getparams: a copy of the list, ended by an entry without a name; freed by param_list_free. 0 or
// -FI_ENOMEM.
int param_list(fi_param** params, int* count) noexcept;
void param_list_free(fi_param* params) noexcept;

// Whether a variable of this name, FI_<PROVIDER>_<NAME>, was defined. Any thread.
bool param_is_defined(std::string_view variable) noexcept;

// Defines the settings of base/settings.hpp that are no provider's (FI_PROVIDER, FI_LOG_*, WEFT_*). Idempotent.
void param_define_core() noexcept;

}  // namespace weft::fi
