// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Domain attributes of a request: fi_domain(3), fi_mr(3). Must not know the providers.
#include <rdma/fabric.h>
#include <rdma/fi_errno.h>
#include <weft/libfabric_retired.hpp>

#include <cstring>
#include <new>
#include <string>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/discovery/info.hpp"
#include "api/libfabric/discovery/match.hpp"
#include "api/libfabric/discovery/match_parts.hpp"
#include "api/libfabric/discovery/opened.hpp"
#include "api/libfabric/discovery/progress_choice.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

// How much a threading level lets the program do at once; 0 for a value that is none. FI_THREAD_UNSPEC asks
// for nothing.
int freedom(uint32_t level) {
  switch (level) {
    case FI_THREAD_SAFE:
      return 5;
    case FI_THREAD_FID:
      return 4;
    case FI_THREAD_ENDPOINT:
      return 3;
    case FI_THREAD_COMPLETION:
      return 2;
    case FI_THREAD_DOMAIN:
      return 1;
    default:
      return 0;
  }
}

// The level that was asked is returned, not a freer one: the form without locks is chosen by it.
Result<void> match_threading(Negotiation& talk, const fi_domain_attr& hints) {
  const uint32_t asked = raw(hints.threading);
  if (asked == FI_THREAD_UNSPEC) return {};
  const fi_threading there = talk.offer.domain_attr->threading;
  if (freedom(asked) == 0 || freedom(asked) > freedom(there))
    return refuse(talk, "domain_attr->threading", value_text(asked, FI_TYPE_THREADING),
                  value_text(there, FI_TYPE_THREADING));
  talk.answer.domain_attr->threading = static_cast<fi_threading>(asked);
  return {};
}

// Who progresses by itself also serves a program that would do it.
Result<void> match_progress(const Negotiation& talk, const char* attribute, uint32_t asked, fi_progress there,
                            fi_progress& answer) {
  if (asked == FI_PROGRESS_UNSPEC) return {};
  // A program that also serialises control and data calls may be served as one that does not (fi_domain(3), FI_PROGRESS_CONTROL_UNIFIED).
  const bool known = asked == FI_PROGRESS_MANUAL || asked == FI_PROGRESS_AUTO ||
                     (asked == later::progress_control_unified && talk.since(1, 21));
  if (asked == FI_PROGRESS_AUTO && progress_choice() == ProgressChoice::Manual)
    return Error{FI_ENODATA, std::string(attribute) +
                                 ": FI_PROGRESS_AUTO was asked, and WEFT_PROGRESS=manual forbids it"};
  if (!known || (asked == FI_PROGRESS_AUTO && there != FI_PROGRESS_AUTO))
    return refuse(talk, attribute, value_text(asked, FI_TYPE_PROGRESS), value_text(there, FI_TYPE_PROGRESS));
  answer = static_cast<fi_progress>(asked);
  return {};
}

Result<void> match_av_type(const Negotiation& talk, const fi_domain_attr& hints) {
  const uint32_t asked = raw(hints.av_type);
  const fi_av_type there = talk.offer.domain_attr->av_type;
  if (there != FI_AV_UNSPEC) return same(talk, "domain_attr->av_type", asked, there, FI_TYPE_AV_TYPE);
  if (asked > FI_AV_TABLE)
    return refuse(talk, "domain_attr->av_type", value_text(asked, FI_TYPE_AV_TYPE), "FI_AV_MAP, FI_AV_TABLE");
  talk.answer.domain_attr->av_type = static_cast<fi_av_type>(asked);
  return {};
}

Result<void> match_models(Negotiation& talk, const fi_domain_attr& hints) {
  const fi_domain_attr& offer = *talk.offer.domain_attr;
  fi_domain_attr& answer = *talk.answer.domain_attr;
  if (auto ok = match_threading(talk, hints); !ok) return ok;
  if (auto ok = match_progress(talk, "domain_attr->control_progress", raw(hints.control_progress),
                               offer.control_progress, answer.control_progress);
      !ok)
    return ok;
  if (auto ok = match_progress(talk, "domain_attr->data_progress", raw(hints.data_progress),
                               offer.data_progress, answer.data_progress);
      !ok)
    return ok;
  // FI_RM_DISABLED leaves the choice to the provider.
  if (raw(hints.resource_mgmt) > FI_RM_ENABLED)
    return refuse(talk, "domain_attr->resource_mgmt", std::to_string(raw(hints.resource_mgmt)),
                  "FI_RM_ENABLED");
  if (raw(hints.resource_mgmt) == FI_RM_ENABLED && offer.resource_mgmt != FI_RM_ENABLED)
    return refuse(talk, "domain_attr->resource_mgmt", "FI_RM_ENABLED", "FI_RM_DISABLED");
  return match_av_type(talk, hints);
}

Result<void> match_limits(const Negotiation& talk, const fi_domain_attr& hints) {
  const fi_domain_attr& offer = *talk.offer.domain_attr;
  struct Limit {
    const char* attribute;
    size_t asked;
    size_t there;
    bool open;  // an offer of 0 means that there is no limit worth stating
  };
  const Limit limits[] = {
      {"domain_attr->mr_key_size", hints.mr_key_size, offer.mr_key_size, false},
      {"domain_attr->cq_data_size", hints.cq_data_size, offer.cq_data_size, false},
      {"domain_attr->cq_cnt", hints.cq_cnt, offer.cq_cnt, true},
      {"domain_attr->ep_cnt", hints.ep_cnt, offer.ep_cnt, true},
      {"domain_attr->tx_ctx_cnt", hints.tx_ctx_cnt, offer.tx_ctx_cnt, true},
      {"domain_attr->rx_ctx_cnt", hints.rx_ctx_cnt, offer.rx_ctx_cnt, true},
      {"domain_attr->max_ep_tx_ctx", hints.max_ep_tx_ctx, offer.max_ep_tx_ctx, false},
      {"domain_attr->max_ep_rx_ctx", hints.max_ep_rx_ctx, offer.max_ep_rx_ctx, false},
      {"domain_attr->max_ep_stx_ctx", hints.max_ep_stx_ctx, offer.max_ep_stx_ctx, false},
      {"domain_attr->max_ep_srx_ctx", hints.max_ep_srx_ctx, offer.max_ep_srx_ctx, false},
      {"domain_attr->cntr_cnt", hints.cntr_cnt, offer.cntr_cnt, true},
      {"domain_attr->mr_iov_limit", hints.mr_iov_limit, offer.mr_iov_limit, false},
      {"domain_attr->max_err_data", hints.max_err_data, offer.max_err_data, false},
      {"domain_attr->mr_cnt", hints.mr_cnt, offer.mr_cnt, true},
  };
  for (const Limit& limit : limits) {
    if (limit.open && limit.there == 0) continue;
    if (auto ok = at_most(talk, limit.attribute, limit.asked, limit.there); !ok) return ok;
  }
  return {};
}

// All capabilities of a domain are secondary: asked ones, and those that the endpoint's capabilities name.
Result<void> match_domain_caps(Negotiation& talk, const fi_domain_attr& hints) {
  const uint64_t offered = talk.offer.domain_attr->caps;
  if (auto ok = within(talk, "domain_attr->caps", hints.caps, offered, FI_TYPE_CAPS); !ok) return ok;
  if (hints.caps != 0 || talk.hints->caps != 0)
    talk.answer.domain_attr->caps = hints.caps | (talk.answer.caps & kDomainCaps & offered);
  return {};
}

Result<void> match_key(Negotiation& talk, const fi_domain_attr& hints) {
  const size_t most = talk.offer.domain_attr->auth_key_size;
  if (auto ok = at_most(talk, "domain_attr->auth_key_size", hints.auth_key_size, most); !ok) return ok;
  fi_domain_attr& answer = *talk.answer.domain_attr;
  void* key = answer.auth_key;
  if (!assign_bytes(&key, &answer.auth_key_size, hints.auth_key, hints.auth_key_size)) throw std::bad_alloc();
  answer.auth_key = static_cast<uint8_t*>(key);
  return {};
}

Result<void> match_handle(Negotiation& talk, const fi_domain_attr& hints) {
  fi_domain_attr& answer = *talk.answer.domain_attr;
  if (hints.domain == nullptr) return {};
  if (!is_opened(talk.provider, answer.name, hints.domain))
    return refuse(talk, "domain_attr->domain", "an open domain", "no domain that was opened at that address");
  answer.domain = hints.domain;
  return {};
}

std::string mr_text(int mode) { return flags_text(static_cast<uint32_t>(mode), FI_TYPE_MR_MODE); }

// The styles before API 1.5, which newer programs may still ask for by name.
Result<void> match_mr_style(Negotiation& talk, int asked, int demanded) {
  constexpr int kBasicMay = kBasicMrMode | FI_MR_LOCAL;
  if (asked == retired::mr_basic && (demanded & ~kBasicMay) != 0)
    return refuse(talk, "domain_attr->mr_mode", "FI_MR_BASIC",
                  "a mode that needs " + mr_text(demanded & ~kBasicMay));
  if (asked == retired::mr_scalable && (demanded & ~FI_MR_LOCAL) != 0)
    return refuse(talk, "domain_attr->mr_mode", "FI_MR_SCALABLE",
                  "a mode that needs " + mr_text(demanded & ~FI_MR_LOCAL));
  talk.answer.domain_attr->mr_mode = asked;
  if ((demanded & FI_MR_LOCAL) == 0) return {};
  // FI_LOCAL_MR is what FI_MR_LOCAL was called then.
  if (talk.hints != nullptr && (talk.hints->mode & retired::local_mr) == 0)
    return Error{FI_ENODATA, std::string("mode: ") + talk.provider.name +
                                 " needs FI_LOCAL_MR, the program supports " +
                                 flags_text(talk.hints->mode, FI_TYPE_MODE)};
  talk.answer.mode |= retired::local_mr;
  return {};
}

}  // namespace

// fi_mr(3). The bits of the offer are what it demands; hints are what the program agrees to, and bits nobody
// needs are cleared.
Result<void> match_mr_mode(Negotiation& talk) {
  const int demanded = talk.offer.domain_attr->mr_mode & ~(retired::mr_basic | retired::mr_scalable);
  const fi_domain_attr* hints = talk.hints != nullptr ? talk.hints->domain_attr : nullptr;
  const int asked = hints != nullptr ? hints->mr_mode : 0;
  const bool style = asked == retired::mr_basic || asked == retired::mr_scalable;
  constexpr int kEither = retired::mr_basic | retired::mr_scalable;
  if (style) return match_mr_style(talk, asked, demanded);
  if (asked == kEither || (!talk.since(1, 5) && asked == 0)) {
    const bool scalable = (demanded & ~FI_MR_LOCAL) == 0;
    return match_mr_style(talk, scalable ? retired::mr_scalable : retired::mr_basic, demanded);
  }
  if ((asked & kEither) != 0 || !talk.since(1, 5))
    return refuse(talk, "domain_attr->mr_mode", mr_text(asked),
                  "FI_MR_BASIC or FI_MR_SCALABLE alone, or other bits from API 1.5 on");
  talk.answer.domain_attr->mr_mode = demanded;
  if (hints == nullptr || (demanded & ~asked) == 0) return {};
  return Error{FI_ENODATA, std::string("domain_attr->mr_mode: ") + talk.provider.name + " needs " +
                               mr_text(demanded) + ", the program supports " + mr_text(asked)};
}

Result<void> match_domain(Negotiation& talk) {
  fi_domain_attr& answer = *talk.answer.domain_attr;
  answer.domain = first_domain(talk.provider, answer.name);
  answer.auth_key_size = 0;  // the offer states the longest key, not one
  // Automatic progress costs a thread and a lock: it is given to those who ask, and where the user wants it.
  const fi_progress progress =
      progress_choice() == ProgressChoice::Auto ? FI_PROGRESS_AUTO : FI_PROGRESS_MANUAL;
  for (fi_progress* given : {&answer.control_progress, &answer.data_progress})
    if (*given == FI_PROGRESS_AUTO) *given = progress;
  const fi_domain_attr* hints = talk.hints != nullptr ? talk.hints->domain_attr : nullptr;
  if (hints == nullptr) return {};
  for (auto* piece : {match_models, match_domain_caps, match_key, match_handle}) {
    if (auto ok = piece(talk, *hints); !ok) return ok;
  }
  if (auto ok = match_limits(talk, *hints); !ok) return ok;
  return match_traffic_class(talk, "domain_attr->tclass", hints->tclass, answer.tclass);
}

}  // namespace weft::fi
