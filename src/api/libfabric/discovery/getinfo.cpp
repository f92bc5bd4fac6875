// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// fi_getinfo(3): asks each provider, resolves addresses, collects answers or tells why there are none. Must
// not know the providers.
#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/abi/values.hpp"

#include <rdma/fi_errno.h>
#include <strings.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "api/libfabric/discovery/interface_offer.hpp"
#include "api/libfabric/discovery/match.hpp"
#include "api/libfabric/discovery/refusals.hpp"
#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/provider_names.hpp"
#include "api/libfabric/text/setting_report.hpp"
#include "api/libfabric/text/tostr.hpp"
#include "os/setting_file.hpp"

namespace weft::fi {
namespace {

// One call, with hints that hold nothing which the caller cannot have set.
struct Request {
  uint32_t version;
  const char* node;
  const char* service;
  uint64_t flags;
  const fi_info* hints;
  bool plugin;
  const char* prefix;
  bool lowered;  // the program asked for a later version than its node has structures of

  // The local address, by node and service or by the hints.
  bool says_source() const noexcept {
    return (flags & FI_SOURCE) != 0 || (hints != nullptr && hints->src_addr != nullptr);
  }
  bool named() const noexcept { return node != nullptr || service != nullptr; }
  const char* prov_name() const noexcept {
    return hints != nullptr && hints->fabric_attr != nullptr ? hints->fabric_attr->prov_name : nullptr;
  }
};

// A string address inside a sized field may lack its zero.
std::string string_at(const void* bytes, size_t length) {
  return {static_cast<const char*>(bytes), strnlen(static_cast<const char*>(bytes), length)};
}

// An address from the hints: the provider's own form as it is, another spelling of a string address through
// the provider. Others than strings may stand in a larger field (sockaddr_storage).
Result<std::vector<std::byte>> given_address(const Provider& provider, uint32_t format, const char* attribute,
                                             const void* bytes, size_t length, bool source) {
  const size_t addrlen = provider.addrlen(format);
  const auto* first = static_cast<const std::byte*>(bytes);
  if (format != FI_ADDR_STR && length >= addrlen) {
    std::vector<std::byte> address(first, first + addrlen);
    if (provider.normalise(format, address.data())) return address;
    return Error{FI_ENODATA, std::string(attribute) + ": no address of the format " +
                                 value_text(format, FI_TYPE_ADDR_FORMAT)};
  }
  if (length == addrlen) return std::vector<std::byte>(first, first + length);
  if (length > 0 && format == FI_ADDR_STR)
    return provider.resolve(format, string_at(bytes, length).c_str(), nullptr, source);
  return Error{FI_ENODATA, std::string(attribute) + ": a length of " + std::to_string(length) +
                               " was given, " + provider.name + " has addresses of " +
                               std::to_string(addrlen)};
}

// fi_getinfo(3), "src_addr": node and service with FI_SOURCE, else the hints, else the address that is chosen
// when the endpoint is opened.
Result<std::vector<std::byte>> source_address(const Provider& provider, uint32_t format,
                                              const Request& request) {
  if ((request.flags & FI_SOURCE) != 0) {
    auto named = provider.resolve(format, request.node, request.service, true);
    if (!named || !named->empty()) return named;  // else this machine, and nothing more
    return provider.unnamed(format);
  }
  if (request.hints != nullptr && request.hints->src_addr != nullptr)
    return given_address(provider, format, "src_addr", request.hints->src_addr, request.hints->src_addrlen,
                         true);
  return provider.unnamed(format);
}

// fi_getinfo(3), "dest_addr": node and service without FI_SOURCE, else the hints.
Result<std::vector<std::byte>> destination_address(const Provider& provider, uint32_t format,
                                                   const Request& request) {
  if ((request.flags & FI_SOURCE) == 0 && request.named())
    return provider.resolve(format, request.node, request.service, false);
  if (request.hints != nullptr && request.hints->dest_addr != nullptr)
    return given_address(provider, format, "dest_addr", request.hints->dest_addr, request.hints->dest_addrlen,
                         false);
  return std::vector<std::byte>{};
}

void put_address(void** place, size_t* length, const std::vector<std::byte>& bytes) {
  if (!assign_bytes(place, length, bytes.data(), bytes.size())) throw std::bad_alloc();
}

Result<void> add_addresses(const Provider& provider, const Request& request, fi_info& answer) {
  auto source = source_address(provider, answer.addr_format, request);
  if (!source) return source.error();
  auto destination = destination_address(provider, answer.addr_format, request);
  if (!destination) return destination.error();
  put_address(&answer.src_addr, &answer.src_addrlen, *source);
  put_address(&answer.dest_addr, &answer.dest_addrlen, *destination);
  return {};
}

// The name under which the other libfabric knows a provider of the plugin.
std::string outer_name(const char* name, const Request& request) {
  return request.plugin ? request.prefix + std::string(name) : name;
}

// FI_PROVIDER and fabric_attr->prov_name. The libfabric around a plugin has done both already.
Result<void> admit(const char* name, const Request& request) {
  if (request.plugin) return {};
  const char* list = os::setting("FI_PROVIDER");
  if (!name_passes(list, name)) return Error{FI_ENODATA, std::string("left out by FI_PROVIDER=") + list};
  const char* asked = request.prov_name();
  if (asked == nullptr || *asked == 0) return {};
  const bool fits = *asked == '^' ? name_passes(asked, name) : has_layers(name, asked);
  if (fits) return {};
  return Error{FI_ENODATA,
               std::string("fabric_attr->prov_name: \"") + asked + "\" was asked, this is \"" + name + '"'};
}

// FI_PROV_ATTR_ONLY: one info with nothing but the provider's name and version, whatever else was asked.
InfoPtr attributes_only(const char* name, uint32_t provider_version, uint32_t version) {
  InfoPtr info(dup_info(nullptr));
  if (info == nullptr || !assign_string(&info->fabric_attr->prov_name, name)) throw std::bad_alloc();
  info->fabric_attr->prov_version = provider_version;
  info->fabric_attr->api_version = version;
  return info;
}

// A list that is built at its end.
struct Answers {
  InfoPtr head;
  fi_info** tail = nullptr;

  void add(InfoPtr info) {
    fi_info* last = info.get();
    if (head == nullptr) head = std::move(info);
    else *tail = info.release();
    tail = &last->next;
  }
};

// An answer at a place, and where it belongs among the others.
struct InterfaceAnswer {
  size_t kind;  // of endpoint, in the order of the offers
  bool is_loopback;
  size_t domain;  // in the order in which they came up
  InfoPtr info;
};

// What is asked about one offer of a provider with places: nothing said of the source leaves it to the place.
struct Ends {
  std::vector<std::byte> source;
  std::vector<std::byte> destination;
  bool unsaid() const noexcept { return source.empty() && destination.empty(); }
};

Result<Ends> asked_ends(const Provider& provider, uint32_t format, const Request& request) {
  Ends ends;
  if (request.says_source()) {
    auto source = source_address(provider, format, request);
    if (!source) return source.error();
    ends.source = std::move(*source);
  }
  auto destination = destination_address(provider, format, request);
  if (!destination) return destination.error();
  ends.destination = std::move(*destination);
  return ends;
}

// One offer at each place that the request may mean.
void ask_interfaces(const Provider& provider, const fi_info& offer, size_t kind, const Request& request,
                    std::vector<std::string>& domains, std::vector<InterfaceAnswer>& found) {
  auto ends = asked_ends(provider, offer.addr_format, request);
  if (!ends) return;
  const bool named = names_interface(request.hints);
  for (const providers::InterfaceDomain& place :
       provider.interface_domains(offer.addr_format, ends->source, ends->destination)) {
    if (!place.is_listed && !named) continue;
    // Who asked for an address knows how far it reaches; unasked, loopback does not leave the host.
    const InterfaceOffer placed(offer, place,
                                place.leaves_host || !ends->unsaid() ? offer.caps : uint64_t{FI_LOCAL_COMM});
    auto answer = match(provider, placed.info(), request.version, request.hints);
    if (!answer) continue;
    put_address(&(*answer)->src_addr, &(*answer)->src_addrlen, place.source);
    put_address(&(*answer)->dest_addr, &(*answer)->dest_addrlen, ends->destination);
    auto domain = std::ranges::find(domains, place.domain);
    if (domain == domains.end()) domain = domains.insert(domain, place.domain);
    found.push_back(
        {kind, !place.leaves_host, static_cast<size_t>(domain - domains.begin()), std::move(*answer)});
    if (!ends->unsaid()) return;
  }
}

// The answers of a provider with places: by kind of endpoint, and then by interface whatever the format.
std::vector<InterfaceAnswer> ask_interfaces(const Provider& provider, const Request& request) {
  std::vector<InterfaceAnswer> found;
  std::vector<std::string> domains;
  size_t kind = 0;
  const fi_info* const first = provider.offers(provider);
  for (const fi_info* offer = first; offer != nullptr; offer = offer->next) {
    // Addresses as text are another form of those that are listed.
    const bool spare = offer->addr_format == FI_ADDR_STR && first->addr_format != FI_ADDR_STR;
    if (!spare || (request.hints != nullptr && request.hints->addr_format == FI_ADDR_STR))
      ask_interfaces(provider, *offer, kind, request, domains, found);
    if (offer->next != nullptr && offer->next->ep_attr->type != offer->ep_attr->type) ++kind;
  }
  std::ranges::stable_sort(found, [](const InterfaceAnswer& a, const InterfaceAnswer& b) {
    return std::tuple(a.kind, a.is_loopback, a.domain) < std::tuple(b.kind, b.is_loopback, b.domain);
  });
  return found;
}

// Refuses what hints ask for in fields that 1.17 does not have: authorization keys of addresses, peer groups. Weft's providers have neither.
// `hints` is a copy by dup_info().
Result<void> match_tail(const fi_info* hints) {
  if (hints == nullptr || hints->domain_attr == nullptr) return {};
  const layout::DomainTail asked = layout::tail_of(*hints->domain_attr, Abi::v1_9);
  if (hints->domain_attr->auth_key_size == later::av_auth_key)
    return Error{FI_ENODATA, "domain_attr->auth_key_size: FI_AV_AUTH_KEY was asked, addresses have no keys"};
  if (asked.max_ep_auth_key != 0)
    return Error{FI_ENODATA, "domain_attr->max_ep_auth_key: " + std::to_string(asked.max_ep_auth_key) +
                                 " was asked, addresses have no keys"};
  if (asked.max_group_id != 0)
    return Error{FI_ENODATA, "domain_attr->max_group_id: " + std::to_string(asked.max_group_id) +
                                 " was asked, addresses have no groups"};
  return {};
}

// Adds what this provider answers; the refusal of the offer that came nearest when it answers nothing.
Result<void> ask(const Provider& provider, const Request& request, Answers& answers) {
  if ((request.flags & FI_PROV_ATTR_ONLY) != 0) {
    answers.add(attributes_only(provider.name, provider.version, request.version));
    return {};
  }
  if (auto ok = match_tail(request.hints); !ok) return ok;
  bool any = false;
  const auto add = [&](InfoPtr answer) {
    layout::set_tail(*answer->domain_attr, {.max_cntr_value = UINT64_MAX, .max_err_cntr_value = UINT64_MAX});
    if (request.plugin && !assign_string(&answer->fabric_attr->prov_name, nullptr)) throw std::bad_alloc();
    answers.add(std::move(answer));
    any = true;
  };
  if (provider.interface_domains != nullptr)
    for (InterfaceAnswer& placed : ask_interfaces(provider, request)) add(std::move(placed.info));
  if (any) return {};
  Error address_refusal{0, {}};
  for (const fi_info* offer = provider.offers(provider); offer != nullptr; offer = offer->next) {
    auto answer = match(provider, *offer, request.version, request.hints);
    if (!answer) continue;
    if (auto ok = add_addresses(provider, request, **answer); !ok) {
      address_refusal = ok.error();
      continue;
    }
    add(std::move(*answer));
  }
  if (any) return {};
  if (address_refusal.code != 0) return address_refusal;
  auto refusal = match_offers(provider, request.version, request.hints);
  return refusal ? Error{FI_ENODATA, "offers nothing"} : refusal.error();
}

// The same for a plugin of somebody else.
Result<void> ask(const PluginProvider& plugin, const Request& request, Answers& answers) {
  if ((request.flags & FI_PROV_ATTR_ONLY) != 0) {
    answers.add(attributes_only(plugin.name(), plugin.version(), request.version));
    return {};
  }
  // The program asked for more than its node has: a plugin of the node's generation serves it.
  const uint32_t version =
      request.lowered ? std::min(request.version, plugin.api_version()) : request.version;
  auto answer = plugin.ask(version, request.node, request.service, request.flags, request.hints);
  if (!answer) return answer.error();
  while (InfoPtr info = std::move(*answer)) {
    answer->reset(std::exchange(info->next, nullptr));
    answers.add(std::move(info));
  }
  return {};
}

// The libfabric around a plugin marks its own questions, on behalf of its layers, with these (above what
// fi_getinfo(3) defines).
constexpr uint64_t kPrivateFlags = 0xfULL << 58;

// A plugin does not know whether another provider answers, so it speaks up only when it was meant.
bool meant(const Request& request, const char* name) {
  if (!request.plugin) return true;
  if ((request.flags & kPrivateFlags) != 0) return false;
  const char* asked = request.prov_name();
  return asked != nullptr && has_layers(asked, outer_name(name, request));
}

struct Refusal {
  const char* provider;
  std::string why;
};

// How far a provider's offer was followed before it was refused: the order of match_all(), then addresses.
size_t nearness(const std::string& why) {
  constexpr std::string_view steps[] = {
      "fabric_attr->name", "domain_attr->name", "ep_attr->type", "caps",
      "tx_attr->caps",     "rx_attr->caps",     "mode",          "domain_attr->mr_mode",
      "ep_attr->",         "domain_attr->",     "tx_attr->",     "rx_attr->",
      "fabric_attr->",     "addr_format"};
  for (const std::string_view other : {"the plugin ", "version:"})
    if (why.starts_with(other)) return 0;
  if (why.ends_with(" offers nothing on this machine")) return 0;
  size_t step = 0;
  while (step < std::size(steps) && !why.starts_with(steps[step])) ++step;
  return step;
}

// What one call was answered with.
struct Outcome {
  Answers answers;
  std::vector<Refusal> refused;   // asked, and answered nothing
  std::vector<Refusal> left_out;  // not asked, by their names
  std::vector<std::string> names_of_nobody;

  template <class Source>
  void ask_one(const Source& source, const char* name, const Request& request) {
    if (auto ok = admit(name, request); !ok) left_out.push_back({name, ok.error().why});
    else if (ok = ask(source, request, answers); !ok) refused.push_back({name, ok.error().why});
  }
};

std::vector<const char*> names_of(const Catalogue& catalogue) {
  std::vector<const char*> names;
  for (const Provider* provider : catalogue.providers) names.push_back(provider->name);
  for (const PluginProvider* plugin : catalogue.plugins) names.push_back(plugin->name());
  return names;
}

// "PLACE: no provider is named "xyz"; there are: ..." when nobody has the name.
void check_name(const Catalogue& catalogue, const char* place, std::string_view wanted,
                std::vector<std::string>& out) {
  const std::vector<const char*> names = names_of(catalogue);
  const auto fits = [wanted](const char* name) { return has_layers(name, wanted); };
  if (wanted.empty() || std::any_of(names.begin(), names.end(), fits)) return;
  std::string text =
      std::string(place) + ": no provider is named \"" + std::string(wanted) + "\"; there are:";
  for (const char* name : names) text += (name == names.front() ? " " : ", ") + std::string(name);
  out.push_back(std::move(text));
}

void check_names(const Catalogue& catalogue, const char* place, const char* list,
                 std::vector<std::string>& out) {
  if (list == nullptr) return;
  std::string_view items = trimmed(list);
  if (items.starts_with('^')) items.remove_prefix(1);
  any_part(items, ',', [&](std::string_view item) {
    check_name(catalogue, place, item, out);
    return false;
  });
}

// What is said of a call that found nothing, when the program ends and found nothing later either.
void note_nothing(const Request& request, const Outcome& outcome) {
  const char* asked = request.prov_name();
  const bool named = asked != nullptr && *asked != 0 && *asked != '^';
  const Refusal* nearest = nullptr;
  size_t candidates = 0;
  for (const Refusal& refusal : outcome.refused) {
    if (!meant(request, refusal.provider)) continue;
    ++candidates;
    if (nearest == nullptr || nearness(refusal.why) > nearness(nearest->why)) nearest = &refusal;
  }
  if (candidates == 1) note_nothing_found(nearest->provider, nearest->why, named);
  else if (candidates > 1)
    note_nothing_found(nearest->provider,
                       nearest->why + " (the nearest of " + std::to_string(candidates) +
                           " providers; FI_LOG_LEVEL=info or weft info --why has the others)",
                       named);
  else if (!outcome.names_of_nobody.empty())
    note_nothing_found(kCore, outcome.names_of_nobody.front(), false);
  else if (const char* list = os::setting("FI_PROVIDER");
           named && list != nullptr && !outcome.left_out.empty())
    note_nothing_found(kCore,
                       std::string("FI_PROVIDER=") + list + " leaves out \"" + asked +
                           "\", which fabric_attr->prov_name asks for",
                       true);
}

int find(const Catalogue& catalogue, const Request& request, fi_info** info) {
  Outcome outcome;
  for (const Provider* provider : catalogue.providers) outcome.ask_one(*provider, provider->name, request);
  for (const PluginProvider* plugin : catalogue.plugins) outcome.ask_one(*plugin, plugin->name(), request);
  if (!request.plugin) {
    check_names(catalogue, "FI_PROVIDER", os::setting("FI_PROVIDER"), outcome.names_of_nobody);
    if (const char* asked = request.prov_name(); asked != nullptr && *asked != '^')
      check_name(catalogue, "fabric_attr->prov_name", trimmed(asked), outcome.names_of_nobody);
    else check_names(catalogue, "fabric_attr->prov_name", asked, outcome.names_of_nobody);
  }
  for (const std::string& text : outcome.names_of_nobody) log_info(kCore, FI_LOG_CORE, "%s", text.c_str());
  for (const auto* refusals : {&outcome.refused, &outcome.left_out})
    for (const Refusal& refusal : *refusals)
      log_info(refusal.provider, FI_LOG_CORE, "not returned: %s", refusal.why.c_str());
  const bool nothing = outcome.answers.head == nullptr;
  if (!nothing) note_found();
  else if (catalogue.providers.empty()) log_warn(kCore, FI_LOG_CORE, "this build has no provider");
  else note_nothing(request, outcome);
  *info = outcome.answers.head.release();
  return nothing ? -FI_ENODATA : 0;
}

int check_arguments(uint32_t version, const char* node, const char* service, uint64_t flags) {
  if (FI_VERSION_LT(kApiVersion, version)) {
    log_warn(kCore, FI_LOG_CORE, "version: API %s was asked, this is %s", version_text(version).c_str(),
             version_text(kApiVersion).c_str());
    return -FI_ENOSYS;
  }
  if ((flags & FI_SOURCE) != 0 && node == nullptr && service == nullptr) {
    log_warn(kCore, FI_LOG_CORE, "flags: FI_SOURCE was given without node and service");
    return -FI_EINVAL;
  }
  return 0;
}

}  // namespace

// Flags that are not known are passed over: a later libfabric around the plugin sends private ones, and later
// programs new ones. FI_NUMERICHOST has nothing to suppress, for numbers are never looked up.
int get_info(const Catalogue& catalogue, uint32_t version, const char* node, const char* service,
             uint64_t flags, const fi_info* hints, fi_info** info, Abi abi) noexcept {
  if (info == nullptr) return -FI_EINVAL;
  *info = nullptr;
  try {
    report_settings();
    if (const int failed = check_arguments(version, node, service, flags); failed != 0) return failed;
    // Some programs ask for what fi_version(3) of the running library says: their structures are still those of their node.
    const uint32_t served = std::min(version, newest_api(abi));
    InfoPtr known(hints != nullptr ? dup_info(hints, std::min(abi, abi_of(served))) : nullptr);
    if (hints != nullptr && known == nullptr) return -FI_ENOMEM;
    return find(
        catalogue,
        {served, node, service, flags, known.get(), catalogue.plugin, catalogue.prefix, served != version},
        info);
  } catch (const std::bad_alloc&) {
    return -FI_ENOMEM;
  } catch (...) {
    return -FI_EOTHER;
  }
}

}  // namespace weft::fi
