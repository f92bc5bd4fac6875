// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Random operations in both directions at once, over several queue pairs, against a model: each side knows what its
// writes make of the peer's memory.
#include <algorithm>
#include <array>
#include <cstring>
#include <random>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

// The peer's memory, as one side uses it: a part that it writes, one that nobody writes, a counter, and places of
// messages.
constexpr size_t written = 0, written_bytes = 64 << 10, constant = written_bytes, constant_bytes = 64 << 10,
                 counter = constant + constant_bytes, messages = counter + 64, message_bytes = 4000;
constexpr uint32_t depth = 16;
constexpr size_t all_bytes = messages + depth * message_bytes;

// One queue pair of the traffic: up to `depth` requests under way, each with its own local piece.
class Traffic {
 public:
  Traffic(Session& s, uint32_t seed, uint32_t count)
      : pair_(s, options()),
        local_(pair_.pd, depth * local_bytes),
        model_(written_bytes),
        random_(seed),
        left_(count) {
    fill(pair_.memory->part(constant, constant_bytes), 1234);
    fill(peer_constant_, 1234);
    for (uint32_t i = 0; i < depth; ++i) post_receive(i);
    s.control.barrier();
  }

  // Takes what is complete and posts what fits; false when both sides are through.
  bool step() {
    ibv_wc wc;
    while (ibv_poll_cq(pair_.receive_cq(), 1, &wc) == 1) on_received(wc);
    while (poll_send(wc)) on_sent(wc);
    while (left_ > 0 && in_flight_ < depth) post_one();
    return left_ > 0 || in_flight_ > 0 || !has_peer_ended_;
  }
  void compare(Session& s) {
    // What each side believes to have written is what the other one has.
    uint64_t sum = 0, own = 0;
    for (size_t i = 0; i < written_bytes; ++i) sum = sum * 31 + model_[i];
    for (const uint8_t byte : pair_.memory->part(written, written_bytes)) own = own * 31 + byte;
    require(s.control.swap(sum) == own, "memory is not as the peer's writes should have made it");
    uint64_t count;
    std::memcpy(&count, &pair_.memory->bytes[counter], sizeof count);
    const auto adds = s.control.swap(added_);
    require(count == adds, "the counter has %llu, not %llu", static_cast<unsigned long long>(count),
            static_cast<unsigned long long>(adds));
  }

 private:
  static constexpr size_t local_bytes = 16 << 10;
  static constexpr uint32_t the_end = UINT32_MAX;  // the immediate of the last message

  static PairOptions options() {
    PairOptions o;
    o.bytes = all_bytes;
    return o;
  }
  uint32_t draw(uint32_t below) { return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_); }

  bool poll_send(ibv_wc& wc) {
    if (in_flight_ == 0) return false;
    return ibv_poll_cq(pair_.send_cq(), 1, &wc) == 1;
  }
  void post_receive(uint64_t slot) {
    pair_.receive(pair_.memory->element(messages + slot * message_bytes, message_bytes), slot);
  }
  void on_received(const ibv_wc& wc) {
    require(wc.status == IBV_WC_SUCCESS, "receive: %s", ibv_wc_status_str(wc.status));
    if (wc.imm_data == the_end) {
      has_peer_ended_ = true;
      return;
    }
    require(wc.imm_data == received_, "message %u came where %u was due", wc.imm_data, received_);
    check(pair_.memory->part(messages + wc.wr_id * message_bytes, wc.byte_len), 7000 + wc.imm_data,
          "message");
    ++received_;
    post_receive(wc.wr_id);
  }

  void post_one() {
    const uint64_t slot = next_++ % depth;
    const size_t at = slot * local_bytes;
    Operation& op = operations_[slot];
    op.kind = draw(4);
    if (left_ == 1) {
      op.kind = 0;
      pair_.send_immediate(local_.element(at, 1), the_end, slot);
      left_ = 0;
      ++in_flight_;
      return;
    }
    op.length = draw(8) == 0 ? draw(12'000) + 1 : draw(600) + 1;
    switch (op.kind) {
      case 0: {
        op.length = std::min(op.length, message_bytes);
        fill(local_.part(at, op.length), 7000 + sends_);
        pair_.send_immediate(local_.element(at, op.length), sends_++, slot);
        break;
      }
      case 1: {
        op.offset = draw(written_bytes - static_cast<uint32_t>(op.length));
        fill(local_.part(at, op.length), next_);
        std::ranges::copy(local_.part(at, op.length), model_.begin() + static_cast<ptrdiff_t>(op.offset));
        pair_.write(local_.element(at, op.length), written + op.offset, slot);
        break;
      }
      case 2: {
        op.offset = draw(constant_bytes - static_cast<uint32_t>(op.length));
        pair_.read(local_.element(at, op.length), constant + op.offset, slot);
        break;
      }
      default: {
        op.before = added_;
        const uint64_t add = draw(1000) + 1;
        added_ += add;
        pair_.fetch_add(local_.element(at, 8), counter, add, slot);
      }
    }
    --left_;
    ++in_flight_;
  }

  void on_sent(const ibv_wc& wc) {
    Pair::good(wc, done_++ % depth, "random");
    --in_flight_;
    const size_t at = wc.wr_id * local_bytes;
    const Operation& op = operations_[wc.wr_id];
    if (op.kind == 2)
      require(std::memcmp(local_.bytes.data() + at, peer_constant_.data() + op.offset, op.length) == 0,
              "read of %zu bytes", op.length);
    uint64_t before;
    std::memcpy(&before, local_.bytes.data() + at, sizeof before);
    if (op.kind == 3)
      require(before == op.before, "fetch and add returned %llu, not %llu",
              static_cast<unsigned long long>(before), static_cast<unsigned long long>(op.before));
  }

  struct Operation {
    uint32_t kind = 0;
    size_t length = 0, offset = 0;
    uint64_t before = 0;
  };

  Pair pair_;
  Memory local_;
  Bytes model_;
  Bytes peer_constant_ = Bytes(constant_bytes);
  std::mt19937 random_;
  std::array<Operation, depth> operations_;
  uint64_t next_ = 0, done_ = 0, added_ = 0;
  uint32_t left_, in_flight_ = 0, sends_ = 0, received_ = 0;
  bool has_peer_ended_ = false;
};

void random_traffic(Session& s) {
  constexpr uint32_t pairs = 3;
  const uint32_t count = s.is_lossy ? 120 : 250;
  std::vector<std::unique_ptr<Traffic>> all;
  for (uint32_t i = 0; i < pairs; ++i)
    all.push_back(std::make_unique<Traffic>(s, i * 2 + (s.is_requester ? 1 : 0), count));
  const auto start = Clock::now();
  for (bool is_busy = true; is_busy;) {
    is_busy = false;
    for (auto& t : all) is_busy = t->step() || is_busy;
    require(seconds_since(start) < 2 * patience_s, "not through after %.0f s", 2 * patience_s);
    sched_yield();
  }
  s.control.barrier();
  for (auto& t : all) t->compare(s);
  s.control.barrier();
}

constexpr Scenario scenarios[] = {{"rc_random_traffic", random_traffic}};

}  // namespace

std::span<const Scenario> traffic_scenarios() { return scenarios; }

}  // namespace weft::vm
