// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Registrar: who is told of the memory regions of a domain, because it has to know memory before a device reads or
// writes it: the DMA mapping of a user-space driver, the memory regions of a protection domain. Must not know devices
// or system calls.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace weft::core {

// What a region may be used for, without the terms of one interface.
struct AccessRights {
  bool local_read = false;     // source of messages and of RMA writes
  bool local_write = false;    // destination of messages and of RMA reads
  bool remote_read = false;    // source of RMA reads of peers
  bool remote_write = false;   // destination of RMA writes of peers
  bool remote_atomic = false;  // target of atomic operations of peers that return the old value

  // The direction of the transfers, as an IOMMU has it.
  bool device_reads() const noexcept { return local_read || remote_read || remote_atomic; }
  bool device_writes() const noexcept { return local_write || remote_write || remote_atomic; }

  friend bool operator==(const AccessRights&, const AccessRights&) = default;
};

// `access` of fi_mr(3): FI_SEND ... FI_REMOTE_WRITE. Atomic operations that return the old value read and write, so
// that remote_atomic needs both remote rights.
AccessRights rights_of(uint64_t access) noexcept;

// A region as a registrar sees it. Valid during the call only; enable() and remove() have what add() had, with the key
// that add() chose.
struct Registration {
  std::span<const iovec> pieces;  // as the program gave them: not aligned, perhaps overlapping other regions
  AccessRights rights;
  uint64_t key = 0;
  uint64_t base = 0;    // the remote address of the first byte: virtual, or 0
  uint64_t length = 0;  // of all pieces
  bool enabled = true;  // false: the remote rights hold from enable() on
};

// The answer of Registrar::add().
struct Registered {
  void* handle = nullptr;  // kept in the region: MemoryRegion::handle()
  std::optional<uint64_t>
      key;  // used instead of Registration::key where the provider chooses keys (FI_MR_PROV_KEY)
};

// Calls are made one at a time, with the table's mutex and the domain lock held, on the control path. The registrar
// must not call the table.
class Registrar {
 public:
  // 0; or a negative errno: the region is not registered.
  virtual int add(const Registration& registration, Registered& out) noexcept = 0;
  // The region may be reached by peers from now on. Only for regions that were not enabled when they were added.
  virtual void enable(const Registration&, void* /*handle*/) noexcept {}
  // No operation of the engine uses the region, and none will. 0; or -FI_EBUSY while the device still transfers from
  // or to it: the region stays registered, and the program closes it again later. Right after add() for a key that another region has: such a region
  // is known by its handle alone, and the answer does not count.
  virtual int remove(const Registration& registration, void* handle) noexcept = 0;

 protected:
  ~Registrar() = default;
};

}  // namespace weft::core
