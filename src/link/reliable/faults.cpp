// Reading WEFT_PACKET_FAULTS.
#include "link/reliable/faults.hpp"

#include <string_view>

namespace weft::link::reliable {

std::unique_ptr<Faults> Faults::from_environment() {
  const char* text = std::getenv("WEFT_PACKET_FAULTS");
  if (text == nullptr || *text == 0) return nullptr;
  auto faults = std::make_unique<Faults>();
  while (*text != 0) {
    const std::string_view rest(text);
    const size_t equals = rest.find('=');
    if (equals == std::string_view::npos) break;
    const std::string_view key = rest.substr(0, equals);
    char* end = nullptr;
    const double value = std::strtod(text + equals + 1, &end);
    const auto rate = static_cast<uint32_t>(std::clamp(value, 0.0, 99.0) / 100.0 * 4294967296.0);
    if (key == "loss") faults->loss = rate;
    else if (key == "twice") faults->twice = rate;
    else if (key == "late") faults->late = rate;
    else if (key == "seed") faults->random = static_cast<uint64_t>(value);
    text = *end == ',' ? end + 1 : end;
    if (end == rest.data() + equals + 1) break;
  }
  return faults;
}

}  // namespace weft::link::reliable
