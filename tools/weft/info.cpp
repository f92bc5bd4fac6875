// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft info`: reads hints, asks fi_getinfo(3), shows the answer or the reasons why there is none.
#include "info.hpp"

#include <rdma/fabric.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/providers/fi_prov.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <weft/libfabric_retired.hpp>

#include "captured_stderr.hpp"
#include "cli.hpp"
#include "failure.hpp"
#include "info_json.hpp"
#include "info_settings.hpp"
#include "info_system.hpp"
#include "install_tree.hpp"
#include "names.hpp"
#include "verbs_devices.hpp"

namespace weft::tool {

namespace {

struct FreeInfo {
  void operator()(fi_info* list) const noexcept { fi_freeinfo(list); }
};
using InfoList = std::unique_ptr<fi_info, FreeInfo>;

struct Options {
  bool verbose = false, json = false, why = false, stock = false, providers_only = false, source = false,
       settings = false, as_file = false, system = false, verbs = false;
  std::string provider, fabric, domain, node, service;
  std::string caps, mode, ep_type, addr_format, threading, mr_mode, av_type, msg_order, comp_order, op_flags,
      progress;
  size_t max_msg_size = 0, inject_size = 0, cq_data_size = 0;
};

void declare(CLI::App& app, Options& o) {
  app.add_flag("-v,--verbose", o.verbose, "All attributes of each match, as fi_tostr(3) writes them");
  app.add_flag("-j,--json", o.json, "All attributes of each match as JSON");
  app.add_flag("-l,--list", o.providers_only, "Only the names and versions of the providers");
  app.add_flag(
      "-w,--why", o.why,
      "For each provider that is not returned: which attribute failed, what was asked, what is there");
  app.add_flag(
      "--settings", o.settings,
      "The settings that exist (fi_getparams(3)): name, value, where it comes from, meaning; -j as JSON");
  app.add_flag("--as-file", o.as_file, "With --settings: as a file that WEFT_CONFIG reads back")
      ->needs("--settings");
  app.add_flag("--system", o.system,
               "What this machine has of what Weft can use, and what each lack costs; -j as JSON");
  app.add_flag("--verbs", o.verbs, "Only the verbs devices of Weft's libibverbs.so.1; -j as JSON");
  app.add_flag("--stock", o.stock, "Ask the system's libfabric instead of Weft");
  app.add_option("-p,--provider", o.provider, "Provider name (hints: fabric_attr.prov_name)");
  app.add_option("-c,--caps", o.caps, "Capabilities: FI_MSG|FI_RMA, or msg,rma, or a number");
  app.add_option("-m,--mode", o.mode, "Modes that the program would support: FI_CONTEXT ...");
  app.add_option("-e,-t,--ep-type", o.ep_type, "Endpoint type: FI_EP_RDM, FI_EP_DGRAM, FI_EP_MSG");
  app.add_option("-a,--addr-format", o.addr_format, "Address format: FI_ADDR_STR, FI_SOCKADDR_IN ...");
  app.add_option("-d,--domain", o.domain, "Domain name");
  app.add_option("-f,--fabric", o.fabric, "Fabric name");
  app.add_option("-n,--node", o.node, "Node: name or address, of the peer unless --source is given");
  app.add_option("-P,--service", o.service, "Service or port");
  app.add_flag("-s,--source", o.source, "Node and service are the local side (FI_SOURCE)");
  app.add_option("--threading", o.threading, "FI_THREAD_SAFE, FI_THREAD_DOMAIN ...");
  app.add_option("--progress", o.progress, "Data progress: FI_PROGRESS_AUTO, FI_PROGRESS_MANUAL");
  app.add_option("--mr-mode", o.mr_mode,
                 "Registration modes that the program would support: FI_MR_LOCAL ...");
  app.add_option("--av-type", o.av_type, "FI_AV_MAP, FI_AV_TABLE");
  app.add_option("--msg-order", o.msg_order,
                 "Message order wanted of transmit and receive: FI_ORDER_SAS ...");
  app.add_option("--comp-order", o.comp_order, "Completion order wanted: FI_ORDER_STRICT ...");
  app.add_option("--op-flags", o.op_flags, "Default flags of transmits: FI_DELIVERY_COMPLETE ...");
  app.add_option("--max-msg-size", o.max_msg_size, "Least size of the largest message, bytes");
  app.add_option("--inject-size", o.inject_size, "Least size of what can be injected, bytes");
  app.add_option("--cq-data-size", o.cq_data_size, "Least size of remote CQ data, bytes");
  set_manual(app, {R"(NAME
  weft info - what the fabric offers, and why it refuses

SYNOPSIS
  weft info [-v|-j|-l] [--why] [--stock] [HINT]...
  weft info --verbs [-j]
  weft info --settings [-j|--as-file] [--stock]
  weft info --system [-j]

DESCRIPTION
  Asks fi_getinfo(3) with the hints given and prints a line for each match. With --why, every provider that
  is not returned says which attribute failed, or which name left it out, and names that no provider has
  are told. Names may be written in either case and without their FI_.

  Without options the verbs devices follow: port, active MTU, whether devices of this host and user are reached
  by shared memory, and GIDs with the UDP socket that each means. They are opened for that; a GID of type Weft
  has the port of the process that shows it, and is another in the next one (unless WEFT_VERBS_PORT says).
)",
                   R"(EXIT STATUS
  0 if something matches, 1 if nothing does, 2 if the command line makes no sense.

EXAMPLES
  weft info
  weft info -p shm -v
  weft info --why -p shm -c FI_COLLECTIVE
  weft info -c tagged,rma -e rdm --threading domain -j
)"});
}

InfoList hints_of(const Options& o) {
  InfoList hints(fi_allocinfo());
  if (!hints) fail("out of memory");
  const auto flags = [](const std::string& text, std::span<const Name> names, const char* what) {
    return parse_flags(text, names, what);
  };
  const auto one = [](const std::string& text, std::span<const Name> names, const char* what) {
    return text.empty() ? uint64_t{0} : parse_one(text, names, what);
  };
  hints->caps = flags(o.caps, capability_names(), "a capability");
  // Without -m the program is one that accepts any mode: the question is then what there is, not what it
  // demands.
  hints->mode = o.mode.empty() ? ~uint64_t{0} : flags(o.mode, mode_names(), "a mode");
  hints->addr_format = static_cast<uint32_t>(one(o.addr_format, addr_format_names(), "an address format"));
  hints->ep_attr->type = static_cast<fi_ep_type>(one(o.ep_type, ep_type_names(), "an endpoint type"));
  hints->ep_attr->max_msg_size = o.max_msg_size;
  fi_domain_attr& domain = *hints->domain_attr;
  domain.mode = hints->mode;
  domain.mr_mode = o.mr_mode.empty()
                       ? ~(retired::mr_basic | retired::mr_scalable)
                       : static_cast<int>(flags(o.mr_mode, mr_mode_names(), "a registration mode"));
  domain.threading = static_cast<fi_threading>(one(o.threading, threading_names(), "a threading level"));
  domain.data_progress = static_cast<fi_progress>(one(o.progress, progress_names(), "a progress model"));
  domain.av_type = static_cast<fi_av_type>(one(o.av_type, av_type_names(), "an address vector type"));
  domain.cq_data_size = o.cq_data_size;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = flags(o.msg_order, order_names(), "an order");
  hints->tx_attr->comp_order = hints->rx_attr->comp_order = flags(o.comp_order, order_names(), "an order");
  hints->tx_attr->op_flags = flags(o.op_flags, op_flag_names(), "an operation flag");
  hints->tx_attr->inject_size = o.inject_size;
  // fi_freeinfo() frees the names with free().
  if (!o.provider.empty()) hints->fabric_attr->prov_name = strdup(o.provider.c_str());
  if (!o.fabric.empty()) hints->fabric_attr->name = strdup(o.fabric.c_str());
  if (!o.domain.empty()) domain.name = strdup(o.domain.c_str());
  return hints;
}

// A line of a library's log. Weft: "weft:PID:PROVIDER:SUBSYSTEM:<level> TEXT". Stock:
// "libfabric:PID:TIME:[PREFIX]:PROVIDER:SUBSYSTEM:FUNCTION():LINE<level> TEXT".
struct LogLine {
  std::string provider, function, level, text;
  bool ours;

  explicit LogLine(const std::string& line) : text(line), ours(line.starts_with("weft:")) {
    const size_t mark = line.find("> ");
    const size_t open = line.rfind('<', mark);
    if ((!ours && !line.starts_with("libfabric:")) || mark == std::string::npos || open == std::string::npos)
      return;
    std::vector<std::string> fields;
    size_t begin = 0;
    while (begin < open) {
      const size_t end = std::min(line.find(':', begin), open);
      if (end > begin) fields.push_back(line.substr(begin, end - begin));
      begin = end + 1;
    }
    level = line.substr(open + 1, mark - open - 1);
    text = line.substr(mark + 2);
    const size_t at = ours ? 2 : 3;
    if (fields.size() > at) provider = fields[at];
    if (fields.size() > at + 2) function = fields[at + 2];
  }

  // How our library begins the reasons of a provider, and a name that no provider has.
  static constexpr std::string_view not_returned = "not returned: ", nobody = ": no provider is named ";

  // Stock libraries and plugins give their reasons among much else at the level of information. Only lines of
  // plugins say where they come from in ours.
  bool is_reason() const {
    return level != "info" || text.starts_with(not_returned) || text.find(nobody) != std::string::npos ||
           (ours && !function.empty()) || function.starts_with("ofi_check") ||
           function.find("getinfo") != std::string::npos;
  }

  std::string reason() const {
    std::string cause = text.starts_with(not_returned) ? text.substr(not_returned.size()) : text;
    if (provider.empty() || provider == "core" || cause.starts_with(provider)) return cause;
    return provider + ": " + cause;
  }

  // By which name it was left out: ours only. Empty: by something else.
  std::string left_out_by() const {
    if (!text.starts_with(not_returned)) return {};
    std::string cause = text.substr(not_returned.size());
    if (cause.starts_with("left out by FI_PROVIDER=")) return cause;
    const size_t end = cause.find(" was asked, this is ");
    constexpr std::string_view asked = "fabric_attr->prov_name: ";
    if (!cause.starts_with(asked) || end == std::string::npos) return {};
    return "not named " + cause.substr(asked.size(), end - asked.size());
  }
};

std::vector<std::string> reasons_of(const std::string& log) {
  std::vector<std::string> reasons;
  std::map<std::string, std::string> by_name;  // what left providers out, and which
  std::set<std::string> seen;
  size_t begin = 0;
  while (begin < log.size()) {
    const size_t end = std::min(log.find('\n', begin), log.size());
    const LogLine line(log.substr(begin, end - begin));
    begin = end + 1;
    if (!line.is_reason() || !seen.insert(line.reason()).second) continue;
    if (const std::string name = line.left_out_by(); !name.empty())
      by_name[name].append(by_name[name].empty() ? "" : ", ").append(line.provider);
    else reasons.push_back(line.reason());
  }
  // One line for all that have another name than the one that was asked for.
  for (const auto& [name, providers] : by_name) reasons.push_back(fmt::format("{}: {}", name, providers));
  return reasons;
}

std::string word(const void* value, fi_type type) {
  const char* text = fi_tostr(value, type);  // a static buffer of the library
  return text ? text : "?";
}

std::string version_text(uint32_t version) {
  return fmt::format("{}.{}", FI_MAJOR(version), FI_MINOR(version));
}

const char* or_dash(const char* text) { return text && *text ? text : "-"; }

void print_table(const fi_info* list) {
  fmt::print("{:<16} {:<9} {:<16} {:<20} {:<12} {:<16} {}\n", "PROVIDER", "VERSION", "FABRIC", "DOMAIN",
             "TYPE", "ADDRESS", "PROTOCOL");
  for (const fi_info* i = list; i; i = i->next) {
    fmt::print("{:<16} {:<9} {:<16} {:<20} {:<12} {:<16} {}\n", or_dash(i->fabric_attr->prov_name),
               version_text(i->fabric_attr->prov_version), or_dash(i->fabric_attr->name),
               or_dash(i->domain_attr->name), word(&i->ep_attr->type, FI_TYPE_EP_TYPE),
               word(&i->addr_format, FI_TYPE_ADDR_FORMAT), word(&i->ep_attr->protocol, FI_TYPE_PROTOCOL));
  }
}

void print_verbose(const fi_info* list) {
  for (const fi_info* i = list; i; i = i->next) fmt::print("---\n{}", word(i, FI_TYPE_INFO));
}

void print_json(const fi_info* list) {
  nlohmann::json all = nlohmann::json::array();
  for (const fi_info* i = list; i; i = i->next) all.push_back(to_json(*i));
  fmt::print("{}\n", all.dump(2));
}

void print_providers(const fi_info* list) {
  std::set<std::string> seen;
  for (const fi_info* i = list; i; i = i->next) {
    const std::string name = or_dash(i->fabric_attr->prov_name);
    if (seen.insert(name).second) fmt::print("{:<16} {}\n", name, version_text(i->fabric_attr->prov_version));
  }
}

void print_reasons(const std::vector<std::string>& reasons, bool stock) {
  if (reasons.empty()) {
    fmt::print(stderr, "  the library gave no reason{}\n",
               stock ? "; the stock library seldom does" : " (is FI_LOG_PROV or FI_LOG_SUBSYS set?)");
    return;
  }
  for (const std::string& reason : reasons) fmt::print(stderr, "  {}\n", reason);
}

// The library may read its logging variables when it is loaded, so they must be set before this process is
// executed again.
void ask_for_reasons() {
  setenv("FI_LOG_LEVEL", "info", 1);
  unsetenv("FI_LOG_PROV");
  unsetenv("FI_LOG_SUBSYS");
}

int answer(const Options& o) {
  const InfoList hints = hints_of(o);
  fi_info* found = nullptr;
  std::string log;
  int error = 0;
  {
    CapturedStderr captured;
    error = fi_getinfo(
        FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), o.node.empty() ? nullptr : o.node.c_str(),
        o.service.empty() ? nullptr : o.service.c_str(), o.source ? FI_SOURCE : 0, hints.get(), &found);
    log = captured.take();
  }
  const InfoList list(error == 0 ? found : nullptr);
  if (!o.why && !log.empty()) fmt::print(stderr, "{}", log);  // the user's own FI_LOG_LEVEL
  if (list) {
    if (o.json) {
      print_json(list.get());
    } else if (o.verbose) {
      print_verbose(list.get());
    } else if (o.providers_only) {
      print_providers(list.get());
    } else {
      print_table(list.get());
    }
  } else if (o.json) {
    fmt::print("[]\n");
  }
  std::fflush(stdout);
  const std::vector<std::string> reasons = o.why ? reasons_of(log) : std::vector<std::string>{};
  if (!list) {
    fmt::print(stderr, "weft info: nothing matches: {}{}\n", fi_strerror(-error),
               o.why ? "" : " (--why says why)");
    if (o.why) print_reasons(reasons, o.stock);
    return exit_failed;
  }
  if (o.why && !reasons.empty() && !o.stock) {
    fmt::print(stderr, "not returned:\n");
    print_reasons(reasons, o.stock);
  }
  return exit_ok;
}

int print_settings(const Options& o) {
  const auto settings = shown_settings();
  if (o.as_file) {
    print_settings_file(settings);
  } else {
    o.json ? print_settings_json(settings) : print_settings_table(settings);
  }
  return exit_ok;
}

}  // namespace

int info(int argc, char** argv, char** all) {
  CLI::App app("weft info", "info");
  Options options;
  declare(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (options.system) {
    const auto facts = system_facts();
    options.json ? print_system_json(facts) : print_system_table(facts);
    return exit_ok;
  }
  hints_of(options);  // a mistake in a name shall not need the library
  if (options.why) ask_for_reasons();
  choose_library(options.stock ? Library::stock : Library::ours, all);
  if (options.settings) return print_settings(options);
  if (options.verbs) {
    const auto devices = verbs_devices();
    options.json ? print_verbs_json(devices) : print_verbs_table(devices);
    return exit_ok;
  }
  const int status = answer(options);
  if (argc == 1) {
    fmt::print("\n");
    print_verbs_table(verbs_devices());
  }
  if (!options.why) return status;
  // The library may log at its end as well: what it refused is told already.
  std::fflush(nullptr);
  _exit(status);
}

}  // namespace weft::tool
