// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The tables of `weft check` and the look-up in them. Sources of what programs need: the manual pages, and docs/mpi.md; for Open MPI 4.1
// its mtl_ofi_component.c and btl_ofi_component.c, for MPICH 4 ch4/netmod/ofi/init_settings.c, for the layers of libfabric fi_rxm(7) and
// prov/rxd/src/rxd_init.c.
#include "check_table.hpp"

#include <algorithm>
#include <array>
#include <weft/libfabric_retired.hpp>

#include "names.hpp"

namespace weft::tool::checking {

bool Claims::any(const std::function<bool(const fi_info&)>& is) const {
  const auto all = infos();
  return std::any_of(all.begin(), all.end(), [&](const fi_info* info) { return is(*info); });
}

bool Claims::has(uint64_t caps) const {
  return any([caps](const fi_info& info) { return (info.caps & caps) == caps; });
}

std::string_view text_of(Claimed claimed) {
  switch (claimed) {
    case Claimed::no:
      return "no";
    case Claimed::yes:
      return "yes";
    case Claimed::always:
      return "always";
    case Claimed::by_call:
      return "by call";
  }
  return "?";
}

Claimed claimed_of(std::string_view text) {
  for (const Claimed one : {Claimed::yes, Claimed::always, Claimed::by_call})
    if (text == text_of(one)) return one;
  return Claimed::no;
}

unsigned bit_of(fi_ep_type type) { return type == FI_EP_RDM ? rdm : type == FI_EP_MSG ? msg : dgram; }

std::string_view name_of(fi_ep_type type) {
  return type == FI_EP_RDM ? "FI_EP_RDM" : type == FI_EP_MSG ? "FI_EP_MSG" : "FI_EP_DGRAM";
}

namespace {

Claimed always(const Claims&) { return Claimed::always; }
Claimed by_call(const Claims&) { return Claimed::by_call; }
Claimed when(bool yes) { return yes ? Claimed::yes : Claimed::no; }

// Secondary capabilities come unasked or when they are asked for (fi_getinfo(3), CAPABILITIES).
template <uint64_t caps>
Claimed has(const Claims& claims) {
  constexpr uint64_t transfers = FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC;
  const uint64_t all = claims.infos().front()->caps & transfers;
  return when(claims.has(caps) || claims.offered([](fi_info& h) { h.caps = caps; }) ||
              claims.offered([all](fi_info& h) { h.caps = caps | all; }));
}

template <uint64_t order>
Claimed ordered(const Claims& claims) {
  return when(claims.any([](const fi_info& i) {
    return (i.tx_attr->msg_order & order) == order && (i.rx_attr->msg_order & order) == order;
  }));
}

template <fi_threading level>
Claimed threads(const Claims& claims) {
  return when(claims.offered([](fi_info& h) { h.domain_attr->threading = level; }));
}

template <fi_av_type type>
Claimed av(const Claims& claims) {
  return when(claims.offered([](fi_info& h) { h.domain_attr->av_type = type; }));
}

constexpr std::array capability_table{
    Capability{"fi_getinfo", "fi_getinfo(3)", "GetInfo.*:Library.*", all_types, always},
    Capability{"endpoints", "fi_endpoint(3)", "Enable.*:BadArguments.*:EndpointOptions.*", rdm, always},
    Capability{"closing", "fi_endpoint(3), fi_close", "Close.*:Closing.*", rdm | msg, always},
    Capability{"FI_EP_MSG", "fi_endpoint(3), fi_cm(3), fi_eq(3)", "Connections.*", msg, always},
    Capability{"FI_EP_DGRAM", "fi_endpoint(3)", "Datagrams.*", dgram, always},
    Capability{"FI_MULTICAST", "fi_cm(3), fi_join", "Datagrams.multicast*", dgram, has<FI_MULTICAST>},
    Capability{"FI_MSG", "fi_msg(3)", "Messages.*", rdm | msg, has<FI_MSG>},
    Capability{"FI_TAGGED", "fi_tagged(3)", "Tagged.*:TaggedRecv.*", rdm | msg, has<FI_TAGGED>},
    Capability{"FI_PEEK, FI_CLAIM, FI_DISCARD", "fi_tagged(3), FLAGS", "Peeked.*", rdm | msg, has<FI_TAGGED>},
    Capability{"FI_MULTI_RECV", "fi_msg(3), FI_MULTI_RECV", "MultiRecv.*", rdm | msg, has<FI_MULTI_RECV>},
    Capability{"FI_DIRECTED_RECV", "fi_getinfo(3)", "DirectedRecv.*", rdm, has<FI_DIRECTED_RECV>},
    Capability{"FI_SOURCE", "fi_cq(3), fi_cq_readfrom", "Source.*", rdm, has<FI_SOURCE>},
    Capability{"FI_SOURCE_ERR", "fi_getinfo(3)", "Source.source_err*", rdm, has<FI_SOURCE_ERR>},
    Capability{"FI_RMA", "fi_rma(3)", "Rma.*", rdm | msg, has<FI_RMA>},
    Capability{"memory regions", "fi_mr(3)", "Region.*", rdm | msg, has<FI_RMA>},
    Capability{"protection of memory", "fi_mr(3), access", "Wrong.*", rdm | msg, has<FI_RMA>},
    Capability{"FI_ATOMIC", "fi_atomic(3)", "Atomic.*:*/Atomic*.*:Batches.*", rdm | msg, has<FI_ATOMIC>},
    Capability{"FI_TRIGGER", "fi_trigger(3)", "Trigger.*", rdm | msg, has<FI_TRIGGER>},
    Capability{"deferred work", "fi_trigger(3), DEFERRED WORK QUEUES", "DeferredWork.*", rdm | msg,
               has<FI_TRIGGER>},
    Capability{"FI_FENCE", "fi_endpoint(3), FI_FENCE", "Fence.*", rdm | msg, has<FI_FENCE>},
    Capability{"completions", "fi_cq(3)", "Completions.*:Flags.*", rdm | msg, always},
    Capability{"FI_DELIVERY_COMPLETE", "fi_cq(3), COMPLETION FLAGS",
               "Completions.delivery_complete*:Rma.delivery_complete*", rdm | msg,
               [](const Claims& c) {
                 return when(c.offered([](fi_info& h) { h.tx_attr->op_flags = FI_DELIVERY_COMPLETE; }));
               }},
    Capability{"remote CQ data", "fi_domain(3), cq_data_size", "*.remote_cq_data*:Rma.writedata*", rdm | msg,
               [](const Claims& c) {
                 return when(c.any([](const fi_info& i) { return i.domain_attr->cq_data_size > 0; }));
               }},
    Capability{"inject", "fi_endpoint(3), inject_size",
               "Messages.inject*:Tagged.inject*:Rma.inject*:Completions.inject*", rdm | msg,
               [](const Claims& c) {
                 return when(c.any([](const fi_info& i) { return i.tx_attr->inject_size > 0; }));
               }},
    Capability{"fi_cancel", "fi_endpoint(3), fi_cancel",
               "Messages.cancel*:TaggedRecv.cancel*:MultiRecv.cancel*", rdm | msg, always},
    Capability{"counters", "fi_cntr(3)", "Counter.*:*CounterWait.*", rdm | msg,
               [](const Claims& c) {
                 return c.any([](const fi_info& i) { return i.domain_attr->cntr_cnt > 0; })
                            ? Claimed::yes
                            : Claimed::by_call;
               }},
    Capability{"FI_RMA_EVENT", "fi_getinfo(3)", "Counter.remote_reads*:Counter.bound_to_a_region*", rdm | msg,
               has<FI_RMA_EVENT>},
    Capability{"FI_ORDER_SAS", "fi_endpoint(3), msg_order", "Order.sas*", rdm | msg, ordered<FI_ORDER_SAS>},
    Capability{"FI_ORDER_WAW", "fi_endpoint(3), msg_order", "Rma.order_waw*", rdm | msg,
               ordered<FI_ORDER_WAW>},
    Capability{"FI_ORDER_RAW", "fi_endpoint(3), msg_order", "Rma.order_raw*", rdm | msg,
               ordered<FI_ORDER_RAW>},
    Capability{"FI_ORDER_SAW", "fi_endpoint(3), msg_order", "Rma.order_saw*", rdm | msg,
               ordered<FI_ORDER_SAW>},
    Capability{"order of completions", "fi_endpoint(3), comp_order", "Order.completion_order*", rdm | msg,
               [](const Claims& c) {
                 return when(c.any(
                     [](const fi_info& i) { return (i.rx_attr->comp_order & retired::order_strict) != 0; }));
               }},
    Capability{"FI_RM_ENABLED", "fi_domain(3), resource_mgmt", "Flood.*:Completions.small_queue*", rdm | msg,
               [](const Claims& c) {
                 return when(
                     c.any([](const fi_info& i) { return i.domain_attr->resource_mgmt == FI_RM_ENABLED; }));
               }},
    Capability{"address vectors", "fi_av(3)", "AddressVector.*", rdm, always},
    Capability{"FI_AV_MAP", "fi_av(3)", "AddressVector.map*", rdm, av<FI_AV_MAP>},
    Capability{"FI_AV_TABLE", "fi_av(3)", "AddressVector.table*", rdm, av<FI_AV_TABLE>},
    Capability{"FI_SHARED_AV", "fi_av(3), NOTES", "AddressVector.shared_by_name*", rdm, has<FI_SHARED_AV>},
    Capability{"names of endpoints", "fi_cm(3), fi_getname", "Names.*", rdm, always},
    Capability{"event queues", "fi_eq(3)", "EventQueue.*:AsyncInsert.*", rdm, by_call},
    Capability{"waiting", "fi_cq(3), fi_cq_sread; fi_poll(3)", "*Blocking.*:Wait*.*:PollSet.*", rdm, by_call},
    Capability{"FI_THREAD_SAFE", "fi_domain(3), threading", "Threads.*", rdm, threads<FI_THREAD_SAFE>},
    Capability{"FI_THREAD_COMPLETION", "fi_domain(3), threading", "Threads.*THREAD_COMPLETION*", rdm,
               threads<FI_THREAD_COMPLETION>},
    Capability{"FI_THREAD_DOMAIN", "fi_domain(3), threading", "Threads.*THREAD_DOMAIN*", rdm,
               threads<FI_THREAD_DOMAIN>},
    Capability{"FI_PROGRESS_AUTO", "fi_domain(3), progress models", "*AutoProgress.*", rdm,
               [](const Claims& c) {
                 return when(c.offered([](fi_info& h) { h.domain_attr->data_progress = FI_PROGRESS_AUTO; }));
               }},
    Capability{"progress by calls that find something", "fi_domain(3), progress models", "*NeverEmpty*.*",
               rdm | msg, by_call},
    Capability{"scalable endpoints", "fi_endpoint(3), fi_scalable_ep", "ScalableEndpoint.*", rdm,
               [](const Claims& c) {
                 return when(c.any([](const fi_info& i) {
                   return i.domain_attr->max_ep_tx_ctx > 1 || i.domain_attr->max_ep_rx_ctx > 1;
                 }));
               }},
    Capability{"FI_NAMED_RX_CTX", "fi_endpoint(3), fi_rx_addr", "ScalableEndpoint.named_contexts*", rdm,
               has<FI_NAMED_RX_CTX>},
    Capability{"shared contexts", "fi_endpoint(3), SHARED CONTEXTS", "SharedContext.*", rdm,
               [](const Claims& c) {
                 return when(c.any([](const fi_info& i) {
                   return i.domain_attr->max_ep_stx_ctx > 0 || i.domain_attr->max_ep_srx_ctx > 0;
                 }));
               }},
    // No matter of the standard interface: run by Weft's own tests alone.
    Capability{"extensions of Weft", "weft/extensions.h", "InPlace*.*", 0, by_call},
    Capability{"messages of more than 4 GiB", "fi_endpoint(3), max_msg_size", "Big.*", rdm, by_call},
};

// The bits that some line of the table, or every case, is about; the direction bits belong to those of the transfers.
constexpr uint64_t bits_of_table =
    FI_MSG | FI_TAGGED | FI_RMA | FI_ATOMIC | FI_MULTI_RECV | FI_DIRECTED_RECV | FI_SOURCE | FI_SOURCE_ERR |
    FI_TRIGGER | FI_FENCE | FI_MULTICAST | FI_RMA_EVENT | FI_NAMED_RX_CTX | FI_SHARED_AV | FI_LOCAL_COMM |
    FI_SEND | FI_RECV | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

bool matches_one(std::string_view pattern, std::string_view text) {
  if (pattern.empty()) return text.empty();
  if (pattern.front() != '*')
    return !text.empty() && pattern.front() == text.front() && matches_one(pattern.substr(1), text.substr(1));
  for (size_t i = 0; i <= text.size(); ++i)
    if (matches_one(pattern.substr(1), text.substr(i))) return true;
  return false;
}

// Calls `see` for each pattern of a list until it returns true; whether it did.
template <class F>
bool each_pattern(std::string_view patterns, F&& see) {
  while (!patterns.empty()) {
    const size_t colon = patterns.find(':');
    if (see(patterns.substr(0, colon))) return true;
    if (colon == std::string_view::npos) break;
    patterns.remove_prefix(colon + 1);
  }
  return false;
}

}  // namespace

std::span<const Capability> capabilities() { return capability_table; }

bool matches(std::string_view patterns, std::string_view case_name) {
  return each_pattern(patterns, [&](std::string_view one) { return matches_one(one, case_name); });
}

const Capability* capability_of(std::string_view case_name) {
  const Capability* best = nullptr;
  size_t letters = 0;
  for (const Capability& capability : capability_table) {
    each_pattern(capability.cases, [&](std::string_view pattern) {
      const size_t own =
          pattern.size() - static_cast<size_t>(std::count(pattern.begin(), pattern.end(), '*'));
      if (own > letters && matches_one(pattern, case_name)) {
        best = &capability;
        letters = own;
      }
      return false;
    });
  }
  return best;
}

bool belongs_to(std::string_view case_name, fi_ep_type type) {
  const Capability* capability = capability_of(case_name);
  return capability != nullptr && (capability->types & bit_of(type)) != 0;
}

uint64_t untested_bits() { return ~bits_of_table; }

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::ompi_mtl:
      return "runs Open MPI mtl";
    case Verdict::ompi_btl:
      return "runs Open MPI btl";
    case Verdict::mpich:
      return "runs MPICH ch4:ofi";
    case Verdict::rxm:
      return "serves rxm";
    case Verdict::rxd:
      return "serves rxd";
  }
  return "?";
}

std::optional<Verdict> verdict_of(std::string_view word) {
  constexpr std::string_view words[] = {"ompi-mtl", "ompi-btl", "mpich", "rxm", "rxd"};
  for (size_t i = 0; i < std::size(words); ++i)
    if (word == words[i]) return verdicts[i];
  return std::nullopt;
}

fi_ep_type type_of(Verdict verdict) {
  return verdict == Verdict::rxm ? FI_EP_MSG : verdict == Verdict::rxd ? FI_EP_DGRAM : FI_EP_RDM;
}

namespace {

using enum Verdict;

template <uint64_t bits>
void caps(fi_info& h) {
  h.caps |= bits;
}

template <uint64_t bits>
void order(fi_info& h) {
  h.tx_attr->msg_order |= bits;
  h.rx_attr->msg_order |= bits;
}

template <uint64_t flags>
void op_flags(fi_info& h) {
  h.tx_attr->op_flags |= flags;
}

// What memory of their own the programs register: none for local buffers, and keys and addresses as the provider likes.
constexpr int mr_modes_known = FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
constexpr uint64_t both_places = FI_LOCAL_COMM | FI_REMOTE_COMM;
constexpr uint64_t rma_all = FI_RMA | FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;

void contexts_only(fi_info& h) {
  h.mode = FI_CONTEXT | FI_CONTEXT2;
  h.domain_attr->mr_mode = mr_modes_known;
}

constexpr std::string_view mtl = "Open MPI 4.1, mtl_ofi_component.c; docs/mpi.md";
constexpr std::string_view btl = "Open MPI 4.1, btl_ofi_component.c; docs/mpi.md";
constexpr std::string_view ch4 = "MPICH 4, ch4/netmod/ofi/init_settings.c; docs/mpi.md";
constexpr std::string_view rxm_page = "fi_rxm(7), REQUIREMENTS";
constexpr std::string_view rxd_page = "libfabric, prov/rxd/src/rxd_init.c";

const std::array need_table{
    Need{ompi_mtl, "no mode bits but FI_CONTEXT and FI_CONTEXT2", mtl, false, contexts_only, {}},
    Need{ompi_mtl, "FI_TAGGED", mtl, false, caps<FI_TAGGED>,
         "Tagged.every_size*:Tagged.all_bits*:Tagged.inject*:Tagged.send_to_self*:TaggedRecv.ignore_mask*:"
         "TaggedRecv.posting_order*:TaggedRecv.arrival_order*:TaggedRecv.random_matching*"},
    Need{ompi_mtl, "FI_LOCAL_COMM and FI_REMOTE_COMM", mtl, false, caps<both_places>, {}},
    Need{ompi_mtl, "FI_ORDER_SAS", mtl, false, order<FI_ORDER_SAS>, "Order.sas*"},
    Need{ompi_mtl, "FI_AV_MAP", mtl, false, [](fi_info& h) { h.domain_attr->av_type = FI_AV_MAP; },
         "AddressVector.map*:AddressVector.several*"},
    Need{ompi_mtl, "the same peer for an address that is inserted again", "docs/mpi.md", false, nullptr,
         "AddressVector.directed_at_a_duplicate*"},
    Need{ompi_mtl, "FI_SELECTIVE_COMPLETION", mtl, false, nullptr,
         "Completions.selective__*:Completions.every_format*"},
    Need{ompi_mtl, "FI_PEEK and FI_CLAIM", "docs/mpi.md", false, nullptr,
         "Peeked.miss*:Peeked.hit*:Peeked.claim__*"},
    Need{ompi_mtl, "fi_cancel", "docs/mpi.md", false, nullptr, "TaggedRecv.cancel__*"},
    Need{ompi_mtl, "messages that nobody waits for yet", "docs/mpi.md", false, nullptr,
         "Flood.small*:Flood.middle*:Flood.large*:Flood.random*"},
    Need{ompi_mtl, "remote CQ data of 4 bytes with FI_DIRECTED_RECV", mtl, true,
         [](fi_info& h) {
           h.caps |= FI_TAGGED | FI_DIRECTED_RECV;
           h.domain_attr->cq_data_size = 4;
         },
         "Tagged.remote_cq_data*:DirectedRecv.tagged*"},

    Need{ompi_btl,
         "no mode bits but FI_CONTEXT and FI_CONTEXT2, no FI_MR_LOCAL",
         btl,
         false,
         contexts_only,
         {}},
    Need{ompi_btl, "FI_RMA", btl, false, caps<FI_RMA>,
         "Rma.every_size*:Rma.default_completion*:Rma.many_outstanding*:Rma.separate_domains*"},
    // It has at most 64 operations outstanding (btl_ofi_progress_threshold), and all of them are RMA or atomics.
    Need{ompi_btl, "FI_ATOMIC", btl, false, caps<FI_ATOMIC>, "Batches.of_adds__*:Batches.of_tickets*"},
    Need{ompi_btl, "FI_DELIVERY_COMPLETE", btl, false, op_flags<FI_DELIVERY_COMPLETE | FI_COMPLETION>,
         "Rma.delivery_complete*"},
    Need{ompi_btl, "FI_AV_MAP", btl, false, [](fi_info& h) { h.domain_attr->av_type = FI_AV_MAP; },
         "AddressVector.map*"},
    Need{ompi_btl, "memory regions", btl, false, nullptr, "Region.many*"},
    Need{ompi_btl, "FI_MSG, for messages by btl ofi", btl, true, caps<FI_RMA | FI_ATOMIC | FI_MSG>,
         "Messages.every_size*"},

    Need{mpich, "no mode bits but FI_CONTEXT and FI_CONTEXT2, no FI_MR_LOCAL", ch4, false, contexts_only, {}},
    Need{mpich, "FI_RMA in both directions", ch4, false, caps<rma_all>,
         "Rma.every_size*:Rma.many_outstanding*"},
    Need{mpich, "FI_MSG and FI_MULTI_RECV", ch4, false, caps<FI_MSG | FI_MULTI_RECV>,
         "Messages.every_size*:MultiRecv.packs*:MultiRecv.many*:MultiRecv.unexpected*"},
    Need{mpich, "FI_ORDER_SAS", ch4, false, order<FI_ORDER_SAS>, "Order.sas*"},
    Need{mpich, "FI_THREAD_DOMAIN", ch4, false,
         [](fi_info& h) { h.domain_attr->threading = FI_THREAD_DOMAIN; }, "Threads.*THREAD_DOMAIN*"},
    Need{mpich, "FI_RM_ENABLED", ch4, false, [](fi_info& h) { h.domain_attr->resource_mgmt = FI_RM_ENABLED; },
         "Flood.*"},
    Need{mpich, "FI_DELIVERY_COMPLETE", ch4, false, op_flags<FI_DELIVERY_COMPLETE | FI_COMPLETION>,
         "Rma.delivery_complete*:Completions.delivery_complete_means*"},
    Need{mpich, "an AV of either type", ch4, false, nullptr, "AddressVector.several*"},
    Need{mpich, "counters", "docs/mpi.md", false, nullptr,
         "Counter.reads_and_writes*:Counter.sends_and_receives*"},
    Need{mpich, "fi_cancel", "docs/mpi.md", false, nullptr, "Messages.cancel*"},
    Need{mpich, "FI_TAGGED with FI_DIRECTED_RECV and remote CQ data of 4 bytes", ch4, true,
         [](fi_info& h) {
           h.caps |= FI_TAGGED | FI_DIRECTED_RECV;
           h.domain_attr->cq_data_size = 4;
         },
         "Tagged.every_size*:TaggedRecv.ignore_mask*:TaggedRecv.posting_order*:Tagged.remote_cq_data*:"
         "DirectedRecv.tagged*:Peeked.miss*:Peeked.hit*"},
    Need{mpich, "FI_ATOMIC", ch4, true, caps<FI_RMA | FI_ATOMIC>,
         "Atomic.no_update_is_lost*:Atomic.tickets_differ*"},

    Need{rxm, "FI_MSG", rxm_page, false, caps<FI_MSG>,
         "Messages.every_size*:Connections.messages_go_both_ways*:Connections.streams*:Messages.vectors*"},
    Need{rxm, "connections with data of 24 bytes", rxm_page, false, nullptr,
         "Connections.request_and_answer_carry_data*:Connections.rejection*:Connections.nobody_listens*"},
    Need{rxm, "the end of a connection", "fi_cm(3)", false, nullptr, "Connections.what_arrives_is_complete*"},
    Need{rxm, "FI_RMA, for large messages", rxm_page, false, caps<FI_MSG | FI_RMA>,
         "Rma.every_size*:Connections.remote_memory*"},
    Need{rxm, "FI_ORDER_SAS", rxm_page, false, order<FI_ORDER_SAS>, "Order.sas_expected*"},
    Need{rxm, "shared receive contexts", "fi_rxm(7), RUNTIME PARAMETERS", true,
         [](fi_info& h) { h.ep_attr->rx_ctx_cnt = FI_SHARED_CONTEXT; },
         "Connections.shared_receive_context*"},

    Need{rxd, "FI_MSG", rxd_page, false, caps<FI_MSG>,
         "Datagrams.every_size*:Datagrams.bursts*:Datagrams.a_flood*"},
    Need{rxd,
         "no mode bits but FI_CONTEXT and FI_MSG_PREFIX",
         rxd_page,
         false,
         [](fi_info& h) { h.mode = FI_CONTEXT | FI_MSG_PREFIX; },
         {}},
    Need{rxd,
         "no registration but FI_MR_LOCAL and FI_MR_ALLOCATED",
         rxd_page,
         false,
         [](fi_info& h) { h.domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_ALLOCATED; },
         {}},
};

}  // namespace

std::span<const Need> needs() { return need_table; }

bool needs_case(Verdict verdict, std::string_view case_name) {
  return std::any_of(need_table.begin(), need_table.end(), [&](const Need& need) {
    return need.verdict == verdict && matches(need.cases, case_name);
  });
}

std::string_view text_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::passed:
      return "passed";
    case Outcome::failed:
      return "failed";
    case Outcome::skipped:
      return "skipped";
    case Outcome::crashed:
      return "crashed";
    case Outcome::hung:
      return "hung";
  }
  return "?";
}

Answers answers_of(const Claims& claims, fi_ep_type type) {
  Answers answers;
  for (const Capability& capability : capability_table)
    answers.claimed.push_back((capability.types & bit_of(type)) != 0 ? capability.claimed(claims)
                                                                     : Claimed::no);
  for (const Need& need : need_table)
    answers.met.push_back(type_of(need.verdict) == type && (!need.ask || claims.offered(need.ask)));
  for (const Verdict verdict : verdicts) {
    answers.together[static_cast<size_t>(verdict)] =
        type_of(verdict) == type && claims.offered([&](fi_info& hints) {
          for (const Need& need : need_table)
            if (need.verdict == verdict && !need.optional && need.ask) need.ask(hints);
        });
  }
  for (const Name& name : capability_names())
    if ((name.value & untested_bits()) != 0 &&
        claims.any([&](const fi_info& i) { return (i.caps & name.value) != 0; }))
      answers.untested.emplace_back(name.text);
  return answers;
}

Judgement judge(Verdict verdict, std::string_view provider, const Answers* answers,
                std::span<const CaseResult> results) {
  Judgement judgement{verdict, false, {}, {}};
  const auto no = [&](std::string text) { judgement.reasons.push_back(std::move(text)); };
  if (answers == nullptr) {
    no(std::string(name_of(type_of(verdict))) + " is not offered");
    return judgement;
  }
  if (verdict == Verdict::ompi_btl && provider.find("ofi_rxm") != std::string_view::npos)
    no("btl ofi leaves out every provider with ofi_rxm in its name");
  bool all_met = true;
  for (size_t i = 0; i < need_table.size(); ++i) {
    const Need& need = need_table[i];
    if (need.verdict != verdict) continue;
    auto& place = need.optional ? judgement.without : judgement.reasons;
    if (!answers->met[i]) {
      place.push_back("not offered: " + std::string(need.what));
      all_met = all_met && need.optional;
      continue;
    }
    if (need.cases.empty()) continue;
    bool shown = false;
    std::string broken;
    for (const CaseResult& result : results) {
      if (!matches(need.cases, result.name)) continue;
      shown = shown || result.outcome == Outcome::passed;
      if (result.broken()) broken += (broken.empty() ? "" : ", ") + result.name;
    }
    if (!broken.empty()) {
      place.push_back(std::string(need.what) + " is broken: " + broken);
    } else if (!shown) {
      place.push_back("not shown: " + std::string(need.what));
    }
  }
  if (all_met && !answers->together[static_cast<size_t>(verdict)])
    no("each is offered by itself, but not all of it together");
  judgement.yes = judgement.reasons.empty();
  return judgement;
}

}  // namespace weft::tool::checking
