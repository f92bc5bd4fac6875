// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// PCI functions as sysfs(5) shows them, IOMMU groups, and what stands between a function and its use through VFIO
// (Linux, Documentation/driver-api/vfio.rst and Documentation/ABI/testing/sysfs-bus-pci). For programs that choose a device; Weft and
// its command use it themselves. Includes nothing of Weft, needs no library.
//
// Every function reads what is there now and keeps nothing; any thread. What cannot be read is as if it were not there. `root` stands before
// every path: empty, or the folder of a tree that looks like a system's (tests).
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::pci {

// One function of a PCI device, /sys/bus/pci/devices/ADDRESS.
struct Function {
  std::string address;  // domain:bus:device.function, "0000:00:04.0"
  uint16_t vendor = 0;
  uint16_t device = 0;
  uint32_t class_code = 0;              // base class, subclass, programming interface: 24 bits
  std::string driver;                   // empty: none
  std::string override_driver;          // driver_override: the only driver that may take it; empty: any
  std::optional<unsigned> group;        // IOMMU group; none: no IOMMU translates its DMA
  bool is_noiommu = false;              // the group is one of vfio's mode without an IOMMU
  std::vector<std::string> interfaces;  // of the network, in this namespace; sorted

  bool is_network() const noexcept { return class_code >> 16 == 0x02; }
  bool is_bridge() const noexcept { return class_code >> 16 == 0x06; }
  // vfio-pci, or a driver of a vendor that stands in for it (mlx5_vfio_pci).
  bool is_handed_over() const noexcept { return driver == "vfio-pci" || driver.ends_with("_vfio_pci"); }
};

// What a function needs before it can be opened, in the order in which it has to be done.
enum class Need {
  iommu,             // the machine has none, or it is off
  group,             // the IOMMU does not translate for this function
  isolation,         // the group is one without an IOMMU
  modules,           // vfio, vfio_iommu_type1 or vfio-pci is not there
  driver,            // the function is not bound to vfio-pci
  group_mates,       // another function of the group is bound to a driver of the kernel
  character_device,  // /dev/vfio/N is not there
  permission,        // this user may not open /dev/vfio/N
};

struct Obstacle {
  Need need;
  std::string what;    // a sentence without its full stop
  std::string remedy;  // what somebody can do about it
};

namespace detail {

inline std::string joined(std::initializer_list<std::string_view> parts) {
  std::string whole;
  for (const std::string_view part : parts) whole += part;
  return whole;
}

// A small file, without the white space at its end.
inline std::optional<std::string> read_file(const std::string& path, size_t bytes_max = 4096) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return std::nullopt;
  std::string text(bytes_max, '\0');
  size_t got = 0;
  while (got < text.size()) {
    const ssize_t now = ::read(fd, text.data() + got, text.size() - got);
    if (now <= 0) break;
    got += static_cast<size_t>(now);
  }
  ::close(fd);
  text.resize(got);
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ' || text.back() == '\0')) text.pop_back();
  return text;
}

// What a symbolic link names; empty: there is none.
inline std::string link_target(const std::string& path) {
  char target[1024];
  const ssize_t bytes = ::readlink(path.c_str(), target, sizeof target);
  if (bytes <= 0 || static_cast<size_t>(bytes) == sizeof target) return {};
  return std::string(target, static_cast<size_t>(bytes));
}
inline std::string link_name(const std::string& path) {
  const std::string target = link_target(path);
  return target.substr(target.rfind('/') + 1);  // npos + 1 is 0
}

// Names in a folder, sorted; none if there is no such folder.
inline std::vector<std::string> names_in(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> list(::opendir(folder.c_str()),
                                                 [](DIR* one) { return ::closedir(one); });
  std::vector<std::string> names;
  while (list != nullptr) {
    const dirent* one = ::readdir(list.get());
    if (one == nullptr) break;
    if (one->d_name[0] != '.') names.emplace_back(one->d_name);
  }
  std::sort(names.begin(), names.end());
  return names;
}

inline bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

inline std::optional<uint32_t> number(std::string_view text, int base) {
  const std::string copy(text);
  char* end = nullptr;
  const unsigned long value = std::strtoul(copy.c_str(), &end, base);
  if (copy.empty() || *end != '\0' || value > UINT32_MAX) return std::nullopt;
  return static_cast<uint32_t>(value);
}

inline uint32_t hexadecimal(const std::string& path) {
  return number(read_file(path).value_or(""), 16).value_or(0);
}

// Who may open a character device: "root:kvm, mode 0660".
inline std::string owner_and_mode(const struct stat& file) {
  std::string buffer(4096, '\0');
  passwd user{};
  passwd* user_found = nullptr;
  ::getpwuid_r(file.st_uid, &user, buffer.data(), buffer.size(), &user_found);
  std::string text = user_found != nullptr ? user_found->pw_name : std::to_string(file.st_uid);
  group users{};
  group* group_found = nullptr;
  ::getgrgid_r(file.st_gid, &users, buffer.data(), buffer.size(), &group_found);
  text += ':';
  text += group_found != nullptr ? group_found->gr_name : std::to_string(file.st_gid);
  text += ", mode 0";
  for (const unsigned shift : {6U, 3U, 0U}) text += static_cast<char>('0' + ((file.st_mode >> shift) & 7U));
  return text;
}

}  // namespace detail

// "00:04.0" and "0000:00:04.0" as sysfs writes them; nothing: it is not an address of a function.
inline std::optional<std::string> address_of(std::string_view text) {
  std::string whole(std::count(text.begin(), text.end(), ':') == 1 ? "0000:" : "");
  whole += text;
  for (char& one : whole)
    if (one >= 'A' && one <= 'F') one = static_cast<char>(one - 'A' + 'a');
  const std::string_view pattern = "xxxx:xx:xx.x";
  if (whole.size() != pattern.size()) return std::nullopt;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const bool is_digit = (whole[i] >= '0' && whole[i] <= '9') || (whole[i] >= 'a' && whole[i] <= 'f');
    if (pattern[i] == 'x' ? !is_digit : whole[i] != pattern[i]) return std::nullopt;
  }
  return whole.back() <= '7' ? std::optional(whole) : std::nullopt;
}

// Nothing: sysfs has no such function. `address` as address_of() gives it.
inline std::optional<Function> function_at(const std::string& address, const std::string& root = {}) {
  const std::string folder = root + "/sys/bus/pci/devices/" + address;
  if (address_of(address) != address || !detail::exists(folder)) return std::nullopt;
  Function found;
  found.address = address;
  found.vendor = static_cast<uint16_t>(detail::hexadecimal(folder + "/vendor"));
  found.device = static_cast<uint16_t>(detail::hexadecimal(folder + "/device"));
  found.class_code = detail::hexadecimal(folder + "/class");
  found.driver = detail::link_name(folder + "/driver");
  found.override_driver = detail::read_file(folder + "/driver_override").value_or("");
  if (found.override_driver == "(null)") found.override_driver.clear();
  found.group = detail::number(detail::link_name(folder + "/iommu_group"), 10);
  found.is_noiommu = detail::read_file(folder + "/iommu_group/name") == "vfio-noiommu";
  // A driver of a bus of its own (virtio) has the interface below that bus's device.
  std::vector<std::string> places = {folder};
  for (const std::string& name : detail::names_in(folder))
    if (name.starts_with("virtio")) places.push_back(detail::joined({folder, "/", name}));
  for (const std::string& place : places)
    for (std::string& name : detail::names_in(detail::joined({place, "/net"})))
      found.interfaces.push_back(std::move(name));
  std::sort(found.interfaces.begin(), found.interfaces.end());
  return found;
}

inline std::vector<Function> functions(const std::string& root = {}) {
  std::vector<Function> all;
  for (const std::string& address : detail::names_in(root + "/sys/bus/pci/devices"))
    if (auto one = function_at(address, root)) all.push_back(std::move(*one));
  return all;
}

// Addresses of the devices in an IOMMU group; the group is what VFIO hands over.
inline std::vector<std::string> group_members(unsigned group, const std::string& root = {}) {
  return detail::names_in(root + "/sys/kernel/iommu_groups/" + std::to_string(group) + "/devices");
}

// Of the members of the function's group, those that a driver of the kernel holds, so that the group is not viable. Bridges with the
// kernel's pcieport driver do not count.
inline std::vector<Function> group_blockers(const Function& function, const std::string& root = {}) {
  std::vector<Function> blockers;
  if (!function.group) return blockers;
  for (const std::string& address : group_members(*function.group, root)) {
    if (address == function.address) continue;
    auto mate = function_at(address, root);
    if (!mate || mate->driver.empty() || mate->is_handed_over() || mate->driver == "pci-stub") continue;
    if (mate->is_bridge() && mate->driver == "pcieport") continue;
    blockers.push_back(std::move(*mate));
  }
  return blockers;
}

// The file that stands for a group.
inline std::string group_path(const Function& function, const std::string& root = {}) {
  return root + "/dev/vfio/" + (function.is_noiommu ? "noiommu-" : "") +
         std::to_string(function.group.value_or(0));
}

// Processes that hold the group, as far as this user may look: pid and name.
struct Holder {
  unsigned pid = 0;
  std::string name;
};
inline std::vector<Holder> group_holders(const Function& function, const std::string& root = {}) {
  std::vector<Holder> holders;
  if (!function.group) return holders;
  const std::string wanted = group_path(function);
  for (const std::string& process : detail::names_in(root + "/proc")) {
    const auto pid = detail::number(process, 10);
    if (!pid || *pid == 0) continue;
    const std::string folder = detail::joined({root, "/proc/", process});
    for (const std::string& fd : detail::names_in(detail::joined({folder, "/fd"}))) {
      if (detail::link_target(detail::joined({folder, "/fd/", fd})) != wanted) continue;
      holders.push_back({*pid, detail::read_file(detail::joined({folder, "/comm"})).value_or("")});
      break;
    }
  }
  return holders;
}

inline bool has_iommu(const std::string& root = {}) {
  return !detail::names_in(root + "/sys/class/iommu").empty();
}

// What keeps this process from opening the function through VFIO; empty: nothing that can be seen without trying.
inline std::vector<Obstacle> obstacles(const Function& function, const std::string& root = {}) {
  std::vector<Obstacle> all;
  if (!function.group && !has_iommu(root)) {
    all.push_back({Need::iommu,
                   "this machine has no IOMMU that the kernel uses, so DMA of a device cannot be confined",
                   "switch it on in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on; a virtual "
                   "machine needs one from its "
                   "host (QEMU: -device intel-iommu,intremap=on)"});
  } else if (!function.group) {
    all.push_back({Need::group,
                   "the IOMMU does not translate for " + function.address + ": it is in no IOMMU group",
                   "boot with intel_iommu=on; of a virtio device its host has to ask for it (QEMU: "
                   "iommu_platform=on)"});
  } else if (function.is_noiommu) {
    all.push_back({Need::isolation,
                   "group " + std::to_string(*function.group) + " is one of vfio's mode without an IOMMU",
                   "Weft does not use it: the device could write all memory of the machine"});
  }
  std::string missing;
  if (!detail::exists(root + "/dev/vfio/vfio")) missing += " vfio";
  if (!detail::exists(root + "/sys/module/vfio_iommu_type1")) missing += " vfio_iommu_type1";
  if (!detail::exists(root + "/sys/bus/pci/drivers/vfio-pci")) missing += " vfio-pci";
  if (!missing.empty())
    all.push_back({Need::modules, "the kernel has not loaded" + missing,
                   "modprobe -a" + missing + ", if this kernel has them"});
  if (!function.is_handed_over())
    all.push_back(
        {Need::driver,
         function.address + (function.driver.empty() ? " is bound to no driver"
                                                     : " is bound to the kernel's driver " + function.driver),
         "weft nic bind " + function.address});
  for (const Function& mate : group_blockers(function, root))
    all.push_back({Need::group_mates,
                   "group " + std::to_string(*function.group) + " is not viable: " + mate.address +
                       " in it is bound to " + mate.driver,
                   mate.is_network() ? "weft nic bind " + mate.address
                                     : "unbind it: echo " + mate.address + " > /sys/bus/pci/drivers/" +
                                           mate.driver + "/unbind"});
  if (!function.group || !function.is_handed_over()) return all;
  const std::string path = group_path(function, root);
  struct stat file {};
  if (::stat(path.c_str(), &file) != 0)
    all.push_back({Need::character_device, path + " does not exist",
                   "a container needs it passed in; otherwise look at dmesg"});
  else if (::access(path.c_str(), R_OK | W_OK) != 0)
    all.push_back({Need::permission,
                   "this user may not open " + path + " (" + detail::owner_and_mode(file) + ")",
                   "weft nic bind --user NAME " + function.address +
                       ", or chown it, or a udev rule for SUBSYSTEM==\"vfio\""});
  return all;
}

}  // namespace weft::pci
