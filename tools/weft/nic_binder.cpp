// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Writes to sysfs, in the order that leaves a card with a driver whatever fails.
#include "nic_binder.hpp"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <thread>

#include <fmt/format.h>

#include "failure.hpp"

namespace weft::tool::cards {
namespace {

using std::chrono::milliseconds;

constexpr const char* pci_bus = "/sys/bus/pci";
constexpr milliseconds appear_max{3000};

// 0 or an errno.
int write_file(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  const ssize_t put = ::write(fd, text.data(), text.size());
  const int code = put == static_cast<ssize_t>(text.size()) ? 0 : put < 0 ? errno : EIO;
  ::close(fd);
  return code;
}

bool appears(const std::function<bool()>& what) {
  for (milliseconds waited{0}; waited < appear_max; waited += milliseconds(20)) {
    if (what()) return true;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return what();
}

std::string driver_of(const std::string& address) {
  const auto function = pci::function_at(address);
  return function ? function->driver : "";
}

// The driver that the function may have ("": any), and no other; then the kernel looks for one.
int let_bind(const std::string& address, const std::string& only) {
  const std::string folder = fmt::format("{}/devices/{}", pci_bus, address);
  if (const int code = write_file(folder + "/driver_override", only + "\n"); code != 0) return code;
  if (!driver_of(address).empty())
    if (const int code = write_file(folder + "/driver/unbind", address); code != 0) return code;
  return write_file(fmt::format("{}/drivers_probe", pci_bus), address);
}

bool run_modprobe() {
  const char* arguments[] = {"modprobe", "-a", "vfio_iommu_type1", "vfio-pci", nullptr};
  pid_t child = 0;
  if (::posix_spawnp(&child, arguments[0], nullptr, nullptr, const_cast<char* const*>(arguments), environ) !=
      0)
    return false;
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

void require_root(const char* what) {
  if (::geteuid() != 0) fail("{} writes to {}: only root can", what, pci_bus);
}

void remember(const Card& card) {
  nic_binding::Binding binding{card.function.driver, {}};
  binding.interfaces.assign(card.interfaces.begin(), card.interfaces.end());
  const std::string path = nic_binding::path_of(card.function.address), fresh = path + ".new";
  ::mkdir("/run/weft", 0755);
  ::mkdir("/run/weft/nic", 0755);
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0644);
  const std::string text = nic_binding::to_text(binding);
  const bool written = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const int code = errno;
  if (fd >= 0) ::close(fd);
  if (!written || ::rename(fresh.c_str(), path.c_str()) != 0)
    fail("{} cannot be written: {}", path, std::strerror(written ? errno : code));
}

// By name or number. (uid_t)-1 is no user: chown(2) would change nothing.
uid_t user_named(const std::string& user) {
  if (const passwd* entry = ::getpwnam(user.c_str())) return entry->pw_uid;
  const auto number = pci::detail::number(user, 10);
  if (!number || *number == static_cast<uid_t>(-1)) fail("there is no user '{}'", user);
  return *number;
}

void give_to(uid_t owner, const std::string& user, const pci::Function& function) {
  const std::string path = pci::group_path(function);
  if (!appears([&] { return ::access(path.c_str(), F_OK) == 0; }) ||
      ::chown(path.c_str(), owner, static_cast<gid_t>(-1)) != 0)
    fail("{} cannot be given to {}: {}", path, user, std::strerror(errno));
}

// What is missing beyond bind's own work.
void require_bindable(const Card& card) {
  for (const pci::Obstacle& one : card.obstacles)
    if (one.need == pci::Need::iommu || one.need == pci::Need::group || one.need == pci::Need::isolation)
      fail("{}: {}", one.what, one.remedy);
}

void require_leave(const Card& card, unsigned force) {
  const auto reasons = card.reasons_to_leave();
  if (reasons.empty() || force >= 2) return;
  fail("{} stays with the kernel: {}.\nTake it all the same, and cut these off, with --force --force",
       card.function.address, fmt::join(reasons, "; "));
}

}  // namespace

std::vector<std::string> bind(const Card& card, const BindOptions& options) {
  const std::string& address = card.function.address;
  std::vector<std::string> said;
  require_bindable(card);
  const uid_t owner = options.user ? user_named(*options.user) : 0;  // before anything is changed
  if (!card.function.is_handed_over()) {
    require_leave(card, options.force);
    require_root("bind");
    if (::access("/sys/bus/pci/drivers/vfio-pci", F_OK) != 0 && !run_modprobe())
      fail("vfio-pci cannot be loaded: modprobe -a vfio_iommu_type1 vfio-pci");
    remember(card);
    const int code = let_bind(address, "vfio-pci");
    if (const auto now = driver_of(address); now != "vfio-pci") {
      [[maybe_unused]] const int back = let_bind(address, "");
      ::unlink(nic_binding::path_of(address).c_str());
      fail("{} did not go to vfio-pci{}{}; it is back with {}", address, code != 0 ? ": " : "",
           code != 0 ? std::strerror(code) : "",
           driver_of(address).empty() ? "no driver" : driver_of(address));
    }
    said.push_back(fmt::format("{}: from {} to vfio-pci", address,
                               card.function.driver.empty() ? "no driver" : card.function.driver));
  } else {
    said.push_back(fmt::format("{} has been handed over before", address));
  }
  const auto function = pci::function_at(address);
  if (!function) fail("{} is gone", address);
  if (options.user) {
    require_root("bind --user");
    give_to(owner, *options.user, *function);
    said.push_back(fmt::format("{} belongs to {}", pci::group_path(*function), *options.user));
  }
  for (const pci::Obstacle& one : pci::obstacles(*function))
    if (one.need == pci::Need::group_mates)
      said.push_back(fmt::format("still to do: {}: {}", one.what, one.remedy));
  return said;
}

std::vector<std::string> unbind(const Card& card) {
  const std::string& address = card.function.address;
  if (!card.function.is_handed_over())
    fail("{} is not with vfio-pci but with {}", address,
         card.function.driver.empty() ? "no driver" : card.function.driver);
  // The kernel would wait for it, and so would we.
  if (!card.holders.empty())
    fail("{} is in use by process {} ({}): end it first", address, card.holders[0].pid, card.holders[0].name);
  require_root("unbind");
  if (const int code = let_bind(address, ""); code != 0)
    fail("{} cannot be given back: {}", address, std::strerror(code));
  const std::string wanted = card.before ? card.before->driver : "";
  if (!wanted.empty() && driver_of(address).empty())
    write_file(fmt::format("{}/drivers/{}/bind", pci_bus, wanted), address);
  const std::string driver = driver_of(address);
  if (!wanted.empty() && driver != wanted)
    fail("{} is with {}, not with {} as before", address, driver.empty() ? "no driver" : driver, wanted);
  std::vector<std::string> said = {
      fmt::format("{}: from vfio-pci to {}", address, driver.empty() ? "no driver" : driver)};
  const size_t count = card.before ? card.before->interfaces.size() : 0;
  std::vector<std::string> names;
  appears([&] {
    const auto now = pci::function_at(address);
    names = now ? now->interfaces : std::vector<std::string>{};
    return names.size() >= count;
  });
  for (size_t i = 0; i < count; ++i) {
    const nic_binding::Interface& had = card.before->interfaces[i];
    if (i >= names.size()) {
      said.push_back(fmt::format("its interface {} has not come back", had.name));
      continue;
    }
    const auto same = std::ranges::find(names, had.name);
    const std::string& name = same != names.end() ? *same : names[i];
    const auto refused = restore(name, had);
    said.push_back(fmt::format("{}{}: {}", name,
                               name == had.name ? "" : fmt::format(" (before: {})", had.name),
                               refused.empty() ? "as it was" : fmt::format("{}", fmt::join(refused, "; "))));
  }
  ::unlink(nic_binding::path_of(address).c_str());
  return said;
}

}  // namespace weft::tool::cards
