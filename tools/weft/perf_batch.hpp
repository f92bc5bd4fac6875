// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// `weft perf --batch FILE`: several measurements, each a line of options, each by a command of its own. Knows lines and
// words, not what they mean.
#pragma once

#include <istream>
#include <string>
#include <vector>

namespace weft::tool {

struct BatchLine {
  size_t number = 0;  // from 1
  std::vector<std::string> words;
};

// Words are separated by blanks; ' and " keep blanks in a word, a # where a word would begin starts a comment. Empty lines
// are left out. Throws Failure with the place of a quote that is not closed. `name` is the file's, for that sentence.
std::vector<BatchLine> read_batch(std::istream& in, const std::string& name);

// `weft perf` with `common` and the words of each line, one after the other, whatever becomes of one. Returns the status:
// 0 when all of them were 0. Throws Interrupted.
int run_batch(const std::vector<BatchLine>& lines, const std::vector<std::string>& common);

}  // namespace weft::tool
