// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// The World of the conformance tests: opening, polling, waiting. Knows only the public libfabric interface.
#include "fixture.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sched.h>
#include <weft/libfabric_retired.hpp>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "local_modes.hpp"

#ifdef __SANITIZE_THREAD__  // of its runtime, which has no header for them
extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
}
#endif

namespace weft::conformance {

using Clock = std::chrono::steady_clock;

std::string provider_name() {
  const char* name = std::getenv("WEFT_TEST_PROVIDER");
  std::string text = name != nullptr && *name != '\0' ? name : "shm";
  std::replace(text.begin(), text.end(), '+', ';');  // lists of providers have semicolons themselves
  return text;
}

namespace {

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' && *value != '0';
}

}  // namespace

bool skip_is_failure() { return is_set("WEFT_TEST_NO_SKIP"); }
bool manual_only() { return is_set("WEFT_TEST_MANUAL_ONLY"); }

uint64_t tag_bits(const fi_info* info) {
  const uint64_t format = info->ep_attr->mem_tag_format;
  return format == 0 ? ~uint64_t{0} : ~uint64_t{0} >> __builtin_clzll(format);
}

unsigned patience() {
  static const bool slow = [] {
    const char* value = std::getenv("WEFT_SANITIZE");
    return value != nullptr && *value != '\0';
  }();
  return slow ? 4 : 1;
}

std::string error_name(long code) {
  const int positive = static_cast<int>(code < 0 ? -code : code);
  return std::to_string(code) + " (" + fi_strerror(positive) + ")";
}

void closed_badly(int rc) {
  if (!manual_only()) {
    ADD_FAILURE() << "fi_close returned " << error_name(rc);
  } else {
    testing::Test::RecordProperty("unclosed", error_name(rc));
  }
}

testing::AssertionResult is_ok(const char* text, long rc) {
  if (rc == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << text << " returned " << error_name(rc);
}

const milliseconds timeout_default = [] {
  const char* value = std::getenv("WEFT_TEST_WAIT_MS");
  const long asked = value != nullptr ? std::strtol(value, nullptr, 10) : 0;
  return milliseconds(asked > 0 ? asked : 10'000);
}();

namespace {

// The type of endpoint under test, FI_EP_UNSPEC for whatever a test asks for.
fi_ep_type type_under_test() {
  const char* type = std::getenv("WEFT_TEST_ENDPOINT");
  const std::string word = type != nullptr ? type : "";
  return word == "msg" ? FI_EP_MSG : word == "rdm" ? FI_EP_RDM : word == "dgram" ? FI_EP_DGRAM : FI_EP_UNSPEC;
}

}  // namespace

// Whether this World is to be one of two connected endpoints.
bool connected(const Options& options) {
  return type_under_test() == FI_EP_MSG && options.ep_type == FI_EP_RDM;
}

Info own_of(const fi_info* list) {
  const fi_ep_type type = type_under_test();
  fi_info* first = nullptr;
  fi_info** last = &first;
  for (; list != nullptr; list = list->next) {
    if (list->fabric_attr->prov_name != provider_name()) continue;
    if (type != FI_EP_UNSPEC && list->ep_attr->type != type) continue;
    *last = fi_dupinfo(list);
    if (*last == nullptr) break;
    last = &(*last)->next;
  }
  return Info(first);
}

// Where the server of an answer is found: its own IPv4 address, when it has one.
std::string node_of(const fi_info* server) {
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  if (server->addr_format == FI_SOCKADDR_IN && server->src_addrlen >= sizeof(sockaddr_in)) {
    const in_addr at = static_cast<const sockaddr_in*>(server->src_addr)->sin_addr;
    if (at.s_addr != INADDR_ANY) inet_ntop(AF_INET, &at, text, sizeof text);
  }
  return text;
}

Info make_hints(const Options& options) {
  Info hints(fi_allocinfo());
  hints->caps = options.caps;
  hints->mode = options.mode;
  hints->ep_attr->type = connected(options) ? FI_EP_MSG : options.ep_type;
  hints->domain_attr->threading = options.threading;
  hints->domain_attr->av_type = options.av_type;
  hints->domain_attr->resource_mgmt = options.resource_mgmt;
  hints->domain_attr->mr_mode = options.mr_mode;
  if (options.mr_mode != retired::mr_basic && options.mr_mode != retired::mr_scalable)
    hints->domain_attr->mr_mode |= demanded_mr_modes();
  hints->tx_attr->op_flags = options.tx_op_flags;
  hints->rx_attr->op_flags = options.rx_op_flags;
  hints->tx_attr->msg_order = options.msg_order;
  hints->rx_attr->msg_order = options.msg_order;
  hints->tx_attr->size = options.tx_size;
  hints->rx_attr->size = options.rx_size;
  hints->fabric_attr->prov_name = strdup(provider_name().c_str());
  if (options.edit_hints) options.edit_hints(hints.get());
  return hints;
}

Info find_info(const Options& options) {
  const Info hints = make_hints(options);
  const char* node = std::getenv("WEFT_TEST_NODE");
  fi_info* found = nullptr;
  const int rc = fi_getinfo(options.api, node, nullptr, node != nullptr ? FI_SOURCE : 0, hints.get(), &found);
  if (rc != 0) return nullptr;
  const Info all(found);
  for (const fi_info* info = all.get(); info != nullptr; info = info->next)
    if (info->fabric_attr->prov_name == provider_name()) return Info(fi_dupinfo(info));
  return nullptr;
}

std::string missing(const Options& options) {
  if (connected(options) && (options.endpoints != 2 || !options.enable || !options.insert))
    return "connected endpoints stand in pairs";
  if (find_info(options)) return {};
  std::string caps = fi_tostr(&options.caps, FI_TYPE_CAPS);
  return "provider " + provider_name() + " does not claim what the test needs: " + caps;
}

// ---------------------------------------------------------------------------------------------------------------- queues

Cq::Cq(fid_domain* domain, const fi_cq_attr& attr, bool with_source)
    : format_(attr.format), with_source_(with_source) {
  fi_cq_attr copy = attr;
  open_error_ = fi_cq_open(domain, &copy, fid_.out(), this);
  if (open_error_ != 0) *fid_.out() = nullptr;
}

namespace {

constexpr size_t batch_max = 16;

union Entries {
  fi_cq_entry context[batch_max];
  fi_cq_msg_entry msg[batch_max];
  fi_cq_data_entry data[batch_max];
  fi_cq_tagged_entry tagged[batch_max];
};

Completion from_entry(fi_cq_format format, const Entries& entries, size_t i) {
  Completion out;
  switch (format) {
    case FI_CQ_FORMAT_CONTEXT:
      out.context = entries.context[i].op_context;
      break;
    case FI_CQ_FORMAT_MSG:
      out.context = entries.msg[i].op_context;
      out.flags = entries.msg[i].flags;
      out.len = entries.msg[i].len;
      break;
    case FI_CQ_FORMAT_DATA: {
      const auto& e = entries.data[i];
      out = {e.op_context, e.flags, e.len, e.buf, e.data, 0, FI_ADDR_NOTAVAIL, 0, 0, 0, {}, {}};
      break;
    }
    default: {
      const auto& e = entries.tagged[i];
      out = {e.op_context, e.flags, e.len, e.buf, e.data, e.tag, FI_ADDR_NOTAVAIL, 0, 0, 0, {}, {}};
      break;
    }
  }
  return out;
}

}  // namespace

void Cq::take(const void* raw, size_t count, const fi_addr_t* sources) {
  const auto& entries = *static_cast<const Entries*>(raw);
  for (size_t i = 0; i < count; ++i) {
    Completion one = from_entry(format_, entries, i);
    if (sources != nullptr) one.src = sources[i];
    inbox.push_back(std::move(one));
  }
}

bool Cq::take_error() {
  // err_data_size is set, so the caller's buffer is filled; fi_cq(3), err_data.
  uint8_t space[256] = {};
  fi_cq_err_entry entry{};
  entry.err_data = space;
  entry.err_data_size = sizeof space;
  if (fi_cq_readerr(fid_.get(), &entry, 0) != 1) return false;
  Completion out;
  out.context = entry.op_context;
  out.flags = entry.flags;
  out.len = entry.len;
  out.buf = entry.buf;
  out.data = entry.data;
  out.tag = entry.tag;
  out.olen = entry.olen;
  out.err = entry.err;
  out.prov_errno = entry.prov_errno;
  const auto* bytes = static_cast<const uint8_t*>(entry.err_data);
  if (bytes != nullptr && entry.err_data_size > 0 && entry.err_data_size <= sizeof space) {
    out.err_data.assign(bytes, bytes + entry.err_data_size);
  }
  char text[128] = {};
  const char* said = fi_cq_strerror(fid_.get(), entry.prov_errno, entry.err_data, text, sizeof text);
  out.text = said != nullptr ? said : "";
  inbox.push_back(std::move(out));
  return true;
}

size_t Cq::poll() {
  Entries entries;
  fi_addr_t sources[batch_max];
  const size_t before = inbox.size();
  for (int round = 0; round < 4; ++round) {
    const ssize_t n = with_source_ ? fi_cq_readfrom(fid_.get(), &entries, batch_max, sources)
                                   : fi_cq_read(fid_.get(), &entries, batch_max);
    if (n == -FI_EAVAIL) {
      if (!take_error()) break;
    } else if (n > 0) {
      take(&entries, static_cast<size_t>(n), with_source_ ? sources : nullptr);
      if (static_cast<size_t>(n) < batch_max) break;
    } else {
      if (n != -FI_EAGAIN) ADD_FAILURE() << "fi_cq_read returned " << error_name(n);
      break;
    }
  }
  return inbox.size() - before;
}

ssize_t Cq::sread(size_t count, int timeout_ms) {
  Entries entries;
  fi_addr_t sources[batch_max];
  count = std::min(count, batch_max);
  const ssize_t n = with_source_ ? fi_cq_sreadfrom(fid_.get(), &entries, count, sources, nullptr, timeout_ms)
                                 : fi_cq_sread(fid_.get(), &entries, count, nullptr, timeout_ms);
  if (n > 0) take(&entries, static_cast<size_t>(n), with_source_ ? sources : nullptr);
  if (n == -FI_EAVAIL) take_error();
  return n;
}

// ----------------------------------------------------------------------------------------------------------------- World

void (*case_is_lost)() = nullptr;

World::World(const Options& options) : options_(options) { usable_ = open(); }

World::~World() {
  // Endpoints first, then what was bound to them; fi_endpoint(3), fi_close.
  for (auto& node : nodes_) node->ep = Handle<fid_ep>();
  nodes_.clear();
  cqs_.clear();
}

bool World::open() {
  info_ = find_info(options_);
  if (!info_) {
    ADD_FAILURE() << missing(options_);
    return false;
  }
  // A region of a domain with one endpoint is that endpoint's (meet_demands()).
  if ((demanded_mr_modes() & FI_MR_ENDPOINT) != 0) options_.own_domains = true;
  if (const int rc = fi_fabric(info_->fabric_attr, fabric_.out(), nullptr); rc != 0) {
    ADD_FAILURE() << "fi_fabric: " << error_name(rc);
    return false;
  }
  if (!options_.own_domains || options_.endpoints == 0) {
    if (!open_domain()) return false;
  }
  if (connected(options_)) return open_connected();
  for (int i = 0; i < options_.endpoints; ++i) {
    if (options_.own_domains && !open_domain()) return false;
    if (add_node(options_.own_domains ? static_cast<size_t>(i) : 0) == nullptr) return false;
  }
  if (options_.insert) connect_all();
  return !testing::Test::HasFatalFailure();
}

namespace {

// The next event of `eq`, while `other` is read, too. Its number, or UINT32_MAX; `info` is that of a request.
uint32_t next_event(fid_eq* eq, fid_eq* other, Info& info, milliseconds limit) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    alignas(fi_eq_cm_entry) uint8_t space[512];
    uint32_t number = 0;
    const ssize_t n = fi_eq_read(eq, &number, space, sizeof space, 0);
    if (n > 0) {
      if (number == FI_CONNREQ) info.reset(reinterpret_cast<fi_eq_cm_entry*>(space)->info);
      return number;
    }
    if (n != -FI_EAGAIN) return UINT32_MAX;
    (void)fi_eq_read(other, &number, space, sizeof space, FI_PEEK);
  }
  return UINT32_MAX;
}

}  // namespace

// Endpoint 0 has connected to endpoint 1.
bool World::open_connected() {
  fi_eq_attr attr{};
  Handle<fid_eq> listening;
  Handle<fid_pep> pep;
  std::vector<uint8_t> name(256);
  size_t len = name.size();
  const auto good = [](const char* what, int rc) {
    if (rc != 0) ADD_FAILURE() << what << ": " << error_name(rc);
    return rc == 0;
  };
  if (!good("fi_eq_open", fi_eq_open(fabric_.get(), &attr, listening.out(), nullptr)) ||
      !good("fi_passive_ep", fi_passive_ep(fabric_.get(), info_.get(), pep.out(), nullptr)) ||
      !good("fi_pep_bind", fi_pep_bind(pep.get(), listening.fid(), 0)) ||
      !good("fi_listen", fi_listen(pep.get())) ||
      !good("fi_getname", fi_getname(pep.fid(), name.data(), &len)))
    return false;
  if (options_.own_domains && !open_domain()) return false;
  Node* active = add_node(0);
  if (active == nullptr || !good("fi_connect", fi_connect(active->ep.get(), name.data(), nullptr, 0)))
    return false;
  const auto expect = [&](fid_eq* eq, uint32_t number) {
    const uint32_t came = next_event(eq, eq == listening.get() ? active->eq.get() : listening.get(), request_,
                                     limit(timeout_default));
    if (came != number) ADD_FAILURE() << "a connection event did not come";
    return came == number;
  };
  if (!expect(listening.get(), FI_CONNREQ)) return false;
  if (options_.own_domains && !open_domain()) return false;
  Node* passive = add_node(options_.own_domains ? 1 : 0);
  if (passive == nullptr || !good("fi_accept", fi_accept(passive->ep.get(), nullptr, 0))) return false;
  if (!expect(passive->eq.get(), FI_CONNECTED) || !expect(active->eq.get(), FI_CONNECTED)) return false;
  // Every destination means the other one (fi_msg(3)).
  for (auto& node : nodes_) node->peer.assign(2, 0);
  return true;
}

bool World::open_domain() {
  Handle<fid_domain> domain;
  if (const int rc = fi_domain(fabric_.get(), info_.get(), domain.out(), nullptr); rc != 0) {
    ADD_FAILURE() << "fi_domain: " << error_name(rc);
    return false;
  }
  meet_demands(domain.get(), info_.get());
  domains_.push_back(std::move(domain));
  return true;
}

bool World::virtual_addresses() const {
  const int mode = info_->domain_attr->mr_mode;
  return mode == retired::mr_basic || (mode & FI_MR_VIRT_ADDR) != 0;
}

Cq* World::add_cq(fid_domain* domain, fi_cq_attr attr) {
  auto cq = std::make_unique<Cq>(domain, attr, (options_.caps & FI_SOURCE) != 0);
  if (cq->open_error() != 0) {
    ADD_FAILURE() << "fi_cq_open: " << error_name(cq->open_error());
    return nullptr;
  }
  cqs_.push_back(std::move(cq));
  return cqs_.back().get();
}

namespace {

// Binds, and says what failed; true when it went well.
bool bound(fid_ep* ep, struct fid* object, uint64_t flags, const char* what) {
  const int rc = fi_ep_bind(ep, object, flags);
  if (rc != 0) ADD_FAILURE() << "fi_ep_bind of " << what << ": " << error_name(rc);
  return rc == 0;
}

}  // namespace

Node* World::add_node(size_t domain_index, const std::vector<uint8_t>* name) {
  auto node = std::make_unique<Node>();
  node->domain = domain(domain_index);
  fi_av_attr av_attr{};
  av_attr.type = options_.av_type != FI_AV_UNSPEC ? options_.av_type : info_->domain_attr->av_type;
  fi_eq_attr eq_attr{};
  const bool pair = connected(options_);
  int rc = pair ? fi_eq_open(fabric_.get(), &eq_attr, node->eq.out(), nullptr)
                : fi_av_open(node->domain, &av_attr, node->av.out(), nullptr);
  fi_info* info = request_ ? request_.get() : info_.get();
  Info at_name;
  if (name != nullptr) {
    at_name.reset(fi_dupinfo(info));
    info = at_name.get();
    std::free(info->src_addr);
    info->src_addr = std::malloc(name->size());
    std::memcpy(info->src_addr, name->data(), name->size());
    info->src_addrlen = name->size();
  }
  if (rc == 0) rc = fi_endpoint(node->domain, info, node->ep.out(), nullptr);
  if (rc != 0) {
    ADD_FAILURE() << "fi_av_open or fi_endpoint: " << error_name(rc);
    return nullptr;
  }
  fi_cq_attr cq_attr{};
  cq_attr.format = options_.cq_format;
  cq_attr.wait_obj = options_.wait_obj;
  cq_attr.size = options_.cq_size;
  node->tx = add_cq(node->domain, cq_attr);
  node->rx = options_.one_cq ? node->tx : add_cq(node->domain, cq_attr);
  if (node->tx == nullptr || node->rx == nullptr) return nullptr;
  fid_ep* ep = node->ep.get();
  bool good = pair ? bound(ep, node->eq.fid(), 0, "the EQ") : bound(ep, node->av.fid(), 0, "the AV");
  if (options_.one_cq) {
    good = good && bound(ep, node->tx->fid(), options_.tx_bind | options_.rx_bind, "the CQ");
  } else {
    good = good && bound(ep, node->tx->fid(), options_.tx_bind, "the transmit CQ");
    good = good && bound(ep, node->rx->fid(), options_.rx_bind, "the receive CQ");
  }
  for (const uint64_t flags : options_.counters) {
    fi_cntr_attr attr{};
    attr.events = FI_CNTR_EVENTS_COMP;
    attr.wait_obj = options_.counter_wait;
    Handle<fid_cntr> counter;
    rc = fi_cntr_open(node->domain, &attr, counter.out(), nullptr);
    if (rc != 0) ADD_FAILURE() << "fi_cntr_open: " << error_name(rc);
    good = good && rc == 0 && bound(ep, counter.fid(), flags, "a counter");
    node->counters.emplace(flags, std::move(counter));
  }
  if (!good) return nullptr;
  if (options_.enable) {
    if ((rc = fi_enable(ep)) != 0) {
      ADD_FAILURE() << "fi_enable: " << error_name(rc);
      return nullptr;
    }
    size_t len = 256;
    node->name.resize(len);
    if ((rc = fi_getname(node->ep.fid(), node->name.data(), &len)) != 0) {
      ADD_FAILURE() << "fi_getname: " << error_name(rc);
      return nullptr;
    }
    node->name.resize(len);
  }
  nodes_.push_back(std::move(node));
  return nodes_.back().get();
}

void World::connect_all() {
  if (connected(options_)) return;
  for (auto& from : nodes_) {
    for (size_t i = from->peer.size(); i < nodes_.size(); ++i) {
      fi_addr_t addr = FI_ADDR_NOTAVAIL;
      const int n = fi_av_insert(from->av.get(), nodes_[i]->name.data(), 1, &addr, 0, nullptr);
      EXPECT_EQ(n, 1) << "fi_av_insert of endpoint " << i;
      EXPECT_NE(addr, FI_ADDR_NOTAVAIL);
      from->peer.push_back(addr);
    }
  }
}

Region World::reg(size_t node, const void* buf, size_t len, uint64_t access, uint64_t flags) {
  fid_mr* mr = nullptr;
  const int rc = fi_mr_reg(nodes_[node]->domain, buf, len, access, 0, next_key_++, flags, &mr, nullptr);
  if (rc != 0) {
    ADD_FAILURE() << "fi_mr_reg: " << error_name(rc);
    return {};
  }
  return Region(mr, buf, virtual_addresses());
}

size_t World::progress() {
  size_t came = 0;
  for (auto& cq : cqs_) {
    if (cq->get() != nullptr) came += cq->poll();
  }
  return came;
}

milliseconds World::limit(milliseconds asked) const {
  return timed_out_ ? std::min(asked, milliseconds(200)) : asked * patience();
}

// Memory that a peer writes is watched without a lock, as programs do; a progress thread may be what writes it. What is seen there is read by the
// tests afterwards, so a call that takes the domain's lock comes in between.
bool World::progress_until(const std::function<bool()>& condition, milliseconds asked) {
#ifdef __SANITIZE_THREAD__
  const auto done = [&] {
    AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
    const bool is_so = condition();
    AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    if (is_so) (void)progress();
    return is_so;
  };
#else
  const auto& done = condition;
#endif
  const auto end = Clock::now() + limit(asked);
  unsigned idle = 0;
  while (!done()) {
    if (progress() != 0) {
      idle = 0;
    } else if (++idle % 256 == 0) {
      if (Clock::now() >= end) {
        if (done()) return true;
        timed_out_ = true;
        return false;
      }
      sched_yield();
    }
  }
  return true;
}

void World::progress_for(milliseconds time) {
  const auto end = Clock::now() + time;
  while (Clock::now() < end) progress();
}

Completion World::next(Cq* cq, milliseconds asked) {
  if (!progress_until([cq] { return !cq->inbox.empty(); }, asked)) {
    ADD_FAILURE() << "no completion within " << asked.count() << " ms";
    if (case_is_lost != nullptr) case_is_lost();
    Completion none;
    none.err = -1;
    return none;
  }
  Completion out = std::move(cq->inbox.front());
  cq->inbox.pop_front();
  return out;
}

Completion World::wait(Cq* cq, const Ctx& context, milliseconds asked) {
  const auto find = [&] {
    return std::find_if(cq->inbox.begin(), cq->inbox.end(),
                        [&](const Completion& c) { return c.context == &context; });
  };
  if (!progress_until([&] { return find() != cq->inbox.end(); }, asked)) {
    ADD_FAILURE() << "the operation did not complete within " << asked.count() << " ms";
    if (case_is_lost != nullptr) case_is_lost();
    Completion none;
    none.err = -1;
    return none;
  }
  const auto at = find();
  Completion out = std::move(*at);
  cq->inbox.erase(at);
  return out;
}

Completion World::done(Cq* cq, const Ctx& context) {
  Completion out = wait(cq, context);
  if (out.err > 0)
    ADD_FAILURE() << "completed in error: " << error_name(out.err) << ", provider says: " << out.text;
  return out;
}

bool World::quiet(Cq* cq) {
  progress_for(quiet_time);
  return cq->inbox.empty();
}

void expect_truncated(const Completion& c, size_t left_over) {
  if (manual_only() && c.err != FI_ETRUNC) {
    EXPECT_GE(c.err, 0);
    return;
  }
  EXPECT_EQ(c.err, FI_ETRUNC);
  EXPECT_EQ(c.olen, left_over);
}

// ------------------------------------------------------------------------------------------------------------------ data

namespace {

uint64_t word_of(uint32_t seed, size_t index) {
  uint64_t x = (static_cast<uint64_t>(seed) << 32) ^ (index * 0x9e3779b97f4a7c15ULL + 0x7f4a7c15ULL);
  x ^= x >> 29;
  x *= 0xbf58476d1ce4e5b9ULL;
  return x ^ (x >> 32);
}

}  // namespace

void fill(void* buf, size_t len, uint32_t seed) {
  auto* out = static_cast<uint8_t*>(buf);
  for (size_t at = 0, i = 0; at < len; at += 8, ++i) {
    const uint64_t word = word_of(seed, i);
    std::memcpy(out + at, &word, std::min<size_t>(8, len - at));
  }
}

// Remote writes may be under way: whoever asks repeats it until they have come (fi_rma(3)), which is no race that a sanitizer should report.
__attribute__((no_sanitize("thread"))) size_t first_difference(const void* buf, size_t len, uint32_t seed) {
  const auto* in = static_cast<const uint8_t*>(buf);
  for (size_t at = 0, i = 0; at < len; at += 8, ++i) {
    const uint64_t word = word_of(seed, i);
    const size_t n = std::min<size_t>(8, len - at);
    if (std::memcmp(in + at, &word, n) == 0) continue;
    const auto* want = reinterpret_cast<const uint8_t*>(&word);
    for (size_t b = 0; b < n; ++b) {
      if (in[at + b] != want[b]) return at + b;
    }
  }
  return len;
}

testing::AssertionResult is_pattern(const char* buf_text, const char*, const char*, const void* buf,
                                    size_t len, uint32_t seed) {
  const size_t at = first_difference(buf, len, seed);
  if (at == len) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "byte " << at << " of " << len << " is wrong (" << buf_text << ")";
}

std::vector<uint8_t> pattern(size_t len, uint32_t seed) {
  std::vector<uint8_t> out(len);
  fill(out.data(), len, seed);
  return out;
}

const std::vector<size_t>& sizes() {
  static const std::vector<size_t> all = {0,   1,    7,    8,    40,    48,    49,      64,
                                          100, 1024, 4096, 8192, 16384, 65536, 1 << 20, 16 << 20};
  return all;
}

}  // namespace weft::conformance
