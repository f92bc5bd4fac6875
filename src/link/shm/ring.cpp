// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What of the rings is not inlined: credit, pages, frames that are written in place.
#include "link/shm/ring.hpp"

namespace weft::link::shm {
namespace {

constexpr uint64_t restart_below = uint64_t{1} << 63;  // positions of the bulk ring
constexpr uint64_t idle_discard_ns = 1'000'000'000;    // then a ring's pages go back

}  // namespace

// --- receiving ---

void ReceiveRing::warm() noexcept {
  const size_t ready = control_->ready_bytes.load(std::memory_order_relaxed);
  if (ready == 0) return;
  os::warm_pages(
      map_, page_bytes,
      channel_bulk_offset - page_bytes + std::min(ready / page_bytes * page_bytes, bulk_window_bytes), false);
}

void ReceiveRing::return_loan() noexcept {
  if (control_ == nullptr) return;
  const uint64_t quarter = next_ / (slot_count / 4) * (slot_count / 4);
  const uint64_t due = std::min(quarter, lent_);
  if (control_->slots_consumed.load(std::memory_order_relaxed) < due)
    control_->slots_consumed.store(due, std::memory_order_release);
  return_bulk_if_due();
}

ReceiveRing::Waiting ReceiveRing::waiting() const noexcept {
  Waiting all;
  if (slots_ == nullptr) return all;
  for (uint64_t next = next_; next - next_ < slot_count; ++next) {
    const Slot& slot = slots_[next % slot_count];
    const SlotHeader header = slot.header.load(std::memory_order_acquire);
    if (static_cast<uint8_t>(header) != sequence_of(next)) break;
    ++all.frames;
    if ((static_cast<uint8_t>(header >> 16) & payload_in_bulk) == 0) continue;
    all.bulk += ((header >> 32) + 63) & ~uint64_t{63};
  }
  return all;
}

// --- sending ---

void SendRing::open(os::Mapping map) noexcept {
  WEFT_ASSERT(!is_reserved_);
  map_ = std::move(map);
  control_ = map_.as<ChannelControl>();
  slots_ = at_ = map_.as<Slot>(channel_slots_offset);
  (void)set_stop();
  bulk_ = map_.as<std::byte>(channel_bulk_offset);
}

void SendRing::warm() noexcept {
  os::warm_pages(map_, 0, channel_bulk_offset + bulk_window_bytes, true);
  bulk_ready_ = bulk_window_bytes;
  control_->ready_bytes.store(bulk_window_bytes, std::memory_order_relaxed);  // the hello comes later
}

bool SendRing::refresh() noexcept {
  // Acquire: pairs with ReceiveRing::consumed_slot(); the receiver has finished reading the slots that we write next.
  WEFT_ASSERT(control_ != nullptr && next() == end_);
  const uint64_t consumed = control_->slots_consumed.load(std::memory_order_acquire);
  const uint64_t usable = slot_count - (is_reserved_ ? 1 : 0);
  if (next() - consumed > usable) return false;  // the peer wrote nonsense: it only harms itself
  end_ = consumed + usable;
  return set_stop();
}

// A look is due. When the receiver has consumed everything, the ring begins again at its start, where pages exist and both sides have mapped them. A look
// reads a line that the receiver writes, so there are at most two for each window: the second, behind one in the middle of a large message, when the
// receiver has sent something since. While each look finds the ring empty and the receiver sends in between, the sender looks once for each stride; not
// for pieces of large messages, where the look at the second piece would find the first. Each restart advances the position by up to a ring; from 2^63
// on the ring is not restarted, so that positions do not overflow.
uint64_t SendRing::restart_bulk(uint64_t start, size_t room, uint64_t answers) noexcept {
  const size_t offset = start % bulk_bytes;
  if (start < bulk_check_waits_ && answers == bulk_check_answers_) return start;
  const bool answered = answers != std::exchange(bulk_check_answers_, answers);
  // `offset >= room`: the first frame after it ends within a ring of what was consumed, as receivers demand.
  if (start == bulk_next_ && offset >= room && start < restart_below && bulk_consumed() == start) {
    WEFT_ASSERT(!is_reserved_);
    bulk_empty_at_ = start;
    start += bulk_bytes - offset;
    bulk_restart_ = bulk_next_ = start;
    bulk_end_ = start + bulk_bytes;
    bulk_check_waits_ = 0;
    bulk_check_ = start + (answered && room <= stride_payload_max ? bulk_stride_bytes : bulk_window_bytes);
    return start;
  }
  if (room >= page_bytes && bulk_check_waits_ == 0) {  // small frames use few pages
    bulk_check_waits_ = start + bulk_window_bytes;
    bulk_check_ = 0;
    return start;
  }
  bulk_check_waits_ = 0;
  bulk_check_ = start + bulk_window_bytes;
  return start;
}

// Pages of the ring that are used for the first time: many by one call, which costs a fraction of as many faults. Where the kernel does not offer
// it, or has no memory, the first access finds out.
void SendRing::ready_bulk(size_t end) noexcept {
  const size_t begin = std::exchange(
      bulk_ready_, static_cast<uint32_t>(std::min(
                       (end + bulk_window_bytes - 1) / bulk_window_bytes * bulk_window_bytes, bulk_bytes)));
  (void)os::have_pages(map_, channel_bulk_offset + begin, bulk_ready_ - begin);
}

// --- in place ---

// A frame of any size may follow a reservation that is abandoned. It must end within a ring of what was consumed (restart_bulk), so the ring begins
// again only where that holds for all sizes.
std::byte* SendRing::reserve(size_t bytes, const ReceiveRing& answers, uint64_t& start) noexcept {
  WEFT_ASSERT(!is_reserved_);
  const bool may_restart = bulk_next_ % bulk_bytes >= payload_bytes_max;
  const uint64_t check = bulk_check_;
  if (!may_restart) bulk_check_ = UINT64_MAX;
  BulkPosition place{};
  std::byte* const at = reserve_bulk(bytes, answers, place);
  if (!may_restart) bulk_check_ = check;
  if (at == nullptr) return nullptr;
  start = place.end - room_of(bytes);
  is_reserved_ = true;
  is_touched_ = true;
  WEFT_ASSERT(end_ > next());
  --end_;
  (void)set_stop();
  return at;
}

void SendRing::end_reservation() noexcept {
  WEFT_ASSERT(is_reserved_);
  is_reserved_ = false;
  ++end_;
  (void)set_stop();
}

bool SendRing::put_reserved(const wire::FrameHead& head, uint64_t start) noexcept {
  const BulkPosition place{start + room_of(head.length), start % bulk_bytes};
  WEFT_ASSERT(has_slot() && place.end >= bulk_next_);
  Slot& slot = *at_;
  slot.a = head.a;
  std::memcpy(slot.payload.data(), &head.b, sizeof(head.b));
  std::memcpy(slot.payload.data() + bulk_position_offset, &place, sizeof(place));
  bulk_next_ = place.end;
  bulk_sent_ += head.length;
  return publish(slot, header_of(head, payload_in_bulk));
}

// --- what the receiver has not read, and what is not used ---

uint8_t SendRing::unread_messages() const noexcept {
  const uint64_t sent = next();
  const uint64_t read = std::min(sent, control_->slots_consumed.load(std::memory_order_acquire));
  uint8_t kinds = 0;
  for (uint64_t at = std::max(read, sent - std::min<uint64_t>(sent, slot_count)); at < sent; ++at) {
    const SlotHeader header = slots_[at % slot_count].header.load(std::memory_order_relaxed);
    switch (static_cast<wire::FrameKind>(static_cast<uint8_t>(header >> 8))) {
      case wire::FrameKind::Tagged:
      case wire::FrameKind::TaggedFirst:
        kinds |= proto::unread_some | proto::unread_tagged;
        break;
      case wire::FrameKind::Msg:
      case wire::FrameKind::MsgFirst:
        kinds |= proto::unread_some | proto::unread_untagged;
        break;
      case wire::FrameKind::More:
        kinds |= proto::unread_some;
        break;
      default:
        break;
    }
  }
  return kinds;
}

bool SendRing::is_bulk_idle(uint64_t now_ns) noexcept {
  if (control_ == nullptr || !is_touched_) return false;
  if (idle_next_ != bulk_next_) {
    idle_next_ = bulk_next_;
    idle_since_ns_ = now_ns;
    return false;
  }
  return now_ns - idle_since_ns_ >= idle_discard_ns && !is_reserved_ && bulk_consumed() == bulk_next_;
}

void SendRing::forget_pages(size_t kept) noexcept {
  is_touched_ = false;
  bulk_ready_ = static_cast<uint32_t>(kept);
  bulk_check_ = bulk_check_waits_ = 0;
}

}  // namespace weft::link::shm
