// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hostile peer of the shared memory link: a real endpoint, and a memory file, notes and datagrams that the input fills. What lies in the
// file changes between polls and while a frame is looked at. The endpoint must not crash, hang or read outside of the mappings.
#include <fuzzer/FuzzedDataProvider.h>
#include <rdma/fi_tagged.h>
#include <unistd.h>

#include <cstdio>
#include <memory>
#include <vector>

#include "core/memory_region.hpp"
#include "link/shm/handshake.hpp"
#include "link/shm/link.hpp"
#include "os/poll_set.hpp"
#include "os/process.hpp"
#include "os/unix_socket.hpp"
#include "proto/engine/engine.hpp"

namespace {

using namespace weft;
using namespace weft::link::shm;
using Owner = proto::Engine<Link>;

constexpr size_t channels = 2;

class Hostile {
 public:
  Hostile(const uint8_t* data, size_t size) : in_(data, size) {
    address_ = "fi_ns://fuzz-peer-" + std::to_string(::getpid());
    auto socket = os::bind_datagram(SocketName(address_));
    auto file = os::create_memory("fuzz", header_bytes + channels * channel_bytes);
    if (!socket || !file) std::abort();
    socket_ = std::move(*socket);
    file_ = std::move(*file);
    self_ = os::open_process(::getpid());
    map_ = std::move(*os::map_memory(file_, 0, header_bytes + channels * channel_bytes));
    auto* header = map_.as<RegionHeader>();
    header->version = layout_version;
    header->nonce = 7;
    header->fences = in_.ConsumeIntegral<uint8_t>() & 1;
    header->header_size = header_bytes;
    header->channel_size = channel_bytes;
    std::copy_n(address_.c_str(), address_.size() + 1, header->address.begin());
    header->probe_address = in_.ConsumeIntegral<uint64_t>();
    header->magic = region_magic;

    proto::EngineLimits limits;
    limits.transmit_size = 16;
    limits.receive_size = 16;
    limits.unexpected_bytes = 1 << 16;
    engine_ = std::make_unique<Owner>(limits);
    if (!engine_->link().open("", *engine_)) std::abort();
    std::array<std::byte, address_bytes> padded{};
    std::copy_n(reinterpret_cast<const std::byte*>(address_.data()), address_.size(), padded.begin());
    av_.insert(core::Address(padded.data(), padded.size()));
    engine_->set_address_vector(&av_);
    engine_->add_queue(&cq_);
    tx_.cq = &cq_;
    tx_.apply_bindings();
    rx_.cq = &cq_;
    rx_.unexpected_bytes_max = limits.unexpected_bytes;
    rx_.apply_bindings();
    engine_->set_receive_context(0, &rx_);
    victim_ = engine_->link().address();
    // Its file, as any peer gets it.
    int pid = 0;
    int fd = -1;
    // NOLINTNEXTLINE(cert-err34-c): our own link wrote it
    if (std::sscanf(reinterpret_cast<const char*>(victim_.data()), "fi_shm://%d:%d:", &pid, &fd) == 2)
      victim_file_ = os::Fd(::dup(fd));
  }
  ~Hostile() { engine_.reset(); }

  void run() {
    say_hello(true);
    engine_->progress();
    while (in_.remaining_bytes() > 0) {
      switch (in_.ConsumeIntegralInRange<int>(0, 15)) {
        case 0:
        case 1:
        case 2:
        case 3:
        case 4:
          slot();
          break;
        case 5:
          raw();
          break;
        case 6:
          say_hello(false);
          break;
        case 7:
          ring();
          break;
        case 8:
          credit();
          break;
        case 9:
          send();
          break;
        case 10:
          receive();
          break;
        case 11:
          header();
          break;
        case 12:
          if (engine_->arm()) engine_->disarm();
          break;
        case 13:
          read_queue();
          break;
        default:
          progress();
      }
    }
    progress();
    read_queue();
  }

 private:
  ChannelControl* control(size_t i) { return map_.as<ChannelControl>(header_bytes + i * channel_bytes); }
  Slot* slots(size_t i) { return map_.as<Slot>(header_bytes + i * channel_bytes + channel_slots_offset); }

  // Between the link's look and the engine's the bytes change.
  struct Meddler {
    Hostile& self;
    bool on_frame(Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
      if (self.in_.ConsumeIntegralInRange<int>(0, 7) == 0) self.slot();
      return self.engine_->on_frame(peer, head, payload);
    }
  };
  void progress() {
    if (in_.ConsumeBool()) {
      Meddler meddler{*this};
      for (int i = 0; i < 3; ++i) (void)engine_->link().poll(meddler);
    }
    engine_->progress();
  }

  void slot() {
    const size_t channel = in_.ConsumeIntegralInRange<size_t>(0, channels - 1);
    uint64_t& next = next_[channel];
    Slot& at = slots(channel)[next % slot_count];
    const auto kind = in_.ConsumeIntegralInRange<uint8_t>(0, 22);
    const uint8_t flags =
        in_.ConsumeIntegralInRange<int>(0, 3) == 0
            ? in_.ConsumeIntegral<uint8_t>()
            : in_.PickValueInArray<uint8_t>(
                  {0, wire::has_b, payload_in_bulk, payload_in_bulk | wire::has_b | wire::has_data});
    const uint32_t length = in_.ConsumeIntegralInRange<int>(0, 7) == 0 ? in_.ConsumeIntegral<uint32_t>()
                            : (flags & payload_in_bulk) != 0
                                ? in_.ConsumeIntegralInRange<uint32_t>(0, Link::frame_bytes_max + 1)
                                : in_.ConsumeIntegralInRange<uint32_t>(0, 49);
    at.a = in_.ConsumeIntegral<uint64_t>();
    std::memset(at.payload.data(), 0, at.payload.size());
    if ((flags & payload_in_bulk) != 0) {
      BulkPosition place{bulk_[channel] + length, bulk_[channel] % bulk_bytes};
      if (in_.ConsumeIntegralInRange<int>(0, 3) == 0) place.end = in_.ConsumeIntegral<uint64_t>();
      if (in_.ConsumeIntegralInRange<int>(0, 3) == 0)
        place.offset = in_.ConsumeBool() ? bulk_bytes - length : in_.ConsumeIntegral<uint64_t>();
      if (place.offset < bulk_bytes && bulk_bytes - place.offset < length) place.offset = 0;
      bulk_[channel] = place.end;
      std::memcpy(at.payload.data() + bulk_position_offset, &place, sizeof(place));
      if (place.offset < bulk_bytes)
        fill(map_.as<std::byte>(header_bytes + channel * channel_bytes + channel_bulk_offset + place.offset),
             bulk_bytes - place.offset);
    } else {
      fill(at.payload.data(), at.payload.size());
    }
    const uint8_t sequence =
        in_.ConsumeIntegralInRange<int>(0, 15) == 0 ? in_.ConsumeIntegral<uint8_t>() : sequence_of(next);
    at.header.store(sequence | uint64_t{kind} << 8 | uint64_t{flags} << 16 |
                    uint64_t{in_.ConsumeIntegralInRange<uint8_t>(0, 1)} << 24 | uint64_t{length} << 32);
    ++next;
  }
  void fill(std::byte* to, size_t room) {
    const auto bytes =
        in_.ConsumeBytes<uint8_t>(std::min<size_t>(room, in_.ConsumeIntegralInRange<size_t>(0, 64)));
    if (!bytes.empty()) std::memcpy(to, bytes.data(), bytes.size());
  }
  void raw() {
    const auto bytes = in_.ConsumeBytes<uint8_t>(in_.ConsumeIntegralInRange<size_t>(0, 64));
    const size_t at = in_.ConsumeIntegralInRange<size_t>(0, map_.size() - 65);
    if (!bytes.empty()) std::memcpy(map_.as<std::byte>(at), bytes.data(), bytes.size());
  }
  void say_hello(bool sound) {
    Note note{};
    note.magic = region_magic;
    note.token = token_of(text_of(victim_text()));
    note.version = layout_version;
    note.kind = NoteKind::Hello;
    note.nonce = 7;
    note.channel_offset = header_bytes;
    std::copy_n(address_.c_str(), address_.size() + 1, note.address.begin());
    std::array<int, 2> fds{file_.get(), self_.get()};
    size_t fd_count = 2;
    size_t length = sizeof(note);
    if (!sound) {
      note.kind = static_cast<NoteKind>(in_.ConsumeIntegralInRange<uint32_t>(0, 4));
      if (in_.ConsumeIntegralInRange<int>(0, 3) == 0) note.nonce = in_.ConsumeIntegral<uint8_t>();
      note.channel_offset = in_.ConsumeBool()
                                ? header_bytes + in_.ConsumeIntegralInRange<uint64_t>(0, 3) * channel_bytes
                                : in_.ConsumeIntegral<uint64_t>();
      note.wants_reply = in_.ConsumeIntegral<uint8_t>() & 1;
      if (in_.ConsumeIntegralInRange<int>(0, 7) == 0) note.address.fill(in_.ConsumeIntegral<char>());
      if (in_.ConsumeIntegralInRange<int>(0, 7) == 0)
        std::copy_n(reinterpret_cast<const char*>(victim_.data()), note.address.size(), note.address.begin());
      if (in_.ConsumeIntegralInRange<int>(0, 7) == 0) length = in_.ConsumeIntegralInRange<size_t>(0, length);
      if (in_.ConsumeIntegralInRange<int>(0, 3) == 0)
        fds[0] = in_.ConsumeBool() ? self_.get() : victim_file_.get();
      fd_count = in_.ConsumeIntegralInRange<size_t>(0, 2);
    }
    (void)os::send_datagram(socket_, SocketName(text_of(victim_text())),
                            std::as_bytes(std::span(&note, 1)).first(length),
                            std::span(fds.data(), fd_count));
    mark(pending_socket);
  }
  std::array<char, address_bytes> victim_text() const {
    std::array<char, address_bytes> text{};
    std::copy_n(reinterpret_cast<const char*>(victim_.data()), text.size(), text.begin());
    return text;
  }
  void mark(uint64_t bits) {
    auto map = os::map_memory(victim_file_, 0, header_bytes);
    if (map) map->as<RegionHeader>()->pending.fetch_or(bits);
  }
  void ring() {
    auto map = os::map_memory(victim_file_, 0, header_bytes);
    if (!map) return;
    const auto word = in_.ConsumeIntegralInRange<size_t>(0, doorbell_words - 1);
    map->as<RegionHeader>()->doorbells[word].fetch_or(in_.ConsumeBool() ? ~uint64_t{0}
                                                                        : in_.ConsumeIntegral<uint64_t>());
    mark(in_.ConsumeBool() ? ~uint64_t{0} : uint64_t{1} << word);
  }
  // The words that a receiver writes in the endpoint's own channels.
  void credit() {
    const size_t size = os::memory_size(victim_file_);
    if (size < header_bytes + channel_bytes) return;
    auto map = os::map_memory(victim_file_, header_bytes, channel_bytes);
    if (!map) return;
    auto* words = map->as<ChannelControl>();
    words->polled.store(in_.ConsumeIntegral<uint8_t>() & 1);
    words->doorbell.store(in_.ConsumeIntegral<uint32_t>());
    words->slots_consumed.store(in_.ConsumeBool() ? in_.ConsumeIntegral<uint8_t>()
                                                  : in_.ConsumeIntegral<uint64_t>());
    words->bulk_consumed.store(in_.ConsumeBool() ? in_.ConsumeIntegral<uint32_t>()
                                                 : in_.ConsumeIntegral<uint64_t>());
  }
  void header() {
    auto* at = map_.as<RegionHeader>();
    switch (in_.ConsumeIntegralInRange<int>(0, 4)) {
      case 0:
        at->closed.store(in_.ConsumeIntegral<uint8_t>() & 1);
        break;
      case 1:
        at->sleeping.store(in_.ConsumeIntegral<uint32_t>());
        break;
      case 2:
        at->nonce = in_.ConsumeIntegral<uint8_t>();
        break;
      case 3:
        at->magic ^= in_.ConsumeIntegral<uint64_t>();
        break;
      default:
        control(0)->closed.store(1);
    }
  }

  void send() {
    const iovec part{buffer_.data(), in_.ConsumeIntegralInRange<size_t>(0, buffer_.size())};
    proto::Request request;
    request.tagged = in_.ConsumeBool();
    request.iov = &part;
    request.iov_count = 1;
    request.dest = 0;
    request.flags = in_.ConsumeBool() ? FI_DELIVERY_COMPLETE : 0;
    (void)engine_->post(tx_, request);
  }
  void receive() {
    const iovec part{target_.data(), in_.ConsumeIntegralInRange<size_t>(0, target_.size())};
    proto::ReceiveRequest request;
    request.iov = &part;
    request.iov_count = 1;
    request.tagged = in_.ConsumeBool();
    request.ignore = ~uint64_t{0};
    request.context = this;
    (void)rx_.receive(request);
  }
  void read_queue() {
    for (;;) {
      fi_cq_tagged_entry entry;
      const ssize_t got = cq_.read<fi_cq_tagged_entry, false>(&entry, 1, nullptr);
      core::CompletionError error;
      if (got == -FI_EAVAIL) (void)cq_.read_error(error);
      else if (got <= 0) return;
    }
  }

  FuzzedDataProvider in_;
  std::string address_;
  os::Fd socket_, file_, self_, victim_file_;
  os::Mapping map_;
  std::span<const std::byte> victim_;
  std::array<uint64_t, channels> next_{};
  std::array<uint64_t, channels> bulk_{};
  std::vector<std::byte> buffer_ = std::vector<std::byte>(100'000);
  std::vector<std::byte> target_ = std::vector<std::byte>(100'000);
  core::CompletionQueue cq_{64};
  core::AddressVector av_;
  proto::TxContext tx_;
  proto::RxContext rx_{0, 16, 1};
  std::unique_ptr<Owner> engine_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size <= 4096) Hostile(data, size).run();
  return 0;
}
