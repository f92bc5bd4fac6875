// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts the accesses to registers that RDMA writes over RoCEv2 need, between two models of a network card on a cable
// that do not know each other's ports (proto/roce/, link/nic/). bench/nic.py runs it.
//
//   nic_roce e1000e|virtio_net BYTES BATCH ROUNDS
//
// A round: BATCH requests of BYTES are posted, then both ends poll until they are complete.
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "link/nic/open.hpp"
#include "link/nic/settings.hpp"
#include "link/roce/device.hpp"
#include "nic/e1000e/driver.hpp"
#include "nic/model/bus.hpp"
#include "nic/model/e1000e.hpp"
#include "nic/model/hub.hpp"
#include "nic/model/stand.hpp"
#include "nic/model/virtio_net.hpp"
#include "nic/virtio_net/driver.hpp"
#include "os/clock.hpp"

namespace {

using namespace weft;
namespace roce = proto::roce;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "nic_roce: %s\n", what);
  std::exit(1);
}

template <class M, template <class> class D>
struct Cable {
  using Bus = nic::model::Bus<M>;
  using Card = link::nic::CardOf<D<Bus>>;

  static Result<std::unique_ptr<link::nic::Card>> plug(std::string_view address) {
    const size_t n = address == "0000:00:01.0" ? 0 : 1;
    if (models[n] == nullptr) {
      typename M::Settings settings;
      settings.mac = nic::model::mac_of(static_cast<unsigned>(n) + 1);
      if constexpr (requires { settings.mtu; }) settings.mtu = 9000;
      models[n] = std::make_unique<M>(hub, settings);
    }
    auto bus = std::make_unique<Bus>(*models[n]);
    buses[n] = bus.get();
    return std::unique_ptr<link::nic::Card>(std::make_unique<Card>(std::move(bus)));
  }

  static inline nic::model::Hub hub;
  static inline std::array<std::unique_ptr<M>, 2> models;
  static inline std::array<Bus*, 2> buses{};
};

struct Quiet final : roce::Events {
  void on_completion(roce::CompletionQueue&) noexcept override {}
  void on_async(const roce::AsyncEvent&) noexcept override {}
};

struct End {
  explicit End(unsigned n, size_t requests) : memory(1 << 20) {
    link::roce::DeviceSettings settings;
    const std::string number = std::to_string(n);
    settings.card = *link::nic::parse_card("0000:00:0" + number + ".0=10.0.0." + number + "/24,mtu=9000");
    settings.has_thread = false;
    auto opened = link::roce::Device::open(settings, events);
    if (!opened) die(opened.error().why.c_str());
    device = std::move(*opened);
    const std::scoped_lock guard(device->lock());
    if (device->map(memory.data(), memory.size()) == nullptr) die("the memory is not mapped");
    roce::Adapter& adapter = device->adapter();
    cq = *adapter.create_cq(256);
    const auto at = reinterpret_cast<uint64_t>(memory.data());
    region =
        *adapter.memory().add(1, memory.data(), at, memory.size(), roce::local_write | roce::remote_write);
    roce::QueuePairRequest request;
    request.pd = 1;
    request.send_cq = request.receive_cq = cq;
    request.capacities = {static_cast<uint32_t>(requests), 1, 1, 1, 0};
    qp = *adapter.create_qp(request);
  }
  void connect(const End& to) {
    const std::scoped_lock guard(device->lock());
    roce::Attributes a;
    a.access = roce::remote_write;
    a.path.destination = to.device->gid(1);
    a.path.source_index = 1;
    a.path_mtu = device->path_mtu_max(1, to.device->gid(1));
    a.destination = to.qp->number;
    a.timeout = 14;
    const auto step = [&](roce::QpState state, uint32_t mask) {
      a.state = state;
      if (!device->adapter().modify(*qp, a, mask | roce::attr_state, os::monotonic_ns()))
        die("no queue pair");
    };
    step(roce::QpState::Init, roce::attr_pkey_index | roce::attr_port | roce::attr_access);
    step(roce::QpState::ReadyToReceive, roce::attr_path | roce::attr_path_mtu | roce::attr_destination |
                                            roce::attr_rq_psn | roce::attr_max_dest_reads |
                                            roce::attr_min_rnr_timer);
    step(roce::QpState::ReadyToSend, roce::attr_sq_psn | roce::attr_timeout | roce::attr_retry_count |
                                         roce::attr_rnr_retry | roce::attr_max_reads);
  }
  void poll() {
    const std::scoped_lock guard(device->lock());
    (void)device->poll();
  }
  void write(const End& to, uint32_t bytes, unsigned requests) {
    const std::scoped_lock guard(device->lock());
    for (unsigned i = 0; i < requests; ++i) {
      const roce::Element from{reinterpret_cast<uint64_t>(memory.data()), bytes, region->key};
      roce::SendRequest request;
      request.opcode = roce::SendOpcode::Write;
      request.flags = roce::signaled;
      request.elements = {&from, 1};
      request.remote_address = reinterpret_cast<uint64_t>(to.memory.data());
      request.remote_key = to.region->key;
      if (device->adapter().post_send(*qp, request, os::monotonic_ns()) != 0) die("a request was refused");
    }
    device->posted();
  }
  unsigned completed() {
    const std::scoped_lock guard(device->lock());
    roce::Completion done;
    unsigned count = 0;
    for (; cq->poll({&done, 1}) == 1; ++count)
      if (done.status != roce::Status::Success) die("a request failed");
    return count;
  }
  uint64_t sent() {
    const std::scoped_lock guard(device->lock());
    return device->adapter().counters().sent;
  }

  Quiet events;
  std::vector<std::byte> memory;
  std::unique_ptr<link::roce::Device> device;
  roce::CompletionQueue* cq = nullptr;
  roce::Region* region = nullptr;
  roce::QueuePair* qp = nullptr;
};

template <class M, template <class> class D>
void measure(uint32_t bytes, unsigned batch, unsigned rounds) {
  using Both = Cable<M, D>;
  link::nic::take_cards_from(&Both::plug);
  {
    End a(1, batch);
    End b(2, batch);
    a.connect(b);
    b.connect(a);
    const auto round = [&] {
      a.write(b, bytes, batch);
      unsigned done = 0;
      for (unsigned turns = 0; done < batch; done += a.completed()) {
        if (++turns > 100'000) die("requests do not complete");
        b.poll();
        a.poll();
      }
    };
    round();  // they find each other
    for (auto* bus : Both::buses) bus->accesses() = {};
    const uint64_t sent_before = a.sent();
    const uint64_t answers_before = b.sent();
    for (unsigned i = 0; i < rounds; ++i) round();
    const auto& of_a = Both::buses[0]->accesses();
    const auto& of_b = Both::buses[1]->accesses();
    std::printf(
        "{\"packets\": %llu, \"answers\": %llu, \"reads\": %llu, \"writes\": %llu, \"peer_reads\": %llu, "
        "\"peer_writes\": %llu}\n",
        static_cast<unsigned long long>(a.sent() - sent_before),
        static_cast<unsigned long long>(b.sent() - answers_before),
        static_cast<unsigned long long>(of_a.reads), static_cast<unsigned long long>(of_a.writes),
        static_cast<unsigned long long>(of_b.reads), static_cast<unsigned long long>(of_b.writes));
  }
  link::nic::take_cards_from(nullptr);
}

template <class B>
using E1000eDriver = nic::e1000e::Driver<B>;
template <class B>
using VirtioDriver = nic::virtio_net::Driver<B>;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) die("usage: nic_roce e1000e|virtio_net BYTES BATCH ROUNDS");
  const std::string_view driver = argv[1];
  const auto bytes = static_cast<uint32_t>(std::strtoul(argv[2], nullptr, 10));
  const auto batch = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
  const auto rounds = static_cast<unsigned>(std::strtoul(argv[4], nullptr, 10));
  if (bytes > 1 << 20 || batch == 0 || batch > 64 || rounds == 0)
    die("at most 1 MiB, 1 to 64 requests, one round");
  if (driver == "e1000e") measure<nic::model::E1000e, E1000eDriver>(bytes, batch, rounds);
  else if (driver == "virtio_net") measure<nic::model::VirtioNet, VirtioDriver>(bytes, batch, rounds);
  else die("no such driver");
  return 0;
}
