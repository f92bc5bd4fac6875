// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Captures of RoCEv2 for tests: the packets of a file in the classic pcap format of this machine's byte order, with
// Ethernet headers.
#pragma once

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "wire/bytes.hpp"
#include "wire/ip.hpp"

namespace weft::wire::roce::sim {

// ctest sets it; by hand the tests run in the root of the project.
inline std::string golden_folder() {
  const char* folder = std::getenv("WEFT_SOURCE");
  return std::string(folder != nullptr ? folder : ".") + "/tests/golden/";
}

inline std::vector<std::vector<std::byte>> frames(const std::string& path) {
  std::vector<std::byte> bytes;
  if (std::FILE* file = std::fopen(path.c_str(), "rb")) {
    std::byte block[4096];
    for (size_t n; (n = std::fread(block, 1, sizeof block, file)) != 0;)
      bytes.insert(bytes.end(), block, block + n);
    std::fclose(file);
  }
  std::vector<std::vector<std::byte>> found;
  for (size_t at = 24; at + 16 <= bytes.size();) {
    const size_t length = swap_bytes(load_big<uint32_t>(&bytes[at + 8]));
    at += 16;
    if (length > bytes.size() - at) break;
    found.emplace_back(bytes.begin() + static_cast<std::ptrdiff_t>(at),
                       bytes.begin() + static_cast<std::ptrdiff_t>(at + length));
    at += length;
  }
  return found;
}

}  // namespace weft::wire::roce::sim
