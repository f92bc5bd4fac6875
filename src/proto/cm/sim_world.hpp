// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Two hosts with a communication manager each, programs that connect, accept, reject, disconnect and destroy at random times, and a network between
// them that loses, repeats and reorders messages. Everything follows from one seed. run() returns what went wrong, or nothing.
#pragma once

#include <algorithm>
#include <array>
#include <cerrno>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <string>
#include <vector>

#include "proto/cm/manager.hpp"

namespace weft::proto::cm::sim {

inline Address address_of_host(unsigned host) {
  Address a;
  a.ip[10] = a.ip[11] = std::byte{0xff};
  a.ip[12] = std::byte{10};
  a.ip[15] = static_cast<std::byte>(host + 1);
  a.port = static_cast<uint16_t>(1000 + host);
  return a;
}

struct World;

// What the program of a host knows of one connection.
struct End {
  Handle handle = 0;
  unsigned host = 0;
  bool is_active = false, is_lookup = false, destroyed = false;
  bool established = false, over = false, timed_out = false;
  uint32_t tag = 0;  // in the private data, both ends have it
};

class Host final : public Environment {
 public:
  Host(World& world, unsigned number, const Times& times)
      : manager(*this, times), world_(&world), number_(number) {}
  void send(const Path& path, const Mad& mad) noexcept override;
  void on_event(const Event& event) noexcept override;
  uint32_t random() noexcept override;

  Manager manager;

 private:
  World* world_;
  unsigned number_;
};

struct World {
  static constexpr uint64_t service = 0x1061234;
  static constexpr uint64_t datagram_service = 0x1111234;

  explicit World(uint64_t seed) : random(seed) {
    loss = std::array{0u, 0u, 2u, 10u, 30u}[random() % 5];
    repeats = std::array{0u, 0u, 5u, 20u}[random() % 4];
    delay_max = std::array<uint64_t, 3>{1'000'000, 50'000'000, 800'000'000}[random() % 3];
    backlog = std::array<size_t, 3>{1, 4, 64}[random() % 3];
    count = 1 + random() % 24;
    for (unsigned h = 0; h < 2; ++h) {
      hosts.push_back(std::make_unique<Host>(*this, h, times));
      hosts[h]->manager.listen(Manager::any_socket, service, backlog);
      hosts[h]->manager.listen(Manager::any_socket, datagram_service, backlog);
    }
  }

  void at(uint64_t time, auto work) { queue.push({time, next_step++, std::move(work)}); }
  uint64_t soon(uint64_t most = 2'000'000'000) { return now + random() % most; }

  std::string run() {
    for (unsigned i = 0; i < count; ++i) at(soon(), [this, i] { connect(i); });
    uint64_t steps = 0;
    while (wrong.empty()) {
      if (++steps > 200'000) return "does not end";
      uint64_t next = queue.empty() ? Manager::never : queue.top().time;
      for (auto& h : hosts) next = std::min(next, h->manager.next_time());
      if (next == Manager::never) break;
      if (next > 3'600'000'000'000) return "goes on for an hour";
      now = std::max(now, next);
      if (!queue.empty() && queue.top().time <= now) {
        auto work = queue.top().work;
        queue.pop();
        work();
      }
      for (auto& h : hosts) h->manager.run(now);
    }
    if (!wrong.empty()) return wrong;
    for (auto& [handle, end] : ends)
      if (!end.destroyed)
        return "a connection had no end: state " +
               std::to_string(static_cast<int>(hosts[end.host]->manager.state(end.handle)));
    for (auto& h : hosts)
      if (h->manager.connections() != 0)
        return std::to_string(h->manager.connections()) + " connections are left";
    // Without room for a request there is silence, which may last.
    if (loss == 0 && hosts[0]->manager.statistics().refused + hosts[1]->manager.statistics().refused == 0) {
      for (auto& [key, end] : ends)
        if (end.timed_out) return "timed out without a loss";
    }
    return {};
  }

  void connect(unsigned i) {
    const unsigned h = static_cast<unsigned>(random() % 2);
    const Path path{h, address_of_host(h), address_of_host(1 - h)};
    std::array<std::byte, 92> data{};
    wire::cm::IpHeader header;
    header.source_port = 7;
    wire::cm::write_ip_header(header, data.data());
    wire::store_big(&data[36], uint32_t{i + 1});
    Parameters p;
    p.qpn = 100 + i;
    if (random() % 2 == 0) p.guid = guid_with_port(77);
    End end;
    end.host = h;
    end.is_active = true;
    end.is_lookup = random() % 4 == 0;
    end.tag = i + 1;
    Manager& m = hosts[h]->manager;
    end.handle = end.is_lookup ? m.look_up(path, datagram_service, data, now)
                               : m.connect(path, service, p, {}, data, now);
    const Handle handle = end.handle;
    ends[{h, handle}] = end;
    if (random() % 8 == 0) at(soon(), [=, this] { destroy(h, handle); });
  }

  void destroy(unsigned h, Handle handle) {
    End& end = ends.at({h, handle});
    if (end.destroyed) return;
    end.destroyed = true;
    hosts[h]->manager.destroy(handle, now);
  }

  // Events come while the manager works; the programs act later.
  void on_event(unsigned h, const Event& event) {
    Manager& m = hosts[h]->manager;
    const Handle handle = event.connection;
    if (event.kind == EventKind::Request) {
      if (ends.contains({h, handle})) return fail("a request for a connection that is known");
      End end;
      end.handle = handle;
      end.host = h;
      end.tag = wire::load_big<uint32_t>(&event.private_data[36]);
      end.is_lookup = m.state(handle) == Manager::State::ServiceRequestReceived;
      if (end.tag == 0 || end.tag > count) return fail("private data are not those that were sent");
      for (auto& [key, other] : ends)
        if (!other.is_active && other.host == h && other.tag == end.tag && !other.over && !other.destroyed)
          return fail("one request was told of twice");
      ends[{h, handle}] = end;
      const auto how = random() % 8;
      at(soon(how == 0 ? 20'000'000'000 : 100'000'000), [=, this] { answer(h, handle, how); });
      return;
    }
    const auto known = ends.find({h, handle});
    if (known == ends.end() || known->second.destroyed) return fail("an event of a connection that is none");
    End& end = known->second;
    switch (event.kind) {
      case EventKind::Response:
        if (!end.is_active || end.established) return fail("a reply that was not waited for");
        at(soon(100'000'000), [=, this] { on_response(h, handle); });
        return;
      case EventKind::Established:
        if (end.established || end.over) return fail("established twice");
        end.established = true;
        if (end.is_lookup) {
          if (event.parameters.qpn != 1000 + end.tag) return fail("the queue pair of another lookup");
          at(soon(), [=, this] { destroy(h, handle); });
        } else {
          at(soon(10'000'000'000), [=, this] { disconnect(h, handle); });
        }
        return;
      case EventKind::Rejected:
      case EventKind::Unreachable:
        if (end.established || end.over) return fail("refused after it was established");
        end.timed_out |= event.status == -ETIMEDOUT;
        end.over = true;
        at(soon(), [=, this] { destroy(h, handle); });
        return;
      case EventKind::Disconnected:
        if (end.over) return fail("disconnected twice");
        end.over = true;
        end.timed_out |= event.status == -ETIMEDOUT;
        at(soon(), [=, this] {
          if (ends.at({h, handle}).destroyed) return;
          if (random() % 2 == 0) hosts[h]->manager.disconnect(handle, now);
          at(soon(5'000'000'000), [=, this] { destroy(h, handle); });
        });
        return;
      case EventKind::TimeWaitEnds:
        if (!end.over) return fail("time wait of a connection that goes on");
        return;
      case EventKind::Request:
        return;
    }
  }

  void answer(unsigned h, Handle handle, uint64_t how) {
    End& end = ends.at({h, handle});
    if (end.destroyed) return;
    Manager& m = hosts[h]->manager;
    if (how == 1) {
      m.reject(handle, Reason::ConsumerDefined, {}, now);
      return destroy(h, handle);
    }
    if (how == 2) return destroy(h, handle);
    Parameters p;
    p.qpn = 1000 + end.tag;
    p.guid = guid_with_port(78);
    if (m.accept(handle, p, {}, now) != 0) {
      if (!end.over) fail("a request that cannot be accepted");
      return;
    }
    if (end.is_lookup) at(soon(), [=, this] { destroy(h, handle); });
  }

  void on_response(unsigned h, Handle handle) {
    End& end = ends.at({h, handle});
    if (end.destroyed) return;
    Manager& m = hosts[h]->manager;
    if (random() % 16 == 0) {
      m.reject(handle, Reason::ConsumerDefined, {}, now);
      return destroy(h, handle);
    }
    if (m.establish(handle, now) != 0) {
      if (!end.over) fail("a reply that cannot be answered");
      return;
    }
    end.established = true;
    at(soon(10'000'000'000), [=, this] { disconnect(h, handle); });
  }

  void disconnect(unsigned h, Handle handle) {
    const End& end = ends.at({h, handle});
    if (end.destroyed) return;
    const auto how = random() % 8;
    if (how == 0) return destroy(h, handle);
    if (how < 5) hosts[h]->manager.disconnect(handle, now);
    // The others leave it to the peer; for a while.
    else at(now + 30'000'000'000, [=, this] { destroy(h, handle); });
  }

  void carry(unsigned from, const Path& path, const Mad& mad) {
    if (!(path.remote == address_of_host(1 - from))) return fail("a message to a stranger");
    ++messages;
    if (random() % 100 < loss) return;
    const unsigned copies = random() % 100 < repeats ? 2 : 1;
    for (unsigned c = 0; c < copies; ++c) {
      const unsigned to = 1 - from;
      at(now + random() % delay_max, [=, this] {
        hosts[to]->manager.receive({to, address_of_host(to), address_of_host(from)}, mad, now);
      });
    }
  }

  void fail(const std::string& what) {
    if (wrong.empty()) wrong = what;
  }

  struct Step {
    uint64_t time;
    uint64_t order;
    std::function<void()> work;
    bool operator<(const Step& other) const {
      return std::pair(other.time, other.order) < std::pair(time, order);
    }
  };

  std::mt19937_64 random;
  Times times;
  unsigned loss, repeats, count;
  uint64_t delay_max;
  size_t backlog;
  uint64_t now = 1'000'000'000;
  uint64_t next_step = 0;
  uint64_t messages = 0;
  std::priority_queue<Step> queue;
  std::vector<std::unique_ptr<Host>> hosts;
  std::map<std::pair<unsigned, Handle>, End> ends;
  std::string wrong;
};

inline void Host::send(const Path& path, const Mad& mad) noexcept { world_->carry(number_, path, mad); }
inline void Host::on_event(const Event& event) noexcept { world_->on_event(number_, event); }
inline uint32_t Host::random() noexcept { return static_cast<uint32_t>(world_->random()); }

}  // namespace weft::proto::cm::sim
