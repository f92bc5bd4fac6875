// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Opening of an endpoint through the standard API. Knows nothing of what is measured.
#include "session.hpp"

#include <rdma/fi_atomic.h>
#include <rdma/fi_cm.h>
#include <sys/mman.h>
#include <weft/extensions.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "names.hpp"

namespace weft::tool {

namespace {

constexpr size_t cache_line = 64;

void check(int status, const char* call) {
  if (status != 0) fail("{}: {}", call, fi_strerror(-status));
}

uint64_t caps_of(Api api) {
  switch (api) {
    case Api::tagged:
      return FI_TAGGED;
    case Api::msg:
      return FI_MSG;
    case Api::rma:
      return FI_RMA | FI_MSG;  // the message says that the writes are over
    case Api::atomic:
      return FI_ATOMIC | FI_MSG;
    case Api::verbs:
      break;
  }
  return 0;
}

bool is_one_sided(Api api) { return api == Api::rma || api == Api::atomic; }

bool is_ip(uint32_t format) {
  return format == FI_SOCKADDR || format == FI_SOCKADDR_IN || format == FI_SOCKADDR_IN6;
}

fi_info* hints_for(const SessionRequest& request, bool delivery_complete) {
  fi_info* hints = fi_allocinfo();
  if (!hints) fail("out of memory");
  hints->caps = caps_of(request.api);
  hints->mode = FI_CONTEXT | FI_CONTEXT2;
  hints->ep_attr->type = FI_EP_RDM;
  hints->ep_attr->max_msg_size = request.size;
  hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading =
      static_cast<fi_threading>(parse_one(request.threading, threading_names(), "a threading level"));
  hints->domain_attr->cq_data_size = request.cq_data ? 4 : 0;
  hints->tx_attr->msg_order = hints->rx_attr->msg_order = is_one_sided(request.api) ? 0 : FI_ORDER_SAS;
  if (delivery_complete) hints->tx_attr->op_flags = FI_DELIVERY_COMPLETE;
  if (!request.provider.empty()) hints->fabric_attr->prov_name = strdup(request.provider.c_str());
  return hints;
}

fi_info* first_match(const SessionRequest& request, bool delivery_complete, const char* node) {
  const std::unique_ptr<fi_info, FreeInfo> hints(hints_for(request, delivery_complete));
  fi_info* found = nullptr;
  const int status = fi_getinfo(FI_VERSION(FI_MAJOR_VERSION, FI_MINOR_VERSION), node, nullptr,
                                node ? FI_SOURCE : 0, hints.get(), &found);
  return status == 0 ? found : nullptr;
}

const char* api_text(Api api) {
  return api == Api::tagged   ? "tagged"
         : api == Api::msg    ? "msg"
         : api == Api::atomic ? "atomic,msg"
                              : "rma,msg";
}

}  // namespace

Memory::Memory(size_t bytes) : size_(std::max<size_t>(bytes, 1)) {
  void* got = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (got == MAP_FAILED) fail("no memory for {} of buffers: {}", size_text(size_), std::strerror(errno));
  data_ = static_cast<std::byte*>(got);
  // Reading alone would leave every page the shared zero page, which makes copies look faster than they are.
  for (size_t i = 0; i < size_; i += 4096) data_[i] = std::byte{1};
}

Memory::~Memory() {
  if (data_) munmap(data_, size_);
}

Session::Session(const SessionRequest& request)
    : buffers_(std::max(1u, request.buffers)),
      stride_((std::max<size_t>(request.size, 1) + cache_line - 1) / cache_line * cache_line),
      memory_(2 * buffers_ * stride_) {
  if (request.api == Api::atomic && request.size != atomic_bytes)
    throw Refused(fmt::format("atomic operations are of {} bytes", atomic_bytes));
  choose(request);
  open(request);
  if (request.api == Api::atomic) check_atomics();
}

void Session::check_atomics() const {
  size_t count = 0;
  if (fi_atomicvalid(ep(), FI_UINT64, FI_SUM, &count) != 0 || count == 0 ||
      fi_fetch_atomicvalid(ep(), FI_UINT64, FI_SUM, &count) != 0 || count == 0)
    throw Refused("the provider has no addition of 8 bytes (fi_atomicvalid)");
}

void Session::choose(const SessionRequest& request) {
  // Only a write that is complete at the target counts as bandwidth; without the flag the last ones may still
  // be under way.
  delivery_complete_ = request.api == Api::rma;
  if (delivery_complete_) info_.reset(first_match(request, true, nullptr));
  if (!info_) {
    delivery_complete_ = false;
    info_.reset(first_match(request, false, nullptr));
  }
  if (!info_) {
    throw Refused(fmt::format("no match (see: weft info --why{} -e rdm -c {} --threading {}{})",
                              request.provider.empty() ? "" : " -p '" + request.provider + "'",
                              api_text(request.api), request.threading,
                              request.cq_data ? " --cq-data-size 4" : ""));
  }
  if (!request.node.empty() && is_ip(info_->addr_format)) {
    info_.reset(first_match(request, delivery_complete_, request.node.c_str()));
    if (!info_) throw Refused(fmt::format("no match with the local address {}", request.node));
  }
}

void Session::open(const SessionRequest& request) {
  fid_fabric* fabric = nullptr;
  check(fi_fabric(info_->fabric_attr, &fabric, nullptr), "fi_fabric");
  fabric_.reset(fabric);
  fid_domain* domain = nullptr;
  check(fi_domain(fabric, info_.get(), &domain, nullptr), "fi_domain");
  domain_.reset(domain);

  fi_av_attr av_attr{};
  av_attr.type = info_->domain_attr->av_type == FI_AV_UNSPEC ? FI_AV_TABLE : info_->domain_attr->av_type;
  av_attr.count = request.peers;
  fid_av* av = nullptr;
  check(fi_av_open(domain, &av_attr, &av, nullptr), "fi_av_open");
  av_.reset(av);

  fi_cq_attr cq_attr{};
  cq_attr.size = request.tx_slots + request.rx_slots + 64;
  cq_attr.format = FI_CQ_FORMAT_TAGGED;
  cq_attr.wait_obj = FI_WAIT_NONE;
  fid_cq* cq = nullptr;
  check(fi_cq_open(domain, &cq_attr, &cq, nullptr), "fi_cq_open");
  cq_.reset(cq);

  info_->tx_attr->size = std::max<size_t>(info_->tx_attr->size, 1);
  fid_ep* ep = nullptr;
  check(fi_endpoint(domain, info_.get(), &ep, nullptr), "fi_endpoint");
  ep_.reset(ep);
  check(fi_ep_bind(ep, &av->fid, 0), "fi_ep_bind of the address vector");
  check(fi_ep_bind(ep, &cq->fid, FI_TRANSMIT | FI_RECV), "fi_ep_bind of the completion queue");
  check(fi_enable(ep), "fi_enable");
  register_memory(request);
}

void Session::register_memory(const SessionRequest& request) {
  const bool local = info_->domain_attr->mr_mode & FI_MR_LOCAL;
  if (!local && !is_one_sided(request.api)) return;
  uint64_t access = FI_SEND | FI_RECV;
  if (is_one_sided(request.api)) access |= FI_READ | FI_WRITE | FI_REMOTE_READ | FI_REMOTE_WRITE;
  fid_mr* mr = nullptr;
  constexpr uint64_t key = 0x77656674;
  check(fi_mr_reg(domain_.get(), memory_.data(), memory_.size(), access, 0, key, 0, &mr, nullptr),
        "fi_mr_reg");
  mr_.reset(mr);
  if (local) descriptor_ = fi_mr_desc(mr);
}

std::vector<uint8_t> Session::name() const {
  std::vector<uint8_t> bytes(256);
  size_t length = bytes.size();
  check(fi_getname(&ep_->fid, bytes.data(), &length), "fi_getname");
  bytes.resize(std::min(length, bytes.size()));
  return bytes;
}

RemoteMemory Session::memory() const {
  if (!mr_) return {};
  const bool virtual_address = info_->domain_attr->mr_mode & FI_MR_VIRT_ADDR;
  return {virtual_address ? reinterpret_cast<uint64_t>(memory_.data()) : 0, fi_mr_key(mr_.get())};
}

void Session::connect(const std::vector<uint8_t>& peer_name, RemoteMemory peer_memory) {
  const int inserted = fi_av_insert(av_.get(), peer_name.data(), 1, &peer_, 0, nullptr);
  if (inserted != 1)
    fail("fi_av_insert: {}", inserted < 0 ? fi_strerror(-inserted) : "the address was not accepted");
  peer_memory_ = peer_memory;
}

std::optional<Packets> Session::packets() const {
  const weft_reliable_ops* ops = nullptr;
  weft_reliable_statistics report{};
  report.size = sizeof report;
  if (weft_reliable_open(ep(), &ops) != 0 || weft_reliable_query_statistics(ops, ep(), &report) != 0)
    return {};
  return Packets{report.sent, report.sent_again, report.lost, report.duplicates, report.damaged};
}

std::optional<CopyPathCounts> Session::copies(size_t size) const {
  const weft_shm_ops* ops = nullptr;
  weft_shm_copies report{};
  report.size = sizeof report;
  if (weft_shm_open(ep(), &ops) != 0 || weft_shm_query_copies(ops, ep(), peer_, size, &report) != 0)
    return {};
  constexpr std::array<std::string_view, 5> reasons = {"only way", "pinned", "short", "presumed", "measured"};
  CopyPathCounts copies;
  copies.path = copy_path_names.at(report.path);
  copies.reason = reasons.at(report.reason);
  for (size_t i = 0; i < copies.paths.size(); ++i)
    copies.paths[i] = {report.ways[i].messages, report.ways[i].ns};
  copies.trials = report.trials;
  copies.trial_messages = report.trial_messages;
  copies.changes = report.changes;
  copies.measured_ns = report.measured_ns;
  copies.lost_ns = report.lost_ns;
  if (copies.messages() == 0) return {};
  return copies;
}

}  // namespace weft::tool
