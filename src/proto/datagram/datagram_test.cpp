// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Datagram endpoints without a network: the ring of kept datagrams against a plain queue, batches against a link that counts and refuses.
#include "proto/datagram/datagram.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <random>
#include <string>

namespace weft::proto {
namespace {

// Keeps what it is given; refuses on demand.
struct FakeLink {
  static constexpr size_t address_length = 4;
  static constexpr size_t segments_max = 8;
  static constexpr size_t packet_bytes_limit = 1500;
  static Result<void> open(std::span<const std::byte>) { return {}; }
  std::span<const std::byte> address() const noexcept { return {}; }
  size_t packet_bytes_max(std::span<const std::byte>) const noexcept { return 1500; }
  bool send(std::span<const std::byte> to, const iovec* parts, size_t count) noexcept {
    if (full) return false;
    ++calls;
    put(to, flat(parts, count));
    return true;
  }
  bool send_segmented(std::span<const std::byte> to, const iovec* parts, size_t count,
                      size_t bytes) noexcept {
    if (full) return false;
    ++calls;
    const std::string all = flat(parts, count);
    for (size_t at = 0; at < all.size(); at += bytes) put(to, all.substr(at, bytes));
    return true;
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    int n = 0;
    for (; !incoming.empty(); ++n) {
      const std::string text = incoming.front();
      incoming.pop_front();
      handler.on_packet({std::as_bytes(std::span("\1\2\3\4", 4)), address(), std::as_bytes(std::span(text))});
    }
    return n;
  }
  void close() noexcept {}

  static std::string flat(const iovec* parts, size_t count) {
    std::string all;
    for (size_t i = 0; i < count; ++i)
      all.append(static_cast<const char*>(parts[i].iov_base), parts[i].iov_len);
    return all;
  }
  void put(std::span<const std::byte> to, std::string text) {
    sent.emplace_back(std::string(reinterpret_cast<const char*>(to.data()), to.size()), std::move(text));
  }
  bool full = false;
  size_t calls = 0;
  std::vector<std::pair<std::string, std::string>> sent;
  std::deque<std::string> incoming;
};

struct DatagramEndpoint : testing::Test {
  DatagramEndpoint() {
    tx.cq = &queue;
    tx.apply_bindings();
    receiver.cq = &queue;
    endpoint.set_receive_context(0, &receiver);
    endpoint.add_queue(&queue);
    endpoint.set_address_vector(&av);
    queue.add(endpoint);
    for (const char* name : {"aaaa", "bbbb"}) av.insert(core::Address(name, 4));
  }
  ssize_t send(const std::string& text, fi_addr_t to = 0, uint64_t flags = 0) {
    const iovec part{const_cast<char*>(text.data()), text.size()};
    return endpoint.send_parts(tx, &part, 1, to, flags, nullptr);
  }
  FakeLink& link() { return endpoint.link(); }

  core::CompletionQueue queue;
  core::AddressVector av;
  TxContext tx;
  EngineLimits limits{.transmit_size = 64, .receive_size = 16, .message_bytes = 1000};
  DatagramReceiver receiver{0, limits, 0};
  Datagram<FakeLink> endpoint{limits};
};

TEST_F(DatagramEndpoint, TheFirstGoesAtOnceTheRestTogether) {
  EXPECT_EQ(send("0"), 0);
  EXPECT_EQ(link().sent.size(), 1u);
  for (int i = 1; i < 5; ++i) EXPECT_EQ(send(std::to_string(i)), 0);
  EXPECT_EQ(link().sent.size(), 1u);
  EXPECT_EQ(queue.pending(), 1u);
  endpoint.progress();
  EXPECT_EQ(link().calls, 2u);
  EXPECT_EQ(queue.pending(), 5u);
  ASSERT_EQ(link().sent.size(), 5u);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(link().sent[i].second, std::to_string(i));
}

TEST_F(DatagramEndpoint, OrderIsKeptOverSizesAndDestinations) {
  std::vector<std::pair<std::string, std::string>> wanted;
  std::mt19937 random(7);
  for (int i = 0; i < 2000; ++i) {
    const std::string text(random() % 4 == 0 ? random() % 1001 : 8 + i / 500, char('a' + i % 26));
    const fi_addr_t to = i / 7 % 3 == 0 ? 1 : 0;
    ASSERT_EQ(send(text, to, random() % 9 == 0 ? FI_MORE : 0), 0);
    wanted.emplace_back(to == 0 ? "aaaa" : "bbbb", text);
    if (random() % 20 == 0) {
      fi_cq_entry entries[64];
      while (queue.read<fi_cq_entry, false>(entries, 64, nullptr) > 0) {
      }
    }
  }
  endpoint.progress();
  EXPECT_EQ(link().sent, wanted);
}

TEST_F(DatagramEndpoint, AFullLinkLosesNothing) {
  EXPECT_EQ(send("x"), 0);
  EXPECT_EQ(send("y"), 0);
  link().full = true;
  endpoint.progress();
  EXPECT_EQ(queue.pending(), 1u);
  EXPECT_EQ(send("other", 1), -FI_EAGAIN);
  EXPECT_FALSE(endpoint.arm());
  link().full = false;
  EXPECT_EQ(send("other", 1), 0);
  endpoint.progress();
  EXPECT_EQ(link().sent.size(), 3u);
  EXPECT_EQ(queue.pending(), 3u);
}

TEST_F(DatagramEndpoint, BufferedDatagramsComeInOrderAndTheRestIsDropped) {
  std::mt19937 random(3);
  std::deque<std::string> model;
  std::vector<char> in(1000);
  uint64_t serial = 0;
  for (int round = 0; round < 300; ++round) {
    const size_t arrivals = random() % 600;
    for (size_t i = 0; i < arrivals; ++i) {
      std::string text = std::to_string(serial++) + std::string(random() % 990, 'z');
      const uint64_t dropped = receiver.dropped();
      receiver.arrived(std::as_bytes(std::span(text)), 5);
      if (receiver.dropped() == dropped) model.push_back(text.substr(0, 1000));
    }
    const size_t receives = round % 150 == 149 ? 1'000'000 : random() % 400;
    for (size_t i = 0; i < receives && !model.empty(); ++i) {
      const iovec part{in.data(), in.size()};
      ASSERT_EQ(receiver.post(&part, 1, nullptr, 0), 0);
      fi_cq_tagged_entry entry{};
      fi_addr_t source = 0;
      ASSERT_EQ((queue.read<fi_cq_tagged_entry, true>(&entry, 1, &source)), 1);
      ASSERT_EQ(std::string(in.data(), entry.len), model.front());
      ASSERT_EQ(source, 5u);
      model.pop_front();
    }
  }
  EXPECT_GT(receiver.dropped(), 0u);
}

TEST_F(DatagramEndpoint, PostedReceivesAreBounded) {
  char in[8];
  const iovec part{in, sizeof in};
  for (int i = 0; i < 16; ++i) ASSERT_EQ(receiver.post(&part, 1, &in[i % 8], 0), 0);
  EXPECT_EQ(receiver.post(&part, 1, nullptr, 0), -FI_EAGAIN);
  link().incoming.emplace_back("hi");
  endpoint.progress();
  EXPECT_EQ(receiver.post(&part, 1, nullptr, 0), 0);
}

TEST_F(DatagramEndpoint, CountsMessagesAndBytes) {
  char in[8];
  const iovec part{in, sizeof in};
  EXPECT_EQ(send("0123"), 0);
  EXPECT_EQ(send("45"), 0);
  link().full = true;
  endpoint.progress();
  EXPECT_EQ(endpoint.counts().sent, 1u);
  EXPECT_EQ(endpoint.counts().send_queue, 1u);
  link().full = false;
  for (const char* text : {"a", "bc", "def"}) link().incoming.emplace_back(text);
  endpoint.progress();
  EXPECT_EQ(endpoint.counts().sent, 2u);
  EXPECT_EQ(endpoint.counts().bytes_sent, 6u);
  EXPECT_EQ(endpoint.counts().completions, 2u);
  EXPECT_EQ(endpoint.counts().unexpected, 3u);
  EXPECT_EQ(endpoint.counts().received, 0u);
  for (int i = 0; i < 4; ++i) ASSERT_EQ(receiver.post(&part, 1, nullptr, 0), 0);
  EXPECT_EQ(endpoint.counts().unexpected, 0u);
  EXPECT_EQ(endpoint.counts().received, 3u);
  EXPECT_EQ(endpoint.counts().bytes_received, 6u);
  EXPECT_EQ(endpoint.counts().receive_queue, 1u);
}

TEST_F(DatagramEndpoint, SourcesFollowTheAddressVector) {
  receiver.choose(FI_SOURCE);
  char in[8];
  const iovec part{in, sizeof in};
  const auto source_of_next = [&] {
    EXPECT_EQ(receiver.post(&part, 1, nullptr, 0), 0);
    link().incoming.emplace_back("hi");
    fi_cq_entry entry{};
    fi_addr_t source = 77;
    EXPECT_EQ((queue.read<fi_cq_entry, true>(&entry, 1, &source)), 1);
    return source;
  };
  EXPECT_EQ(source_of_next(), FI_ADDR_NOTAVAIL);
  const fi_addr_t known = av.insert(core::Address("\1\2\3\4", 4));
  EXPECT_EQ(source_of_next(), known);
  EXPECT_EQ(source_of_next(), known);
  av.remove(known);
  EXPECT_EQ(source_of_next(), FI_ADDR_NOTAVAIL);
}

}  // namespace
}  // namespace weft::proto
