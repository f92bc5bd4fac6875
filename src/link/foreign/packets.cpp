// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// FI_EP_DGRAM through function vectors: fi_endpoint(3), fi_av(3), fi_msg(3).
#include "link/foreign/packets.hpp"

#include <rdma/fi_cm.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

namespace weft::link::foreign {

// --- opening ---

Result<void> Packets::open(std::span<const std::byte> address) {
  if (source_ == nullptr) return Error{ENODEV, "there is no provider below"};
  const auto at = os::SocketAddress::from(address.data(), address.size());
  if (!at) return Error{EAFNOSUPPORT, "the source address is none of IP"};
  std::string_view asked;
  if (!at->is_any() || at->port() != 0)
    asked = {reinterpret_cast<const char*>(at->bytes().data()), at->bytes().size()};
  const uint32_t format = at->family() == AF_INET6 ? FI_SOCKADDR_IN6 : FI_SOCKADDR_IN;
  if (auto found = ask(*source_, FI_EP_DGRAM, format, asked, info_); !found) return found;
  datagram_bytes_ = std::min<size_t>(info_->ep_attr->max_msg_size, datagram_bytes_max);
  if (datagram_bytes_ < datagram_bytes_min) return fail("its datagrams are too short", -EMSGSIZE);
  receive_count_ = std::min(receive_count_max, receive_bytes_max / datagram_bytes_);
  if (info_->rx_attr->size != 0) receive_count_ = std::min<size_t>(receive_count_, info_->rx_attr->size);
  inject_bytes_ = info_->tx_attr->inject_size;
  if (auto opened = open_endpoint(); !opened) return opened;
  if (auto named = find_address(); !named) return named;
  return post_buffers();
}

Result<void> Packets::open_endpoint() {
  int status = 0;
  if (status = source_->fabric(info_->fabric_attr, &fabric_, nullptr); status != 0)
    return fail("fi_fabric", status);
  if (status = fi_domain(fabric_, info_, &domain_, nullptr); status != 0) return fail("fi_domain", status);
  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type != FI_AV_UNSPEC ? info_->domain_attr->av_type : FI_AV_MAP;
  if (status = fi_av_open(domain_, &av_attr, &av_, nullptr); status != 0) return fail("fi_av_open", status);
  fi_cq_attr cq_attr{};
  cq_attr.wait_obj = FI_WAIT_FD;
  cq_attr.format = FI_CQ_FORMAT_MSG;
  cq_attr.size = receive_count_ + send_count;
  can_sleep_ = fi_cq_open(domain_, &cq_attr, &cq_, nullptr) == 0;
  if (!can_sleep_) {  // then whoever waits polls
    cq_attr.wait_obj = FI_WAIT_NONE;
    if (status = fi_cq_open(domain_, &cq_attr, &cq_, nullptr); status != 0) return fail("fi_cq_open", status);
  }
  if (status = fi_endpoint(domain_, info_, &ep_, nullptr); status != 0) return fail("fi_endpoint", status);
  if (status = fi_ep_bind(ep_, &av_->fid, 0); status != 0) return fail("fi_ep_bind", status);
  if (status = fi_ep_bind(ep_, &cq_->fid, FI_TRANSMIT | FI_RECV); status != 0)
    return fail("fi_ep_bind", status);
  if (status = fi_enable(ep_); status != 0) return fail("fi_enable", status);
  return {};
}

Result<void> Packets::find_address() {
  std::byte name[64];
  size_t length = sizeof name;
  if (const int status = fi_getname(&ep_->fid, name, &length); status != 0) return fail("fi_getname", status);
  auto own = os::SocketAddress::from(name, length);
  if (!own) return fail("its address is none of IP", -EAFNOSUPPORT);
  if (own->is_any()) {  // a peer needs one that it can reach
    const uint16_t port = own->port();
    own = os::outgoing_address(own->family());
    own->set_port(port);
  }
  address_ = *own;
  return {};
}

Result<void> Packets::post_buffers() {
  const size_t count = receive_count_ + send_count;
  memory_ = std::make_unique_for_overwrite<std::byte[]>(count * datagram_bytes_);
  if ((info_->domain_attr->mr_mode & FI_MR_LOCAL) != 0) {
    if (const int status = fi_mr_reg(domain_, memory_.get(), count * datagram_bytes_, FI_SEND | FI_RECV, 0, 1,
                                     0, &region_, nullptr);
        status != 0)
      return fail("fi_mr_reg", status);
  }
  buffers_.resize(count);
  arrived_.reserve(receive_count_);
  shown_.reserve(receive_count_);
  unposted_.reserve(receive_count_);
  free_.reserve(send_count);
  for (size_t i = 0; i < count; ++i) {
    buffers_[i].bytes = memory_.get() + i * datagram_bytes_;
    buffers_[i].receives = i < receive_count_;
    if (buffers_[i].receives) post(buffers_[i]);
    else free_.push_back(&buffers_[i]);
  }
  return {};
}

// --- sending ---

// The number of an address in the vector below; FI_ADDR_NOTAVAIL when it is not taken there. Of too many some other one is forgotten.
fi_addr_t Packets::fi_addr_of(std::span<const std::byte> to) noexcept try {
  if (std::ranges::equal(to, last_to_.bytes())) return last_fi_addr_;
  const auto address = os::SocketAddress::from(to.data(), to.size());
  if (!address) return FI_ADDR_NOTAVAIL;
  auto found = fi_addrs_.find(*address);
  if (found == fi_addrs_.end()) {
    if (fi_addrs_.size() >= addresses_max) {
      (void)fi_av_remove(av_, &fi_addrs_.begin()->second, 1, 0);
      fi_addrs_.erase(fi_addrs_.begin());
      last_to_ = {};  // which may have been that one
    }
    found = fi_addrs_.emplace(*address, FI_ADDR_NOTAVAIL).first;
    if (fi_av_insert(av_, address->bytes().data(), 1, &found->second, 0, nullptr) != 1) {
      fi_addrs_.erase(found);
      return FI_ADDR_NOTAVAIL;
    }
  }
  last_to_ = *address;
  last_fi_addr_ = found->second;
  return last_fi_addr_;
} catch (const std::bad_alloc&) {
  return FI_ADDR_NOTAVAIL;
}

// 0, -FI_EAGAIN, or an error: then the packet is lost.
ssize_t Packets::hand_over(Buffer& buffer, size_t bytes, fi_addr_t to_addr) noexcept {
  if (bytes <= inject_bytes_) return fi_inject(ep_, buffer.bytes, bytes, to_addr);
  void* desc = region_ != nullptr ? fi_mr_desc(region_) : nullptr;
  const ssize_t status = fi_send(ep_, buffer.bytes, bytes, desc, to_addr, &buffer.context);
  if (status == 0) std::erase(free_, &buffer);
  return status;
}

bool Packets::send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                             size_t packet_bytes) noexcept {
  const size_t head = address_.size();
  if (packet_bytes == 0 || packet_bytes > datagram_bytes_ - head) return true;
  const fi_addr_t to_addr = fi_addr_of(to);
  if (to_addr == FI_ADDR_NOTAVAIL) return true;
  bool check = std::exchange(sent_since_poll_, true);
  size_t part = 0;
  size_t taken = 0;  // of that part
  for (bool first = true; part < count; first = false) {
    if (free_.empty()) collect();
    if (free_.empty()) return !first;
    Buffer& buffer = *free_.back();
    std::memcpy(buffer.bytes, address_.bytes().data(), head);
    size_t at = head;
    while (part < count && at < head + packet_bytes) {
      const size_t bytes = std::min(parts[part].iov_len - taken, head + packet_bytes - at);
      if (bytes != 0)
        std::memcpy(buffer.bytes + at, static_cast<const std::byte*>(parts[part].iov_base) + taken, bytes);
      at += bytes;
      taken += bytes;
      if (taken != parts[part].iov_len) continue;
      ++part;
      taken = 0;
    }
    if (at == head) break;
    ssize_t status = hand_over(buffer, at, to_addr);
    if (status == -FI_EAGAIN) {
      collect();
      status = hand_over(buffer, at, to_addr);
      if (status == -FI_EAGAIN) return !first;
    }
    check = check || !first;
  }
  if (check) collect();
  return true;
}

// --- receiving ---

// False: no room now.
bool Packets::try_post(Buffer& buffer) noexcept {
  void* desc = region_ != nullptr ? fi_mr_desc(region_) : nullptr;
  const ssize_t status = fi_recv(ep_, buffer.bytes, datagram_bytes_, desc, FI_ADDR_UNSPEC, &buffer.context);
  if (status != 0 && status != -FI_EAGAIN) warn_(*source_, "fi_recv", static_cast<int>(status));
  return status != -FI_EAGAIN;
}

void Packets::post(Buffer& buffer) noexcept {
  if (!try_post(buffer)) unposted_.push_back(&buffer);  // reserved
}

void Packets::collect() noexcept {
  if (ep_ == nullptr) return;
  std::erase_if(unposted_, [this](Buffer* buffer) { return try_post(*buffer); });
  read_completions(
      cq_, turn_entries,
      [this](const fi_cq_msg_entry& entry) {
        auto& buffer = *static_cast<Buffer*>(entry.op_context);
        if (buffer.receives) {
          buffer.used = std::min(entry.len, datagram_bytes_);
          arrived_.push_back(&buffer);  // reserved: each is posted once
        } else {
          free_.push_back(&buffer);  // likewise
        }
      },
      [this](const fi_cq_err_entry& entry) { drop(*static_cast<Buffer*>(entry.op_context), entry.err); });
}

// A datagram that was not sent, or too long, is a lost one.
void Packets::drop(Buffer& buffer, int status) noexcept {
  if (!buffer.receives) {
    free_.push_back(&buffer);
  } else if (status != FI_ECANCELED) {
    buffer.used = 0;
    arrived_.push_back(&buffer);
  }
}

// --- closing, sleeping ---

void Packets::close() noexcept {
  shut(ep_);
  shut(cq_);
  shut(av_);
  shut(region_);
  shut(domain_);
  shut(fabric_);
  if (info_ != nullptr) source_->free_info(std::exchange(info_, nullptr));
  arrived_.clear();
  unposted_.clear();
  free_.clear();
  buffers_.clear();
  memory_.reset();
  fi_addrs_.clear();
  last_to_ = {};
}

int Packets::wait_fd() noexcept {
  int fd = -1;
  if (!can_sleep_ || fi_control(&cq_->fid, FI_GETWAIT, &fd) != 0) return -1;
  return fd;
}

bool Packets::arm() noexcept {
  if (!can_sleep_ || !unposted_.empty() || !arrived_.empty()) return false;
  fid* queue = &cq_->fid;
  return fi_trywait(fabric_, &queue, 1) == 0;
}

}  // namespace weft::link::foreign
