// A process that makes no call: with FI_PROGRESS_AUTO peers read, write and send to it while it sleeps; with FI_PROGRESS_MANUAL what it had injected
// before still arrives, whatever is lost on the way.
//
//   progress_test [--provider shm]
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
  const auto start = Clock::now();
  uint64_t small = 0;
  unsigned rounds = 0;
  bool good = to != FI_ADDR_NOTAVAIL;
  for (; good && rounds < 200; ++rounds) {
    Op write;
    small = rounds;
    good = me.post(
               [&] {
                 return fi_write(me.ep(), &small, 8, nullptr, to, board->addr, board->key, &write.context);
               },
               Op::take) == 0 &&
           done(me, write);
  }
  const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / rounds;
  Op write, read, send;
  fill(out.data(), out.size(), 9);
  good = good &&
         me.post(
             [&] {
               return fi_write(me.ep(), out.data(), out.size(), nullptr, to, board->addr, board->key,
                               &write.context);
             },
             Op::take) == 0 &&
         done(me, write);
  good = good &&
         me.post(
             [&] {
               return fi_read(me.ep(), back.data(), back.size(), nullptr, to, board->addr, board->key,
                              &read.context);
             },
             Op::take) == 0 &&
         done(me, read) && back == out;
  fill(out.data(), out.size(), 7);
  good = good &&
         me.post([&] { return fi_tsend(me.ep(), out.data(), out.size(), nullptr, to, 1, &send.context); },
                 Op::take) == 0 &&
         done(me, send);
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

int inject_and_sleep(Board& board, const std::string& provider, fi_threading threading) {
  Peer me(provider, FI_TAGGED, threading);
  if (!me.ok()) return 1;
  const fi_addr_t to = me.reach(board.target);
  for (uint64_t i = 0; i < injected_count; ++i)
    if (me.post([&] { return fi_tinject(me.ep(), &i, sizeof(i), to, 1); }, Op::take) != 0) return 2;
  usleep(static_cast<useconds_t>(sleep_time.count()) * 1000);
  return board.received == injected_count ? 0 : 3;
}

bool what_was_accepted_arrives(const std::string& provider, fi_threading threading) {
  auto* board = shared_block<Board>();
  const pid_t sender = spawn([&] { return inject_and_sleep(*board, provider, threading); });
  Peer me(provider, FI_TAGGED);
  if (!me.ok()) return false;
  me.publish(board->target);
  bool good = true;
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

int run(const Arguments& args) {
  const std::string provider = args.provider();
  // Packets get lost: nothing arrives unless somebody sends it again. Copies on purpose are no help against that much.
  if (provider.ends_with("ofi_rxd")) setenv("WEFT_PACKET_FAULTS", "loss=60,seed=11", 0);
  bool good = true;
  good = what_was_accepted_arrives(provider, FI_THREAD_SAFE) && good;
  if (provider.ends_with("ofi_rxd")) good = what_was_accepted_arrives(provider, FI_THREAD_DOMAIN) && good;
  unsetenv("WEFT_PACKET_FAULTS");
  for (const fi_threading threading : {FI_THREAD_SAFE, FI_THREAD_DOMAIN})
    good = target_sleeps(provider, threading) && good;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace weft::system_test

int main(int argc, char** argv) { return weft::system_test::run(weft::system_test::Arguments(argc, argv)); }
