// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Counts what the drivers of network cards need for one packet: instructions, by callgrind, which collects in the driver only and not
// in the model of the card; accesses to registers; and what UDP sockets need for the same packet. bench/nic.py runs it.
//
//   valgrind --tool=callgrind --collect-atstart=no nic_ops DRIVER CALL BATCH COUNT
//   nic_ops DRIVER time BATCH COUNT      nanoseconds of a packet that is sent and received, driver and model together
//   nic_ops udp time BATCH COUNT         the same over two UDP sockets on the loopback interface
//
// CALL is  nothing   empty stretches: what the counting itself costs
//          send      post, and kick and reclaim once a batch
//          receive   receive of a batch, whose handler counts bytes
//          poll      receive when nothing came
#include <arpa/inet.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>
#include <valgrind/callgrind.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <vector>

#include "nic/e1000e/driver.hpp"
#include "nic/model/e1000e.hpp"
#include "nic/model/stand.hpp"
#include "nic/model/virtio_net.hpp"
#include "nic/virtio_net/driver.hpp"

namespace {

using namespace weft;

constexpr size_t payload_bytes = 64;
constexpr unsigned batch_max = 64;

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "nic_ops: %s\n", what);
  std::exit(1);
}

// Stretches in which callgrind collects. A register access interrupts the stretch: what it costs is the model's.
struct Stretch {
  static inline bool is_open = false;
  static inline uint64_t count = 0;
  Stretch() {
    is_open = true;
    ++count;
    CALLGRIND_TOGGLE_COLLECT;
  }
  ~Stretch() {
    CALLGRIND_TOGGLE_COLLECT;
    is_open = false;
  }
  Stretch(const Stretch&) = delete;
  Stretch& operator=(const Stretch&) = delete;
};

template <class F>
auto uncounted(F work) {
  if (!Stretch::is_open) return work();
  CALLGRIND_TOGGLE_COLLECT;
  ++Stretch::count;
  struct Resume {
    ~Resume() { CALLGRIND_TOGGLE_COLLECT; }
  } resume;
  return work();
}

template <class M>
class CountedBus : public nic::model::Bus<M> {
  using Base = nic::model::Bus<M>;

 public:
  using Base::Base;
  class Registers {
   public:
    explicit Registers(typename Base::Registers base) noexcept : base_(base) {}
    size_t size() const noexcept { return base_.size(); }
    [[gnu::noinline]] uint8_t read8(size_t at) const noexcept {
      return uncounted([&] { return base_.read8(at); });
    }
    [[gnu::noinline]] uint16_t read16(size_t at) const noexcept {
      return uncounted([&] { return base_.read16(at); });
    }
    [[gnu::noinline]] uint32_t read32(size_t at) const noexcept {
      return uncounted([&] { return base_.read32(at); });
    }
    [[gnu::noinline]] void write8(size_t at, uint8_t value) const noexcept {
      uncounted([&] { base_.write8(at, value); });
    }
    [[gnu::noinline]] void write16(size_t at, uint16_t value) const noexcept {
      uncounted([&] { base_.write16(at, value); });
    }
    [[gnu::noinline]] void write32(size_t at, uint32_t value) const noexcept {
      uncounted([&] { base_.write32(at, value); });
    }
    [[gnu::noinline]] void write64(size_t at, uint64_t value) const noexcept {
      uncounted([&] { base_.write64(at, value); });
    }

   private:
    typename Base::Registers base_;
  };
  Result<Registers> registers(unsigned bar) {
    auto base = Base::registers(bar);
    if (!base) return base.error();
    return Registers(*base);
  }
};

struct Counter {
  void on_frame(std::span<const std::byte> frame, bool) noexcept { bytes += frame.size(); }
  uint64_t bytes = 0;
};

// Two cards on a cable.
template <class M, template <class> class D>
class Cards {
  using Stand = nic::model::Stand<M, D, CountedBus<M>>;

 public:
  template <class Make>
  explicit Cards(Make make) : a_(make(hub_, 1)), b_(make(hub_, 2)) {
    for (Stand* stand : {&a_, &b_})
      if (auto done = stand->driver.open({}); !done) die(done.error().why.c_str());
    const auto frame = nic::model::udp_frame_of(b_.driver.mac(), a_.driver.mac(), payload_bytes);
    std::copy(frame.begin(), frame.end(), a_.memory().begin());
    fragment_ = {a_.address(), static_cast<uint32_t>(frame.size())};
    for (unsigned i = 0; i < 2000; ++i) {  // every descriptor was used
      send(1);
      receive(1);
    }
  }

  void run(std::string_view call, unsigned batch, uint64_t count) {
    Stretch::count = 0;
    a_.bus.accesses() = b_.bus.accesses() = {};
    const uint64_t rounds = count / batch;
    for (uint64_t i = 0; i < rounds; ++i) step(call, batch);
    const auto& accesses = call == "send" ? a_.bus.accesses() : b_.bus.accesses();
    const uint64_t packets = call == "send" || call == "receive" ? rounds * batch : rounds;
    std::printf("{\"packets\": %llu, \"stretches\": %llu, \"reads\": %llu, \"writes\": %llu}\n",
                static_cast<unsigned long long>(packets), static_cast<unsigned long long>(Stretch::count),
                static_cast<unsigned long long>(accesses.reads),
                static_cast<unsigned long long>(accesses.writes));
  }

  void both(unsigned batch) {
    send(batch);
    receive(batch);
  }

 private:
  void step(std::string_view call, unsigned batch) {
    if (call == "nothing") {
      const Stretch stretch;
    } else if (call == "send") {
      {
        const Stretch stretch;
        send(batch);
      }
      receive(batch);
    } else if (call == "receive") {
      send(batch);
      const Stretch stretch;
      receive(batch);
    } else if (call == "poll") {
      const Stretch stretch;
      b_.driver.receive(counter_, batch);
    } else {
      die("no such call");
    }
  }

  void send(unsigned batch) {
    for (unsigned i = 0; i < batch; ++i)
      if (!a_.driver.post(std::span(&fragment_, 1), i)) die("the ring is full");
    a_.driver.kick();
    size_t back = 0;
    a_.driver.reclaim([&](uint64_t) noexcept { ++back; });
    if (back != batch) die("a frame was not sent");
  }
  void receive(unsigned batch) {
    if (b_.driver.receive(counter_, batch) != batch) die("a frame was lost");
  }

  nic::model::Hub hub_;
  Stand a_;
  Stand b_;
  nic::Fragment fragment_;
  Counter counter_;
};

// --- sockets ---

class Sockets {
 public:
  Sockets() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (from_ < 0 || to_ < 0 || ::bind(to_, any, length) != 0 || ::getsockname(to_, any, &length) != 0 ||
        ::connect(from_, any, length) != 0)
      die("there is no UDP on the loopback interface");
    for (unsigned i = 0; i < batch_max; ++i) {
      pieces_[i] = {buffers_[i].data(), payload_bytes};
      messages_[i].msg_hdr.msg_iov = &pieces_[i];
      messages_[i].msg_hdr.msg_iovlen = 1;
    }
  }
  ~Sockets() {
    ::close(from_);
    ::close(to_);
  }
  Sockets(const Sockets&) = delete;
  Sockets& operator=(const Sockets&) = delete;

  void both(unsigned batch) {
    if (::sendmmsg(from_, messages_.data(), batch, 0) != static_cast<int>(batch)) die("sendmmsg");
    if (::recvmmsg(to_, messages_.data(), batch, 0, nullptr) != static_cast<int>(batch)) die("recvmmsg");
  }

 private:
  int from_ = ::socket(AF_INET, SOCK_DGRAM, 0);
  int to_ = ::socket(AF_INET, SOCK_DGRAM, 0);
  std::array<std::array<char, payload_bytes>, batch_max> buffers_{};
  std::array<iovec, batch_max> pieces_{};
  std::array<mmsghdr, batch_max> messages_{};
};

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

// CPU time of a packet, and how much of it is the kernel's.
template <class Pair>
void time(Pair& pair, unsigned batch, uint64_t count) {
  rusage before{};
  rusage after{};
  ::getrusage(RUSAGE_SELF, &before);
  const uint64_t rounds = count / batch;
  for (uint64_t i = 0; i < rounds; ++i) pair.both(batch);
  ::getrusage(RUSAGE_SELF, &after);
  const double user = seconds(after.ru_utime) - seconds(before.ru_utime);
  const double kernel = seconds(after.ru_stime) - seconds(before.ru_stime);
  const double packets = static_cast<double>(rounds * batch);
  std::printf("{\"user_ns\": %.1f, \"system_ns\": %.1f}\n", 1e9 * user / packets, 1e9 * kernel / packets);
}

template <class M, template <class> class D>
void measure(std::string_view call, unsigned batch, uint64_t count, typename M::Settings settings) {
  Cards<M, D> cards([&](nic::model::Hub& hub, unsigned n) {
    settings.mac = nic::model::mac_of(n);
    return std::make_unique<M>(hub, settings);
  });
  if (call == "time") time(cards, batch, count);
  else cards.run(call, batch, count);
}

template <class B>
using E1000eDriver = nic::e1000e::Driver<B>;
template <class B>
using VirtioDriver = nic::virtio_net::Driver<B>;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) die("usage: nic_ops DRIVER|udp CALL BATCH COUNT");
  const std::string_view what = argv[1];
  const std::string_view call = argv[2];
  const auto batch = static_cast<unsigned>(std::strtoul(argv[3], nullptr, 10));
  const uint64_t count = std::strtoull(argv[4], nullptr, 10);
  if (batch == 0 || batch > batch_max || count < batch)
    die("a batch is of 1 to 64 packets, and there is one at least");
  if (what == "udp") {
    Sockets sockets;
    time(sockets, batch, count);
  } else if (what == "e1000e") {
    measure<nic::model::E1000e, E1000eDriver>(call, batch, count, {});
  } else if (what == "virtio_split" || what == "virtio_packed") {
    nic::model::VirtioNet::Settings settings;
    if (what == "virtio_split") settings.features &= ~nic::virtio_net::feature::packed_ring;
    measure<nic::model::VirtioNet, VirtioDriver>(call, batch, count, settings);
  } else {
    die("no such driver");
  }
  return 0;
}
