// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Work requests and completions, as ibv_post_send(3), ibv_post_recv(3), ibv_poll_cq(3) and ibv_reg_mr(3) have them.
// Values are those of <infiniband/verbs.h>, so that a front end copies fields (work_test.cpp compares them where
// that header is there). Knows nothing of packets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace weft::proto::roce {

// 16 bytes that name a port to its peers. The device below knows what they mean.
using Gid = std::array<std::byte, 16>;

// Where packets go: ibv_ah_attr.
struct AddressVector {
  Gid destination{};
  uint32_t flow_label = 0;
  uint8_t source_index = 0;  // of the device's own GIDs
  uint8_t hop_limit = 64;
  uint8_t traffic_class = 0;
};

enum class SendOpcode : uint8_t {
  Write = 0,
  WriteImmediate = 1,
  Send = 2,
  SendImmediate = 3,
  Read = 4,
  CompareSwap = 5,
  FetchAdd = 6,
  LocalInvalidate = 7,
  BindWindow = 8,
  SendInvalidate = 9,
  Flush = 14,
  AtomicWrite = 15,
};

enum SendFlag : uint8_t { fence = 1, signaled = 2, solicited = 4, inline_data = 8 };

enum Access : uint32_t {
  local_write = 1,
  remote_write = 2,
  remote_read = 4,
  remote_atomic = 8,
  window_bind = 16,
  zero_based = 32,
  on_demand = 64,
  flush_global = 256,
  flush_persistent = 512,  // which no region has: whether memory is persistent is not known here
};

// A piece of the program's memory; under inline_data the key does not count.
struct Element {
  uint64_t address = 0;
  uint32_t length = 0;
  uint32_t key = 0;
};

constexpr uint64_t length_of(std::span<const Element> elements) noexcept {
  uint64_t length = 0;
  for (const Element& element : elements) length += element.length;
  return length;
}

struct SendRequest {
  uint64_t id = 0;
  SendOpcode opcode = SendOpcode::Send;
  uint8_t flags = 0;  // SendFlag
  std::span<const Element> elements;
  uint32_t immediate = 0;   // in the machine's byte order; of a Flush the bits of its FETH
  uint32_t invalidate = 0;  // rkey: SendInvalidate, LocalInvalidate
  uint64_t remote_address = 0;
  uint32_t remote_key = 0;
  // Of an AtomicWrite with inline_data, which has no elements, what is written; of a Flush its length.
  uint64_t compare_add = 0;
  uint64_t swap = 0;
  // UD
  AddressVector to;
  uint32_t remote_qpn = 0;
  uint32_t remote_qkey = 0;
  // XRC
  uint32_t remote_srqn = 0;
  // BindWindow: remote_key is the window's new rkey, and this what it covers. Length 0 only invalidates.
  struct Bind {
    uint32_t window_key = 0;  // an rkey that it has had
    uint32_t region_key = 0;
    uint64_t address = 0;
    uint64_t length = 0;
    uint32_t access = 0;
  } bind;
};

struct ReceiveRequest {
  uint64_t id = 0;
  std::span<const Element> elements;
};

enum class Status : uint8_t {
  Success = 0,
  LocalLength = 1,
  LocalOperation = 2,
  LocalProtection = 4,
  Flushed = 5,
  WindowBind = 6,
  BadResponse = 7,
  LocalAccess = 8,
  RemoteInvalidRequest = 9,
  RemoteAccess = 10,
  RemoteOperation = 11,
  RetryExceeded = 12,
  RnrRetryExceeded = 13,
};

enum class CompletionOpcode : uint8_t {
  Send = 0,
  Write = 1,
  Read = 2,
  CompareSwap = 3,
  FetchAdd = 4,
  BindWindow = 5,
  LocalInvalidate = 6,
  Flush = 8,
  AtomicWrite = 9,
  Receive = 128,
  ReceiveWriteImmediate = 129,
};

enum CompletionFlag : uint8_t { has_grh = 1, with_immediate = 2, with_invalidate = 8 };

struct Completion {
  uint64_t id = 0;
  Status status = Status::Success;
  CompletionOpcode opcode = CompletionOpcode::Send;  // meant only in success, as ever
  uint8_t flags = 0;                                 // CompletionFlag
  uint8_t cause = 0;                                 // of an error: enum weft_verbs_fault (fault.hpp)
  uint32_t bytes = 0;
  uint32_t immediate = 0;  // or the rkey that was invalidated
  uint32_t qpn = 0;
  uint32_t source_qpn = 0;
  uint64_t time_ns = 0;
};

// Bounds of queues and messages.
inline constexpr uint32_t requests_max = 32768;  // of one queue
inline constexpr uint32_t elements_max = 32;     // of one request
inline constexpr uint32_t inline_bytes_max = 1024;
inline constexpr uint32_t completions_max = 4u << 20;
inline constexpr uint32_t reads_max = 128;  // READs and atomics under way, each direction
inline constexpr uint32_t message_bytes_max = 1u << 31;
inline constexpr size_t objects_max = 65536;         // QPs, SRQs
inline constexpr size_t groups_max = 256;            // multicast
inline constexpr size_t group_members_max = 1024;    // QPs of each
inline constexpr uint32_t group_qpn = 0xffffff;      // where datagrams to groups go (IBTA 9.6.1.4)
inline constexpr size_t keys_max = size_t{1} << 20;  // regions; windows
inline constexpr size_t mtu_bytes_least = 256;
inline constexpr size_t mtu_bytes_max = 4096;
inline constexpr size_t grh_bytes = 40;

}  // namespace weft::proto::roce
