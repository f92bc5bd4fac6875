// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// One endpoint with all that it needs, opened through the standard API, and its buffers. Knows nothing of
// what is measured.
#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "failure.hpp"
#include "perf_plan.hpp"

namespace weft::tool {

// The provider cannot do what is asked; not an error of the run.
class Refused : public Failure {
 public:
  using Failure::Failure;
};

template <class F>
struct CloseFid {
  void operator()(F* object) const noexcept { fi_close(&object->fid); }
};
template <class F>
using Fid = std::unique_ptr<F, CloseFid<F>>;

struct FreeInfo {
  void operator()(fi_info* list) const noexcept { fi_freeinfo(list); }
};

// Page-aligned zeroed memory, touched.
class Memory {
 public:
  explicit Memory(size_t bytes);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

struct SessionRequest {
  std::string provider;  // empty: the library's first choice
  Api api = Api::tagged;
  size_t size = 8;         // bytes of a message
  unsigned tx_slots = 64;  // sends outstanding at most
  unsigned rx_slots = 64;  // receives posted at most
  unsigned peers = 1;      // that will be connected
  unsigned buffers = 1;    // distinct buffers for either direction
  bool cq_data = false;    // writes will carry remote CQ data
  std::string threading = "domain";
  std::string node;  // local address for providers over IP; may be empty
};

// What the other side must know to reach our memory.
struct RemoteMemory {
  uint64_t address = 0;
  uint64_t key = 0;
};

class Session {
 public:
  // Throws Refused or Failure.
  explicit Session(const SessionRequest& request);

  std::vector<uint8_t> name() const;  // fi_getname(3)
  // Each call is one more peer; peer() is the last.
  void connect(const std::vector<uint8_t>& peer_name, RemoteMemory peer_memory);
  struct Peer {
    fi_addr_t address = FI_ADDR_UNSPEC;
    RemoteMemory memory;
  };
  Peer last_peer() const noexcept { return {peer_, peer_memory_}; }
  RemoteMemory memory() const;
  std::optional<Packets> packets() const;
  // Of messages of that size from the peer. Empty: none came that way, or the provider does not choose.
  std::optional<CopyPathCounts> copies(size_t size) const;

  const fi_info& info() const noexcept { return *info_; }
  fid_ep* ep() const noexcept { return ep_.get(); }
  fid_cq* cq() const noexcept { return cq_.get(); }
  fi_addr_t peer() const noexcept { return peer_; }
  RemoteMemory peer_memory() const noexcept { return peer_memory_; }
  void* descriptor() const noexcept { return descriptor_; }
  // Offsets of the slots' buffers; both sides have the same layout, so an offset names the peer's buffer as
  // well.
  size_t tx_offset(unsigned slot) const noexcept { return (slot % buffers_) * stride_; }
  size_t rx_offset(unsigned slot) const noexcept { return (buffers_ + slot % buffers_) * stride_; }
  std::byte* base() const noexcept { return memory_.data(); }
  bool delivery_complete() const noexcept { return delivery_complete_; }

 private:
  void choose(const SessionRequest& request);
  void open(const SessionRequest& request);
  void register_memory(const SessionRequest& request);
  void check_atomics() const;

  unsigned buffers_;
  size_t stride_;
  Memory memory_;
  bool delivery_complete_ = false;
  // In this order, so that they close in the reverse one.
  std::unique_ptr<fi_info, FreeInfo> info_;
  Fid<fid_fabric> fabric_;
  Fid<fid_domain> domain_;
  Fid<fid_av> av_;
  Fid<fid_cq> cq_;
  Fid<fid_mr> mr_;
  Fid<fid_ep> ep_;
  void* descriptor_ = nullptr;
  fi_addr_t peer_ = FI_ADDR_UNSPEC;
  RemoteMemory peer_memory_;
};

}  // namespace weft::tool
