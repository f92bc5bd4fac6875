// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Help and errors of the command line. Must not know any subcommand.
#include "cli.hpp"

#include <fmt/core.h>

#include <memory>
#include <sstream>
#include <utility>

#include "failure.hpp"

namespace weft::tool {

namespace {

class ManualFormatter : public CLI::Formatter {
 public:
  explicit ManualFormatter(Manual manual) : manual_(std::move(manual)) { column_width(30); }

  std::string make_help(const CLI::App* app, std::string, CLI::AppFormatMode) const override {
    std::ostringstream text;
    text << manual_.head << "\nOPTIONS\n";
    for (const CLI::Option* option : app->get_options())
      text << make_option(option, option->get_positional());
    if (!manual_.tail.empty()) text << '\n' << manual_.tail;
    return text.str();
  }

 protected:
  // "--iters UINT:UINT in [1 - 1000]" reads "--iters N" in a manual page.
  std::string make_option_opts(const CLI::Option* option) const override {
    std::string text = CLI::Formatter::make_option_opts(option);
    const size_t check = text.find(':');
    if (check == std::string::npos || text.find("INT") > check) return text;
    return text.substr(0, text.find_last_of(' ', check) + 1) + "N";
  }

 private:
  Manual manual_;
};

}  // namespace

void set_manual(CLI::App& app, Manual manual) {
  app.formatter(std::make_shared<ManualFormatter>(std::move(manual)));
}

std::optional<int> parse_command_line(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return exit_ok;
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "{}: {} (weft {} --help)\n", app.get_description(), error.what(), app.get_name());
    return exit_usage;
  }
  return std::nullopt;
}

}  // namespace weft::tool
