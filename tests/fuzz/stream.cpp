// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The other end of a stream: any bytes, in any pieces, must give the same frames or the same refusal, whether frames are taken whole or in
// parts; and any bytes for a handshake.
#include <fuzzer/FuzzedDataProvider.h>

#include <cstdlib>
#include <vector>

#include "link/tcp/handshake.hpp"
#include "proto/stream/parser.hpp"

namespace {

using namespace weft;
using namespace weft::proto;

constexpr size_t frame_max = 9000;

struct NoPeer {};

struct Seen {
  wire::FrameHead head;
  std::vector<std::byte> payload;
};

struct Whole {
  bool on_frame(NoPeer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    seen.push_back({head, {payload, payload + head.length}});
    return true;
  }
  std::vector<Seen> seen;
};

struct Parts : Whole {
  bool on_frame(NoPeer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    return in->ConsumeIntegralInRange(0, 7) != 7 && Whole::on_frame(peer, head, payload);
  }
  Land land(NoPeer&, wire::FrameHead& head, const std::byte* payload, size_t arrived, Landing& out) noexcept {
    if (payload != nullptr) {
      const int answer = in->ConsumeIntegralInRange(0, 3);
      if (answer == 0) return Land::Whole;
      if (answer == 1) return Land::Later;
      seen.push_back({head, std::vector<std::byte>(head.length)});
      std::copy_n(payload, arrived, seen.back().payload.begin());
      head.length -= static_cast<uint32_t>(arrived);
    }
    auto& bytes = seen.back().payload;
    out.bytes = std::min<size_t>(head.length, 700);
    out.pieces[0] = {bytes.data() + bytes.size() - head.length, out.bytes};
    out.count = 1;
    return Land::Here;
  }
  void landed(NoPeer&, wire::FrameHead& head, size_t bytes) noexcept {
    if (bytes > head.length) std::abort();
    head.length -= static_cast<uint32_t>(bytes);
  }
  FuzzedDataProvider* in = nullptr;
};

void frames(FuzzedDataProvider& in) {
  // Choices come from the end of the input, so that the stream itself reads as it stands.
  const size_t choices = in.ConsumeIntegralInRange<size_t>(0, 200);
  const size_t all = in.remaining_bytes() > choices ? in.remaining_bytes() - choices : 0;
  const auto bytes = in.ConsumeBytes<std::byte>(all);
  NoPeer peer;
  Whole whole;
  stream::Parser one(frame_max);
  (void)one.feed(whole, peer, bytes);

  Parts parts;
  parts.in = &in;
  stream::Parser many(frame_max);
  size_t at = 0;
  while (at < bytes.size() && many.error() == 0) {
    for (int i = 0; many.stalled() && many.error() == 0; ++i) {
      if (!many.retry(parts, peer)) break;
      if (i > 1000) std::abort();
    }
    const size_t count = std::min(in.ConsumeIntegralInRange<size_t>(1, 3000), bytes.size() - at);
    (void)many.feed(parts, peer, std::span(bytes).subspan(at, count));
    at += count;
  }
  while (many.stalled() && many.retry(parts, peer)) {
  }
  if (one.error() != many.error()) std::abort();
  size_t complete = parts.seen.size();
  if (many.landing() != 0) --complete;
  if (complete != whole.seen.size()) std::abort();
  for (size_t i = 0; i < complete; ++i) {
    if (parts.seen[i].payload != whole.seen[i].payload || parts.seen[i].head.a != whole.seen[i].head.a)
      std::abort();
  }
}

void handshake(FuzzedDataProvider& in) {
  using namespace link::tcp;
  const auto bytes = in.ConsumeRemainingBytes<std::byte>();
  Handshake read;
  if (bytes.size() < handshake_prefix_bytes || handshake_size(bytes.data()) > handshake_bytes_max) return;
  if (unpack_handshake(bytes, read) != RefusalReason::None) return;
  // What was believed says the same when it is said again.
  std::byte again[handshake_bytes_max];
  const size_t size = pack_handshake(read, again);
  Handshake twice;
  if (read.type != HandshakeType::Refusal &&
      unpack_handshake(std::span(again).first(size), twice) != RefusalReason::None)
    std::abort();
  if (!(twice.address == read.address) && read.type != HandshakeType::Refusal) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  if (in.ConsumeIntegral<uint8_t>() % 4 == 0) handshake(in);
  else frames(in);
  return 0;
}
