// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A folder that looks like /sys, /dev and /proc of a machine, for tests. Gone with the object.
#pragma once

#include <fcntl.h>
#include <ftw.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace weft::os::vfio {

class FakeTree {
 public:
  FakeTree() {
    const char* temporary = ::getenv("TMPDIR");
    std::string pattern = std::string(temporary != nullptr ? temporary : P_tmpdir) + "/weft-tree-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeTree() { remove_whole(root_); }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  const std::string& root() const noexcept { return root_; }
  void folder(const std::string& path) const { make_folders(root_ + path + "/"); }
  void file(const std::string& path, const std::string& text) const {
    make_folders(root_ + path);
    const int fd = ::open((root_ + path).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    [[maybe_unused]] const ssize_t put = ::write(fd, (text + "\n").data(), text.size() + 1);
    ::close(fd);
  }
  void link(const std::string& path, const std::string& target) const {
    make_folders(root_ + path);
    ::unlink((root_ + path).c_str());
    [[maybe_unused]] const int made = ::symlink(target.c_str(), (root_ + path).c_str());
  }
  void remove(const std::string& path) const { remove_whole(root_ + path); }

  // A function with its driver ("": none) and group (-1: none).
  void function(const std::string& address, const std::string& vendor, const std::string& device,
                const std::string& class_code, const std::string& driver, int group) const {
    const std::string at = "/sys/bus/pci/devices/" + address;
    file(at + "/vendor", vendor);
    file(at + "/device", device);
    file(at + "/class", class_code);
    file(at + "/driver_override", "(null)");
    bind(address, driver);
    if (group < 0) return;
    const std::string number = std::to_string(group);
    link(at + "/iommu_group", "../../../../kernel/iommu_groups/" + number);
    link("/sys/kernel/iommu_groups/" + number + "/devices/" + address,
         "../../../../bus/pci/devices/" + address);
  }
  void bind(const std::string& address, const std::string& driver) const {
    remove("/sys/bus/pci/devices/" + address + "/driver");
    if (!driver.empty())
      link("/sys/bus/pci/devices/" + address + "/driver", "../../../../bus/pci/drivers/" + driver);
  }
  // An IOMMU, the modules and the files of the group.
  void vfio(int group) const {
    folder("/sys/class/iommu/dmar0");
    folder("/sys/module/vfio_iommu_type1");
    folder("/sys/bus/pci/drivers/vfio-pci");
    file("/dev/vfio/vfio", "");
    file("/dev/vfio/" + std::to_string(group), "");
  }

 private:
  // Those above the last part of a path.
  static void make_folders(const std::string& path) {
    for (size_t at = path.find('/', 1); at != std::string::npos; at = path.find('/', at + 1))
      ::mkdir(path.substr(0, at).c_str(), 0755);
  }
  static void remove_whole(const std::string& path) {
    ::nftw(
        path.c_str(), [](const char* one, const struct stat*, int, FTW*) { return ::remove(one); }, 16,
        FTW_DEPTH | FTW_PHYS);
  }

  std::string root_;
};

}  // namespace weft::os::vfio
