// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// RC SEND: sizes around the path MTU, gather and scatter, immediate data, inline, unsignalled, many at once,
// receiver not ready.
#include <unistd.h>

#include <algorithm>

#include "scenarios.hpp"

namespace weft::vm {
namespace {

void sizes(Session& s) {
  const uint32_t mtu = s.mtu_bytes();
  const size_t lengths[] = {1, 0, 3, 64, mtu - 1, mtu, mtu + 1, 2 * mtu, 5 * mtu + 17, 40'000};
  Pair pair(s);
  uint64_t id = 0;
  if (!s.is_requester)
    for (size_t i = 0; i < std::size(lengths); ++i)
      pair.receive(pair.memory->element(0, pair.memory->bytes.size()), i);
  s.control.barrier();
  for (const size_t length : lengths) {
    if (s.is_requester) {
      fill(pair.memory->part(0, length), id);
      pair.send(pair.memory->element(0, length), id);
      pair.sent(id);
    } else {
      const ibv_wc wc = pair.received(id);
      require(wc.byte_len == length, "%u bytes came, not %zu", wc.byte_len, length);
      require(wc.opcode == IBV_WC_RECV && (wc.wc_flags & (IBV_WC_WITH_IMM | IBV_WC_WITH_INV)) == 0,
              "opcode %d, flags %u", wc.opcode, wc.wc_flags);
      check(pair.memory->part(0, length), id, "message");
    }
    s.control.barrier();
    ++id;
  }
}

void elements(Session& s) {
  Pair pair(s);
  constexpr size_t parts[] = {7, 3000, 1, 1500}, places[] = {2000, 8, 1000, 1500};
  constexpr size_t all = 7 + 3000 + 1 + 1500;
  ibv_sge list[4];
  size_t offset = 0;
  for (size_t i = 0; i < 4; ++i) {
    const size_t length = s.is_requester ? parts[i] : places[i];
    list[i] = pair.memory->element(offset + i * 100, length);
    offset += length;
  }
  Bytes message(all);
  fill(message, 5);
  if (!s.is_requester) {
    ibv_recv_wr r{}, *bad = nullptr;
    r.sg_list = list;
    r.num_sge = 4;
    require(ibv_post_recv(pair.qp.get(), &r, &bad) == 0, "ibv_post_recv");
  }
  s.control.barrier();
  size_t at = 0;
  if (s.is_requester) {
    for (size_t i = 0; i < 4; at += parts[i++])
      std::copy_n(&message[at], parts[i], reinterpret_cast<uint8_t*>(list[i].addr));
    ibv_send_wr r{};
    r.opcode = IBV_WR_SEND;
    r.send_flags = IBV_SEND_SIGNALED;
    r.sg_list = list;
    r.num_sge = 4;
    pair.post(r);
    pair.sent();
  } else {
    pair.received();
    Bytes got(all);
    for (size_t i = 0; i < 4; at += places[i++])
      std::copy_n(reinterpret_cast<uint8_t*>(list[i].addr), places[i], &got[at]);
    check(got, 5, "gathered and scattered");
  }
  s.control.barrier();
}

void immediate(Session& s) {
  Pair pair(s);
  constexpr size_t lengths[] = {0, 8, 9000};
  if (!s.is_requester)
    for (size_t i = 0; i < 3; ++i) pair.receive(pair.memory->element(i * 16384, 16384), i);
  s.control.barrier();
  for (uint32_t i = 0; i < 3; ++i) {
    if (s.is_requester) {
      fill(pair.memory->part(i * 16384, lengths[i]), i);
      pair.send_immediate(pair.memory->element(i * 16384, lengths[i]), 0x01020304 + i, i);
      pair.sent(i);
    } else {
      const ibv_wc wc = pair.received(i);
      require((wc.wc_flags & IBV_WC_WITH_IMM) != 0 && wc.imm_data == 0x01020304 + i,
              "immediate %08x, flags %u", wc.imm_data, wc.wc_flags);
      require(wc.byte_len == lengths[i], "%u bytes", wc.byte_len);
      check(pair.memory->part(i * 16384, lengths[i]), i, "message");
    }
  }
  s.control.barrier();
}

void inline_data(Session& s) {
  Pair pair(s);
  constexpr uint32_t count = 16;
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) pair.receive(pair.memory->element(i * 64, 64), i);
  s.control.barrier();
  Bytes data(48);
  for (uint32_t i = 0; i < count; ++i) {
    if (s.is_requester) {
      fill(data, i);
      pair.send({reinterpret_cast<uint64_t>(data.data()), 48, 0}, i, IBV_SEND_SIGNALED | IBV_SEND_INLINE);
    } else {
      pair.received(i);
      check(pair.memory->part(i * 64, 48), i, "inline message");
    }
  }
  if (s.is_requester)
    for (uint32_t i = 0; i < count; ++i) pair.sent(i);
  s.control.barrier();
}

// Every eighth request makes a completion.
void unsignalled(Session& s) {
  Pair pair(s);
  constexpr uint32_t count = 48;
  if (!s.is_requester)
    for (uint32_t i = 0; i < count; ++i) pair.receive(pair.memory->element(i * 512, 512), i);
  s.control.barrier();
  if (s.is_requester) {
    for (uint32_t i = 0; i < count; ++i) {
      fill(pair.memory->part(i * 512, 500), i);
      pair.send(pair.memory->element(i * 512, 500), i, i % 8 == 7 ? IBV_SEND_SIGNALED : 0);
    }
    for (uint32_t i = 7; i < count; i += 8) pair.sent(i);
  } else {
    for (uint32_t i = 0; i < count; ++i) {
      pair.received(i);
      check(pair.memory->part(i * 512, 500), i, "message");
    }
  }
  s.control.barrier();
}

// More packets than any window, in messages that wait for each other's buffers.
void large(Session& s) {
  PairOptions options;
  options.bytes = s.is_lossy ? 300'001 : 1'500'001;
  Pair pair(s, options);
  const ibv_sge all = pair.memory->element(0, options.bytes);
  for (uint64_t i = 0; i < 2; ++i) {
    if (!s.is_requester) pair.receive(all, i);
    s.control.barrier();
    if (s.is_requester) {
      fill(pair.memory->bytes, i);
      pair.send(all, i);
      pair.sent(i);
    } else {
      require(pair.received(i).byte_len == options.bytes, "length");
      check(pair.memory->bytes, i, "large message");
    }
    s.control.barrier();
  }
}

// Nothing is posted when the message comes; it is repeated until there is.
void receiver_not_ready(Session& s) {
  Pair pair(s);
  for (uint64_t i = 0; i < 3; ++i) {
    const size_t length = i == 0 ? 8 : 7000;
    if (s.is_requester) {
      fill(pair.memory->part(0, length), i);
      pair.send(pair.memory->element(0, length), i);
      pair.sent(i);
    } else {
      usleep(60'000);
      pair.receive(pair.memory->element(0, 8192), i);
      require(pair.received(i).byte_len == length, "length");
      check(pair.memory->part(0, length), i, "message");
    }
    s.control.barrier();
  }
}

void receiver_never_ready(Session& s) {
  PairOptions options;
  options.rnr_retry = 2;
  Pair pair(s, options);
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 100), 1);
    pair.send(pair.memory->element(0, 100), 2);
    const uint64_t flushed[] = {2};
    pair.fails(IBV_WC_RNR_RETRY_EXC_ERR, 1, flushed);
  }
  s.control.barrier();
}

// Both sides send and receive at once.
void both_ways(Session& s) {
  Pair pair(s);
  constexpr uint32_t count = 32, length = 1500;
  for (uint32_t i = 0; i < count; ++i) pair.receive(pair.memory->element(i * 1024, 1024), i);
  Memory out(pair.pd, count * length);
  s.control.barrier();
  for (uint32_t i = 0; i < count; ++i) {
    fill(out.part(i * length, 1000), i);
    pair.send(out.element(i * length, 1000), i);
  }
  for (uint32_t i = 0; i < count; ++i) {
    pair.received(i);
    check(pair.memory->part(i * 1024, 1000), i, "message");
  }
  for (uint32_t i = 0; i < count; ++i) pair.sent(i);
  s.control.barrier();
}

// A destination that is not there: the retry counter is finite.
void nobody_answers(Session& s) {
  PairOptions options;
  options.timeout = 10;  // 4 ms
  options.retry_count = 2;
  options.qpn_error = 0x800;
  Pair pair(s, options);
  if (s.is_requester) {
    pair.send(pair.memory->element(0, 100), 1);
    pair.send(pair.memory->element(0, 100), 2);
    const uint64_t flushed[] = {2};
    pair.fails(IBV_WC_RETRY_EXC_ERR, 1, flushed);
  }
  s.control.barrier();
}

void flush(Session& s) {
  Pair pair(s);
  if (s.is_requester) {
    for (uint64_t i = 0; i < 8; ++i) pair.receive(pair.memory->element(0, 64), i);
    pair.to_error();
    for (uint64_t i = 0; i < 8; ++i) {
      const ibv_wc wc = pair.completion_of_receive();
      require(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == i, "request %llu ended as '%s'",
              static_cast<unsigned long long>(wc.wr_id), ibv_wc_status_str(wc.status));
    }
    pair.send(pair.memory->element(0, 64), 9);
    const ibv_wc wc = pair.completion_of_send();
    require(wc.status == IBV_WC_WR_FLUSH_ERR && wc.wr_id == 9, "a send in state ERR ended as '%s'",
            ibv_wc_status_str(wc.status));
  }
  s.control.barrier();
}

constexpr Scenario scenarios[] = {
    {"rc_send", sizes},
    {"rc_send_elements", elements},
    {"rc_send_immediate", immediate},
    {"rc_send_inline", inline_data},
    {"rc_send_unsignalled", unsignalled},
    {"rc_send_large", large},
    {"rc_send_both_ways", both_ways},
    {"rc_receiver_not_ready", receiver_not_ready},
    {"rc_receiver_never_ready", receiver_never_ready},
    {"rc_nobody_answers", nobody_answers, Network::Good},
    {"rc_flush", flush, Network::Good},
};

}  // namespace

std::span<const Scenario> message_scenarios() { return scenarios; }

}  // namespace weft::vm
