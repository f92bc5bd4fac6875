// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets over the function vectors of a provider (link/foreign/packets.hpp), which here is our own udp.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/entry/fabric.hpp"
#include "link/foreign/packets.hpp"
#include "link/foreign/source.hpp"

namespace weft::fi {
namespace {

using link::foreign::Packets;

Catalogue udp_alone() {
  for (const Provider* const& provider : providers())
    if (std::strcmp(provider->name, "udp") == 0) return {{&provider, 1}, true};
  return {};
}

link::foreign::Source udp_source() {
  link::foreign::Source source;
  source.name = "udp";
  source.version = kApiVersion;
  source.getinfo = [](uint32_t version, const char* node, const char* service, uint64_t flags,
                      const fi_info* hints, fi_info** info) {
    return get_info(udp_alone(), version, node, service, flags, hints, info);
  };
  source.fabric = [](fi_fabric_attr* attr, fid_fabric** fabric, void* context) {
    return find_and_open_fabric(udp_alone(), attr, fabric, context);
  };
  source.dup_info = [](const fi_info* info) { return dup_info(info); };
  source.free_info = [](fi_info* info) { free_info(info); };
  return source;
}

// Answers each packet with several.
struct Answerer {
  Packets& link;
  size_t answers;
  size_t came = 0;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    ++came;
    const iovec part{const_cast<std::byte*>(packet.bytes.data()), packet.bytes.size()};
    for (size_t i = 0; i < answers; ++i) (void)link.send(packet.source, &part, 1);
  }
};

// Plugins of API 1.20 and later write src_addr behind the error entry of 1.17, and those after them perhaps more.
TEST(ForeignPackets, ErrorEntriesOfLaterGenerations) {
  static int reads = 0;
  static fi_ops_cq calls = {};
  calls.read = [](fid_cq*, void*, size_t) -> ssize_t { return reads == 0 ? -FI_EAVAIL : -FI_EAGAIN; };
  calls.readerr = [](fid_cq*, fi_cq_err_entry* entry, uint64_t) -> ssize_t {
    ++reads;
    std::memset(reinterpret_cast<char*>(entry) + 80, 0xff, 64);
    entry->op_context = &calls;
    entry->err = FI_ETRUNC;
    return 1;
  };
  fid_cq cq = {};
  cq.ops = &calls;
  int error = 0;
  link::foreign::read_completions(
      &cq, 4, [](const fi_cq_msg_entry&) {}, [&error](const fi_cq_err_entry& entry) { error = entry.err; });
  EXPECT_EQ(error, FI_ETRUNC);
  static_assert(sizeof(link::foreign::ErrorEntry) >= 80 + 64);
}

// What comes in while packets are shown, because the handler sends, is shown later, and its buffers serve again.
TEST(ForeignPackets, NothingIsLostWhileTheHandlerSends) {
  const auto source = udp_source();
  const os::SocketAddress here = os::SocketAddress::loopback(AF_INET);
  Packets a, b;
  for (Packets* packets : {&a, &b}) {
    packets->set_context(&source);
    const auto opened = packets->open(here.bytes());
    ASSERT_TRUE(opened) << opened.error().why;
  }
  Answerer at_a{a, 2};
  Answerer at_b{b, 0};
  std::vector<std::byte> bytes(64);
  const iovec part{bytes.data(), bytes.size()};
  constexpr size_t waves = 20, in_a_wave = 200;
  for (size_t wave = 1; wave <= waves; ++wave) {
    for (size_t i = 0; i < in_a_wave;) {
      if (b.send(a.address(), &part, 1)) ++i;
      else (void)b.poll(at_b);
    }
    for (int i = 0; i < 2000 && (at_a.came < wave * in_a_wave || at_b.came < 2 * wave * in_a_wave); ++i) {
      (void)a.poll(at_a);
      (void)b.poll(at_b);
    }
    ASSERT_EQ(at_a.came, wave * in_a_wave);
    ASSERT_EQ(at_b.came, 2 * wave * in_a_wave);
  }
}

}  // namespace
}  // namespace weft::fi
