// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The loopback link: frames between endpoints of one process. The smallest Link there is: a name, a queue of frames for each endpoint and,
// as the only optional ability, sleep. Must not know tags or completions.
//
// Threads: endpoints of one process may belong to different threads, so each mailbox has a mutex. Bound: mailbox_frames per endpoint;
// beyond it send() refuses and the engine waits.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "os/event.hpp"
#include "proto/engine/link_base.hpp"
#include "wire/frame.hpp"

namespace weft::link::loopback {

inline constexpr size_t address_bytes = 48;
inline constexpr size_t mailbox_frames = 256;

struct Frame {
  std::string from;
  wire::FrameHead head;
  std::vector<std::byte> payload;
  bool farewell = false;  // the sender's endpoint is gone
};

// Where an endpoint gets its frames. Outlives the endpoint as long as somebody sends to it.
struct Mailbox {
  std::mutex mutex;
  std::deque<Frame> frames;
  bool open = true;
  bool sleeping = false;  // notify wakeup
  std::optional<os::Event> wakeup;
};

struct Peer {
  std::string name;
  std::shared_ptr<Mailbox> mailbox;
};

using Events = proto::LinkEvents<Peer>;

// What links and connections carry (proto/engine/link.hpp).
struct Sizes {
  static constexpr size_t frame_bytes_max = size_t{1} << 16;
  static constexpr size_t eager_bytes_max = size_t{1} << 13;
  static constexpr size_t fragmented_eager_bytes_max = size_t{1} << 18;
  static constexpr size_t fragment_bytes = size_t{1} << 13;
  static constexpr size_t segment_bytes = size_t{1} << 15;
  static constexpr size_t address_length = address_bytes;
};

class Link : public Sizes, public proto::LinkBase {
 public:
  using PeerBase = Peer;
  using Events = loopback::Events;

  Link() = default;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  ~Link() { close(); }

  Result<void> open(std::string_view name, Events& events);
  void close() noexcept;
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(address_)); }
  Peer* connect(std::span<const std::byte> address, int& error);
  void forget(Peer& peer) noexcept;
  bool send(Peer& peer, const wire::FrameHead& head, std::span<const std::byte> prefix, const iovec* parts,
            size_t part_count) noexcept;

  template <class Handler>
  int poll(Handler& handler) noexcept {
    int taken = 0;
    while (Frame* frame = front()) {
      Peer* peer = peer_of(*frame);
      if (frame->farewell) {
        if (peer != nullptr) lose(*peer);
      } else if (peer != nullptr && !handler.on_frame(*peer, frame->head, frame->payload.data())) {
        break;
      }
      pop();
      ++taken;
    }
    return taken;
  }

  int wait_fd() const noexcept { return mailbox_->wakeup->fd(); }
  bool arm() noexcept;
  void disarm() noexcept;

 private:
  Frame* front() noexcept;
  void pop() noexcept;
  Peer* peer_of(const Frame& frame) noexcept;
  void lose(Peer& peer) noexcept;
  void say_farewell(Mailbox& to) noexcept;

  Events* events_ = nullptr;
  std::array<char, address_bytes> address_{};
  std::string name_;
  std::shared_ptr<Mailbox> mailbox_;
  proto::PeersByName<Peer> peers_;
};

}  // namespace weft::link::loopback
