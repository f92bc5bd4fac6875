// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A hostile other end of a connected endpoint: MessageLink gets messages of any content and must not fall over, nor take frames before its Hello.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <vector>

#include "link/message/link.hpp"

namespace {

using namespace weft;

// One connection comes in; what it says is the input. What the link says goes nowhere.
class Endpoints {
 public:
  static constexpr size_t message_bytes_max = (size_t{1} << 14) + 512;
  static constexpr size_t receive_count = 16;
  static constexpr size_t address_length = 16;
  struct Connection {
    void* owner = nullptr;
    bool told = false, closed = false;
    std::deque<std::vector<std::byte>> inbox;
    std::vector<std::byte> out = std::vector<std::byte>(message_bytes_max);
  };
  Result<void> open(std::string_view) { return {}; }
  std::span<const std::byte> address() const noexcept { return std::as_bytes(std::span(name_)); }
  Connection* connect(std::span<const std::byte>, int& error) {
    error = 0;
    Connection& connection = add();
    incoming.back() = false;
    return &connection;
  }
  Connection& add() {
    all.push_back(std::make_unique<Connection>());
    incoming.push_back(true);
    return *all.back();
  }
  std::byte* reserve(Connection& connection) noexcept {
    return connection.closed ? nullptr : connection.out.data();
  }
  void commit(Connection&, size_t bytes) noexcept {
    if (bytes > message_bytes_max) abort();
  }
  template <class Handler>
  int poll(Handler& handler) noexcept {
    for (size_t i = 0; i < all.size(); ++i) {
      Connection& c = *all[i];
      if (!c.told && !c.closed) {
        c.told = true;
        if (incoming[i]) handler.on_incoming(c);
        else handler.on_connected(c);
      }
      while (!c.closed && !c.inbox.empty()) {
        if (!handler.on_message(c, c.inbox.front())) break;
        c.inbox.pop_front();
      }
    }
    return 0;
  }
  void close(Connection& connection) noexcept { connection.closed = true; }
  void close() noexcept {}
  int wait_fd() noexcept { return -1; }
  bool arm() noexcept { return false; }
  void disarm() noexcept {}

  std::vector<std::unique_ptr<Connection>> all;
  std::vector<bool> incoming;

 private:
  char name_[address_length] = "me";
};

using Link = link::message::MessageLink<Endpoints>;

struct World final : Link::Events {
  Link link;
  std::vector<std::unique_ptr<Link::Peer>> peers;
  unsigned frames = 0;

  World() { (void)link.open("me", *this); }
  ~World() { link.close(); }
  Link::Peer* make_peer(std::span<const std::byte>) override {
    peers.push_back(std::make_unique<Link::Peer>());
    return peers.back().get();
  }
  void peer_lost(Link::Peer& peer, core::ProviderError) noexcept override {
    std::erase_if(peers, [&](const auto& entry) { return entry.get() == &peer; });
  }
  bool on_frame(Link::Peer& peer, const wire::FrameHead& head, const std::byte* payload) noexcept {
    bool known = false;
    for (const auto& entry : peers) known |= entry.get() == &peer;
    if (!known) abort();
    volatile uint8_t sum = 0;
    for (uint32_t i = 0; i < head.length; ++i) sum = sum + static_cast<uint8_t>(payload[i]);
    (void)link.send(peer, {wire::FrameKind::Done, 0, 0, 0, head.a, 0}, {}, nullptr, 0);
    return ++frames % 7 != 0;  // now and then there is no room
  }
};

}  // namespace

// Messages of the input: a byte chooses the connection, two bytes are the length.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  World world;
  Endpoints& endpoints = world.link.endpoints();
  int error = 0;
  (void)world.link.connect(std::as_bytes(std::span("somebody else .", 16)), error);
  for (int i = 0; i < 2; ++i) endpoints.add();
  while (size >= 3) {
    const size_t which = data[0] % 3;
    size_t length = data[1] | size_t{data[2]} << 8;
    data += 3;
    size -= 3;
    length = std::min({length, size, Endpoints::message_bytes_max});
    const auto* first = reinterpret_cast<const std::byte*>(data);
    endpoints.all[which]->inbox.emplace_back(first, first + length);
    data += length;
    size -= length;
    world.link.poll(world);
  }
  return 0;
}
