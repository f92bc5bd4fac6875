// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// A process that makes no call: with FI_PROGRESS_AUTO peers read, write and send to it while it sleeps; with FI_PROGRESS_MANUAL what it had injected
// before still arrives, whatever is lost on the way.
//
//   progress_test [--provider shm]
#include <array>

#include "peer.hpp"

namespace weft::system_test {
namespace {

constexpr size_t region_bytes = size_t{1} << 20;
constexpr milliseconds sleep_time{3000};
constexpr uint64_t injected_count = 300;

struct Board {
  Name target;
  Name initiator;
  std::atomic<uint64_t> addr{0};
  std::atomic<uint64_t> key{0};
  std::atomic<bool> finished{false};
  std::atomic<uint64_t> received{0};
};

bool done(Peer& me, Op& op) {
  return eventually([&] {
           me.poll(Op::take);
           return op.state != 0;
         }) &&
         op.state == 1;
}

int sleeping_target(Board& board, const std::string& provider, fi_threading threading) {
  Peer me(provider, FI_TAGGED | FI_RMA, threading, nullptr, nullptr, FI_DELIVERY_COMPLETE, FI_PROGRESS_AUTO);
  if (!me.ok()) return 1;
  std::vector<uint8_t> memory(region_bytes), in(region_bytes);
  const Peer::Region region = me.expose(memory.data(), memory.size());
  Op receive;
  const ClosesFirst closes_first(me);
  if (fi_trecv(me.ep(), in.data(), in.size(), nullptr, FI_ADDR_UNSPEC, 1, 0, &receive.context) != 0) return 2;
  board.addr = region.addr;
  board.key = region.key;
  me.publish(board.target);
  usleep(static_cast<useconds_t>(sleep_time.count()) * 1000);
  if (!board.finished) return 3;  // the initiator needed us
  if (!done(me, receive)) return 4;
  if (first_difference(in.data(), in.size(), 7) != in.size()) return 5;
  return first_difference(memory.data(), memory.size(), 9) == memory.size() ? 0 : 6;
}

bool target_sleeps(const std::string& provider, fi_threading threading) {
  auto* board = shared_block<Board>();
  const pid_t target = spawn([&] { return sleeping_target(*board, provider, threading); });
  Peer me(provider, FI_TAGGED | FI_RMA);
  if (!me.ok()) return false;
  const fi_addr_t to = me.reach(board->target);
  std::vector<uint8_t> out(region_bytes), back(region_bytes);
  const auto completes = [&](Op& op, auto&& call) { return me.post(call, Op::take) == 0 && done(me, op); };
  const auto start = Clock::now();
  uint64_t small = 0;
  unsigned rounds = 0;
  bool good = to != FI_ADDR_NOTAVAIL;
  for (; good && rounds < 200; ++rounds) {
    Op write;
    small = rounds;
    good = completes(write, [&] {
      return fi_write(me.ep(), &small, 8, nullptr, to, board->addr, board->key, &write.context);
    });
  }
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / rounds;
  Op write, read, send;
  fill(out.data(), out.size(), 9);
  good = good && completes(write, [&] {
           return fi_write(me.ep(), out.data(), out.size(), nullptr, to, board->addr, board->key,
                           &write.context);
         });
  good = good &&
         completes(read,
                   [&] {
                     return fi_read(me.ep(), back.data(), back.size(), nullptr, to, board->addr, board->key,
                                    &read.context);
                   }) &&
         back == out;
  fill(out.data(), out.size(), 7);
  good = good && completes(send, [&] {
           return fi_tsend(me.ep(), out.data(), out.size(), nullptr, to, 1, &send.context);
         });
  const long took = ms_since(start);
  board->finished = good;
  const int status = join(target, milliseconds(30'000));
  std::printf(
      "progress_test: %s, %s: target asleep, %s after %ld ms (%.1f us for a write of 8 bytes), target says "
      "%d\n",
      provider.c_str(), threading == FI_THREAD_SAFE ? "FI_THREAD_SAFE" : "FI_THREAD_DOMAIN",
      good ? "all done" : "FAILED", took, us, status);
  return good && status == 0;
}

// `met`: the two have talked before, so that nothing waits for a connection.
int inject_and_sleep(Board& board, const std::string& provider, fi_threading threading, bool met) {
  Peer me(provider, FI_TAGGED, threading);
  if (!me.ok()) return 1;
  me.publish(board.initiator);
  const fi_addr_t to = me.reach(board.target);
  if (met && !exchange(me, to, 2, 8, 1, 2)) return 4;
  for (uint64_t i = 0; i < injected_count; ++i)
    if (me.post([&] { return fi_tinject(me.ep(), &i, sizeof(i), to, 1); }, Op::take) != 0) return 2;
  usleep(static_cast<useconds_t>(sleep_time.count()) * 1000);
  return board.received == injected_count ? 0 : 3;
}

bool what_was_accepted_arrives(const std::string& provider, fi_threading threading, bool met) {
  auto* board = shared_block<Board>();
  const pid_t sender = spawn([&] { return inject_and_sleep(*board, provider, threading, met); });
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return false;
  me.publish(board->target);
  bool good = !met || exchange(me, me.reach(board->initiator), 2, 8, 2, 1);
  for (uint64_t i = 0; good && i < injected_count; ++i) {
    uint64_t word = 0;
    Op receive;
    good = fi_trecv(me.ep(), &word, sizeof(word), nullptr, FI_ADDR_UNSPEC, 1, 0, &receive.context) == 0 &&
           done(me, receive) && word == i;
    board->received = i + 1;
  }
  const int status = join(sender, milliseconds(30'000));
  std::printf("progress_test: %s: sender asleep, %llu of %llu arrived, sender says %d\n", provider.c_str(),
              static_cast<unsigned long long>(board->received.load()),
              static_cast<unsigned long long>(injected_count), status);
  return good && status == 0;
}

constexpr uint64_t completed_count = 20;  // one after the other, each after some losses

int send_and_complete(Board& board, const std::string& provider, fi_threading threading) {
  Peer me(provider, FI_TAGGED, threading, nullptr, nullptr, 0);
  if (!me.ok()) return 1;
  const fi_addr_t to = me.reach(board.target);
  for (uint64_t i = 0; i < completed_count; ++i) {
    Op op;
    if (me.post([&] { return fi_tsend(me.ep(), &i, sizeof(i), nullptr, to, 1, &op.context); }, Op::take) != 0)
      return 2;
    if (!done(me, op)) return 3;
  }
  board.finished = true;
  return 0;
}

// The receiver has it all and turns away. What it answered last may be lost, and the sender waits for that.
bool what_arrived_completes(const std::string& provider, fi_threading threading) {
  auto* board = shared_block<Board>();
  const pid_t sender = spawn([&] { return send_and_complete(*board, provider, threading); });
  Peer me(provider, FI_TAGGED, threading);
  if (!me.ok()) return false;
  me.publish(board->target);
  bool good = true;
  for (uint64_t i = 0; good && i < completed_count; ++i) {
    uint64_t word = 0;
    Op receive;
    good = fi_trecv(me.ep(), &word, sizeof(word), nullptr, FI_ADDR_UNSPEC, 1, 0, &receive.context) == 0 &&
           done(me, receive) && word == i;
  }
  const auto start = Clock::now();
  while (!board->finished && ms_since(start) < 15'000) usleep(1000);
  const long took = ms_since(start);
  good = good && board->finished;
  const int status = join(sender, milliseconds(30'000));
  std::printf(
      "progress_test: %s: receiver asleep, the sender's last completion %s after %ld ms, sender says %d\n",
      provider.c_str(), good ? "came" : "DID NOT COME", took, status);
  return good && status == 0;
}

// A scalable endpoint that is enabled before its receive contexts are there: what comes in between stays.
bool contexts_may_come_later(const std::string& provider) {
  Peer peer(provider, FI_TAGGED, FI_THREAD_SAFE, nullptr, nullptr, FI_DELIVERY_COMPLETE, FI_PROGRESS_AUTO);
  if (!peer.ok()) return false;
  fi_info* hints = fi_dupinfo(peer.info());
  free(hints->src_addr);
  hints->src_addr = nullptr;
  hints->src_addrlen = 0;
  hints->ep_attr->tx_ctx_cnt = 2;
  hints->ep_attr->rx_ctx_cnt = 2;
  fi_info* info = nullptr;
  const int none = fi_getinfo(FI_VERSION(1, 17), nullptr, nullptr, 0, hints, &info);
  fi_freeinfo(hints);
  if (none != 0) return true;  // no scalable endpoints
  fid_fabric* fabric = nullptr;
  fid_domain* domain = nullptr;
  fid_ep* sep = nullptr;
  fid_av* av = nullptr;
  fid_cq* cq = nullptr;
  std::array<fid_ep*, 2> receives{};
  fi_av_attr av_attr{};
  av_attr.rx_ctx_bits = 1;
  fi_cq_attr cq_attr{};
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  bool good =
      fi_fabric(info->fabric_attr, &fabric, nullptr) == 0 && fi_domain(fabric, info, &domain, nullptr) == 0 &&
      fi_scalable_ep(domain, info, &sep, nullptr) == 0 && fi_av_open(domain, &av_attr, &av, nullptr) == 0 &&
      fi_cq_open(domain, &cq_attr, &cq, nullptr) == 0 && fi_scalable_ep_bind(sep, &av->fid, 0) == 0 &&
      fi_enable(sep) == 0;
  Name name;
  size_t length = sizeof(name.bytes);
  good = good && fi_getname(&sep->fid, name.bytes, &length) == 0;
  name.len = static_cast<uint32_t>(length);
  const fi_addr_t to = good ? peer.insert(name) : FI_ADDR_NOTAVAIL;
  uint64_t word = 5;
  good = good && peer.post([&] { return fi_tinject(peer.ep(), &word, sizeof(word), to, 7); }, Op::take) == 0;
  usleep(100'000);
  for (size_t i = 0; good && i < receives.size(); ++i)
    good = fi_rx_context(sep, static_cast<int>(i), info->rx_attr, &receives[i], nullptr) == 0 &&
           fi_ep_bind(receives[i], &cq->fid, FI_RECV) == 0 && fi_enable(receives[i]) == 0;
  word = 0;
  good = good && fi_trecv(receives[0], &word, sizeof(word), nullptr, FI_ADDR_UNSPEC, 7, 0, nullptr) == 0;
  fi_cq_tagged_entry entry{};
  const bool came = good && eventually([&] { return fi_cq_read(cq, &entry, 1) == 1; }) && word == 5;
  std::printf("progress_test: %s: contexts that come later: %s\n", provider.c_str(),
              came ? "received" : "LOST");
  for (fid_ep* each : receives)
    if (each != nullptr) fi_close(&each->fid);
  for (fid* each : {sep != nullptr ? &sep->fid : nullptr, cq != nullptr ? &cq->fid : nullptr,
                    av != nullptr ? &av->fid : nullptr, domain != nullptr ? &domain->fid : nullptr,
                    fabric != nullptr ? &fabric->fid : nullptr})
    if (each != nullptr) fi_close(each);
  fi_freeinfo(info);
  return came;
}

int run(const Arguments& args) {
  const std::string provider = args.provider();
  // Packets get lost: nothing arrives unless somebody sends it again. Copies on purpose are no help against that much.
  if (provider.ends_with("ofi_rxd")) setenv("WEFT_PACKET_FAULTS", "loss=60,seed=11", 0);
  bool good = true;
  for (const bool met : {false, true}) {
    good = what_was_accepted_arrives(provider, FI_THREAD_SAFE, met) && good;
    if (provider.ends_with("ofi_rxd"))
      good = what_was_accepted_arrives(provider, FI_THREAD_DOMAIN, met) && good;
  }
  if (provider.ends_with("ofi_rxd"))
    for (int turn = 0; turn < 2; ++turn) {
      setenv("WEFT_PACKET_FAULTS", ("loss=50,seed=" + std::to_string(turn + 1)).c_str(), 1);
      for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN})
        good = what_arrived_completes(provider, threading) && good;
    }
  unsetenv("WEFT_PACKET_FAULTS");
  for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN})
    good = target_sleeps(provider, threading) && good;
  good = contexts_may_come_later(provider) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) { return weft::system_test::run(weft::system_test::Arguments(argc, argv)); }
