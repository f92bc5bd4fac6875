// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Atomic operations with numbers that come from peers unchecked: datatype, operation, kind, count, any alignment. Buffers are exactly as
// large as they must be. atomic_apply() does what atomic_supported() says, and nothing else.
#include <fuzzer/FuzzedDataProvider.h>
#include <rdma/fi_errno.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "core/atomic.hpp"

namespace {

using namespace weft::core;

// `bytes` bytes at an odd place, and nothing behind them.
struct Odd {
  Odd(FuzzedDataProvider& in, size_t bytes, size_t shift)
      : memory(new uint8_t[bytes + shift]), at(memory.get() + shift) {
    std::memset(at, 0, bytes);
    const auto random = in.ConsumeBytes<uint8_t>(bytes);
    if (!random.empty()) std::memcpy(at, random.data(), random.size());
  }
  std::unique_ptr<uint8_t[]> memory;
  uint8_t* at;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  FuzzedDataProvider in(data, size);
  const auto any = [&](uint32_t few) {
    return in.ConsumeIntegralInRange<int>(0, 15) == 0 ? in.ConsumeIntegral<uint32_t>()
                                                      : in.ConsumeIntegralInRange<uint32_t>(0, few);
  };
  const uint32_t datatype = any(20);
  const uint32_t op = any(24);
  const auto kind = static_cast<AtomicKind>(in.ConsumeIntegralInRange<uint8_t>(0, 2));
  const size_t count = in.ConsumeIntegralInRange<size_t>(0, 8);
  const size_t element = datatype_size(datatype);
  const bool supported = atomic_supported(datatype, op, kind);
  if (supported && element == 0) std::abort();
  const size_t bytes = count * (element == 0 ? 1 : element);
  const auto shift = [&] { return in.ConsumeBool() ? size_t{0} : in.ConsumeIntegralInRange<size_t>(0, 15); };
  Odd target(in, bytes, shift());
  Odd operand(in, bytes, shift());
  Odd compare(in, bytes, shift());
  Odd result(in, bytes, shift());
  const std::vector<uint8_t> before(target.at, target.at + bytes);
  const int status = atomic_apply(datatype, op, kind, target.at, operand.at, compare.at, result.at, count);
  if (status != (supported ? 0 : -FI_EOPNOTSUPP)) std::abort();
  if (supported && kind != AtomicKind::Write && bytes > 0 &&
      std::memcmp(result.at, before.data(), bytes) != 0)
    std::abort();  // the old values
  if (!supported && bytes > 0 && std::memcmp(target.at, before.data(), bytes) != 0) std::abort();
  return 0;
}
