// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The order of the pieces, and what belongs to fi_info itself: capabilities, modes, address format, fabric.
// Must not know the providers.
#include "api/libfabric/discovery/match.hpp"

#include <rdma/fi_errno.h>

#include <cstring>
#include <new>
#include <string>

#include "api/libfabric/abi/values.hpp"
#include "api/libfabric/discovery/interface_offer.hpp"
#include "api/libfabric/discovery/match_parts.hpp"
#include "api/libfabric/discovery/opened.hpp"
#include "api/libfabric/text/tostr.hpp"

namespace weft::fi {
namespace {

// Secondary capabilities that cost nothing and open nothing, so that they are given unasked (fi_getinfo(3)).
// FI_REMOTE_COMM is not one: a program that did not ask may read it as "reaches other hosts".
constexpr uint64_t kFreeCaps = FI_MULTI_RECV | FI_LOCAL_COMM | FI_SHARED_AV;

// "If no modifiers are specified for an applicable capability, all relevant modifiers are assumed",
// fi_getinfo(3).
uint64_t with_modifiers(uint64_t caps, uint64_t offered) {
  if ((caps & (FI_MSG | FI_TAGGED | FI_MULTICAST)) != 0 && (caps & kMessageModifiers) == 0)
    caps |= kMessageModifiers & offered;
  if ((caps & (FI_RMA | FI_ATOMIC)) != 0 && (caps & kMemoryModifiers) == 0)
    caps |= kMemoryModifiers & offered;
  return caps;
}

// A capability whose direction is missing cannot be used on this side.
uint64_t usable(uint64_t caps, uint64_t message_direction, uint64_t memory_directions) {
  if ((caps & message_direction) == 0) caps &= ~(FI_MSG | FI_TAGGED | FI_MULTICAST);
  if ((caps & memory_directions) == 0) caps &= ~(FI_RMA | FI_ATOMIC);
  return caps;
}

// By the names of the version that was asked: a bit that was given up got another meaning (fi_getinfo(3), "CAPABILITIES").
std::string caps_text(const Negotiation& talk, uint64_t caps) {
  const uint64_t variable = talk.since(2, 0) ? 0 : caps & later::exact_directed_recv;
  if (variable == 0) return flags_text(caps, FI_TYPE_CAPS);
  const std::string others = caps == variable ? "" : flags_text(caps & ~variable, FI_TYPE_CAPS) + "|";
  return others + "FI_VARIABLE_MSG";
}

// fi_endpoint(3), "caps" of transmit and receive attributes. Bits of the other side are dropped without a
// word: programs copy fi_info::caps here as they are.
Result<uint64_t> context_caps(const Negotiation& talk, const char* attribute, uint64_t asked,
                              uint64_t offered, uint64_t applicable) {
  const uint64_t endpoint = talk.answer.caps;
  const uint64_t there = endpoint & applicable & (offered != 0 ? offered : ~uint64_t{0});
  if (asked == 0) return there;
  if (const uint64_t wrong = asked & ~endpoint; wrong != 0)
    return refuse(talk, attribute, caps_text(talk, wrong),
                  flags_text(there, FI_TYPE_CAPS) + " for the caps of fi_info");
  return with_modifiers(asked & there, there) & there;
}

// What all offers of the provider have in one place, for a refusal.
template <class Value>
std::string offered_values(const Negotiation& talk, fi_type type, Value value) {
  std::string values;
  const auto add = [&](const fi_info& offer) {
    const std::string text = value_text(value(offer), type);
    if ((", " + values + ",").find(", " + text + ",") == std::string::npos)
      values += (values.empty() ? "" : ", ") + text;
  };
  for (const fi_info* offer = talk.provider.offers(talk.provider); offer != nullptr; offer = offer->next)
    add(*offer);
  add(talk.offer);
  return values;
}

// "prov_name" is not compared here; see getinfo.cpp.
Result<void> match_address_format(const Negotiation& talk) {
  if (talk.hints == nullptr) return {};
  const uint32_t asked = talk.hints->addr_format;
  const uint32_t there = talk.offer.addr_format;
  // FI_SOCKADDR stands for the family that is found at run time.
  if ((asked == FI_SOCKADDR || (asked == later::sockaddr_ip && talk.since(2, 3))) &&
      (there == FI_SOCKADDR_IN || there == FI_SOCKADDR_IN6))
    return {};
  if (asked == FI_FORMAT_UNSPEC || asked == there) return {};
  return refuse(
      talk, "addr_format", value_text(asked, FI_TYPE_ADDR_FORMAT),
      offered_values(talk, FI_TYPE_ADDR_FORMAT, [](const fi_info& offer) { return offer.addr_format; }));
}

Result<void> match_name(const Negotiation& talk, const char* attribute, const char* asked,
                        const char* there) {
  if (asked == nullptr || *asked == 0 || (there != nullptr && strcmp(asked, there) == 0)) return {};
  return refuse(talk, attribute, '"' + std::string(asked) + '"',
                '"' + std::string(there != nullptr ? there : "") + '"');
}

// fi_getinfo(3), "handle": a passive endpoint is handed through; what others would mean is the provider's to
// say, and none of ours does.
void match_handle(Negotiation& talk) {
  const fid_t handle = talk.hints != nullptr ? talk.hints->handle : nullptr;
  talk.answer.handle = handle != nullptr && handle->fclass == FI_CLASS_PEP ? handle : nullptr;
}

Result<void> match_domain_name(const Negotiation& talk) {
  const auto* domain = talk.hints->domain_attr;
  if (domain == nullptr) return {};
  auto ok = match_name(talk, "domain_attr->name", domain->name, talk.offer.domain_attr->name);
  if (ok || talk.provider.interface_domains == nullptr) return ok;
  return refuse(talk, "domain_attr->name", '"' + std::string(domain->name) + '"',
                domain_names(talk.provider, talk.offer.addr_format));
}

Result<void> match_names(const Negotiation& talk) {
  if (talk.hints == nullptr) return {};
  // An interface says more than its network.
  const bool domain_first = talk.provider.interface_domains != nullptr;
  if (domain_first)
    if (auto ok = match_domain_name(talk); !ok) return ok;
  if (const auto* fabric = talk.hints->fabric_attr) {
    if (auto ok = match_name(talk, "fabric_attr->name", fabric->name, talk.offer.fabric_attr->name); !ok)
      return ok;
  }
  return domain_first ? Result<void>() : match_domain_name(talk);
}

Result<void> match_type(const Negotiation& talk) {
  const fi_ep_attr* hints = talk.hints != nullptr ? talk.hints->ep_attr : nullptr;
  const uint32_t asked = hints != nullptr ? raw(hints->type) : uint32_t{FI_EP_UNSPEC};
  if (asked == FI_EP_UNSPEC || asked == talk.offer.ep_attr->type) return {};
  return refuse(
      talk, "ep_attr->type", value_text(asked, FI_TYPE_EP_TYPE),
      offered_values(talk, FI_TYPE_EP_TYPE, [](const fi_info& offer) { return offer.ep_attr->type; }));
}

// What a person would ask first is checked first, so that its refusal is the one that is told.
Result<void> match_all(Negotiation& talk) {
  for (auto* piece : {match_names, match_type}) {
    if (auto ok = piece(talk); !ok) return ok;
  }
  for (auto* piece : {match_caps, match_mode, match_mr_mode, match_endpoint, match_domain, match_transmit,
                      match_receive, match_fabric}) {
    if (auto ok = piece(talk); !ok) return ok;
  }
  match_handle(talk);
  return match_address_format(talk);
}

}  // namespace

Error refuse(const Negotiation& talk, const char* attribute, const std::string& asked,
             const std::string& there) {
  return {FI_ENODATA,
          std::string(attribute) + ": " + asked + " was asked, " + talk.provider.name + " offers " + there};
}

Result<void> at_most(const Negotiation& talk, const char* attribute, uint64_t asked, uint64_t there) {
  if (asked <= there) return {};
  return refuse(talk, attribute, std::to_string(asked), "at most " + std::to_string(there));
}

Result<void> within(const Negotiation& talk, const char* attribute, uint64_t asked, uint64_t there,
                    fi_type type) {
  if ((asked & ~there) == 0) return {};
  return refuse(talk, attribute, flags_text(asked & ~there, type), flags_text(there, type));
}

Result<void> same(const Negotiation& talk, const char* attribute, uint32_t asked, uint32_t there,
                  fi_type type) {
  if (asked == 0 || asked == there) return {};
  return refuse(talk, attribute, value_text(asked, type), value_text(there, type));
}

// fi_getinfo(3), "CAPABILITIES": primary ones are given as asked and no more, modifiers limit them, secondary
// ones are given when asked or when they are free. Modifiers without their primary are granted: they promise
// nothing.
Result<void> match_caps(Negotiation& talk) {
  const uint64_t offered = talk.offer.caps;
  const uint64_t asked = talk.hints != nullptr ? talk.hints->caps : 0;
  if (const uint64_t wrong = asked & ~offered; wrong != 0)
    return refuse(talk, "caps", caps_text(talk, wrong), flags_text(offered, FI_TYPE_CAPS));
  talk.answer.caps = asked == 0 ? offered : with_modifiers(asked, offered) | (offered & kFreeCaps);
  // Receiving several messages into a buffer needs messages.
  if ((talk.answer.caps & (FI_MSG | FI_TAGGED)) == 0) talk.answer.caps &= ~FI_MULTI_RECV | asked;

  const fi_tx_attr* tx = talk.hints != nullptr ? talk.hints->tx_attr : nullptr;
  auto tx_caps = context_caps(talk, "tx_attr->caps", tx != nullptr ? tx->caps : 0, talk.offer.tx_attr->caps,
                              kTransmitCaps);
  if (!tx_caps) return tx_caps.error();
  talk.answer.tx_attr->caps = usable(*tx_caps, FI_SEND, FI_READ | FI_WRITE);

  const fi_rx_attr* rx = talk.hints != nullptr ? talk.hints->rx_attr : nullptr;
  auto rx_caps = context_caps(talk, "rx_attr->caps", rx != nullptr ? rx->caps : 0, talk.offer.rx_attr->caps,
                              kReceiveCaps);
  if (!rx_caps) return rx_caps.error();
  talk.answer.rx_attr->caps = usable(*rx_caps, FI_RECV, FI_REMOTE_READ | FI_REMOTE_WRITE);
  return {};
}

// fi_getinfo(3), "MODE": the provider's bits are what it demands, the program's are what it can do. No hints
// at all means that nothing was said yet, and the demands are shown.
Result<void> match_mode(Negotiation& talk) {
  if (talk.hints == nullptr) return {};
  struct ModePart {
    const char* attribute;
    uint64_t demanded;
    uint64_t supported;
  };
  const uint64_t whole = talk.hints->mode;
  // A mode of 0 in a part stands for that of fi_info, fi_endpoint(3).
  const auto or_whole = [whole](uint64_t part) { return part != 0 ? part : whole; };
  const fi_info& hints = *talk.hints;
  const ModePart parts[] = {
      {"mode", talk.offer.mode, whole},
      {"tx_attr->mode", talk.offer.tx_attr->mode,
       or_whole(hints.tx_attr != nullptr ? hints.tx_attr->mode : 0)},
      {"rx_attr->mode", talk.offer.rx_attr->mode,
       or_whole(hints.rx_attr != nullptr ? hints.rx_attr->mode : 0)},
      {"domain_attr->mode", talk.offer.domain_attr->mode,
       or_whole(hints.domain_attr != nullptr ? hints.domain_attr->mode : 0)},
  };
  for (const ModePart& place : parts) {
    if ((place.demanded & ~place.supported) == 0) continue;
    return Error{FI_ENODATA, std::string(place.attribute) + ": " + talk.provider.name + " needs " +
                                 flags_text(place.demanded, FI_TYPE_MODE) + ", the program supports " +
                                 flags_text(place.supported, FI_TYPE_MODE)};
  }
  return {};
}

Result<void> match_fabric(Negotiation& talk) {
  const fi_fabric_attr* hints = talk.hints != nullptr ? talk.hints->fabric_attr : nullptr;
  fi_fabric_attr& answer = *talk.answer.fabric_attr;
  if (!assign_string(&answer.prov_name, talk.provider.name)) throw std::bad_alloc();
  answer.prov_version = talk.provider.version;
  answer.api_version = talk.version;
  answer.fabric = nullptr;
  if (hints != nullptr && FI_VERSION_LT(talk.provider.version, hints->prov_version))
    return refuse(talk, "fabric_attr->prov_version", version_text(hints->prov_version),
                  version_text(talk.provider.version));
  if (hints != nullptr && hints->fabric != nullptr) {
    if (!is_opened(talk.provider, answer.name, hints->fabric))
      return refuse(talk, "fabric_attr->fabric", "an open fabric",
                    "no fabric that was opened at that address");
    answer.fabric = hints->fabric;
  } else {
    answer.fabric = first_fabric(talk.provider, answer.name);
  }
  return {};
}

Result<InfoPtr> match(const Provider& provider, const fi_info& offer, uint32_t version,
                      const fi_info* hints) {
  InfoPtr answer(dup_info(&offer));
  if (answer == nullptr) throw std::bad_alloc();
  Negotiation talk{provider, offer, version, hints, *answer};
  if (auto ok = match_all(talk); !ok) return ok.error();
  return answer;
}

Result<InfoPtr> match_offers(const Provider& provider, uint32_t version, const fi_info* hints) {
  Error refusal{FI_ENODATA, std::string(provider.name) + " offers nothing on this machine"};
  bool specific = false;
  for (const fi_info* offer = provider.offers(provider); offer != nullptr; offer = offer->next) {
    auto answer = match(provider, *offer, version, hints);
    if (answer) return answer;
    // The offer of the type that was asked says more than one of another type.
    if (!specific) refusal = answer.error();
    specific = refusal.why.rfind("ep_attr->type", 0) != 0;
  }
  return refusal;
}

// The domain may be an interface, at any of its addresses.
static Result<InfoPtr> match_at_interfaces(const Provider& provider, uint32_t version, const fi_info& info) {
  if (!names_interface(&info)) return match_offers(provider, version, &info);
  for (const fi_info* offer = provider.offers(provider); offer != nullptr; offer = offer->next) {
    for (const providers::InterfaceDomain& place : provider.interface_domains(offer->addr_format, {}, {})) {
      const InterfaceOffer placed(*offer, place, offer->caps);
      if (auto answer = match(provider, placed.info(), version, &info)) return answer;
    }
  }
  return match_offers(provider, version, &info);
}

Result<InfoPtr> match_any(const Provider& provider, uint32_t version, const fi_info* info) {
  if (info == nullptr) return match_offers(provider, version, nullptr);
  const InfoPtr known(dup_info(info, abi_of(version)));
  if (known == nullptr) throw std::bad_alloc();
  known->handle = nullptr;
  // What fi_getinfo once referred to may be closed by now.
  if (known->fabric_attr != nullptr) known->fabric_attr->fabric = nullptr;
  if (known->domain_attr != nullptr) known->domain_attr->domain = nullptr;
  if (provider.interface_domains != nullptr) return match_at_interfaces(provider, version, *known);
  return match_offers(provider, version, known.get());
}

}  // namespace weft::fi
