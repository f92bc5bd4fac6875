// A folder that looks like /sys, /dev and /proc of a machine, for tests. Gone with the object.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace weft::os::vfio {

class FakeTree {
 public:
  FakeTree() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-tree-XXXXXX").string();
    root_ = ::mkdtemp(pattern.data());
  }
  ~FakeTree() {
    std::error_code ignored;
    std::filesystem::remove_all(root_, ignored);
  }
  FakeTree(const FakeTree&) = delete;
  FakeTree& operator=(const FakeTree&) = delete;

  const std::string& root() const noexcept { return root_; }
  void file(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text << '\n';
  }
  void folder(const std::string& path) const { std::filesystem::create_directories(root_ + path); }
  void link(const std::string& path, const std::string& target) const {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::filesystem::remove(root_ + path);
    std::filesystem::create_symlink(target, root_ + path);
  }
  void remove(const std::string& path) const { std::filesystem::remove_all(root_ + path); }

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
  std::string root_;
};

}  // namespace weft::os::vfio
