// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_info copies and releases, by generation. Everything comes from malloc: a stock libfabric frees what the
// plugin returns, and programs replace strings with strdup'ed ones. Must not know what the fields mean.
#include "api/libfabric/discovery/info.hpp"

#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>

#include "api/libfabric/abi/values.hpp"

namespace weft::fi {
namespace {

// How much of a structure a program of a generation holds. The first field that came later ends it.
constexpr size_t info_bytes(Abi abi) { return abi < Abi::v1_2 ? offsetof(fi_info, nic) : sizeof(fi_info); }
constexpr size_t tx_bytes(Abi abi) {
  return abi < Abi::v1_3 ? offsetof(fi_tx_attr, tclass) : sizeof(fi_tx_attr);
}
constexpr size_t ep_bytes(Abi abi) {
  return abi < Abi::v1_1 ? offsetof(fi_ep_attr, auth_key_size) : sizeof(fi_ep_attr);
}
constexpr size_t fabric_bytes(Abi abi) {
  return abi < Abi::v1_1 ? offsetof(fi_fabric_attr, api_version) : sizeof(fi_fabric_attr);
}
// Offsets in the programs that are out there; they never change again.
static_assert(ep_bytes(Abi::v1_0) == 80 && info_bytes(Abi::v1_1) == 112);

// A zeroed T, and room behind it, with the first `bytes` of `from` in it. Sets *failed when memory is out.
template <class T>
T* copy_part(const T* from, size_t bytes, bool* failed) noexcept {
  auto* to = static_cast<T*>(std::calloc(1, sizeof(T) + layout::slack));
  if (to == nullptr) *failed = true;
  else if (from != nullptr) memcpy(static_cast<void*>(to), from, bytes);
  return to;
}

// The copied structure's `place` points into the original; gives it its own.
void own_string(char** place, bool* failed) noexcept {
  if (*place == nullptr) return;
  *place = strdup(*place);
  if (*place == nullptr) *failed = true;
}

template <class T>
void own_bytes(T** place, size_t* length, bool* failed) noexcept {
  const void* from = *place;
  *place = nullptr;
  if (*length == later::av_auth_key) return;  // says where keys come from, and has none itself
  if (from == nullptr || *length == 0) {
    *length = 0;
    return;
  }
  void* to = std::malloc(*length);
  if (to == nullptr) {
    *length = 0;
    *failed = true;
    return;
  }
  memcpy(to, from, *length);
  *place = static_cast<T*>(to);
}

void free_nic(fid_nic* nic) noexcept {
  if (fi_device_attr* device = nic->device_attr) {
    for (char* text : {device->name, device->device_id, device->device_version, device->vendor_id,
                       device->driver, device->firmware})
      std::free(text);
    std::free(device);
  }
  if (fi_link_attr* link = nic->link_attr) {
    std::free(link->address);
    std::free(link->network_type);
    std::free(link);
  }
  std::free(nic->bus_attr);
  std::free(nic);
}

// fi_nic(3): a NIC is an object of its own that the info holder closes.
int close_nic(fid* object) noexcept {
  free_nic(reinterpret_cast<fid_nic*>(object));
  return 0;
}

fid_nic* dup_nic(const fid_nic* nic, bool* failed) noexcept;

int control_nic(fid* object, int command, void* argument) noexcept {
  if (command != FI_DUP) return -FI_ENOSYS;
  bool failed = false;
  auto* copy = dup_nic(reinterpret_cast<fid_nic*>(object), &failed);
  if (failed) {
    if (copy != nullptr) free_nic(copy);
    return -FI_ENOMEM;
  }
  *static_cast<fid**>(argument) = &copy->fid;
  return 0;
}

fi_ops nic_ops = {
    .size = sizeof(fi_ops),
    .close = close_nic,
    .bind = [](fid*, fid*, uint64_t) noexcept { return -FI_ENOSYS; },
    .control = control_nic,
    .ops_open = [](fid*, const char*, uint64_t, void**, void*) noexcept { return -FI_ENOSYS; },
    .tostr = nullptr,
    .ops_set = nullptr,
};

// All but prov_attr, whose size only its provider knows.
fid_nic* dup_nic(const fid_nic* nic, bool* failed) noexcept {
  fid_nic* copy = copy_part<fid_nic>(nullptr, 0, failed);
  if (copy == nullptr) return nullptr;
  copy->fid = {.fclass = FI_CLASS_NIC, .context = nullptr, .ops = &nic_ops};
  if (nic->device_attr != nullptr) {
    fi_device_attr* device = copy_part(nic->device_attr, sizeof(fi_device_attr), failed);
    copy->device_attr = device;
    if (device != nullptr) {
      for (char** text : {&device->name, &device->device_id, &device->device_version, &device->vendor_id,
                          &device->driver, &device->firmware})
        own_string(text, failed);
    }
  }
  if (nic->bus_attr != nullptr) copy->bus_attr = copy_part(nic->bus_attr, sizeof(fi_bus_attr), failed);
  if (nic->link_attr != nullptr) {
    copy->link_attr = copy_part(nic->link_attr, sizeof(fi_link_attr), failed);
    if (copy->link_attr != nullptr) {
      own_string(&copy->link_attr->address, failed);
      own_string(&copy->link_attr->network_type, failed);
    }
  }
  return copy;
}

fi_ep_attr* dup_ep(const fi_ep_attr* from, Abi abi, bool* failed) noexcept {
  fi_ep_attr* to = copy_part(from, ep_bytes(abi), failed);
  if (to != nullptr) own_bytes(&to->auth_key, &to->auth_key_size, failed);
  return to;
}

fi_domain_attr* dup_domain(const fi_domain_attr* from, Abi abi, bool* failed) noexcept {
  fi_domain_attr* to = copy_part(from, layout::domain_bytes(abi), failed);
  if (to == nullptr) return nullptr;
  own_string(&to->name, failed);
  own_bytes(&to->auth_key, &to->auth_key_size, failed);
  return to;
}

fi_fabric_attr* dup_fabric(const fi_fabric_attr* from, Abi abi, bool* failed) noexcept {
  fi_fabric_attr* to = copy_part(from, fabric_bytes(abi), failed);
  if (to == nullptr) return nullptr;
  own_string(&to->name, failed);
  own_string(&to->prov_name, failed);
  return to;
}

// Every part of a null info is made, every part that is null in another stays so.
bool dup_parts(fi_info* to, const fi_info* from, Abi abi) noexcept {
  bool failed = false;
  if (from == nullptr || from->tx_attr != nullptr)
    to->tx_attr = copy_part(from != nullptr ? from->tx_attr : nullptr, tx_bytes(abi), &failed);
  if (from == nullptr || from->rx_attr != nullptr)
    to->rx_attr = copy_part(from != nullptr ? from->rx_attr : nullptr, sizeof(fi_rx_attr), &failed);
  if (from == nullptr || from->ep_attr != nullptr)
    to->ep_attr = dup_ep(from != nullptr ? from->ep_attr : nullptr, abi, &failed);
  if (from == nullptr || from->domain_attr != nullptr)
    to->domain_attr = dup_domain(from != nullptr ? from->domain_attr : nullptr, abi, &failed);
  if (from == nullptr || from->fabric_attr != nullptr)
    to->fabric_attr = dup_fabric(from != nullptr ? from->fabric_attr : nullptr, abi, &failed);
  own_bytes(&to->src_addr, &to->src_addrlen, &failed);
  own_bytes(&to->dest_addr, &to->dest_addrlen, &failed);
  if (from != nullptr && abi >= Abi::v1_2 && from->nic != nullptr) to->nic = dup_nic(from->nic, &failed);
  return !failed;
}

void free_one(fi_info* info, Abi abi) noexcept {
  std::free(info->src_addr);
  std::free(info->dest_addr);
  std::free(info->tx_attr);
  std::free(info->rx_attr);
  if (info->ep_attr != nullptr) {
    if (abi >= Abi::v1_1) std::free(info->ep_attr->auth_key);
    std::free(info->ep_attr);
  }
  if (info->domain_attr != nullptr) {
    if (abi >= Abi::v1_1) std::free(info->domain_attr->auth_key);
    std::free(info->domain_attr->name);
    std::free(info->domain_attr);
  }
  if (info->fabric_attr != nullptr) {
    std::free(info->fabric_attr->name);
    std::free(info->fabric_attr->prov_name);
    std::free(info->fabric_attr);
  }
  // A NIC without operations was put there by the program and stays its own.
  if (abi >= Abi::v1_2 && info->nic != nullptr && info->nic->fid.ops != nullptr &&
      info->nic->fid.ops->close != nullptr)
    info->nic->fid.ops->close(&info->nic->fid);
  std::free(info);
}

}  // namespace

bool add_slack(fi_info* info, Abi abi) noexcept {
  for (; info != nullptr; info = info->next) {
    if (info->domain_attr == nullptr) continue;
    constexpr size_t bytes = sizeof(fi_domain_attr) + layout::slack;
    void* const longer = std::realloc(info->domain_attr, bytes);
    if (longer == nullptr) return false;
    const size_t known = layout::domain_bytes(abi);
    memset(static_cast<std::byte*>(longer) + known, 0, bytes - known);
    info->domain_attr = static_cast<fi_domain_attr*>(longer);
  }
  return true;
}

fi_info* dup_info(const fi_info* info, Abi abi) noexcept {
  bool failed = false;
  fi_info* copy = copy_part(info, info_bytes(abi), &failed);
  if (copy == nullptr) return nullptr;
  copy->next = nullptr;
  // Until each has its own, none points into the original: free_info below must find only ours.
  copy->tx_attr = nullptr;
  copy->rx_attr = nullptr;
  copy->ep_attr = nullptr;
  copy->domain_attr = nullptr;
  copy->fabric_attr = nullptr;
  copy->nic = nullptr;
  if (!dup_parts(copy, info, abi)) {
    free_info(copy);
    return nullptr;
  }
  return copy;
}

void free_info(fi_info* info, Abi abi) noexcept {
  while (info != nullptr) {
    fi_info* next = info->next;
    free_one(info, abi);
    info = next;
  }
}

bool assign_string(char** place, const char* text) noexcept {
  char* copy = nullptr;
  if (text != nullptr && (copy = strdup(text)) == nullptr) return false;
  std::free(*place);
  *place = copy;
  return true;
}

bool assign_bytes(void** place, size_t* length, const void* bytes, size_t count) noexcept {
  void* copy = nullptr;
  if (bytes != nullptr && count > 0) {
    if ((copy = std::malloc(count)) == nullptr) return false;
    memcpy(copy, bytes, count);
  }
  std::free(*place);
  *place = copy;
  *length = copy != nullptr ? count : 0;
  return true;
}

}  // namespace weft::fi
