// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Captures read back byte by byte; names of files; what cannot be written; the settings; whole endpoints under faults.
#include "link/packet/capture.hpp"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "link/packet/middleware.hpp"
#include "link/udp/packets.hpp"
#include "os/new_file.hpp"
#include "os/socket_address.hpp"
#include "proto/packet/pcap.hpp"

namespace weft::link::packet {
namespace {

namespace pcap = proto::pcap;
using Bytes = std::span<const std::byte>;
Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

struct Record {
  bool is_ip6 = false;
  std::string source, destination;  // host bytes
  unsigned source_port = 0, destination_port = 0;
  std::string payload;
  size_t original = 0;
};

// Reads what pcap-savefile(5), RFC 791, RFC 8200 and RFC 768 say, and checks every length and checksum.
class Reader {
 public:
  explicit Reader(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    bytes_.assign(std::istreambuf_iterator<char>(file), {});
    if (bytes_.size() < pcap::file_head_bytes) {
      wrong = "no file head";
      return;
    }
    if (little(0, 4) != 0xa1b23c4d || little(4, 2) != 2 || little(6, 2) != 4 || little(20, 4) != 101)
      wrong = "file head";
    for (size_t at = pcap::file_head_bytes; at < bytes_.size() && wrong.empty();) at = read_record(at);
  }
  std::vector<Record> records;
  std::string wrong;

 private:
  uint64_t byte(size_t at) const { return static_cast<unsigned char>(bytes_.at(at)); }
  uint64_t little(size_t at, int n) const {
    uint64_t value = 0;
    for (int i = n; i-- > 0;) value = value << 8 | byte(at + static_cast<size_t>(i));
    return value;
  }
  uint64_t big(size_t at, int n) const {
    uint64_t value = 0;
    for (int i = 0; i < n; ++i) value = value << 8 | byte(at + static_cast<size_t>(i));
    return value;
  }
  // Of 16-bit words; a right checksum makes it 0xffff.
  uint64_t sum(size_t at, size_t n, uint64_t from = 0) const {
    for (size_t i = 0; i < n; ++i) from += byte(at + i) << (i % 2 == 0 ? 8 : 0);
    while (from >> 16 != 0) from = (from & 0xffff) + (from >> 16);
    return from;
  }
  size_t read_record(size_t at) {
    const size_t length = little(at + 8, 4);
    Record record;
    record.original = little(at + 12, 4);
    if (little(at + 4, 4) >= 1'000'000'000) wrong = "nanoseconds";
    at += pcap::record_head_bytes;
    record.is_ip6 = byte(at) >> 4 == 6;
    const size_t head = record.is_ip6 ? 40 : 20;
    const size_t udp = at + head;
    const size_t hosts = at + (record.is_ip6 ? 8 : 12);
    const size_t host_bytes = record.is_ip6 ? 16 : 4;
    const size_t udp_bytes = big(udp + 4, 2);
    if (udp_bytes != length - head) wrong = "UDP length";
    if (record.is_ip6 ? big(at + 4, 2) != udp_bytes || byte(at + 6) != 17
                      : byte(at) != 0x45 || big(at + 2, 2) != length || byte(at + 9) != 17)
      wrong = "IP head";
    if (!record.is_ip6 && sum(at, 20) != 0xffff) wrong = "IP checksum";
    if (big(udp + 6, 2) == 0 || sum(udp, udp_bytes, sum(hosts, 2 * host_bytes) + 17 + udp_bytes) != 0xffff)
      wrong = "UDP checksum";
    record.source = bytes_.substr(hosts, host_bytes);
    record.destination = bytes_.substr(hosts + host_bytes, host_bytes);
    record.source_port = static_cast<unsigned>(big(udp, 2));
    record.destination_port = static_cast<unsigned>(big(udp + 2, 2));
    record.payload = bytes_.substr(udp + 8, udp_bytes - 8);
    records.push_back(std::move(record));
    return at + length;
  }
  std::string bytes_;
};

struct Captures : testing::Test {
  Captures() {
    std::string name = testing::TempDir() + "weft_capture_XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    folder = name;
  }
  ~Captures() override {
    unsetenv("WEFT_PCAP");
    unsetenv("WEFT_PACKET_FAULTS");
    std::filesystem::remove_all(folder);
  }
  std::string in_folder(const std::string& name) const { return folder + "/" + name; }
  std::vector<std::string> files() const {
    std::vector<std::string> all;
    for (const auto& entry : std::filesystem::directory_iterator(folder))
      all.push_back(entry.path().filename());
    std::ranges::sort(all);
    return all;
  }
  static void warned(const void* self, const char* what) {
    static_cast<Captures*>(const_cast<void*>(self))->warnings.emplace_back(what);
  }
  std::string folder;
  std::vector<std::string> warnings;
};

os::SocketAddress address(const char* text) { return *os::SocketAddress::from_text(text); }

TEST(CaptureNames, HaveProcessAndNumberBeforeTheExtension) {
  EXPECT_EQ(os::numbered_name("x.pcap", 1234, 2), "x.1234.2.pcap");
  EXPECT_EQ(os::numbered_name("/a.b/x", 1, 2), "/a.b/x.1.2");
  EXPECT_EQ(os::numbered_name("a/.x", 1, 2), "a/.x.1.2");
  EXPECT_EQ(os::numbered_name("x.tar.gz", 1, 2), "x.tar.1.2.gz");
}

TEST_F(Captures, PacketsOfIpAreReadBack) {
  const auto a = address("10.0.0.1:1000"), b = address("10.0.0.2:2000");
  const auto c = address("[fd00::1]:3000"), mapped = address("[::ffff:10.0.0.9]:4000");
  std::string large(65507, 'x');
  for (size_t i = 0; i < large.size(); ++i) large[i] = static_cast<char>(i * 7 + i / 255);
  {
    CaptureFile capture(in_folder("x.pcap"), true, warned, this);
    capture.record(a.bytes(), b.bytes(), bytes_of("hello"));
    capture.record(b.bytes(), a.bytes(), bytes_of(""));
    capture.record(c.bytes(), c.bytes(), bytes_of("six"));
    capture.record(c.bytes(), mapped.bytes(), bytes_of("mixed"));
    capture.record(mapped.bytes(), mapped.bytes(), bytes_of("four"));
    capture.record(a.bytes(), b.bytes(), bytes_of(large));
    EXPECT_EQ(capture.summary(), "capture: 6 packets in " + in_folder("x.pcap"));
  }
  const Reader reader(in_folder("x.pcap"));
  EXPECT_EQ(reader.wrong, "");
  ASSERT_EQ(reader.records.size(), 6u);
  EXPECT_EQ(reader.records[0].source, std::string("\x0a\0\0\1", 4));
  EXPECT_EQ(reader.records[0].destination, std::string("\x0a\0\0\2", 4));
  EXPECT_EQ(reader.records[0].source_port, 1000u);
  EXPECT_EQ(reader.records[0].destination_port, 2000u);
  EXPECT_EQ(reader.records[0].payload, "hello");
  EXPECT_EQ(reader.records[0].original, 33u);
  EXPECT_EQ(reader.records[1].payload, "");
  EXPECT_TRUE(reader.records[2].is_ip6);
  EXPECT_TRUE(reader.records[3].is_ip6);
  EXPECT_EQ(reader.records[3].destination.substr(10), std::string("\xff\xff\x0a\0\0\x09", 6));
  EXPECT_FALSE(reader.records[4].is_ip6);
  EXPECT_EQ(reader.records[5].payload, large);
  EXPECT_TRUE(warnings.empty());
  struct stat status {};
  ASSERT_EQ(stat(in_folder("x.pcap").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST_F(Captures, OtherAddressesAreMadeUp) {
  const std::string longest(65535, 'y');
  {
    CaptureFile capture(in_folder("x.pcap"), false, warned, this);
    capture.record(bytes_of("short"), bytes_of("a longer address"), bytes_of("one"));
    capture.record(bytes_of("a longer address"), bytes_of("another longer one"), bytes_of(longest));
  }
  const Reader reader(in_folder("x.pcap"));
  EXPECT_EQ(reader.wrong, "");
  ASSERT_EQ(reader.records.size(), 2u);
  EXPECT_EQ(reader.records[0].source, std::string("\xfd\x57\x45\x46\x54\0\0\0short\0\0\0", 16));
  EXPECT_EQ(reader.records[0].source_port, 22341u);
  EXPECT_EQ(reader.records[0].destination, reader.records[1].source);
  EXPECT_NE(reader.records[1].destination, reader.records[1].source);
  EXPECT_EQ(reader.records[1].payload.size(), 65527u);
  EXPECT_EQ(reader.records[1].original, 40u + 8 + 65535);
}

TEST_F(Captures, NoFileIsOverwritten) {
  const auto a = address("10.0.0.1:1");
  for (const char* text : {"one", "two", "three"}) {
    CaptureFile capture(in_folder("x.pcap"), true, warned, this);
    capture.record(a.bytes(), a.bytes(), bytes_of(text));
    capture.flush();
    const Reader reader(capture.path());
    ASSERT_EQ(reader.records.size(), 1u);
    EXPECT_EQ(reader.records[0].payload, text);
  }
  EXPECT_EQ(files().size(), 3u);
  CaptureFile idle(in_folder("y.pcap"), true, warned, this);  // without packets there is no file
  EXPECT_EQ(files().size(), 3u);
}

TEST_F(Captures, WhatCannotBeWrittenIsSaidOnce) {
  const auto a = address("10.0.0.1:1");
  CaptureFile none(in_folder("no/such/folder.pcap"), true, warned, this);
  for (int i = 0; i < 3; ++i) none.record(a.bytes(), a.bytes(), bytes_of("x"));
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_EQ(warnings[0], "WEFT_PCAP: packets are not captured: " + in_folder("no/such/folder.pcap") +
                             ": No such file or directory");
}

// In a process of its own, for the limit stays.
TEST_F(Captures, ALimitOnFileSizeEndsTheCaptureAndNotTheProcess) {
  const pid_t child = fork();
  if (child == 0) {
    const rlimit limit{4096, 4096};
    setrlimit(RLIMIT_FSIZE, &limit);
    const auto a = address("10.0.0.1:1");
    const std::string packet(3000, 'x');
    CaptureFile capture(in_folder("x.pcap"), true, warned, this);
    for (int i = 0; i < 100; ++i) {
      capture.record(a.bytes(), a.bytes(), bytes_of(packet));
      capture.flush();
    }
    _exit(warnings.size() == 1 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(Reader(in_folder("x.pcap")).records.size(), 1u);
}

// An endpoint that its program leaves open; and a child that inherits one adds nothing.
TEST_F(Captures, ExitWritesWhatIsLeft) {
  const pid_t child = fork();
  if (child == 0) {
    const auto a = address("10.0.0.1:1");
    auto* left = new CaptureFile(in_folder("x.pcap"), true, warned, this);
    left->record(a.bytes(), a.bytes(), bytes_of("first"));
    left->record(a.bytes(), a.bytes(), bytes_of("second"));
    if (const pid_t grandchild = fork(); grandchild != 0) waitpid(grandchild, nullptr, 0);
    else left->record(a.bytes(), a.bytes(), bytes_of("not ours"));
    exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const Reader reader(in_folder("x.pcap"));
  EXPECT_EQ(reader.wrong, "");
  ASSERT_EQ(reader.records.size(), 2u);
  EXPECT_EQ(reader.records[1].payload, "second");
}

// --- settings, over real sockets ---

struct Taken {
  std::vector<std::string> packets;
  void on_packet(const proto::ReceivedPacket& packet) noexcept {
    packets.emplace_back(reinterpret_cast<const char*>(packet.bytes.data()), packet.bytes.size());
  }
};

TEST_F(Captures, SettingsApplyToAUdpLink) {
  setenv("WEFT_PCAP", in_folder("x.pcap").c_str(), 1);
  setenv("WEFT_PACKET_FAULTS", "twice=100,seed=3", 1);
  proto::Observed<udp::Packets> link;
  std::vector<std::string> notes;
  Audience audience{warned, this,
                    [](const void* to, const char* what) {
                      static_cast<std::vector<std::string>*>(const_cast<void*>(to))->emplace_back(what);
                    },
                    &notes};
  const auto here = os::SocketAddress::loopback(AF_INET);
  ASSERT_TRUE(open_observed(link, here.bytes(), audience));
  const iovec part{const_cast<char*>("abcdef"), 6};
  EXPECT_EQ(link.try_send(link.address(), &part, 1), 0);
  EXPECT_TRUE(link.send_segmented(link.address(), &part, 1, 4));
  Taken taken;
  for (int i = 0; i < 1000 && taken.packets.size() < 6; ++i) {
    (void)link.poll(taken);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_EQ(taken.packets, (std::vector<std::string>{"abcdef", "abcdef", "abcd", "abcd", "ef", "ef"}));
  const std::string own(reinterpret_cast<const char*>(link.address().data()) + 4, 4);
  link.close();
  const Reader reader(in_folder("x.pcap"));
  EXPECT_EQ(reader.wrong, "");
  ASSERT_EQ(reader.records.size(), 12u);  // as they went, and as they came
  for (const Record& record : reader.records) {
    EXPECT_EQ(record.source, own);
    EXPECT_EQ(record.destination, own);
    EXPECT_EQ(record.source_port, record.destination_port);
  }
  EXPECT_EQ(notes, (std::vector<std::string>{
                       "faults: of 3 packets 0 lost, 3 twice, 0 late, 0 reordered, 0 corrupted; seed 3",
                       "capture: 12 packets in " + in_folder("x.pcap")}));
  EXPECT_TRUE(warnings.empty());
}

TEST_F(Captures, AMalformedSettingRefusesTheEndpoint) {
  setenv("WEFT_PACKET_FAULTS", "loss=1,lat=2", 1);
  proto::Observed<udp::Packets> link;
  const auto refused = open_observed(link, os::SocketAddress::loopback(AF_INET).bytes(), {});
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, EINVAL);
  EXPECT_EQ(
      refused.error().why,
      "WEFT_PACKET_FAULTS=loss=1,lat=2: \"lat\" is no fault; there are loss, twice, late, reorder, corrupt, "
      "mark and seed");
  setenv("WEFT_PACKET_FAULTS", "", 1);
  EXPECT_TRUE(open_observed(link, os::SocketAddress::loopback(AF_INET).bytes(), {}));
  EXPECT_EQ(link.observer(), nullptr);
}

}  // namespace
}  // namespace weft::link::packet
