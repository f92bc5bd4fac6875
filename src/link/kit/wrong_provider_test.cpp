// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// What authors get wrong, over whole links: two endpoints in one process, whose packet link breaks its contract in one way. Peers die, and are told of, instead
// of hanging; and no wrong byte comes up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "link/kit/over_packets.hpp"
#include "link/kit/text_names.hpp"
#include "link/reliable/link.hpp"

namespace weft::link::kit {
namespace {

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }
std::string text_of(Bytes bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

enum class Fault : uint8_t {
  None,
  Full,
  Fails,
  SendsPositive,
  TooLong,
  Source,
  ShortSource,
  Longer,
  Shorter,
  CountsBytes,
  Negative,
  Never,
};
Fault fault = Fault::None;

// Datagrams in memory.
struct Wrong : TextAddresses {
  static constexpr size_t address_bytes_max = 8;
  static constexpr bool alters_packets = false;
  struct Datagram {
    std::string source, bytes;
  };
  static inline std::map<std::string, std::deque<Datagram>> network;

  int open(Bytes address) {
    own = text_of(address);
    return 0;
  }
  void close() noexcept {}
  Bytes address() noexcept { return bytes_of(own); }
  size_t packet_bytes_max(Bytes) noexcept { return fault == Fault::TooLong ? 9000 : 1000; }
  int send(Bytes to, const iovec* parts, size_t count) noexcept {
    if (fault == Fault::Full) return -EAGAIN;
    if (fault == Fault::Fails) return -EIO;
    std::string packet;
    for (size_t i = 0; i < count; ++i)
      packet.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    if (fault == Fault::TooLong && packet.size() > 1000) return -EMSGSIZE;
    network[text_of(to)].push_back({own, packet});
    return fault == Fault::SendsPositive ? static_cast<int>(packet.size()) : 0;
  }
  int receive(PacketSink& sink) noexcept {
    auto& mine = network[own];
    if (fault == Fault::Never) return 0;
    int shown = 0;
    size_t bytes = 0;
    for (; !mine.empty(); ++shown) {
      auto [source, packet] = mine.front();
      mine.pop_front();
      if (fault == Fault::Source) source.back() ^= 1;
      if (fault == Fault::ShortSource) source.clear();
      if (fault == Fault::Longer) packet += "xyz";
      if (fault == Fault::Shorter && packet.size() > 200) packet.resize(packet.size() - 3);
      bytes += packet.size();
      sink(bytes_of(source), bytes_of(packet));
    }
    if (fault == Fault::CountsBytes) return static_cast<int>(bytes);
    if (fault == Fault::Negative && shown == 0) return -EAGAIN;
    return shown;
  }
  std::string own;
};
struct Named {
  static constexpr const char* name = "wrong";
};
using Link = reliable::Reliable<OverPackets<Wrong>, TextNames<Wrong, Named>>;

struct End final : reliable::Events {
  explicit End(const std::string& name) {
    link.set_warning(
        [](const void* self, const char* what) {
          static_cast<End*>(const_cast<void*>(self))->warnings.emplace_back(what);
        },
        this);
    EXPECT_TRUE(link.open("fi_wrong://" + name, *this));
  }
  ~End() { link.close(); }
  reliable::Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<reliable::Peer>());
    return peers.back().get();
  }
  void peer_lost(reliable::Peer&, core::ProviderError why) noexcept override {
    ++losses;
    lost = why;
  }
  bool on_frame(reliable::Peer&, const wire::FrameHead& head, const std::byte* payload) noexcept {
    came.append(reinterpret_cast<const char*>(payload), head.length);
    return true;
  }
  void send(const std::string& to, const std::string& bytes) {
    const std::string name = "fi_wrong://" + to;
    int error = 0;
    reliable::Peer* peer = link.connect(bytes_of(name), error);
    ASSERT_NE(peer, nullptr);
    wire::FrameHead head{};
    head.kind = wire::FrameKind::Msg;
    head.length = static_cast<uint32_t>(bytes.size());
    const iovec part{const_cast<char*>(bytes.data()), bytes.size()};
    ASSERT_TRUE(link.send(*peer, head, {}, &part, 1));
  }
  // How many warnings have all these words.
  int told(std::initializer_list<std::string_view> words) const {
    int count = 0;
    for (const std::string& warning : warnings) {
      bool all = true;
      for (const auto word : words) all = all && warning.find(word) != std::string::npos;
      count += all ? 1 : 0;
    }
    return count;
  }
  std::string all_warnings() const {
    std::string all;
    for (const std::string& warning : warnings) all += warning + '\n';
    return all;
  }

  Link link;
  std::vector<std::unique_ptr<reliable::Peer>> peers;
  std::vector<std::string> warnings;
  std::string came;
  int losses = 0;
  core::ProviderError lost = core::ProviderError::None;
};

class WrongProvider : public testing::Test {
 protected:
  WrongProvider() {
    ::setenv("WEFT_RELIABLE_TIMEOUT_S", "1", 1);
    Wrong::network.clear();
    fault = Fault::None;
  }
  ~WrongProvider() override { ::unsetenv("WEFT_RELIABLE_TIMEOUT_S"); }
  // Sends one message and drives both sides until it has come, or the sender has lost its peer, and a little longer.
  void talk(Fault with, size_t bytes = 3000) {
    a = std::make_unique<End>("alice");
    b = std::make_unique<End>("bob");
    fault = with;
    for (size_t i = 0; i < bytes; ++i) message += static_cast<char>('a' + i % 26);
    a->send("bob", message);
    uint64_t until = os::monotonic_ns() + 5 * proto::reliable::second;
    bool settled = false;
    while (os::monotonic_ns() < until) {
      (void)a->link.poll(*a);
      (void)b->link.poll(*b);
      if (!settled && (a->losses != 0 || b->came.size() >= bytes)) {
        settled = true;
        until = os::monotonic_ns() + proto::reliable::second / 20;
      }
    }
    EXPECT_TRUE(settled) << "it hung";
  }
  void expect_dead() const {
    EXPECT_EQ(a->losses, 1);
    EXPECT_EQ(a->lost, core::ProviderError::PeerUnreachable);
    EXPECT_EQ(b->came, message.substr(0, b->came.size()));
  }
  void expect_arrived() const {
    EXPECT_EQ(a->losses, 0);
    EXPECT_EQ(b->came, message);
  }

  std::string message;
  std::unique_ptr<End> a, b;
};

TEST_F(WrongProvider, NoneIsToldWhereNothingIsWrong) {
  talk(Fault::None);
  expect_arrived();
  EXPECT_EQ(a->all_warnings() + b->all_warnings(), "");
}

TEST_F(WrongProvider, ASendThatNeverHasRoomEndsPeers) {
  talk(Fault::Full);
  expect_dead();
  EXPECT_EQ(a->told({"peer fi_wrong://bob is taken for unreachable", "no room", "1.0 s"}), 1)
      << a->all_warnings();
  EXPECT_EQ(a->warnings.size(), 1u) << a->all_warnings();
}

TEST_F(WrongProvider, ASendThatFailsIsToldAtOnceAndEndsPeers) {
  talk(Fault::Fails);
  expect_dead();
  EXPECT_EQ(a->told({"send() failed: Input/output error"}), 1) << a->all_warnings();
  EXPECT_EQ(a->told({"fi_wrong://bob", "unreachable", "send() failed", "times"}), 1) << a->all_warnings();
  EXPECT_NE(a->warnings.front().find("send() failed: Input/output error"), std::string::npos);
}

TEST_F(WrongProvider, SilenceIsToldWithWhatMayExplainIt) {
  talk(Fault::Never);
  expect_dead();
  EXPECT_EQ(a->told({"fi_wrong://bob", "nobody has answered there for 1.", "receive() has shown no packet"}),
            1)
      << a->all_warnings();
}

TEST_F(WrongProvider, APositiveStatusOfSendIsTold) {
  talk(Fault::SendsPositive);
  expect_arrived();
  EXPECT_EQ(a->told({"send() returned", "negative errno"}), 1) << a->all_warnings();
}

TEST_F(WrongProvider, PacketsTooLongForSendAreTold) {
  talk(Fault::TooLong);
  EXPECT_EQ(a->told({"send() refused a packet of", "packet_bytes_max() says 9000"}), 1) << a->all_warnings();
  EXPECT_EQ(b->came, message.substr(0, b->came.size()));
}

TEST_F(WrongProvider, AnotherSourceIsTold) {
  talk(Fault::Source);
  EXPECT_EQ(b->told({"came from fi_wrong://alicd", "fi_wrong://alice", "byte by byte"}), 1)
      << b->all_warnings();
}

TEST_F(WrongProvider, NoSourceIsTold) {
  talk(Fault::ShortSource);
  expect_dead();
  EXPECT_EQ(b->told({"a source of 0 bytes", "1 to 8"}), 1) << b->all_warnings();
}

TEST_F(WrongProvider, LongerPacketsAreRefused) {
  talk(Fault::Longer);
  expect_dead();
  EXPECT_EQ(b->came, "");
  EXPECT_EQ(b->told({"was sent with", "came with"}), 1) << b->all_warnings();
}

TEST_F(WrongProvider, ShorterPacketsAreRefused) {
  talk(Fault::Shorter);
  expect_dead();
  EXPECT_EQ(b->came, "");
  EXPECT_EQ(b->told({"was sent with", "came with"}), 1) << b->all_warnings();
}

TEST_F(WrongProvider, AnotherCountOfPacketsIsTold) {
  talk(Fault::CountsBytes);
  expect_arrived();
  EXPECT_EQ(b->told({"receive() returned", "how many"}), 1) << b->all_warnings();
}

TEST_F(WrongProvider, ANegativeCountOfPacketsIsTold) {
  talk(Fault::Negative);
  expect_arrived();
  EXPECT_EQ(b->told({"receive() returned -11"}), 1) << b->all_warnings();
}

// --- refused at open() ---

template <class P>
std::string refusal(const char* at = "fi_wrong://here") {
  struct Nobody final : reliable::Events {
    reliable::Peer* make_peer(std::span<const std::byte>) override { return nullptr; }
    void peer_lost(reliable::Peer&, core::ProviderError) noexcept override {}
  } nobody;
  reliable::Reliable<OverPackets<P>, TextNames<P, Named>> link;
  const auto opened = link.open(at, nobody);
  return opened ? "" : opened.error().why;
}

struct Restless : Wrong {
  Bytes address() noexcept {
    ++calls;
    return {reinterpret_cast<const std::byte*>(&calls), 4};
  }
  static std::string address_text(Bytes) { return "x"; }
  int calls = 0x20202020;
};
struct LongAddress : Wrong {
  Bytes address() noexcept { return std::as_bytes(std::span("longer than that")); }
};
struct Capitals : Wrong {
  int open(Bytes) {
    own = "here";
    return 0;
  }
  static std::string address_text(Bytes) { return "HERE"; }
  static std::vector<std::byte> address_from_text(std::string_view text) {
    return text == "HERE" ? std::vector<std::byte>{} : TextAddresses::address_from_text(text);
  }
};
struct Spaces : Capitals {
  static std::string address_text(Bytes) { return "he re"; }
};
struct NoText : Capitals {
  static std::string address_text(Bytes) { return ""; }
};
struct LongText : Capitals {
  static std::string address_text(Bytes) { return std::string(70, '0'); }
};

TEST(WrongAddresses, EachHasItsSentence) {
  EXPECT_EQ(refusal<Restless>(""),
            "address() says something else at each call; it may not change from open() to close()");
  EXPECT_EQ(refusal<LongAddress>(""), "address() has 17 bytes; by address_bytes_max it may have 1 to 8");
  EXPECT_EQ(refusal<Wrong>(""), "address() has 0 bytes; by address_bytes_max it may have 1 to 8");
  EXPECT_EQ(refusal<Capitals>(""),
            "address_from_text() reads \"HERE\", which address_text() wrote, as no address");
  EXPECT_EQ(refusal<Spaces>(""),
            "address_text() has a space or what cannot be printed in the text of the own address: \"he re\"");
  EXPECT_EQ(refusal<NoText>(""), "address_text() has no text for the own address");
  EXPECT_EQ(refusal<LongText>(""), "the text of the own address is too long: fi_wrong://" +
                                       std::string(70, '0') + " has 81 characters, and may have 63");
}

}  // namespace
}  // namespace weft::link::kit
