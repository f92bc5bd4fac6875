// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Hostile messages of the communication manager between two honest ones: the input says what is sent, altered and when, and what the programs do.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "proto/cm/manager.hpp"

namespace {

using namespace weft::proto::cm;
namespace wire = weft::wire;

struct Side final : Environment {
  explicit Side(uint32_t n) : seed(n) {}
  void send(const Path&, const Mad& mad) noexcept override { sent.push_back(mad); }
  void on_event(const Event& event) noexcept override {
    // All that is promised may be read.
    unsigned sum = 0;
    for (const std::byte b : event.private_data) sum += std::to_integer<unsigned>(b);
    if (event.connection == 0 || sum > 255u * 256) abort();
    handles.push_back(event.connection);
  }
  uint32_t random() noexcept override { return seed = seed * 1664525 + 1013904223; }
  uint32_t seed;
  std::vector<Mad> sent;
  std::vector<Handle> handles;
  std::unique_ptr<Manager> manager = std::make_unique<Manager>(*this);
};

Address host(unsigned n) {
  Address a;
  a.ip[15] = static_cast<std::byte>(n);
  a.port = 1;
  return a;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* input, size_t size) {
  Side sides[2]{Side(1), Side(2)};
  constexpr uint64_t service = 0x1060001;
  for (Side& s : sides) s.handles.push_back(s.manager->listen(1, service, 4));
  uint64_t now = 1'000'000'000;
  const Path paths[2]{{1, host(0), host(1)}, {1, host(1), host(0)}};
  size_t at = 0;
  const auto next = [&]() -> uint8_t { return at < size ? input[at++] : uint8_t{0}; };
  while (at < size) {
    const uint8_t what = next();
    const unsigned s = what >> 7;
    Side& side = sides[s];
    Side& other = sides[1 - s];
    const Handle handle = side.handles[next() % side.handles.size()];
    std::array<std::byte, 216> data{};
    wire::cm::write_ip_header({}, data.data());
    switch (what & 15) {
      case 0:
        side.handles.push_back(
            side.manager->connect(paths[s], service, {}, {}, std::span(data).first(92), now));
        break;
      case 1:
        side.handles.push_back(side.manager->look_up(paths[s], service, data, now));
        break;
      case 2:
        side.manager->accept(handle, {}, {}, now);
        break;
      case 3:
        side.manager->establish(handle, now);
        break;
      case 4:
        side.manager->reject(handle, Reason::ConsumerDefined, {}, now);
        break;
      case 5:
        side.manager->disconnect(handle, now);
        break;
      case 6:
        side.manager->destroy(handle, now);
        break;
      case 7:
        side.manager->notify_established(handle, now);
        break;
      case 8:
        side.manager->take(handle);
        break;
      case 9:
        side.manager->unreachable(1, paths[s].remote, now);
        break;
      case 10:
        now += uint64_t{next()} * 100'000'000;
        side.manager->run(now);
        break;
      case 11: {  // a message of the other, with bytes changed
        if (other.sent.empty()) break;
        Mad mad = other.sent[next() % other.sent.size()];
        for (uint8_t changes = next() % 4; changes > 0; --changes)
          mad[next()] = static_cast<std::byte>(next());
        side.manager->receive(paths[s], mad, now);
        break;
      }
      case 12: {  // the fuzzer's own
        Mad mad{};
        mad[0] = std::byte{1};
        mad[1] = std::byte{7};
        mad[2] = std::byte{2};
        mad[3] = std::byte{3};
        mad[17] = static_cast<std::byte>(0x10 + next() % 11);
        for (size_t i = 24; i < 72; ++i) mad[i] = static_cast<std::byte>(next());
        side.manager->receive(paths[s], mad, now);
        break;
      }
      default:
        if (!other.sent.empty()) side.manager->receive(paths[s], Mad(other.sent.back()), now);
    }
    if (side.handles.back() == 0) side.handles.pop_back();
  }
  // Everything ends when the programs want it to.
  for (Side& s : sides) s.manager->destroy_all(now);
  for (int i = 0; i < 100; ++i) {
    now += 10'000'000'000;
    for (Side& s : sides) s.manager->run(now);
  }
  for (Side& s : sides)
    if (s.manager->connections() != 0) abort();
  return 0;
}
