// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Processes send each other messages of all sizes, inject small ones, write and read each other's memory for a while; every byte is checked, nothing may
// come twice, be missing or fail. For networks that lose packets: WEFT_PACKET_FAULTS.
//
//   mixed [--provider "udp;ofi_rxd"] [--processes 3] [--seconds 5] [--seed 1] [--size-max 300000] [--patience-s 60]
#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t processes_max = 8;
constexpr size_t window = 8;                // receives posted for each peer, and sends under way to each
constexpr size_t board_slot_bytes = 65536;  // of each exposed region, for each peer

struct Board {
  struct Place {
    Name name;
    std::atomic<uint64_t> region_addr{0}, region_key{0};
    std::atomic<uint64_t> sent[processes_max] = {};  // messages to each, once `announced`
    std::atomic<uint32_t> announced{0}, finished{0};
    std::atomic<uint64_t> messages{0}, bytes{0}, rma{0};
  } place[processes_max];
};

struct Setup {
  std::string provider;
  size_t processes, seconds, size_max, patience_s;
  uint64_t seed;
};

size_t size_of(uint64_t random, size_t max) {
  if (random % 4 != 0) return random / 8 % 200;  // most are small
  size_t size = 200;
  for (uint64_t bits = random >> 16; (bits & 1) != 0 && size < max; bits >>= 1) size *= 3;
  return std::min(size + (random >> 40) % size, max);
}

struct Message {
  Op op;
  std::vector<uint8_t> bytes;
  bool busy = false;
};

struct Partner {
  fi_addr_t addr = FI_ADDR_NOTAVAIL;
  std::vector<std::unique_ptr<Message>> sends, receives;
  uint64_t sent = 0, received = 0, posted = 0;
  Message rma;
  int rma_stage = 0;  // 0 idle, 1 writing, 2 reading
  uint64_t rma_seed = 0;
};

class Process {
 public:
  Process(const Setup& setup, Board& board, size_t self) : setup_(setup), board_(board), self_(self) {}

  int run() {
    Peer me(setup_.provider, FI_TAGGED | FI_RMA);
    if (!me.ok()) return 1;
    std::vector<uint8_t> memory(board_slot_bytes * setup_.processes);
    const ClosesFirst closes_first(me);
    const auto region = me.expose(memory.data(), memory.size());
    mine().region_addr = region.addr;
    mine().region_key = region.key;
    me.publish(mine().name);
    partners_.resize(setup_.processes);
    for (size_t i = 0; i < setup_.processes; ++i) {
      Partner& partner = partners_[i];
      partner.addr = me.reach(board_.place[i].name);
      if (partner.addr == FI_ADDR_NOTAVAIL) return complain("cannot reach", i);
      for (size_t n = 0; n < window; ++n) {
        partner.sends.push_back(std::make_unique<Message>());
        partner.receives.push_back(std::make_unique<Message>());
      }
    }
    const auto start = Clock::now();
    auto moved = start;
    while (true) {
      const bool sending = ms_since(start) < static_cast<long>(setup_.seconds) * 1000;
      uint64_t before = done_;
      if (!sending && !announced_ && all_sent()) {
        for (size_t i = 0; i < setup_.processes; ++i) mine().sent[i] = partners_[i].sent;
        mine().announced = 1;
        announced_ = true;
      }
      for (size_t i = 0; i < setup_.processes; ++i)
        if (i != self_ && !turn(me, i, sending)) return 1;
      for (int i = 0; i < 4; ++i) me.poll([this](const Done& done) { take(done); });
      if (failed_) return complain("an operation failed", self_);
      if (done_ != before) moved = Clock::now();
      if (ms_since(moved) > static_cast<long>(setup_.patience_s) * 1000)
        return complain("nothing moves", self_);
      if (announced_ && mine().finished == 0 && all_here()) mine().finished = 1;
      bool over = true;
      for (size_t i = 0; i < setup_.processes; ++i) over = over && board_.place[i].finished != 0;
      if (over) break;
    }
    mine().messages = messages_;
    mine().bytes = bytes_;
    mine().rma = rma_;
    return 0;
  }

 private:
  Board::Place& mine() { return board_.place[self_]; }
  uint64_t name(size_t from, size_t to, uint64_t number) const {
    return mix(setup_.seed ^ mix(from * 100 + to) ^ number << 8);
  }
  int complain(const char* what, size_t who) {
    std::fprintf(stderr, "mixed: process %zu: %s (%zu)\n", self_, what, who);
    for (size_t i = 0; i < partners_.size(); ++i)
      std::fprintf(stderr, "  with %zu: sent %llu, received %llu, rma stage %d\n", i,
                   static_cast<unsigned long long>(partners_[i].sent),
                   static_cast<unsigned long long>(partners_[i].received), partners_[i].rma_stage);
    return 1;
  }
  void take(const Done& done) {
    Op::take(done);
    ++done_;
    if (done.err != 0 && done.err != FI_ECANCELED) {
      std::fprintf(stderr, "mixed: process %zu: error %d: %s\n", self_, done.err, done.text.c_str());
      failed_ = true;
    }
  }
  bool all_sent() const {
    for (const Partner& partner : partners_) {
      if (partner.rma_stage != 0) return false;
      for (const auto& message : partner.sends)
        if (message->busy) return false;
    }
    return true;
  }
  bool all_here() const {
    for (size_t i = 0; i < partners_.size(); ++i) {
      if (i == self_) continue;
      if (board_.place[i].announced == 0 || board_.place[i].sent[self_] != partners_[i].received)
        return false;
    }
    return true;
  }

  bool turn(Peer& me, size_t i, bool sending) {
    Partner& partner = partners_[i];
    // Receives, each for one number, checked in the order of numbers.
    while (partner.posted < partner.received + window) {
      Message& message = *partner.receives[partner.posted % window];
      message.bytes.assign(size_of(name(i, self_, partner.posted), setup_.size_max) + 64, 0xee);
      message.op.state = 0;
      const ssize_t rc = fi_trecv(me.ep(), message.bytes.data(), message.bytes.size(), nullptr,
                                  FI_ADDR_UNSPEC, uint64_t{i} << 48 | partner.posted, 0, &message.op.context);
      if (rc == -FI_EAGAIN) break;
      if (rc != 0) return complain("fi_trecv", i) == 0;
      ++partner.posted;
    }
    while (partner.received < partner.posted) {
      Message& message = *partner.receives[partner.received % window];
      if (message.op.state == 0) break;
      const uint64_t seed = name(i, self_, partner.received);
      const size_t size = size_of(seed, setup_.size_max);
      if (message.op.len != size || first_difference(message.bytes.data(), size, seed) != size)
        return complain("wrong data", i) == 0;
      ++partner.received;
      ++messages_;
      bytes_ += size;
    }
    for (auto& message : partner.sends) {
      if (message->busy && message->op.state != 0) message->busy = false;
      if (message->busy || !sending) continue;
      const uint64_t seed = name(self_, i, partner.sent);
      const size_t size = size_of(seed, setup_.size_max);
      message->bytes.resize(size);
      fill(message->bytes.data(), size, seed);
      const uint64_t tag = uint64_t{self_} << 48 | partner.sent;
      message->op.state = 0;
      const bool inject = size <= 64 && seed % 2 == 0;
      const ssize_t rc = inject ? fi_tinject(me.ep(), message->bytes.data(), size, partner.addr, tag)
                                : fi_tsend(me.ep(), message->bytes.data(), size, nullptr, partner.addr, tag,
                                           &message->op.context);
      if (rc == -FI_EAGAIN) break;
      if (rc != 0) return complain("fi_tsend", i) == 0;
      message->busy = !inject;
      if (inject) std::fill(message->bytes.begin(), message->bytes.end(), uint8_t{0});  // it is ours again
      ++partner.sent;
    }
    return remote_memory(me, i, sending);
  }

  // Writes into the partner's memory, then reads it back.
  bool remote_memory(Peer& me, size_t i, bool sending) {
    Partner& partner = partners_[i];
    const uint64_t at = board_.place[i].region_addr + self_ * board_slot_bytes;
    const uint64_t key = board_.place[i].region_key;
    if (partner.rma_stage != 0 && partner.rma.op.state == 0) return true;
    const size_t size = 1 + partner.rma_seed % board_slot_bytes;
    ssize_t rc = 0;
    if (partner.rma_stage == 0) {
      if (!sending) return true;
      const uint64_t seed = mix(partner.rma_seed + self_ * 10 + i + 1);
      const size_t bytes = 1 + seed % board_slot_bytes;
      partner.rma.bytes.resize(bytes);
      fill(partner.rma.bytes.data(), bytes, seed);
      partner.rma.op.state = 0;
      rc = fi_write(me.ep(), partner.rma.bytes.data(), bytes, nullptr, partner.addr, at, key,
                    &partner.rma.op.context);
      if (rc == 0) {
        partner.rma_seed = seed;
        partner.rma_stage = 1;
      }
    } else if (partner.rma_stage == 1) {
      partner.rma.bytes.assign(size, 0xee);
      partner.rma.op.state = 0;
      rc = fi_read(me.ep(), partner.rma.bytes.data(), size, nullptr, partner.addr, at, key,
                   &partner.rma.op.context);
      if (rc == 0) partner.rma_stage = 2;
      else partner.rma.op.state = 1;
    } else {
      if (first_difference(partner.rma.bytes.data(), size, partner.rma_seed) != size)
        return complain("wrong data read back", i) == 0;
      ++rma_;
      partner.rma_stage = 0;
    }
    return rc == 0 || rc == -FI_EAGAIN || complain("RMA", i) == 0;
  }

  const Setup& setup_;
  Board& board_;
  size_t self_;
  std::vector<Partner> partners_;
  uint64_t done_ = 0, messages_ = 0, bytes_ = 0, rma_ = 0;
  bool announced_ = false, failed_ = false;
};

int run(const Arguments& arguments) {
  Setup setup{arguments.provider(),
              std::clamp<size_t>(arguments.number("processes", 3), 2, processes_max),
              arguments.number("seconds", 5),
              arguments.number("size-max", 300000),
              arguments.number("patience-s", 60),
              arguments.number("seed", 1)};
  Board* board = shared_block<Board>();
  std::vector<pid_t> children;
  for (size_t i = 0; i < setup.processes; ++i)
    children.push_back(spawn([&, i] { return Process(setup, *board, i).run(); }));
  int rc = 0;
  for (const pid_t child : children) {
    const int status = join(child, milliseconds((setup.seconds + 2 * setup.patience_s) * 1000));
    if (status != 0) rc = 1;
  }
  uint64_t messages = 0, bytes = 0, rma = 0;
  for (size_t i = 0; i < setup.processes; ++i) {
    messages += board->place[i].messages;
    bytes += board->place[i].bytes;
    rma += board->place[i].rma;
  }
  std::printf("mixed: %s, %zu processes: %llu messages (%llu MB), %llu writes and reads, every byte right\n",
              rc == 0 ? "good" : "FAILED", setup.processes, static_cast<unsigned long long>(messages),
              static_cast<unsigned long long>(bytes >> 20), static_cast<unsigned long long>(rma));
  return rc;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) { return weft::system_test::run(weft::system_test::Arguments(argc, argv)); }
