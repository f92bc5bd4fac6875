// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Packets of the Linux kernel's rxe, as captured on a cable: tests/golden/rxe.pcap has one packet for each opcode,
// flags and length of the exchange. WEFT_GOLDEN names a folder with more captures. Each packet is parsed, its ICRC
// verified, and written again to the same bytes.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "wire/bytes.hpp"
#include "wire/roce/icrc.hpp"
#include "wire/roce/packet.hpp"
#include "wire/roce/sim_golden.hpp"

// Not in a namespace of the room: the rule of sans-IO (scripts/check/sans_io.py) is for the code under test.
namespace {

using namespace weft::wire;
using namespace weft::wire::roce;

std::vector<std::byte> written(const Ethernet& ethernet, const Datagram& datagram, const Packet& packet) {
  std::vector<std::byte> out(Ethernet::bytes + datagram.headers.size() + headers_bytes_max);
  ethernet.write(out.data());
  std::byte* ip = out.data() + Ethernet::bytes;
  if (datagram.is_ip6) datagram.ip6.write(ip);
  else datagram.ip4.write(ip);
  datagram.udp.write(ip + datagram.headers.size() - Udp::bytes);
  const size_t heads = Ethernet::bytes + datagram.headers.size();
  out.resize(heads + write_headers(packet, out.data() + heads));
  out.insert(out.end(), packet.payload.begin(), packet.payload.end());
  out.resize(out.size() + packet.bth.pad + icrc_bytes);
  const Bytes all(out);
  const uint32_t crc = icrc(all.subspan(Ethernet::bytes, datagram.headers.size()),
                            all.subspan(heads, out.size() - heads - icrc_bytes));
  store_big(out.data() + out.size() - icrc_bytes, swap_bytes(crc));
  return out;
}

// How many packets of RoCEv2 there were.
size_t replay(const std::string& path, std::set<uint8_t>& opcodes) {
  size_t count = 0;
  for (const auto& frame : sim::frames(path)) {
    Ethernet ethernet;
    Bytes rest;
    Datagram datagram;
    if (!Ethernet::read(frame, ethernet, rest)) continue;
    if (ethernet.type != Ethernet::type_ip4 && ethernet.type != Ethernet::type_ip6) continue;
    if (!Datagram::read(rest, datagram) || datagram.udp.destination != 4791) continue;
    ++count;
    const std::string name = path + ", packet " + std::to_string(count);
    EXPECT_TRUE(icrc_is_right(datagram.headers, datagram.payload)) << name;
    if (!datagram.is_ip6) {
      EXPECT_EQ(solve_identification(datagram.headers, datagram.payload), datagram.ip4.identification)
          << name;
    }
    Packet packet;
    if (!parse(datagram.payload.first(datagram.payload.size() - icrc_bytes), packet)) {
      ADD_FAILURE() << name << " is not understood";
      continue;
    }
    opcodes.insert(packet.bth.opcode);
    auto same = written(ethernet, datagram, packet);
    same.resize(std::max(same.size(), frame.size()));  // what Ethernet pads
    EXPECT_EQ(same, frame) << name;
  }
  return count;
}

TEST(RoceGolden, PacketsOfTheKernelAreUnderstoodAndWrittenAlike) {
  std::set<uint8_t> opcodes;
  EXPECT_EQ(replay(sim::golden_folder() + "rxe.pcap", opcodes), 131u);
  EXPECT_EQ(opcodes.size(), 22u + 12 + 2) << "all of RC but SEND LAST with invalidate, all of UC, all of UD";
}

TEST(RoceGolden, MoreCaptures) {
  const char* folder = std::getenv("WEFT_GOLDEN");
  if (folder == nullptr) GTEST_SKIP() << "WEFT_GOLDEN names no folder";
  std::set<uint8_t> opcodes;
  size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".pcap") count += replay(entry.path(), opcodes);
  EXPECT_GT(count, 0u);
  RecordProperty("packets", std::to_string(count));
}

}  // namespace
