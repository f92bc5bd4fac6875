// Names and messages. Must not know files or processes.
#include "mux_words.hpp"

#include <algorithm>
#include <cctype>

namespace weft::tool {
namespace {

void add_once(std::vector<std::string>& list, std::string_view text) {
  if (std::find(list.begin(), list.end(), text) == list.end()) list.emplace_back(text);
}

// Calls `found` with what stands behind `mark` in each line that has it.
template <class Found>
void behind(std::string_view text, std::string_view mark, Found found) {
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    if (const size_t at = line.find(mark); at != std::string_view::npos) found(line.substr(at + mark.size()));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::string type_of_header(std::string_view file_name) {
  std::string type;
  bool begins = true;
  for (const char c : file_name.substr(0, file_name.find('.'))) {
    const bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    if (letter) type += begins ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    begins = !letter;
  }
  return type;
}

std::string name_of_plugin(std::string_view file_name) {
  constexpr std::string_view suffix = "-fi.so";
  if (!file_name.ends_with(suffix)) return {};
  file_name.remove_suffix(suffix.size());
  if (file_name.starts_with("lib")) file_name.remove_prefix(3);
  return std::string(file_name);
}

std::string fault_of_name(std::string_view name) {
  if (name.empty() || name.size() > 24) return "it has none or more than 24 characters";
  if (name.find_first_of(";:,^/ \"\\") != std::string_view::npos)
    return "it has a character of those in ;:,^/\"\\ or a space";
  if (name.starts_with("ofi_")) return "\"ofi_\" is the beginning of layers over other providers";
  return {};
}

std::vector<std::string> complaints_of(std::string_view compiler_output) {
  std::vector<std::string> found;
  behind(compiler_output, "error: static assertion failed: weft::Packets: ", [&](std::string_view rest) {
    add_once(found, rest);
  });
  // clang has the condition before the words.
  behind(compiler_output, "error: static_assert failed ", [&](std::string_view rest) {
    constexpr std::string_view mark = "\"weft::Packets: ";
    const size_t at = rest.find(mark);
    if (at == std::string_view::npos) return;
    rest.remove_prefix(at + mark.size());
    add_once(found, rest.substr(0, rest.rfind('"')));
  });
  return found;
}

std::vector<std::string> undefined_in(std::string_view linker_output) {
  std::vector<std::string> found;
  behind(linker_output, "undefined reference to `",
         [&](std::string_view rest) { add_once(found, rest.substr(0, rest.rfind('\''))); });
  return found;
}

}  // namespace weft::tool
