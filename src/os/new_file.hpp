// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Files that are made new and only grow. Must not know what is in them.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "os/fd.hpp"

namespace weft::os {

// A file that was not there, for its owner alone (mode 0600). EEXIST: something has that name.
Result<Fd> create_file(const std::string& path);
// "x.pcap" with 1234 and 2: "x.1234.2.pcap".
std::string numbered_name(std::string_view path, int process, unsigned number);
// Not a directory, a device, or a symbolic link.
bool is_regular_file(const std::string& path) noexcept;
void shorten_file(const Fd& file, size_t size) noexcept;
// Writes all of it at the end of a file that has `size` bytes. 0 or an errno; then a part of it may be written. EFBIG
// beyond the limit on file size (RLIMIT_FSIZE), where the kernel would end the process (SIGXFSZ).
int append_to_file(const Fd& file, size_t size, std::span<const std::byte> bytes) noexcept;

}  // namespace weft::os
