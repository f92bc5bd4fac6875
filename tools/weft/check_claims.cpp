// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Asks fi_getinfo(3), and carries the answers from one process to another as JSON.
#include "check_claims.hpp"

#include <dlfcn.h>
#include <rdma/providers/fi_prov.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <weft/libfabric_retired.hpp>

#include "failure.hpp"
#include "install_tree.hpp"

namespace weft::tool::checking {

namespace {

using nlohmann::json;

struct FreeInfo {
  void operator()(fi_info* list) const noexcept { fi_freeinfo(list); }
};
using InfoList = std::unique_ptr<fi_info, FreeInfo>;

constexpr uint32_t api = FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION);

InfoList ask(const std::string& provider, fi_ep_type type, const Claims::Edit& edit) {
  const InfoList hints(fi_allocinfo());
  if (!hints) fail("out of memory");
  // A program that accepts any mode: the question is what there is, not what it demands.
  hints->mode = ~uint64_t{0};
  hints->domain_attr->mode = ~uint64_t{0};
  hints->domain_attr->mr_mode = ~(retired::mr_basic | retired::mr_scalable);
  hints->ep_attr->type = type;
  hints->fabric_attr->prov_name = provider.empty() ? nullptr : strdup(provider.c_str());
  if (edit) edit(*hints);
  fi_info* found = nullptr;
  if (fi_getinfo(api, nullptr, nullptr, 0, hints.get(), &found) != 0) return nullptr;
  return InfoList(found);
}

// The answers that are this provider's own: a name brings what is layered over it, too (fi_provider(3)).
std::vector<const fi_info*> own(const fi_info* list, const std::string& provider, fi_ep_type type) {
  std::vector<const fi_info*> result;
  for (; list != nullptr; list = list->next)
    if (list->ep_attr->type == type && provider == list->fabric_attr->prov_name) result.push_back(list);
  return result;
}

class Asked : public Claims {
 public:
  Asked(std::string provider, fi_ep_type type)
      : provider_(std::move(provider)),
        type_(type),
        list_(ask(provider_, type_, nullptr)),
        infos_(own(list_.get(), provider_, type_)) {}

  std::span<const fi_info* const> infos() const override { return infos_; }
  bool offered(const Edit& edit) const override {
    const InfoList list = ask(provider_, type_, edit);
    return !own(list.get(), provider_, type_).empty();
  }

 private:
  const std::string provider_;
  const fi_ep_type type_;
  const InfoList list_;
  const std::vector<const fi_info*> infos_;
};

}  // namespace

void print_offer(const std::string& provider, std::FILE* to) {
  const uint32_t version = fi_version();
  json offer{{"library", library_path()},
             {"api", fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version))},
             {"types", json::object()}};
  std::set<std::string> others;
  const InfoList named = ask(provider, FI_EP_UNSPEC, nullptr);
  for (const fi_info* i = named.get(); i != nullptr; i = i->next)
    if (provider != i->fabric_attr->prov_name) others.insert(i->fabric_attr->prov_name);
  offer["others"] = others;
  for (const fi_ep_type type : {FI_EP_RDM, FI_EP_MSG, FI_EP_DGRAM}) {
    const Asked claims(provider, type);
    if (claims.infos().empty()) continue;
    const uint32_t own_version = claims.infos().front()->fabric_attr->prov_version;
    offer["version"] = fmt::format("{}.{}", FI_MAJOR(own_version), FI_MINOR(own_version));
    const Answers answers = answers_of(claims, type);
    json claimed = json::array();
    for (const Claimed one : answers.claimed) claimed.push_back(text_of(one));
    offer["types"][std::string(name_of(type))] = {{"claimed", claimed},
                                                  {"met", answers.met},
                                                  {"together", answers.together},
                                                  {"untested", answers.untested}};
  }
  if (offer["types"].empty()) {
    std::set<std::string> all;
    const InfoList every = ask("", FI_EP_UNSPEC, nullptr);
    for (const fi_info* i = every.get(); i != nullptr; i = i->next) all.insert(i->fabric_attr->prov_name);
    offer["all"] = all;
  }
  fmt::print(to, "{}\n", offer.dump(-1, ' ', false, json::error_handler_t::replace));
}

int print_plugin_name(const std::string& file, std::FILE* to) {
  void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    fmt::print(stderr, "{}\n", dlerror());
    return exit_failed;
  }
  const auto entry = reinterpret_cast<fi_provider* (*)()>(dlsym(library, "fi_prov_ini"));
  if (entry == nullptr) {
    fmt::print(stderr, "{} is no plugin of libfabric: it has no fi_prov_ini (fi_provider(3))\n", file);
    return exit_failed;
  }
  const fi_provider* provider = entry();
  if (provider == nullptr || provider->name == nullptr || *provider->name == '\0') {
    fmt::print(stderr, "{}: its fi_prov_ini names no provider\n", file);
    return exit_failed;
  }
  fmt::print(to, "{}\n", provider->name);
  return exit_ok;
}

Offer read_offer(const std::string& text) {
  const json offer = json::parse(text, nullptr, false);
  if (!offer.is_object() || !offer.contains("types"))
    fail("what the library answered cannot be read: {}", text);
  Offer result;
  result.library = offer.value("library", "");
  result.api = offer.value("api", "");
  result.version = offer.value("version", "");
  result.others = offer.value("others", std::vector<std::string>{});
  result.all = offer.value("all", std::vector<std::string>{});
  for (const auto& [type, given] : offer["types"].items()) {
    Answers answers;
    for (const std::string& word : given["claimed"].get<std::vector<std::string>>())
      answers.claimed.push_back(claimed_of(word));
    answers.met = given["met"].get<std::vector<bool>>();
    const auto together = given["together"].get<std::vector<bool>>();
    std::copy_n(together.begin(), std::min(together.size(), std::size(answers.together)), answers.together);
    answers.untested = given["untested"].get<std::vector<std::string>>();
    result.types[type] = std::move(answers);
  }
  return result;
}

}  // namespace weft::tool::checking
