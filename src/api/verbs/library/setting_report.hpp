// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Compares the environment and the configuration file with the list of settings, and tells what is not taken; from then
// on settings are found in that file, too. Any thread.
#pragma once

namespace weft::verbs {

// Once a process.
void report_settings() noexcept;

}  // namespace weft::verbs
