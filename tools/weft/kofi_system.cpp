// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "kofi_system.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "failure.hpp"

namespace weft::tool::kofi_system {
namespace {

struct Needs {
  const char* module;
  std::vector<const char*> before;
};

const std::array<Needs, 8> all_modules{{{"kofi", {}},
                                        {"kofi_loop", {"kofi"}},
                                        {"kofi_tcp", {"kofi"}},
                                        {"kofi_verbs", {"ib_core", "rdma_cm", "kofi"}},
                                        {"kofi_rdm", {"kofi"}},
                                        {"kofi_blk", {"configfs", "kofi"}},
                                        {"kofi_blk_target", {"configfs", "kofi"}},
                                        {"kofi_test", {"kofi"}}}};

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream file(path);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string line_of(const std::string& path) {
  std::string text = read_file(path).value_or("");
  text.erase(std::find(text.begin(), text.end(), '\n'), text.end());
  return text;
}

// 0 or an errno.
int write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t wrote = ::write(fd, text.data(), text.size());
  const int code = wrote == static_cast<ssize_t>(text.size()) ? 0 : wrote < 0 ? errno : EIO;
  ::close(fd);
  return code;
}

std::vector<std::string> folders_in(const std::string& path) {
  std::vector<std::string> found;
  DIR* folder = ::opendir(path.c_str());
  if (folder == nullptr) return found;
  while (const dirent* entry = ::readdir(folder))
    if (entry->d_name[0] != '.') found.emplace_back(entry->d_name);
  ::closedir(folder);
  std::sort(found.begin(), found.end());
  return found;
}

bool run(std::vector<std::string> words) {
  std::vector<char*> arguments;
  arguments.reserve(words.size() + 1);
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  if (::posix_spawnp(&child, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return false;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool is_loaded(const std::string& module) { return ::access(("/sys/module/" + module).c_str(), F_OK) == 0; }

std::string devices_folder(const Paths& paths) { return paths.config + "/kofi_blk"; }

// What an errno of the kernel means here.
std::string reason_of(int code) {
  switch (code) {
    case ECONNREFUSED:
      return "nobody listens there";
    case ENODATA:
      return "no provider has that, or its module is not loaded";
    case EBUSY:
      return "in use";
    case ESTALE:
      return "the target knows a newer connection";
    case EPROTO:
      return "what is there is no target of block devices";
    case ETIMEDOUT:
      return "no answer";
    default:
      return std::strerror(code);
  }
}

}  // namespace

std::vector<std::string> load_order(const std::vector<std::string>& wanted) {
  std::vector<std::string> order;
  const auto add = [&](const std::string& name) {
    if (std::find(order.begin(), order.end(), name) == order.end()) order.push_back(name);
  };
  for (const std::string& name : wanted) {
    const auto* found = std::find_if(all_modules.begin(), all_modules.end(),
                                     [&](const Needs& needs) { return name == needs.module; });
    if (found == all_modules.end()) fail_usage("there is no module '{}'", name);
    for (const char* before : found->before) add(before);
    add(name);
  }
  return order;
}

std::vector<std::string> load(const std::vector<std::string>& wanted, const std::string& folder) {
  std::vector<std::string> said;
  for (const std::string& module : load_order(wanted)) {
    if (is_loaded(module)) continue;
    const bool ours = module.rfind("kofi", 0) == 0;
    const bool well = ours && !folder.empty() ? run({"insmod", fmt::format("{}/{}.ko", folder, module)})
                                              : run({"modprobe", module});
    if (!well && ours) fail("{} cannot be loaded", module);
    if (well && ours) said.push_back(fmt::format("{} is loaded", module));
  }
  // Where the distribution has not done it: what shows and takes is in these.
  if (::access("/sys/kernel/debug/kofi", F_OK) != 0)
    ::mount("debugfs", "/sys/kernel/debug", "debugfs", 0, nullptr);
  if (is_loaded("kofi_blk") && ::access("/sys/kernel/config/kofi_blk", F_OK) != 0)
    ::mount("configfs", "/sys/kernel/config", "configfs", 0, nullptr);
  return said;
}

std::vector<Provider> parse_providers(const std::string& text) {
  std::vector<Provider> found;
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);  // heads
  while (std::getline(lines, line)) {
    Provider one;
    std::istringstream words(line);
    if (words >> one.name >> one.version >> one.objects) found.push_back(one);
  }
  return found;
}

std::vector<Provider> providers(const Paths& paths) {
  const std::string path = paths.debug + "/kofi/providers";
  const auto text = read_file(path);
  if (!text && errno == EACCES) fail("{} cannot be read: only root can", path);
  if (!text) fail("there is no {}: the module kofi is not loaded (weft kofi load)", path);
  return parse_providers(*text);
}

std::vector<BlockDevice> block_devices(const Paths& paths) {
  std::vector<BlockDevice> found;
  for (const std::string& name : folders_in(devices_folder(paths))) {
    const std::string folder = fmt::format("{}/{}/", devices_folder(paths), name);
    found.push_back({name, line_of(folder + "provider"), line_of(folder + "address"),
                     line_of(folder + "service"), line_of(folder + "queues"), line_of(folder + "depth"),
                     line_of(folder + "device"), line_of(folder + "state")});
  }
  return found;
}

std::string free_name(const Paths& paths) {
  const auto taken = folders_in(devices_folder(paths));
  for (unsigned i = 0;; ++i)
    if (auto name = fmt::format("disk{}", i); std::find(taken.begin(), taken.end(), name) == taken.end())
      return name;
}

std::string connect(const Paths& paths, const std::string& name, const Settings& settings) {
  const std::string folder = fmt::format("{}/{}", devices_folder(paths), name);
  if (name.empty() || name.find('/') != std::string::npos) fail_usage("'{}' is no name", name);
  if (::access(devices_folder(paths).c_str(), F_OK) != 0)
    fail("there is no {}: the module kofi_blk is not loaded (weft kofi load)", devices_folder(paths));
  if (::mkdir(folder.c_str(), 0755) != 0)
    fail("{}: {}", folder, errno == EEXIST ? "there is a device of that name" : std::strerror(errno));
  const auto give_up = [&](const std::string& what, int code) {
    ::rmdir(folder.c_str());
    fail("{}: {}", what, reason_of(code));
  };
  for (const auto& [file, text] : settings)
    if (const int code = write_file(fmt::format("{}/{}", folder, file), text); code != 0)
      give_up(fmt::format("{} '{}'", file, text), code);
  if (const int code = write_file(folder + "/connect", "1"); code != 0) give_up("connecting", code);
  return line_of(folder + "/device");
}

void disconnect(const Paths& paths, const std::string& which) {
  for (const BlockDevice& device : block_devices(paths)) {
    if (which != device.name && (device.device.empty() || which != device.device)) continue;
    const std::string folder = fmt::format("{}/{}", devices_folder(paths), device.name);
    if (!device.device.empty())
      if (const int code = write_file(folder + "/connect", "0"); code != 0)
        fail("{} ({}): {}", device.name, device.device, reason_of(code));
    if (::rmdir(folder.c_str()) != 0) fail("{}: {}", folder, std::strerror(errno));
    return;
  }
  fail("there is no block device '{}' (weft kofi list)", which);
}

}  // namespace weft::tool::kofi_system
