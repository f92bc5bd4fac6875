// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Protection domains, memory regions and windows, XRC domains, address handles.
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

#include "api/verbs/roce/objects.hpp"
#include "os/mapping.hpp"

namespace weft::verbs::soft {
namespace {

// --- protection domains ---

// With the lock.
Result<void> count_domain(Opened& own) {
  if (own.instance->domains == domains_max)
    return Error{ENOMEM, "as many protection domains as a device has (max_pd)"};
  ++own.instance->domains;
  return {};
}

ibv_pd* alloc_pd(ibv_context* context) noexcept {
  return made<Pd>([&]() -> Result<Pd*> {
    Opened& own = opened(context);
    auto pd = std::make_unique<Pd>();
    const Guard guard(own.lock());
    if (auto ok = count_domain(own); !ok) return ok.error();
    pd->number = own.instance->next_number();
    pd->handle = pd->number;
    own.pds.push_back(*pd);
    return pd.release();
  });
}

ibv_pd* alloc_parent_domain(ibv_pd* base, ibv_td*) noexcept {
  return made<Pd>([&]() -> Result<Pd*> {
    Opened& own = opened(base->context);
    auto pd = std::make_unique<Pd>();
    pd->base = &base_of(base);
    pd->number = pd->base->number;
    pd->handle = pd->number;
    const Guard guard(own.lock());
    if (auto ok = count_domain(own); !ok) return ok.error();
    ++pd->base->users;
    own.pds.push_back(*pd);
    return pd.release();
  });
}

int dealloc_pd(ibv_pd* pd) noexcept {
  Opened& own = opened(pd->context);
  Pd& mine = of(pd);
  {
    const Guard guard(own.lock());
    if (mine.users != 0)
      return refuse({EBUSY, "ibv_dealloc_pd: " + std::to_string(mine.users) +
                                " objects (regions, windows, queue pairs, address handles) use the domain"});
    if (mine.base != nullptr) --mine.base->users;
    --own.instance->domains;
    own.pds.remove(mine);
  }
  delete &mine;
  return 0;
}

ibv_td* alloc_td(ibv_context*) noexcept {
  return made<Td>([]() -> Result<Td*> { return std::make_unique<Td>().release(); });
}

int dealloc_td(ibv_td* td) noexcept {
  delete static_cast<Td*>(td);
  return 0;
}

// --- regions ---

constexpr unsigned known_access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                  IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED |
                                  IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB | layout::access_flush_global;

// Memory must be there, as if it were pinned: packets are copied to it whenever they come.
Result<uint32_t> checked_access(const void* address, size_t length, unsigned access) {
  const unsigned wanted = access & ~static_cast<unsigned>(IBV_ACCESS_OPTIONAL_RANGE);
  if ((wanted & layout::access_flush_persistent) != 0)
    return Error{EOPNOTSUPP, "whether memory is persistent is not known here (IBV_ACCESS_FLUSH_PERSISTENT)"};
  if ((wanted & ~known_access) != 0) return Error{EOPNOTSUPP, "access flags that this device does not know"};
  if ((wanted & IBV_ACCESS_ON_DEMAND) == 0) {
    if (const int rc = os::populate(address, length, (wanted & IBV_ACCESS_LOCAL_WRITE) != 0); rc != 0)
      return Error{
          rc, "memory that is to be registered is not mapped, or not with the rights that were asked for"};
  }
  return wanted & ~static_cast<unsigned>(IBV_ACCESS_HUGETLB);
}

// Pages that come and go by themselves cannot be mapped for a device.
void* mapping_of(Opened& own, void* address, size_t length, unsigned access) noexcept {
  return (access & IBV_ACCESS_ON_DEMAND) != 0 ? nullptr : own.instance->device().map(address, length);
}

ibv_mr* keep(Opened& own, Pd& pd, roce::Region* region, std::unique_ptr<Mr> mr) noexcept {
  mr->region = region;
  mr->access = region->access;
  mr->lkey = mr->rkey = mr->handle = region->key;
  ++pd.users;
  own.mrs.push_back(*mr);
  return mr.release();
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, size_t length, uint64_t iova, unsigned access) noexcept {
  return made<ibv_mr>([&]() -> Result<ibv_mr*> {
    auto rights = checked_access(address, length, access);
    if (!rights) return rights.error();
    Opened& own = opened(pd->context);
    Pd& base = base_of(pd);
    auto mr = std::make_unique<Mr>();
    const Guard guard(own.lock());
    auto region =
        own.adapter().memory().add(base.number, static_cast<std::byte*>(address), iova, length, *rights);
    if (!region) return region.error();
    mr->mapping = mapping_of(own, address, length, *rights);
    return keep(own, of(pd), *region, std::move(mr));
  });
}

ibv_mr* alloc_null_mr(ibv_pd* pd) noexcept {
  return made<ibv_mr>([&]() -> Result<ibv_mr*> {
    Opened& own = opened(pd->context);
    auto mr = std::make_unique<Mr>();
    const Guard guard(own.lock());
    auto region = own.adapter().memory().add_null(base_of(pd).number);
    if (!region) return region.error();
    return keep(own, of(pd), *region, std::move(mr));
  });
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length, unsigned access) noexcept {
  return done([&]() -> Result<void> {
    Opened& own = opened(mr->context);
    Mr& mine = of(mr);
    const bool moves = (flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0;
    Pd& before = of(mr->pd);
    Pd& after = (flags & IBV_REREG_MR_CHANGE_PD) != 0 ? of(pd) : before;
    const unsigned wanted = (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0 ? access : mine.access;
    void* const at = moves ? address : mr->addr;
    const size_t bytes = moves ? length : mr->length;
    auto rights = checked_access(at, bytes, wanted);
    if (!rights) return rights.error();
    const Guard guard(own.lock());
    own.device().flush_deferred();
    const uint64_t base = moves ? reinterpret_cast<uint64_t>(at) : mine.region->base;
    auto ok = own.adapter().memory().change(*mine.region, after.number, static_cast<std::byte*>(at), base,
                                            bytes, *rights);
    if (!ok) return ok;
    if (moves) {
      own.instance->device().unmap(mine.mapping);
      mine.mapping = mapping_of(own, at, bytes, *rights);
    }
    mine.access = *rights;
    --before.users;
    ++after.users;
    return {};
  });
}

int dereg_mr(ibv_mr* mr) noexcept {
  Opened& own = opened(mr->context);
  Mr& mine = of(mr);
  {
    const Guard guard(own.lock());
    own.device().flush_deferred();
    if (own.adapter().memory().remove(*mine.region) != 0)
      return refuse({EBUSY, "ibv_dereg_mr: memory windows are bound to the region"});
    own.instance->device().unmap(mine.mapping);
    --of(mr->pd).users;
    own.mrs.remove(mine);
  }
  delete &mine;
  return 0;
}

// Pages are there anyway: nothing has to be fetched before.
int advise_mr(ibv_pd*, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge*, uint32_t) noexcept {
  if (advice > IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT) return EOPNOTSUPP;
  return (flags & ~static_cast<uint32_t>(IBV_ADVISE_MR_FLAG_FLUSH)) != 0 ? EINVAL : 0;
}

// --- windows ---

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) noexcept {
  return made<Mw>([&]() -> Result<Mw*> {
    if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2)
      return Error{EINVAL, "a memory window is of type 1 or 2"};
    Opened& own = opened(pd->context);
    auto mw = std::make_unique<Mw>();
    const Guard guard(own.lock());
    auto window = own.adapter().memory().add_window(base_of(pd).number, static_cast<roce::WindowType>(type));
    if (!window) return window.error();
    mw->window = *window;
    mw->rkey = mw->handle = (*window)->key;
    ++of(pd).users;
    own.mws.push_back(*mw);
    return mw.release();
  });
}

int dealloc_mw(ibv_mw* mw) noexcept {
  Opened& own = opened(mw->context);
  Mw& mine = of(mw);
  {
    const Guard guard(own.lock());
    own.adapter().memory().remove_window(*mine.window);
    --of(mw->pd).users;
    own.mws.remove(mine);
  }
  delete &mine;
  return 0;
}

// --- XRC domains ---

// The number of the domain that the file names: one for all who open the same file (ibv_open_xrcd(3)).
Result<uint32_t> number_of_file(Instance& instance, int fd, int flags) {
  struct stat file {};
  if (::fstat(fd, &file) != 0) return Error{errno, "the descriptor of an XRC domain is none"};
  for (auto& one : instance.file_domains) {
    if (one.device != file.st_dev || one.inode != file.st_ino) continue;
    if ((flags & O_EXCL) != 0)
      return Error{EEXIST, "the file has an XRC domain, and O_EXCL asks for a new one"};
    ++one.users;
    return one.number;
  }
  if ((flags & O_CREAT) == 0) return Error{EINVAL, "the file has no XRC domain, and O_CREAT is missing"};
  instance.file_domains.push_back({file.st_dev, file.st_ino, instance.next_number(), 1});
  return instance.file_domains.back().number;
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attr) noexcept {
  return made<Xrcd>([&]() -> Result<Xrcd*> {
    Opened& own = opened(context);
    auto xrcd = std::make_unique<Xrcd>();
    const Guard guard(own.lock());
    if (attr->fd == -1) {
      if ((attr->oflags & O_CREAT) == 0) return Error{EINVAL, "an XRC domain without a file needs O_CREAT"};
      xrcd->number = own.instance->next_number();
    } else {
      auto number = number_of_file(*own.instance, attr->fd, attr->oflags);
      if (!number) return number.error();
      xrcd->number = *number;
      xrcd->has_file = true;
    }
    own.xrcds.push_back(*xrcd);
    return xrcd.release();
  });
}

void forget(Instance& instance, const Xrcd& xrcd) noexcept {
  if (!xrcd.has_file) return;
  std::erase_if(instance.file_domains,
                [&](auto& one) { return one.number == xrcd.number && --one.users == 0; });
}

int close_xrcd(ibv_xrcd* xrcd) noexcept {
  Opened& own = opened(xrcd->context);
  Xrcd& mine = of(xrcd);
  {
    const Guard guard(own.lock());
    if (mine.users != 0) return EBUSY;
    forget(*own.instance, mine);
    own.xrcds.remove(mine);
  }
  delete &mine;
  return 0;
}

// --- address handles ---

ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attr) noexcept {
  return made<Ah>([&]() -> Result<Ah*> {
    Opened& own = opened(pd->context);
    auto to = address_vector_of(own, *attr);
    if (!to) return to.error();
    auto ah = std::make_unique<Ah>();
    ah->to = *to;
    const Guard guard(own.lock());
    if (own.instance->handles == handles_max)
      return Error{ENOMEM, "as many address handles as a device has (max_ah)"};
    ++own.instance->handles;
    ++of(pd).users;
    own.ahs.push_back(*ah);
    return ah.release();
  });
}

int destroy_ah(ibv_ah* ah) noexcept {
  Opened& own = opened(ah->context);
  Ah& mine = of(ah);
  {
    const Guard guard(own.lock());
    --of(ah->pd).users;
    --own.instance->handles;
    own.ahs.remove(mine);
  }
  delete &mine;
  return 0;
}

template <class T, class Free>
void free_each(List<T>& list, Free&& release) noexcept {
  while (!list.empty()) {
    T& one = *list.pop_front();
    release(one);
    delete &one;
  }
}

}  // namespace

Result<roce::AddressVector> address_vector_of(Opened& own, const ibv_ah_attr& attr) {
  if (attr.port_num != 1) return Error{EINVAL, "the device has one port, number 1"};
  if (attr.is_global == 0) {
    // Nearly every program's first try ends here.
    log(1,
        "RoCE names peers by GID: is_global is 0 (programs often take the GID's index as an option, -g or "
        "-x)");
    return Error{EINVAL, "is_global is 0"};
  }
  roce::AddressVector to;
  std::memcpy(to.destination.data(), attr.grh.dgid.raw, to.destination.size());
  to.source_index = attr.grh.sgid_index;
  to.flow_label = attr.grh.flow_label;
  to.hop_limit = attr.grh.hop_limit;
  to.traffic_class = attr.grh.traffic_class;
  const roce::Gid source = own.device().gid(to.source_index);
  if (source == roce::Gid{})
    return Error{
        EINVAL, "sgid_index " + std::to_string(to.source_index) + " has no GID" +
                    (to.source_index == 0 ? "" : " (GIDs 1 and 2 are there with WEFT_VERBS_STANDARD_GID=1)")};
  if (to.destination == roce::Gid{})
    return Error{EINVAL,
                 "the peer's GID is all zeros: it was not exchanged, or ibv_query_gid failed there (dgid)"};
  if (link::roce::is_group(to.destination)) {
    const Guard guard(own.lock());
    auto group = own.device().groups().reach(to.source_index, to.destination);
    if (!group) return group.error();
    to.destination = *group;
    to.hop_limit = 1;  // packets to groups stay on the link
    return to;
  }
  if (link::roce::address_of(source).family() != link::roce::address_of(to.destination).family())
    return Error{EINVAL, "the GIDs are not of one kind: one is of IPv4, the other of IPv6"};
  return to;
}

void fill_memory_ops(weft_verbs_ops& ops) noexcept {
  ops.alloc_pd = alloc_pd;
  ops.dealloc_pd = dealloc_pd;
  ops.alloc_td = alloc_td;
  ops.dealloc_td = dealloc_td;
  ops.alloc_parent_domain = alloc_parent_domain;
  ops.reg_mr = reg_mr;
  ops.rereg_mr = rereg_mr;
  ops.dereg_mr = dereg_mr;
  ops.alloc_null_mr = alloc_null_mr;
  ops.advise_mr = advise_mr;
  ops.alloc_mw = alloc_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.open_xrcd = open_xrcd;
  ops.close_xrcd = close_xrcd;
  ops.create_ah = create_ah;
  ops.destroy_ah = destroy_ah;
}

void free_left(Opened& left) noexcept {
  roce::Adapter& adapter = left.adapter();
  free_each(left.qps, [&](Qp& qp) {
    left.device().groups().detach_all(*qp.pair);
    release_pair(qp);
  });
  free_each(left.srqs, [&](Srq& srq) { (void)adapter.destroy_srq(*srq.queue); });
  free_each(left.cqs, [&](Cq& cq) { (void)adapter.destroy_cq(*cq.queue); });
  free_each(left.mws, [&](Mw& mw) { adapter.memory().remove_window(*mw.window); });
  free_each(left.mrs, [&](Mr& mr) { (void)adapter.memory().remove(*mr.region); });
  free_each(left.ahs, [&](Ah&) { --left.instance->handles; });
  free_each(left.xrcds, [&](Xrcd& xrcd) { forget(*left.instance, xrcd); });
  free_each(left.pds, [&](Pd&) { --left.instance->domains; });
}

}  // namespace weft::verbs::soft
