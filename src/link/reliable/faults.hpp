// Faulty<P>: a packet link that loses, doubles and reorders some of what it sends, for tests; by default it does nothing of that. Must not
// know what is in the packets.
//
//   WEFT_PACKET_FAULTS="loss=1,twice=0.5,late=2,seed=7"
//
// Rates are in percent of the packets sent; a late packet goes after up to eight others, or at the next but one poll.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "base/hash.hpp"
#include "base/result.hpp"
#include "proto/packet/abilities.hpp"
#include "proto/reliable/connection.hpp"

namespace weft::link::reliable {

struct Faults {
  uint32_t loss = 0;  // of 2^32
  uint32_t twice = 0;
  uint32_t late = 0;
  uint64_t random = 1;

  // Null: none are asked for.
  static std::unique_ptr<Faults> from_environment();
  bool hit(uint32_t rate) noexcept {
    random = hash_word(random + hash_factor_a, hash_factor_b);
    return static_cast<uint32_t>(random >> 16) < rate;
  }
};

template <class P>
class Faulty : public P {
 public:
  template <class... Args>
  Result<void> open(Args&&... args) {
    faults_ = Faults::from_environment();
    return P::open(static_cast<Args&&>(args)...);
  }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    if (faults_ != nullptr) [[unlikely]]
      return spoil(to, parts, count);
    return P::send(to, parts, count);
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t packet_bytes) noexcept requires proto::HasSegmentationOffload<P> {
    if (faults_ == nullptr) [[likely]]
      return P::send_segmented(to, parts, count, packet_bytes);
    std::vector<std::byte> all;
    if (!gather(all, parts, count)) return true;
    for (size_t at = 0; at < all.size(); at += packet_bytes) {
      const iovec part{all.data() + at, std::min(packet_bytes, all.size() - at)};
      (void)spoil(to, &part, 1);
    }
    return true;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    if (faults_ != nullptr && !late_.empty()) [[unlikely]]
      release(1);
    return P::poll(handler);
  }

 private:
  struct Late {
    proto::reliable::Place to;
    std::vector<std::byte> bytes;
    size_t after;  // so many others
  };

  static bool gather(std::vector<std::byte>& out, const iovec* parts, size_t count) noexcept try {
    for (size_t i = 0; i < count; ++i) {
      const auto* from = static_cast<const std::byte*>(parts[i].iov_base);
      out.insert(out.end(), from, from + parts[i].iov_len);
    }
    return true;
  } catch (const std::bad_alloc&) {
    return false;
  }
  bool spoil(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    release(1);
    if (faults_->hit(faults_->loss)) return true;
    if (faults_->hit(faults_->late)) {
      Late late{proto::reliable::Place(to), {}, 1 + (faults_->random >> 8) % 8};
      if (gather(late.bytes, parts, count)) {
        late_.push_back(std::move(late));
        return true;
      }
    }
    if (faults_->hit(faults_->twice)) (void)P::send(to, parts, count);
    return P::send(to, parts, count);
  }
  void release(size_t others) noexcept {
    for (size_t i = 0; i < late_.size();) {
      Late& late = late_[i];
      if (late.after > others) {
        late.after -= others;
        ++i;
        continue;
      }
      const iovec part{late.bytes.data(), late.bytes.size()};
      (void)P::send(late.to.span(), &part, 1);
      late_.erase(late_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }

  std::unique_ptr<Faults> faults_;
  std::vector<Late> late_;
};

}  // namespace weft::link::reliable
