// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
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

// What a compiler has printed behind "NAME<", up to the ">" that closes it.
std::string_view argument_of(std::string_view text, const std::string& name) {
  const size_t at = text.find(name + "<");
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + name.size() + 1);
  int depth = 0;
  for (size_t i = 0; i < text.size() && text[i] != '\n'; ++i) {
    if (text[i] == '<') ++depth;
    if (text[i] == '>' && depth-- == 0) return text.substr(0, i);
  }
  return {};
}

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
}

// Names as an author writes them, in what compilers and linkers say.
void rename(std::string& text) {
  replace_all(text, "provider_v1::", "");
  for (const char* bytes :
       {"std::span<const std::byte, 18446744073709551615>",
        "std::span<const std::byte, 18446744073709551615ul>",
        "std::span<std::byte const, 18446744073709551615ul>", "std::span<const std::byte>"})
    replace_all(text, bytes, "weft::Bytes");
  for (const char* extent : {", 18446744073709551615ul>", ", 18446744073709551615>"})
    replace_all(text, extent, ">");
}

// A type as an author writes it: functions without the "(Type::*)" of a pointer to them.
std::string as_written(std::string_view type) {
  std::string text(type);
  const size_t pointer = text.find("*)(");
  const size_t open = pointer == std::string::npos ? pointer : text.rfind('(', pointer);
  if (open != std::string::npos) text.erase(open, pointer + 2 - open);
  rename(text);
  return text;
}

constexpr std::string_view question_mark = "weft_type_of_";

}  // namespace

std::string name_in(std::string_view complaint) {
  std::string_view text = complaint.substr(complaint.find(": ") + 1);
  if (text.find(" default ") != std::string_view::npos) return {};
  const size_t open = text.find('(');
  text = text.substr(0, std::min(open, text.find(',')));
  while (text.ends_with(' ')) text.remove_suffix(1);
  return std::string(text.substr(text.rfind(' ') + 1));
}

std::string question_of_types(std::string_view type, const std::vector<std::string>& names) {
  std::string text = "using WeftAsked = " + std::string(type) + ";\n";
  for (const std::string& name : names) {
    const std::string question = std::string(question_mark) + name;
    text.append("template <class> struct ").append(question).append(";\n").append(question);
    text.append("<decltype(&WeftAsked::").append(name).append(")> ").append(name).append("_asked;\n");
  }
  return text;
}

std::string answer_of_types(std::string_view compiler_output, const std::string& name) {
  const std::string quoted = "::" + name;
  bool hidden = false;
  behind(compiler_output, "error: ", [&](std::string_view line) {
    hidden = hidden || ((line.find("is private") != std::string_view::npos ||
                         line.find("is protected") != std::string_view::npos ||
                         line.find("private member") != std::string_view::npos ||
                         line.find("protected member") != std::string_view::npos) &&
                        (line.find(quoted + "(") != std::string_view::npos ||
                         line.find(quoted + "'") != std::string_view::npos ||
                         line.find("'" + name + "'") != std::string_view::npos));
  });
  if (hidden) return "it is not public";
  const std::string_view type = argument_of(compiler_output, std::string(question_mark) + name);
  if (!type.empty() && type.find("WeftAsked") == std::string_view::npos) {
    std::string text = as_written(type);
    if (text.ends_with('*') && type.find("*)(") == std::string_view::npos) text.pop_back();  // of a constant
    return "it has the type: " + text;
  }
  bool absent = false;
  behind(compiler_output, "error: ", [&](std::string_view line) {
    absent = absent || line.find("'" + name + "' is not a member") != std::string_view::npos ||
             line.find("no member named '" + name + "'") != std::string_view::npos;
  });
  return absent ? "there is none" : "there are several, or a template";
}

std::string type_meant(std::string_view compiler_output, std::string_view type) {
  const std::string scoped = std::string("::").append(type);
  std::string meant;
  behind(compiler_output, "did you mean '", [&](std::string_view rest) {
    const std::string_view name = rest.substr(0, rest.find('\''));
    if (name.ends_with(scoped)) meant = name;
  });
  return meant;
}

std::vector<std::string> names_listed(std::string_view table) {
  std::vector<std::string> names;
  while (!table.empty()) {
    const size_t end = std::min(table.find('\n'), table.size());
    const std::string_view line = table.substr(0, end);
    if (const size_t length = std::min(line.find(' '), line.size()); length != 0)
      add_once(names, line.substr(0, length));
    table.remove_prefix(std::min(end + 1, table.size()));
  }
  return names;
}

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
  behind(linker_output, "undefined reference to `", [&](std::string_view rest) {
    std::string name(rest.substr(0, rest.rfind('\'')));
    rename(name);
    add_once(found, name);
  });
  return found;
}

}  // namespace weft::tool
