// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Posted buffers and kept datagrams.
#include "proto/datagram/receiver.hpp"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

namespace weft::proto {

DatagramReceiver::DatagramReceiver(size_t size) {
  posted_.resize(std::bit_ceil(std::clamp<size_t>(size, 1, size_t{1} << 20)));
  mask_ = static_cast<uint32_t>(posted_.size() - 1);
}

ssize_t DatagramReceiver::post(const iovec* iov, size_t count, void* context, uint64_t flags) noexcept {
  if (count > iov_max || (count != 0 && iov == nullptr)) return -FI_EINVAL;
  if ((flags & FI_MULTI_RECV) != 0 && count != 1) return -FI_EINVAL;
  if (tail_ - head_ > mask_ || (cq != nullptr && cq->full())) return -FI_EAGAIN;
  Posted& entry = posted_[tail_ & mask_];
  std::copy_n(iov, count, entry.iov.begin());
  entry.count = static_cast<uint8_t>(count);
  entry.length = total_bytes(iov, count);
  entry.done = 0;
  entry.context = context;
  entry.completes = completes(flags);
  entry.multi = (flags & FI_MULTI_RECV) != 0;
  ++tail_;
  if (buffer_used_ != 0) [[unlikely]]
    deliver_buffered();
  return 0;
}

ssize_t DatagramReceiver::receive(const ReceiveRequest& request) noexcept {
  constexpr uint64_t refused = FI_PEEK | FI_CLAIM | FI_DISCARD | FI_TRIGGER;
  if ((request.flags & refused) != 0) [[unlikely]]
    return -FI_EOPNOTSUPP;
  return post(request.iov, request.iov_count, request.context, request.flags);
}

ssize_t DatagramReceiver::cancel(const void* context) noexcept {
  for (uint32_t at = head_; at != tail_; ++at) {
    if (posted_[at & mask_].context != context) continue;
    const Posted entry = posted_[at & mask_];
    for (uint32_t i = at; i + 1 != tail_; ++i) posted_[i & mask_] = posted_[(i + 1) & mask_];
    --tail_;
    void* buffer = entry.count != 0 ? entry.iov[0].iov_base : nullptr;
    complete(entry.context, true, FI_RECV | FI_MSG | (entry.multi ? FI_MULTI_RECV : 0), 0, 0, buffer,
             FI_ADDR_NOTAVAIL, FI_ECANCELED);
    return 0;
  }
  return -FI_ENOENT;
}

void DatagramReceiver::end_posted(int error, core::ProviderError) noexcept {
  while (head_ != tail_) {
    const Posted& entry = posted_[head_++ & mask_];
    complete(entry.context, true, FI_RECV | FI_MSG | (entry.multi ? FI_MULTI_RECV : 0), 0, 0,
             entry.count != 0 ? entry.iov[0].iov_base : nullptr, FI_ADDR_NOTAVAIL, error);
  }
}

// fi_msg(3), fi_cq(3): a datagram that is longer than its buffer fills it and is an error, FI_ETRUNC.
void DatagramReceiver::deliver(std::span<const std::byte> bytes, fi_addr_t source) noexcept {
  Posted& entry = front();
  uint64_t flags = FI_RECV | FI_MSG;
  size_t moved;
  void* buffer;
  if (entry.multi) [[unlikely]] {
    std::byte* at = static_cast<std::byte*>(entry.iov[0].iov_base) + entry.done;
    moved = std::min(bytes.size(), entry.length - entry.done);
    if (moved != 0) std::memcpy(at, bytes.data(), moved);
    entry.done += moved;
    buffer = at;
    if (entry.length - entry.done < std::max<size_t>(multi_receive_min, 1)) {
      flags |= FI_MULTI_RECV;
      ++head_;
    }
  } else {
    buffer = entry.count != 0 ? entry.iov[0].iov_base : nullptr;
    moved = scatter(entry.iov.data(), entry.count, 0, bytes.data(), std::min(bytes.size(), entry.length));
    ++head_;
  }
  ++received_;
  bytes_received_ += bytes.size();
  complete(entry.context, entry.completes, flags, moved, bytes.size(), buffer, source,
           moved < bytes.size() ? FI_ETRUNC : 0);
}

void DatagramReceiver::complete(void* context, bool wanted, uint64_t flags, size_t length, size_t full_length,
                                void* buffer, fi_addr_t source, int error) noexcept {
  if (error != 0) [[unlikely]] {
    if (cq != nullptr) {
      core::CompletionError entry;
      entry.base = {context, flags, length, buffer, 0, 0, source};
      entry.olen = full_length > length ? full_length - length : 0;
      entry.err = error;
      cq->push_error(entry);
    }
    if (receives != nullptr) receives->add_error(1);
    return;
  }
  // The program is told that it has a multi-receive buffer back, even when it wants no completions (fi_msg(3)).
  if (wanted || (cq != nullptr && (flags & FI_MULTI_RECV) != 0))
    cq->push({context, flags, length, buffer, 0, 0, source});
  if (receives != nullptr) receives->add(1);
}

// --- kept datagrams ---

void DatagramReceiver::keep(std::span<const std::byte> bytes, fi_addr_t source) noexcept {
  if (buffer_ == nullptr) buffer_.reset(new (std::nothrow) std::byte[buffer_bytes_max]);
  const size_t needs =
      sizeof(Buffered) + (bytes.size() + sizeof(Buffered) - 1) / sizeof(Buffered) * sizeof(Buffered);
  size_t skipped = 0;  // bytes at the ring's end that are too few
  if (buffer_tail_ + needs > buffer_bytes_max) skipped = buffer_bytes_max - buffer_tail_;
  if (buffer_ == nullptr || buffer_used_ + skipped + needs > buffer_bytes_max) {
    ++dropped_;
    return;
  }
  if (skipped != 0) {
    const Buffered skip{buffered_skip, 0};
    std::memcpy(buffer_.get() + buffer_tail_, &skip, sizeof skip);
    buffer_tail_ = 0;
  }
  const Buffered head{bytes.size(), source};
  std::byte* at = buffer_.get() + buffer_tail_;
  std::memcpy(at, &head, sizeof head);
  if (!bytes.empty()) std::memcpy(at + sizeof head, bytes.data(), bytes.size());
  ++buffered_count_;
  buffer_used_ += skipped + needs;
  buffer_tail_ = (buffer_tail_ + needs) % buffer_bytes_max;
  if (head_ != tail_) deliver_buffered();
}

void DatagramReceiver::deliver_buffered() noexcept {
  while (buffer_used_ != 0 && head_ != tail_) {
    Buffered head;
    std::memcpy(&head, buffer_.get() + buffer_head_, sizeof head);
    if (head.length == buffered_skip) {
      buffer_used_ -= buffer_bytes_max - buffer_head_;
      buffer_head_ = 0;
      continue;
    }
    deliver({buffer_.get() + buffer_head_ + sizeof head, head.length}, head.source);
    const size_t needs =
        sizeof(Buffered) + (head.length + sizeof(Buffered) - 1) / sizeof(Buffered) * sizeof(Buffered);
    --buffered_count_;
    buffer_used_ -= needs;
    buffer_head_ = (buffer_head_ + needs) % buffer_bytes_max;
  }
}

}  // namespace weft::proto
