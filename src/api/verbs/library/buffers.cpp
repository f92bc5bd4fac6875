// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// DMA handles, buffers of the library, and ibv_reg_mr_ex(3), which takes both. No provider knows of them: a DMA handle has hints for a PCI bus,
// and regions of all providers are pages of the process.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "api/verbs/library/calls.hpp"
#include "base/lasting.hpp"

namespace weft::verbs {
namespace {

using layout::Dmah;
using layout::MrInitAttr;

// What an ibv_buf* points to.
struct Buffer {
  ibv_pd* pd;
  void* address;
  size_t size;
  size_t mapped;
};
Buffer& buffer_of(ibv_buf* buf) noexcept { return *reinterpret_cast<Buffer*>(buf); }

bool contains(const Buffer& buffer, const void* address, size_t length) noexcept {
  const uintptr_t begin = reinterpret_cast<uintptr_t>(buffer.address);
  const uintptr_t at = reinterpret_cast<uintptr_t>(address);
  return at >= begin && at - begin <= buffer.size && length <= buffer.size - (at - begin);
}

// Those that programs have, of all devices: a handle is found here before anything is read of it.
struct DmaHandles {
  std::mutex lock;
  std::vector<std::unique_ptr<Dmah>> all;
};
DmaHandles& dma_handles() {
  static DmaHandles& handles = make_lasting<DmaHandles>();
  return handles;
}
bool holds(const ibv_context* context, const Dmah* dmah) noexcept {
  DmaHandles& handles = dma_handles();
  const std::lock_guard guard(handles.lock);
  return std::ranges::any_of(
      handles.all, [&](const auto& held) { return held.get() == dmah && held->context == context; });
}

// Null, or what is wrong with the fields that comp_mask names.
const char* mistake(ibv_pd* pd, const MrInitAttr& attr) noexcept {
  constexpr uint64_t known = layout::mr_iova | layout::mr_addr | layout::mr_fd | layout::mr_fd_offset |
                             layout::mr_dmah | layout::mr_buf;
  const auto has = [&](uint64_t bit) { return (attr.comp_mask & bit) != 0; };
  if (unknown(attr.comp_mask, known)) return "ibv_reg_mr_ex: unknown bits of comp_mask";
  if (has(layout::mr_addr) == has(layout::mr_fd))
    return "ibv_reg_mr_ex: one of IBV_REG_MR_MASK_ADDR and IBV_REG_MR_MASK_FD is needed, not both";
  if (has(layout::mr_fd_offset) && !has(layout::mr_fd))
    return "ibv_reg_mr_ex: IBV_REG_MR_MASK_FD_OFFSET without IBV_REG_MR_MASK_FD";
  if (has(layout::mr_dmah) && (attr.dmah == nullptr || !holds(pd->context, attr.dmah)))
    return "ibv_reg_mr_ex: the context has no such DMA handle";
  if (!has(layout::mr_buf)) return nullptr;
  if (has(layout::mr_fd)) return "ibv_reg_mr_ex: IBV_REG_MR_MASK_BUF needs IBV_REG_MR_MASK_ADDR";
  if (attr.buf == nullptr || buffer_of(attr.buf).pd != pd)
    return "ibv_reg_mr_ex: the buffer was allocated from another protection domain";
  if (!contains(buffer_of(attr.buf), attr.addr, attr.length))
    return "ibv_reg_mr_ex: the region goes beyond the buffer";
  return nullptr;
}

}  // namespace

Dmah* alloc_dmah(ibv_context* context, const layout::DmahInitAttr* attr) noexcept {
  constexpr uint32_t known = layout::dmah_cpu_id | layout::dmah_hint | layout::dmah_memory_type;
  if (attr == nullptr || unknown(attr->comp_mask, known))
    return refuse(EINVAL, "ibv_alloc_dmah: no attributes, or unknown bits of comp_mask");
  if ((attr->comp_mask & layout::dmah_hint) != 0 && attr->ph > layout::hint_max)
    return refuse(EINVAL, "ibv_alloc_dmah: ph has two bits (PCI Express, TLP processing hints)");
  if ((attr->comp_mask & layout::dmah_memory_type) != 0 && attr->tph_mem_type > layout::memory_type_max)
    return refuse(EINVAL, "ibv_alloc_dmah: unknown tph_mem_type");
  try {
    auto made = std::make_unique<Dmah>(Dmah{context});
    DmaHandles& handles = dma_handles();
    const std::lock_guard guard(handles.lock);
    return handles.all.emplace_back(std::move(made)).get();
  } catch (const std::bad_alloc&) {
    return refuse(ENOMEM);
  }
}

int dealloc_dmah(Dmah* dmah) noexcept {
  DmaHandles& handles = dma_handles();
  const std::lock_guard guard(handles.lock);
  return std::erase_if(handles.all, [&](const auto& held) { return held.get() == dmah; }) != 0 ? 0 : EINVAL;
}

void free_dma_handles(const ibv_context* context) noexcept {
  DmaHandles& handles = dma_handles();
  const std::lock_guard guard(handles.lock);
  std::erase_if(handles.all, [&](const auto& held) { return held->context == context; });
}

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr* attr) noexcept {
  if (pd == nullptr || attr == nullptr) return refuse(EINVAL);
  if (const char* why = mistake(pd, *attr)) return refuse(EINVAL, why);
  if ((attr->comp_mask & layout::mr_fd) != 0)
    return refuse(EOPNOTSUPP, "ibv_reg_mr_ex: no device here takes a dma-buf");
  const uint64_t iova =
      (attr->comp_mask & layout::mr_iova) != 0 ? attr->iova : reinterpret_cast<uintptr_t>(attr->addr);
  return reg_mr(pd, attr->addr, attr->length, iova, static_cast<unsigned>(attr->access));
}

void* alloc_buf(ibv_pd* pd, size_t size, ibv_buf** buf) noexcept {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  if (pd == nullptr || buf == nullptr || size == 0) return refuse(EINVAL);
  if (size > SIZE_MAX - page) return refuse(ENOMEM);
  const size_t mapped = (size + page - 1) / page * page;
  auto* made = new (std::nothrow) Buffer{pd, nullptr, size, mapped};
  if (made == nullptr) return refuse(ENOMEM);
  made->address = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (made->address == MAP_FAILED) {
    delete made;
    return refuse(ENOMEM);
  }
  *buf = reinterpret_cast<ibv_buf*>(made);
  return made->address;
}

void free_buf(ibv_buf* buf) noexcept {
  if (buf == nullptr) return;
  munmap(buffer_of(buf).address, buffer_of(buf).mapped);
  delete &buffer_of(buf);
}

ibv_mr* reg_buf_mr(ibv_pd* pd, ibv_buf* buf, void* address, size_t length, int access) noexcept {
  const MrInitAttr attr{.length = length,
                        .access = access,
                        .comp_mask = layout::mr_addr | layout::mr_buf,
                        .iova = 0,
                        .addr = address,
                        .fd = -1,
                        .fd_offset = 0,
                        .dmah = nullptr,
                        .buf = buf};
  return reg_mr_ex(pd, &attr);
}

}  // namespace weft::verbs
