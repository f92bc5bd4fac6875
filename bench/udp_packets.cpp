// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What one UDP socket on each of two threads carries over the loopback, by packet size, packet by packet and in batches, with one copy at the
// receiver: the limit of everything that stands on link::udp::Packets. Prints one JSON object. Knows nothing above that link.
//
//   udp_packets [--window BYTES] [--time MS] [SIZE...]
#include <netinet/in.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "command_line.hpp"
#include "link/udp/packets.hpp"

namespace {

using Clock = std::chrono::steady_clock;
using weft::link::udp::Packets;

std::vector<std::byte> loopback() {
  const auto address = weft::os::SocketAddress::loopback(AF_INET);
  return {address.bytes().begin(), address.bytes().end()};
}

struct Sink {
  std::vector<std::byte> memory = std::vector<std::byte>(size_t{1} << 20);
  size_t at = 0;
  uint64_t bytes = 0;
  void on_packet(const weft::proto::ReceivedPacket& received) noexcept {
    const auto packet = received.bytes;
    if (at + packet.size() > memory.size()) at = 0;
    std::memcpy(memory.data() + at, packet.data(), packet.size());
    at += packet.size();
    bytes += packet.size();
  }
};

struct Figure {
  double gigabytes;  // a second
  double packets;    // millions a second
  double lost;       // of the bytes sent
};

// At most `window` bytes are under way. What does not arrive within 20 ms is lost.
Figure measure(size_t packet, size_t batch, size_t window, std::chrono::milliseconds time) {
  Packets sender;
  Packets receiver;
  if (!sender.open(loopback()) || !receiver.open(loopback())) {
    std::fprintf(stderr, "udp_packets: no sockets\n");
    std::exit(1);
  }
  std::atomic<uint64_t> arrived{0};
  std::atomic<bool> stop{false};
  std::thread taker([&] {
    Sink sink;
    while (!stop.load(std::memory_order_relaxed))
      if (receiver.poll(sink) != 0) arrived.store(sink.bytes, std::memory_order_release);
  });
  std::vector<std::byte> source((size_t{1} << 20) + batch);
  uint64_t sent = 0;
  uint64_t given_up = 0;
  size_t at = 0;
  const auto begin = Clock::now();
  while (Clock::now() - begin < time) {
    const auto waiting = Clock::now();
    while (sent - given_up > arrived.load(std::memory_order_acquire) + window)
      if (Clock::now() - waiting > std::chrono::milliseconds(20)) given_up = sent - arrived;
    const iovec part{source.data() + at, batch};
    if (batch > packet ? sender.send_segmented(receiver.address(), &part, 1, packet)
                       : sender.send(receiver.address(), &part, 1))
      sent += batch;
    at = (at + batch) % (size_t{1} << 20);
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const uint64_t bytes = arrived;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const uint64_t all = arrived;
  stop = true;
  taker.join();
  const auto rate = static_cast<double>(bytes) / seconds;
  return {rate / 1e9, rate / 1e6 / static_cast<double>(packet),
          static_cast<double>(sent - std::min(sent, all)) / static_cast<double>(sent)};
}

}  // namespace

int main(int argc, char** argv) {
  size_t window = size_t{1} << 20;
  unsigned time_ms = 500;
  std::vector<size_t> sizes = {8, 64, 512, 1400, 4096, 8192, 16384, 32000, 65000};
  CLI::App app("What one UDP socket on each of two threads carries over the loopback", "udp_packets");
  app.add_option("--window", window, "bytes under way");
  app.add_option("--time", time_ms, "milliseconds of a measurement")->check(CLI::Range(1, 60'000));
  app.add_option("sizes", sizes, "sizes of packets");
  weft::bench::read_command_line(app, argc, argv);
  const std::chrono::milliseconds time(time_ms);
  const char* comma = "";
  std::printf("{");
  for (const size_t packet : sizes) {
    if (packet == 0 || packet > Packets::packet_bytes_limit) continue;
    const size_t most = std::min(Packets::segments_max, Packets::segmented_bytes_max / packet);
    for (const size_t batch : {packet, packet * std::max<size_t>(most, 1)}) {
      const Figure f = measure(packet, batch, window, time);
      std::printf("%s\n  \"%zu_%s\": {\"gb_s\": %.3f, \"mpackets_s\": %.3f, \"lost\": %.5f}", comma, packet,
                  batch == packet ? "alone" : "batch", f.gigabytes, f.packets, f.lost);
      comma = ",";
      if (most < 2) break;
    }
  }
  std::printf("\n}\n");
}
