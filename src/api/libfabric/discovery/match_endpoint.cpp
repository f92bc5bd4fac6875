// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Endpoint, transmit and receive attributes of a request: fi_endpoint(3). Must not know the providers.
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <new>
#include <string>
#include <vector>

#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/match_parts.hpp"
#include "api/libfabric/discovery/traffic_class.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

// The fields of a tag format from the top: widths of the runs of equal bits below the leading zeros.
// fi_endpoint(3), "mem_tag_format".
std::vector<int> tag_fields(uint64_t format) {
  std::vector<int> widths;
  int left = 64 - std::countl_zero(format);
  while (left > 0) {
    const uint64_t top = format << (64 - left);
    int width = (top >> 63) != 0 ? std::countl_one(top) : std::countl_zero(top);
    if (width > left) width = left;
    widths.push_back(width);
    left -= width;
  }
  return widths;
}

// Alternating single bits: every mask is allowed, so every way to divide fits that is not wider.
bool any_mask(uint64_t format) {
  for (const int width : tag_fields(format)) {
    if (width != 1) return false;
  }
  return true;
}

std::string hex_text(uint64_t value) {
  char text[32];
  snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

Result<void> match_tag_format(Negotiation& talk, const fi_ep_attr& hints) {
  const uint64_t asked = hints.mem_tag_format;
  const uint64_t there = talk.offer.ep_attr->mem_tag_format;
  if (asked == 0) return {};
  const auto refusal = [&] {
    return refuse(talk, "ep_attr->mem_tag_format", hex_text(asked), hex_text(there));
  };
  if (any_mask(there)) {
    if (std::countl_zero(asked) < std::countl_zero(there)) return refusal();
    // The program's own division is one of those that are served.
    talk.answer.ep_attr->mem_tag_format = asked;
    return {};
  }
  // As many fields in this order, each at least as wide.
  const std::vector<int> have = tag_fields(there);
  size_t next = 0;
  for (const int width : tag_fields(asked)) {
    while (next < have.size() && have[next] < width) ++next;
    if (next++ >= have.size()) return refusal();
  }
  return {};
}

// fi_endpoint(3), "tx_ctx_cnt": 0 is one, FI_SHARED_CONTEXT a shared one, more make a scalable endpoint.
Result<void> match_contexts(const Negotiation& talk, const char* attribute, size_t asked, size_t most,
                            size_t most_shared, size_t& answer) {
  if (asked == 0) return {};
  if (asked == FI_SHARED_CONTEXT) {
    if (most_shared == 0) return refuse(talk, attribute, "FI_SHARED_CONTEXT", "no shared contexts");
  } else if (auto ok = at_most(talk, attribute, asked, most > 0 ? most : 1); !ok) {
    return ok;
  }
  answer = asked;
  return {};
}

Result<void> match_key(Negotiation& talk, const fi_ep_attr& hints) {
  fi_ep_attr& answer = *talk.answer.ep_attr;
  if (auto ok =
          at_most(talk, "ep_attr->auth_key_size", hints.auth_key_size, talk.offer.ep_attr->auth_key_size);
      !ok)
    return ok;
  void* key = answer.auth_key;
  if (!assign_bytes(&key, &answer.auth_key_size, hints.auth_key, hints.auth_key_size)) throw std::bad_alloc();
  answer.auth_key = static_cast<uint8_t*>(key);
  return {};
}

// FI_MSG_PREFIX: the program states how much room it can leave, the provider how much it needs.
Result<void> match_prefix(Negotiation& talk, const fi_ep_attr& hints) {
  const size_t needed = talk.answer.ep_attr->msg_prefix_size;
  if (hints.msg_prefix_size == 0 || needed <= hints.msg_prefix_size) return {};
  return refuse(talk, "ep_attr->msg_prefix_size", std::to_string(hints.msg_prefix_size),
                "no less than " + std::to_string(needed));
}

// The orders that an order implies: RMA and atomics separately are what both together are, and the other way
// round.
uint64_t implied(uint64_t order) {
  struct Whole {
    uint64_t both, rma, atomic;
  };
  constexpr Whole kWholes[] = {
      {FI_ORDER_RAR, FI_ORDER_RMA_RAR, FI_ORDER_ATOMIC_RAR},
      {FI_ORDER_RAW, FI_ORDER_RMA_RAW, FI_ORDER_ATOMIC_RAW},
      {FI_ORDER_WAR, FI_ORDER_RMA_WAR, FI_ORDER_ATOMIC_WAR},
      {FI_ORDER_WAW, FI_ORDER_RMA_WAW, FI_ORDER_ATOMIC_WAW},
  };
  for (const Whole& whole : kWholes) {
    if ((order & whole.both) != 0) order |= whole.rma | whole.atomic;
    if ((order & whole.rma) != 0 && (order & whole.atomic) != 0) order |= whole.both;
  }
  return order;
}

// Queues of unconnected reliable endpoints grow as they are used: what the offer states is what programs get that do not ask.
constexpr size_t queue_size_max = 16384;
size_t longest_queue(const Negotiation& talk, size_t stated) {
  return talk.offer.ep_attr->type == FI_EP_RDM ? std::max(stated, queue_size_max) : stated;
}

// What transmit and receive attributes have in common.
template <class Attr>
Result<void> match_context(const Negotiation& talk, const Attr& hints, const Attr& offer, Attr& answer,
                           const char* const (&names)[5]) {
  if (auto ok = within(talk, names[0], hints.op_flags, offer.op_flags, FI_TYPE_OP_FLAGS); !ok) return ok;
  if (auto ok = within(talk, names[1], hints.msg_order, implied(offer.msg_order), FI_TYPE_MSG_ORDER); !ok)
    return ok;
  if (auto ok = within(talk, names[2], hints.comp_order, offer.comp_order, FI_TYPE_MSG_ORDER); !ok) return ok;
  if (auto ok = at_most(talk, names[3], hints.size, longest_queue(talk, offer.size)); !ok) return ok;
  if (auto ok = at_most(talk, names[4], hints.iov_limit, offer.iov_limit); !ok) return ok;
  answer.op_flags = hints.op_flags;
  answer.msg_order = offer.msg_order | hints.msg_order;
  answer.size = std::max(offer.size, hints.size);
  return {};
}

}  // namespace

Result<void> match_traffic_class(const Negotiation& talk, const char* attribute, uint32_t asked,
                                 uint32_t& answer) {
  if (!is_traffic_class(asked))
    return refuse(talk, attribute, hex_text(asked),
                  "FI_TC_UNSPEC, the labels from FI_TC_BEST_EFFORT to FI_TC_NETWORK_CTRL, and DSCP values");
  if (asked != FI_TC_UNSPEC) answer = asked;
  return {};
}

Result<void> match_endpoint(Negotiation& talk) {
  fi_ep_attr& answer = *talk.answer.ep_attr;
  const fi_ep_attr& offer = *talk.offer.ep_attr;
  answer.auth_key_size = 0;  // the offer states the longest key, not one
  if ((talk.answer.mode & FI_MSG_PREFIX) == 0) answer.msg_prefix_size = 0;
  const fi_ep_attr* hints = talk.hints != nullptr ? talk.hints->ep_attr : nullptr;
  if (hints == nullptr) return {};

  if (auto ok = same(talk, "ep_attr->protocol", hints->protocol, offer.protocol, FI_TYPE_PROTOCOL); !ok)
    return ok;
  struct Limit {
    const char* attribute;
    size_t asked, there;
  };
  const Limit limits[] = {
      {"ep_attr->protocol_version", hints->protocol_version, offer.protocol_version},
      {"ep_attr->max_msg_size", hints->max_msg_size, offer.max_msg_size},
      {"ep_attr->max_order_raw_size", hints->max_order_raw_size, offer.max_order_raw_size},
      {"ep_attr->max_order_war_size", hints->max_order_war_size, offer.max_order_war_size},
      {"ep_attr->max_order_waw_size", hints->max_order_waw_size, offer.max_order_waw_size},
  };
  for (const Limit& limit : limits) {
    if (auto ok = at_most(talk, limit.attribute, limit.asked, limit.there); !ok) return ok;
  }
  for (auto* piece : {match_tag_format, match_key, match_prefix}) {
    if (auto ok = piece(talk, *hints); !ok) return ok;
  }
  const fi_domain_attr& domain = *talk.offer.domain_attr;
  if (auto ok = match_contexts(talk, "ep_attr->tx_ctx_cnt", hints->tx_ctx_cnt, domain.max_ep_tx_ctx,
                               domain.max_ep_stx_ctx, answer.tx_ctx_cnt);
      !ok)
    return ok;
  return match_contexts(talk, "ep_attr->rx_ctx_cnt", hints->rx_ctx_cnt, domain.max_ep_rx_ctx,
                        domain.max_ep_srx_ctx, answer.rx_ctx_cnt);
}

Result<void> match_transmit(Negotiation& talk) {
  fi_tx_attr& answer = *talk.answer.tx_attr;
  const fi_tx_attr& offer = *talk.offer.tx_attr;
  answer.op_flags = 0;  // the offer states which defaults can be asked for
  const fi_tx_attr* hints = talk.hints != nullptr ? talk.hints->tx_attr : nullptr;
  if (hints == nullptr) return {};
  constexpr const char* kNames[] = {"tx_attr->op_flags", "tx_attr->msg_order", "tx_attr->comp_order",
                                    "tx_attr->size", "tx_attr->iov_limit"};
  if (auto ok = match_context(talk, *hints, offer, answer, kNames); !ok) return ok;
  if (auto ok = at_most(talk, "tx_attr->inject_size", hints->inject_size, offer.inject_size); !ok) return ok;
  if (auto ok = at_most(talk, "tx_attr->rma_iov_limit", hints->rma_iov_limit, offer.rma_iov_limit); !ok)
    return ok;
  return match_traffic_class(talk, "tx_attr->tclass", hints->tclass, answer.tclass);
}

Result<void> match_receive(Negotiation& talk) {
  fi_rx_attr& answer = *talk.answer.rx_attr;
  answer.op_flags = 0;
  const fi_rx_attr* hints = talk.hints != nullptr ? talk.hints->rx_attr : nullptr;
  if (hints == nullptr) return {};
  // total_buffered_recv is only advice; the provider's own bound is returned.
  constexpr const char* kNames[] = {"rx_attr->op_flags", "rx_attr->msg_order", "rx_attr->comp_order",
                                    "rx_attr->size", "rx_attr->iov_limit"};
  return match_context(talk, *hints, *talk.offer.rx_attr, answer, kNames);
}

}  // namespace weft::fi
