// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "api/verbs/library/context.hpp"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>

#include "api/verbs/library/calls.hpp"
#include "api/verbs/library/log.hpp"

namespace weft::verbs {
namespace {

// A provider of another version may fill a longer struct than ours as a whole.
constexpr size_t ops_bytes_max = 4096;

int open_by_provider(Context& context) noexcept {
  alignas(weft_verbs_ops) unsigned char room[ops_bytes_max] = {};
  auto* ops = new (room) weft_verbs_ops{};
  ops->size = sizeof *ops;
  const Device& device = *context.device;
  const int code = device.provider->calls.open(&device.reported, &context.shown.context, ops, &context.state);
  if (code != 0) return code;
  std::memcpy(&context.ops, room, sizeof context.ops);
  return 0;
}

Result<std::unique_ptr<Context>> make(Device& device) {
  auto context = std::make_unique<Context>();
  auto events = Events::create();
  if (!events) return events.error();
  context->device = &device;
  context->events = std::move(*events);
  context->command = os::Fd(eventfd(0, EFD_CLOEXEC));
  if (!context->command) return Error{errno, "no descriptor for cmd_fd"};
  verbs_context& shown = context->shown;
  shown.sz = sizeof shown;
  shown.priv = reinterpret_cast<verbs_ex_private*>(context.get());
  shown.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  shown.context.device = &device.shown;
  shown.context.cmd_fd = context->command.get();
  shown.context.async_fd = context->events->async_fd();
  shown.context.num_comp_vectors = 1;
  pthread_mutex_init(&shown.context.mutex, nullptr);
  if (const int code = open_by_provider(*context)) return Error{code, strerror(code)};
  shown.context.num_comp_vectors = std::max(context->ops.comp_vectors, 1);
  fill_calls(*context);
  return context;
}

void on_completion(ibv_cq* cq) noexcept {
  if (cq != nullptr && cq->channel != nullptr) Context::of(cq->context).events->completion(cq);
}

void on_async(ibv_context* context, const ibv_async_event* event) noexcept {
  Context::of(context).events->async(*event);
}

void* state_of(ibv_context* context) noexcept { return Context::of(context).state; }

void log_line(int level, const char* text) noexcept {
  log(level <= 0 ? Level::Error : level == 1 ? Level::Warning : Level::Information, "%s", text);
}

#ifdef WEFT_VERBS_NEXT
const char* library_name() noexcept { return "next"; }
constexpr weft_verbs_services table = {sizeof table, on_completion, on_async,
                                       state_of,     log_line,      library_name};
#else
constexpr weft_verbs_services table = {sizeof table, on_completion, on_async, state_of, log_line};
#endif

}  // namespace

const weft_verbs_services& services() noexcept { return table; }

ibv_context* open_device(ibv_device* device) noexcept {
  if (device == nullptr) {
    errno = EINVAL;
    return nullptr;
  }
  try {
    auto made = make(Device::of(device));
    if (!made) {
      log(Level::Warning, "%s cannot be opened: %s", device->name, made.error().why.c_str());
      errno = made.error().code;
      return nullptr;
    }
    hold(Device::of(device));
    return &made->release()->shown.context;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return nullptr;
  }
}

int close_device(ibv_context* context) noexcept {
  if (context == nullptr) return EINVAL;
  const std::unique_ptr<Context> own(&Context::of(context));
  free_dma_handles(context);
  own->device->provider->calls.close(context, own->state);
  release(*own->device);
  return 0;
}

}  // namespace weft::verbs
