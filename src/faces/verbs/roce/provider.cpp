// The built-in provider before it has devices: it finds none.
#include "faces/verbs/roce/provider.hpp"

#include <cerrno>

namespace weft::verbs {
namespace {

int start(const weft_verbs_services*) { return 0; }
int list_devices(void (*)(void*, const weft_verbs_device*), void*) { return 0; }
int open(const weft_verbs_device*, ibv_context*, weft_verbs_ops*, void**) { return ENODEV; }
void close(ibv_context*, void*) {}

constexpr weft_verbs_provider provider = {sizeof provider, "roce", start, list_devices, open, close};

}  // namespace

const weft_verbs_provider& roce_provider() noexcept { return provider; }

}  // namespace weft::verbs
