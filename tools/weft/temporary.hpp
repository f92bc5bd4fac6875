// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A folder that goes with the object. Must not know what is put into it.
#pragma once

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "failure.hpp"

namespace weft::tool {

class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : TemporaryFolder(name, std::filesystem::temp_directory_path()) {}
  TemporaryFolder(const std::string& name, const std::filesystem::path& above) {
    std::string path = (above / (name + "-XXXXXX")).string();
    if (mkdtemp(path.data()) == nullptr)
      fail("cannot make a folder in {}: {}", above.string(), std::strerror(errno));
    path_ = path;
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

}  // namespace weft::tool
