// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Whole messages in order over one RC queue pair, with credits, so that a receive request is there for every message
// (no RNR NAK). Must not know what the messages say, nor how the two ends find each other: they exchange name().
//
// A message is a SEND: 4 bytes, how many messages its sender has consumed so far (modulo 2^32), 1 byte kind (0: a
// message, 1: credits alone), 3 zero bytes, then the bytes, all little-endian. Each side sends at most `credits`
// messages beyond what the other has consumed. Credits alone go when a quarter of them is owed, and once when the
// active side is ready: until it hears something the passive side sends nothing. They take no credit; receives for them
// are kept apart (control_receives), more than there can be.
//
// Threads: one at a time; the lock of the device, which acknowledges and repeats by its own thread, is taken inside.
// What the peer sends is hostile: a count of what was never sent, or another kind, fails the channel.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/assert.hpp"
#include "base/result.hpp"
#include "link/roce/shared_device.hpp"
#include "os/event.hpp"
#include "os/socket_address.hpp"

namespace weft::link::roce {

class MessageChannel {
 public:
  static constexpr uint32_t credits = 256;
  static constexpr uint32_t control_receives = 8;
  static constexpr uint32_t receive_slots = credits + control_receives;
  static constexpr uint32_t send_slots = 32;
  static constexpr size_t message_bytes_max = (size_t{1} << 14) + 1024;
  static constexpr size_t name_bytes = 32;
  using Name = std::array<std::byte, name_bytes>;
  enum class Role : uint8_t { Active, Passive };

  MessageChannel() = default;
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;
  ~MessageChannel() { close(); }

  // A queue pair of the device at that address of ours, with its receives. `peer`: the host that will be the other end,
  // where it is known.
  Result<void> open(const os::SocketAddress& host, const os::SocketAddress& peer);
  // What the other end needs: "WRC1", QPN, GID, first PSN, path MTU. The active side says the largest that it can have,
  // the passive side, after connect(), the one that both have.
  Name name() const noexcept { return name_; }
  static bool is_name(std::span<const std::byte> bytes) noexcept;
  Result<void> connect(std::span<const std::byte> name, Role role);
  void close() noexcept;
  bool is_open() const noexcept { return qp_ != nullptr; }
  bool is_here() const noexcept { return shared_ == nullptr || shared_->device->is_here(); }

  // --- sending ---
  // Room for message_bytes_max bytes, until commit(); null: no credit, or all buffers are under way.
  std::byte* reserve() noexcept {
    if (!can_send() && (!more_room() || !can_send())) return nullptr;
    return reserved();
  }
  // What reserve() gave last.
  std::byte* reserved() noexcept { return send_slot(sent_ % send_slots) + header_bytes; }
  void commit(size_t bytes) noexcept;
  uint64_t sent() const noexcept { return sent_; }  // messages
  // Messages that the peer has: by its adapter, or by its own word.
  uint64_t acknowledged() const noexcept { return acknowledged_; }
  // The peer says that it has consumed so many, whatever became of the acknowledgements. False: more than were sent.
  bool acknowledge(uint64_t count) noexcept {
    if (count > sent_) return false;
    acknowledged_ = std::max(acknowledged_, count);
    WEFT_ASSERT(acknowledged_ <= sent_);
    return true;
  }

  // --- receiving --- show(message) for each message in order; one that it refuses (false) is shown again by the next
  // call. Returns how many were taken.
  template <class Show>
  int poll(Show&& show) noexcept {
    if (qp_ == nullptr) return 0;
    collect();
    int taken = 0;
    while (pending_count_ != 0) {
      const Pending message = pending_[pending_head_];
      const bool is_taken =
          show(std::span<const std::byte>(receive_slot(message.slot) + header_bytes, message.bytes));
      if (qp_ == nullptr) return taken;  // closed by who was shown it
      if (!is_taken) break;
      pending_head_ = (pending_head_ + 1) % receive_slots;
      --pending_count_;
      consume(message.slot);
      ++taken;
    }
    if (returned_count_ != 0 || credit_due_) return_credits();
    return taken;
  }
  uint64_t consumed() const noexcept { return consumed_; }  // messages that were taken
  // Moves what is on its way without showing anything.
  void drive() noexcept {
    if (qp_ != nullptr) collect();
  }
  bool has_failed() const noexcept { return failed_; }
  bool is_silent_failure() const noexcept { return unreachable_; }  // nobody answered
  bool has_pending() const noexcept { return pending_count_ != 0; }

  // --- sleeping ---
  int wait_fd() const noexcept { return notice_ ? notice_->fd() : -1; }
  bool arm() noexcept;
  void disarm() noexcept {
    if (notice_) notice_->drain();
  }

 private:
  static constexpr size_t header_bytes = 8;
  static constexpr size_t slot_bytes = header_bytes + message_bytes_max;
  static constexpr uint64_t control_id = UINT64_MAX;
  struct Pending {
    uint32_t slot;
    uint32_t bytes;
  };

  Result<void> make_queues(const os::SocketAddress& peer);
  void set_path_mtu(uint32_t mtu) noexcept;
  bool can_send() const noexcept {
    return may_send_ && !failed_ && sent_ - acknowledged_ < send_slots && sent_ - peer_consumed_ < credits;
  }
  Result<void> to_send(proto::roce::Attributes& attributes, uint32_t mtu_there);
  [[gnu::noinline]] bool more_room() noexcept;
  void collect() noexcept;
  void on_arrival(uint32_t slot, uint32_t bytes) noexcept;
  void consume(uint32_t slot) noexcept {
    WEFT_ASSERT(slot < receive_slots && returned_count_ < receive_slots);
    ++consumed_;
    returned_[returned_count_++] = slot;
    if (static_cast<uint32_t>(consumed_) - reported_ >= credits / 4) credit_due_ = true;
  }
  void return_credits() noexcept;
  int post_receive(uint32_t slot) noexcept;
  void write_header(std::byte* out, uint8_t kind) noexcept;
  std::byte* receive_slot(uint32_t slot) noexcept {
    WEFT_ASSERT(slot < receive_slots);
    return memory_.get() + slot * slot_bytes;
  }
  std::byte* send_slot(uint64_t slot) noexcept { return memory_.get() + (receive_slots + slot) * slot_bytes; }

  std::shared_ptr<SharedDevice> shared_;
  proto::roce::QueuePair* qp_ = nullptr;
  proto::roce::CompletionQueue* cq_ = nullptr;
  std::unique_ptr<std::byte[]> memory_;
  uint32_t key_ = 0;
  bool may_send_ = false;
  bool failed_ = false;
  bool unreachable_ = false;
  bool credit_due_ = false;
  uint32_t reported_ = 0;  // of consumed_, to the peer
  uint64_t sent_ = 0;
  uint64_t acknowledged_ = 0;
  uint64_t peer_consumed_ = 0;
  uint64_t consumed_ = 0;
  uint32_t pending_head_ = 0;
  uint32_t pending_count_ = 0;
  uint32_t returned_count_ = 0;
  std::array<Pending, receive_slots> pending_{};
  std::array<uint32_t, receive_slots> returned_{};
  // Cold below.
  proto::roce::Region* region_ = nullptr;
  std::optional<os::Event> notice_;
  Name name_{};
  uint32_t psn_ = 0;
};

}  // namespace weft::link::roce
