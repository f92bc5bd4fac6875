// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Any bytes as a statistics page of another process: the reader does not look beyond them, and what it makes of them is
// printable.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include <weft/statistics_text.hpp>

namespace {

void check(const std::string& text) {
  for (const char c : text)
    if (c != '\n' && (c < ' ' || c > '~')) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace weft::statistics;
  // A header that is mostly sound, then entries: bytes of the input are changes of it. The first one says how many
  // places there are.
  if (size < 1) return 0;
  std::vector<uint64_t> memory((header_bytes + (data[0] % 8) * sizeof(Entry)) / sizeof(uint64_t));
  const std::span<std::byte> page = std::as_writable_bytes(std::span(memory));
  const auto put = [&](size_t at, auto value) { std::memcpy(page.data() + at, &value, sizeof value); };
  put(offsetof(Header, magic), magic);
  put(offsetof(Header, version), version);
  put(offsetof(Header, header_bytes), uint32_t{header_bytes});
  put(offsetof(Header, entry_bytes), uint32_t{sizeof(Entry)});
  put(offsetof(Header, entries), uint32_t{7});
  for (size_t i = 1; i + 3 <= size; i += 3)
    page[(data[i] << 8 | data[i + 1]) % page.size()] = std::byte{data[i + 2]};
  for (const size_t bytes : {page.size(), page.size() / 2, size % page.size()}) {
    const auto process = parse(copy_of(page.data(), bytes));
    if (!process) continue;
    check(to_json(std::span(&*process, 1), 0));
    check(to_metrics(std::span(&*process, 1)));
  }
  return 0;
}
