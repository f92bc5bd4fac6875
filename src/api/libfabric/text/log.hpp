// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Logging of the libfabric front end: the variables FI_LOG_LEVEL, FI_LOG_SUBSYS, FI_LOG_PROV and FI_LOG_INTERVAL
// of fabric(7), lines to standard error. The drop-in and the plugin log the same way. Must not know what it
// is told to write.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_eq.h>
// fi_ext.h declares what fi_open("logging") exchanges; it brings fi_log.h and fi_prov.h.
#include <rdma/fi_ext.h>

#include <cstdarg>
#include <cstdint>

namespace weft::fi {

// The name that lines of no provider carry. FI_LOG_PROV never filters it.
inline constexpr const char* kCore = "core";

// True when a line of this kind would be written. Reads the environment once, at the first call; one load and
// one test when off. `provider` may be null for the core. Any thread.
bool log_enabled(fi_log_level level, fi_log_subsys subsys, const char* provider = kCore) noexcept;

// Writes one line, "weft:<pid>:<provider>:<subsystem>:<level> text", when it is enabled. The format is
// printf's and carries no line end; longer lines than 4 KiB are cut. errno is kept. Any thread; a line is one
// write(2), so lines do not mix.
__attribute__((format(printf, 3, 4))) void log_warn(const char* provider, fi_log_subsys subsys,
                                                    const char* format, ...) noexcept;
__attribute__((format(printf, 3, 4))) void log_info(const char* provider, fi_log_subsys subsys,
                                                    const char* format, ...) noexcept;

// What the C entry points call. `provider` may be null. See fi_provider(3).
int log_enabled_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys) noexcept;
// As above, and at most once in FI_LOG_INTERVAL milliseconds for each `showtime`, which starts as 0 and
// belongs to us afterwards.
int log_ready_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys,
                uint64_t* showtime) noexcept;
void log_c(const fi_provider* provider, fi_log_level level, fi_log_subsys subsys, const char* function,
           int line, const char* format, va_list args) noexcept;

// Put before the names of our providers in every line and in the test against FI_LOG_PROV: the plugin's
// providers have other names than the drop-in's. A literal; call it before the first line.
void log_name_prefix(const char* prefix) noexcept;

// fi_import_log (fi_provider(3)): from now on the functions of `ops` decide and write; where one is null, ours does. The table is copied. Null
// restores all of ours.
void log_import(const fi_ops_log* ops) noexcept;

// False: FI_LOG_LEVEL with this text names no level; warn is what counts then.
bool is_log_level(const char* text) noexcept;

// The environment is read again at the next call. For tests.
void log_reset() noexcept;

}  // namespace weft::fi
