// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Queues, credits, completions.
#include "link/roce/message_channel.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <utility>

#include "base/assert.hpp"

namespace weft::link::roce {

using namespace proto::roce;

namespace {

constexpr std::array<char, 4> magic = {'W', 'R', 'C', '1'};
constexpr uint8_t kind_message = 0;
constexpr uint8_t kind_credits = 1;
constexpr uint32_t psn_mask = 0xffffff;
constexpr uint8_t timeout =
    17;  // 0.5 s (IBTA 9.7.6.1.3): a process may stand still for 4 s before it counts as gone
constexpr uint32_t control_sends = 8;

uint32_t number_at(std::span<const std::byte> bytes, size_t at) noexcept {
  uint32_t number = 0;
  std::memcpy(&number, bytes.data() + at, sizeof number);
  return number;
}

}  // namespace

// --- opening ---

Result<void> MessageChannel::open(const os::SocketAddress& host, const os::SocketAddress& peer) {
  auto shared = SharedDevice::at(host);
  if (!shared) return shared.error();
  auto notice = os::Event::create();
  if (!notice) return notice.error();
  shared_ = std::move(*shared);
  notice_ = std::move(*notice);
  auto made = make_queues(peer);
  if (!made) close();
  return made;
}

Result<void> MessageChannel::make_queues(const os::SocketAddress& peer) {
  WEFT_ASSERT(qp_ == nullptr && cq_ == nullptr && region_ == nullptr);
  constexpr size_t bytes = slot_bytes * (receive_slots + send_slots);
  memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
  if (!os::random_bytes(&psn_, sizeof psn_)) return Error{EAGAIN, "the system has no random numbers"};
  psn_ &= psn_mask;
  const std::scoped_lock guard(shared_->device->lock());
  Adapter& adapter = shared_->device->adapter();
  // Without remote rights: no peer reaches it by a key.
  auto region =
      adapter.memory().add(1, memory_.get(), reinterpret_cast<uint64_t>(memory_.get()), bytes, local_write);
  if (!region) return region.error();
  region_ = *region;
  key_ = region_->key;
  auto cq = adapter.create_cq(receive_slots + send_slots + control_sends);
  if (!cq) return cq.error();
  cq_ = *cq;
  cq_->context = &*notice_;
  QueuePairRequest request;
  request.pd = 1;
  request.send_cq = request.receive_cq = cq_;
  request.capacities = {send_slots + control_sends, receive_slots, 1, 1, header_bytes};
  request.signal_all = true;
  auto qp = adapter.create_qp(request);
  if (!qp) return qp.error();
  qp_ = *qp;
  Attributes a;
  a.state = QpState::Init;
  if (auto ok = adapter.modify(*qp_, a, attr_state | attr_pkey_index | attr_port | attr_access,
                               shared_->device->now());
      !ok)
    return ok;
  for (uint32_t slot = 0; slot < receive_slots; ++slot)
    if (post_receive(slot) != 0) return Error{ENOMEM, "the queue pair takes no more receives"};
  const Gid gid = shared_->device->gid(0);
  std::memcpy(name_.data(), magic.data(), magic.size());
  std::memcpy(name_.data() + 4, &qp_->number, 4);
  std::memcpy(name_.data() + 8, gid.data(), gid.size());
  std::memcpy(name_.data() + 24, &psn_, 4);
  set_path_mtu(peer ? shared_->device->path_mtu_max(0, standard_gid(peer)) : 5);
  return {};
}

void MessageChannel::set_path_mtu(uint32_t mtu) noexcept { std::memcpy(name_.data() + 28, &mtu, sizeof mtu); }

bool MessageChannel::is_name(std::span<const std::byte> bytes) noexcept {
  return bytes.size() >= name_bytes && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

Result<void> MessageChannel::connect(std::span<const std::byte> name, Role role) {
  if (!is_name(name) || qp_ == nullptr) return Error{EPROTO, "the other side is no verbs endpoint"};
  Attributes a;
  std::memcpy(a.path.destination.data(), name.data() + 8, a.path.destination.size());
  a.destination = number_at(name, 4) & psn_mask;
  a.rq_psn = number_at(name, 24) & psn_mask;
  a.sq_psn = psn_;
  a.timeout = timeout;
  a.min_rnr_timer = 1;
  if (auto ok = to_send(a, number_at(name, 28)); !ok) return ok;
  if (role == Role::Active) {
    may_send_ = credit_due_ = true;
    return_credits();  // says that we are ready
  }
  return {};
}

Result<void> MessageChannel::to_send(Attributes& a, uint32_t mtu_there) {
  const std::scoped_lock guard(shared_->device->lock());
  const uint64_t now = shared_->device->now();
  const uint8_t mtu = shared_->device->path_mtu_max(0, a.path.destination);
  if (mtu == 0) return Error{EHOSTUNREACH, "there is no way to the other side's address"};
  a.path_mtu = static_cast<uint8_t>(std::clamp<uint32_t>(mtu_there, 1, mtu));
  set_path_mtu(a.path_mtu);
  const auto step = [&](QpState state, uint32_t mask) {
    a.state = state;
    return shared_->device->adapter().modify(*qp_, a, mask | attr_state, now);
  };
  if (auto ok = step(QpState::ReadyToReceive, attr_path | attr_path_mtu | attr_destination | attr_rq_psn |
                                                  attr_max_dest_reads | attr_min_rnr_timer);
      !ok)
    return ok;
  auto ok = step(QpState::ReadyToSend,
                 attr_sq_psn | attr_timeout | attr_retry_count | attr_rnr_retry | attr_max_reads);
  if (ok) shared_->device->expect(a.path);
  shared_->device->posted();  // other queue pairs may have sent, too
  return ok;
}

void MessageChannel::close() noexcept {
  if (shared_ == nullptr) return;
  if (!shared_->device->is_here()) {
    // A forked child: everything is its parent's, whose threads may have held the lock.
    (void)new (std::nothrow) std::shared_ptr<SharedDevice>(shared_);
    (void)memory_.release();
  } else {
    const std::scoped_lock guard(shared_->device->lock());
    Adapter& adapter = shared_->device->adapter();
    shared_->device->flush_deferred();
    if (qp_ != nullptr) adapter.destroy_qp(*qp_);
    if (cq_ != nullptr) (void)adapter.destroy_cq(*cq_);
    if (region_ != nullptr) (void)adapter.memory().remove(*region_);
  }
  qp_ = nullptr;
  cq_ = nullptr;
  region_ = nullptr;
  may_send_ = false;
  pending_count_ = returned_count_ = 0;
  shared_.reset();
  memory_.reset();
  notice_.reset();
}

// --- sending ---

void MessageChannel::write_header(std::byte* out, uint8_t kind) noexcept {
  reported_ = static_cast<uint32_t>(consumed_);
  const uint32_t rest = kind;
  std::memcpy(out, &reported_, sizeof reported_);
  std::memcpy(out + 4, &rest, sizeof rest);
}

void MessageChannel::commit(size_t bytes) noexcept {
  WEFT_ASSERT(bytes <= message_bytes_max && sent_ - acknowledged_ < send_slots &&
              sent_ - peer_consumed_ < credits);
  std::byte* const slot = send_slot(sent_ % send_slots);
  write_header(slot, kind_message);
  credit_due_ = false;
  const Element element{reinterpret_cast<uint64_t>(slot), static_cast<uint32_t>(header_bytes + bytes), key_};
  SendRequest request;
  request.id = sent_;
  request.flags = signaled;
  request.elements = {&element, 1};
  ++sent_;
  const std::scoped_lock guard(shared_->device->lock());
  // There is room for send_slots messages; what refuses now is a queue pair that has failed, which its completions say
  // too.
  if (shared_->device->adapter().post_send(*qp_, request, shared_->device->now()) != 0) failed_ = true;
  shared_->device->posted();
}

bool MessageChannel::more_room() noexcept {
  if (qp_ == nullptr || failed_) return false;
  collect();
  return true;
}

// --- receiving ---

int MessageChannel::post_receive(uint32_t slot) noexcept {
  const Element element{reinterpret_cast<uint64_t>(receive_slot(slot)), static_cast<uint32_t>(slot_bytes),
                        key_};
  ReceiveRequest request;
  request.id = slot;
  request.elements = {&element, 1};
  return shared_->device->adapter().post_receive(*qp_, request, shared_->device->now());
}

void MessageChannel::collect() noexcept {
  if (!shared_->device->is_here()) [[unlikely]]
    return;
  const std::scoped_lock guard(shared_->device->lock());
  (void)shared_->device->poll();
  std::array<Completion, 32> done;
  for (;;) {
    const int count = cq_->poll(done);
    if (count < 0) failed_ = true;
    if (count <= 0) return;
    for (const Completion& one : std::span(done).first(static_cast<size_t>(count))) {
      if (one.status != Status::Success) {
        unreachable_ |= one.status == Status::RetryExceeded;
        failed_ = true;
      } else if (one.opcode == CompletionOpcode::Receive) {
        on_arrival(static_cast<uint32_t>(one.id), one.bytes);
      } else if (one.id != control_id) {
        WEFT_ASSERT(one.id < sent_);
        acknowledged_ = std::max(acknowledged_, one.id + 1);
      }
    }
  }
}

// Under the lock.
void MessageChannel::on_arrival(uint32_t slot, uint32_t bytes) noexcept {
  if (failed_) return;
  if (bytes < header_bytes) {
    failed_ = true;
    return;
  }
  WEFT_ASSERT(slot < receive_slots);
  const std::span<const std::byte> header(receive_slot(slot), header_bytes);
  const uint32_t kind = number_at(header, 4);
  const uint32_t news = number_at(header, 0) - static_cast<uint32_t>(peer_consumed_);
  if (kind > kind_credits || news > sent_ - peer_consumed_) {
    failed_ = true;
    return;
  }
  peer_consumed_ += news;
  WEFT_ASSERT(peer_consumed_ <= sent_);
  may_send_ = true;
  if (kind == kind_credits) {
    if (post_receive(slot) != 0) failed_ = true;
    return;
  }
  // At most receive_slots are out of the queue.
  WEFT_ASSERT(pending_count_ < receive_slots);
  pending_[(pending_head_ + pending_count_++) % receive_slots] = {
      slot, bytes - static_cast<uint32_t>(header_bytes)};
}

// Receives for what was consumed, and word of it.
void MessageChannel::return_credits() noexcept {
  if (failed_) return;
  const std::scoped_lock guard(shared_->device->lock());
  WEFT_ASSERT(returned_count_ + pending_count_ <= receive_slots);
  for (uint32_t i = 0; i < returned_count_; ++i)
    if (post_receive(returned_[i]) != 0) failed_ = true;
  returned_count_ = 0;
  if (!credit_due_) return;
  std::array<std::byte, header_bytes> message;
  const uint32_t reported = reported_;
  write_header(message.data(), kind_credits);
  const Element element{reinterpret_cast<uint64_t>(message.data()), header_bytes, 0};
  SendRequest request;
  request.id = control_id;
  request.flags = signaled | inline_data;
  request.elements = {&element, 1};
  const int status = shared_->device->adapter().post_send(*qp_, request, shared_->device->now());
  shared_->device->posted();
  if (status == 0) credit_due_ = false;
  else if (status == -ENOMEM) reported_ = reported;  // later
  else failed_ = true;
}

bool MessageChannel::arm() noexcept {
  if (qp_ == nullptr) return true;
  if (pending_count_ != 0 || failed_ || credit_due_) return false;
  const std::scoped_lock guard(shared_->device->lock());
  if (cq_->size() != 0) return false;
  shared_->device->expect_sleep(*cq_, false);
  return true;
}

}  // namespace weft::link::roce
