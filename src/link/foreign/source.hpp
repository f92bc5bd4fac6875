// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A provider that is known at run time only, as its libfabric sees it: a plugin. Must not know what is built on its endpoints.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "base/result.hpp"

namespace weft::link::foreign {

// The structure outlives what is opened with it.
struct Source {
  std::string name;
  uint32_t version = 0;  // of the interface that it is asked with
  int (*getinfo)(uint32_t version, const char* node, const char* service, uint64_t flags,
                 const fi_info* hints, fi_info** info) = nullptr;
  int (*fabric)(fi_fabric_attr* attr, fid_fabric** fabric, void* context) = nullptr;
  fi_info* (*dup_info)(const fi_info* info) = nullptr;  // null: an empty one
  void (*free_info)(fi_info* info) = nullptr;
};

// Hints for endpoints that we can use: messages only, memory registered where the provider wants that. Null: no memory. To be freed by
// source.free_info.
fi_info* hints_for(const Source& source, fi_ep_type type, uint32_t addr_format);

// The provider's first answer for such endpoints at `address` (empty: it chooses), ready to open the fabric with. To be freed by
// source.free_info, whatever the result.
Result<void> ask(const Source& source, fi_ep_type type, uint32_t addr_format, std::string_view address,
                 fi_info*& answer);

// An error of the provider below in words.
Error failure(const Source& source, const char* what, int status);

// Where errors go that no caller hears of.
struct Warning {
  void (*say)(const void* who, const char* what) = nullptr;
  const void* who = nullptr;

  void operator()(const Source& source, const char* what, int status) const noexcept;
};

// Closes an object if there is one.
template <class Object>
void shut(Object*& object) noexcept {
  if (object != nullptr) fi_close(&object->fid);
  object = nullptr;
}

// Plugins of later generations write more than the structure of the headers here has (fi_cq(3), src_addr).
struct ErrorEntry {
  fi_cq_err_entry entry;
  std::array<std::byte, 64> behind;
};

// Reads at most about `most` entries of a queue of FI_CQ_FORMAT_MSG: taken(entry) for what is done, failed(entry) for what is not.
template <class Taken, class Failed>
void read_completions(fid_cq* cq, size_t most, Taken&& taken, Failed&& failed) noexcept {
  fi_cq_msg_entry entries[16];
  for (size_t seen = 0; seen < most;) {
    const ssize_t count = fi_cq_read(cq, entries, std::size(entries));
    if (count == -FI_EAVAIL) {
      ErrorEntry error{};
      if (cq->ops->readerr(cq, &error.entry, 0) == 1 && error.entry.op_context != nullptr)
        failed(error.entry);
      ++seen;
      continue;
    }
    if (count <= 0) return;
    for (ssize_t i = 0; i < count; ++i) taken(entries[i]);
    seen += static_cast<size_t>(count);
  }
}

}  // namespace weft::link::foreign
