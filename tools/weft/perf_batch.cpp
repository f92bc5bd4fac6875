// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
#include "perf_batch.hpp"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <fmt/ranges.h>

#include "failure.hpp"
#include "install_tree.hpp"

namespace weft::tool {

namespace {

// False: a quote is not closed.
bool split(const std::string& line, std::vector<std::string>& words) {
  std::string word;
  bool inside = false;
  char quote = 0;
  for (const char c : line) {
    if (quote != 0) {
      if (c == quote) quote = 0;
      else word += c;
    } else if (c == '\'' || c == '"') {
      quote = c;
      inside = true;
    } else if (c == ' ' || c == '\t' || c == '\r') {
      if (inside) words.push_back(std::move(word));
      word.clear();
      inside = false;
    } else if (c == '#' && !inside) {
      return true;
    } else {
      word += c;
      inside = true;
    }
  }
  if (inside) words.push_back(std::move(word));
  return quote == 0;
}

int run(const std::vector<std::string>& words) {
  std::vector<char*> argv;
  argv.reserve(words.size() + 1);
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_t child = -1;
  const int error = ::posix_spawn(&child, executable().c_str(), nullptr, nullptr, argv.data(), environ);
  if (error != 0) fail("cannot start weft perf: {}", std::strerror(error));
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFSIGNALED(status)) {
    if (WTERMSIG(status) == SIGINT || WTERMSIG(status) == SIGTERM) throw Interrupted(WTERMSIG(status));
    return exit_failed;
  }
  for (const int signal : {SIGINT, SIGTERM})  // that one's own child was told to end
    if (WEXITSTATUS(status) == 128 + signal) throw Interrupted(signal);
  return WEXITSTATUS(status);
}

}  // namespace

std::vector<BatchLine> read_batch(std::istream& in, const std::string& name) {
  std::vector<BatchLine> lines;
  std::string text;
  for (size_t number = 1; std::getline(in, text); ++number) {
    BatchLine line{number, {}};
    if (!split(text, line.words)) fail_usage("{}:{}: a quote is not closed", name, number);
    if (!line.words.empty()) lines.push_back(std::move(line));
  }
  if (in.bad()) fail("cannot read {}", name);
  if (lines.empty()) fail_usage("{} has no line of options", name);
  return lines;
}

int run_batch(const std::vector<BatchLine>& lines, const std::vector<std::string>& common) {
  int worst = exit_ok;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::vector<std::string> words = {"weft", "perf"};
    words.insert(words.end(), common.begin(), common.end());
    words.insert(words.end(), lines[i].words.begin(), lines[i].words.end());
    fmt::print(stderr, "{}weft perf: {} of {}: {}\n", i == 0 ? "" : "\n", i + 1, lines.size(),
               fmt::join(lines[i].words, " "));
    if (run(words) != exit_ok) worst = exit_failed;
  }
  return worst;
}

}  // namespace weft::tool
