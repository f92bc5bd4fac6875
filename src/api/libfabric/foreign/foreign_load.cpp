// SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only
// Finding and loading plugins: fi_provider(3), "fi_prov_ini". Must not know what they do.
#include <dirent.h>
#include <dlfcn.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string_view>
#include <utility>

#include "api/libfabric/discovery/getinfo.hpp"
#include "api/libfabric/foreign/foreign.hpp"
#include "api/libfabric/text/log.hpp"
#include "api/libfabric/text/param.hpp"
#include "api/libfabric/text/tostr.hpp"
#include "base/lasting.hpp"

namespace weft::fi {
namespace {

// What older ones return ends before fields that programs of today read (fabric(7), "ABI CHANGES").
constexpr uint32_t kOldestPlugin = FI_VERSION(1, 9);

void complain(const std::string& path, const char* why) {
  log_warn(kCore, FI_LOG_CORE, "the plugin %s is not used: %s", path.c_str(), why);
}

// Files of a directory that are plugins by their name, in the order of their names.
std::vector<std::string> files_of(const std::string& directory) {
  std::vector<std::string> files;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(opendir(directory.c_str()), closedir);
  if (open == nullptr) {
    log_warn(kCore, FI_LOG_CORE, "FI_PROVIDER_PATH: %s: %s", directory.c_str(), strerror(errno));
    return files;
  }
  while (const dirent* entry = readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name.ends_with(FI_LIB_SUFFIX)) files.push_back(directory + "/" + entry->d_name);
    else if (name.find(".so") != std::string_view::npos)
      log_info(kCore, FI_LOG_CORE, "FI_PROVIDER_PATH: %s/%s is passed over: its name does not end in \"%s\"",
               directory.c_str(), entry->d_name, FI_LIB_SUFFIX);
  }
  if (files.empty())
    log_warn(kCore, FI_LOG_CORE, "FI_PROVIDER_PATH: %s has no file whose name ends in \"%s\"",
             directory.c_str(), FI_LIB_SUFFIX);
  std::sort(files.begin(), files.end());
  return files;
}

// What is wrong with the structure that a plugin gave, or null.
const char* fault_of(const fi_provider* plugin) {
  if (plugin == nullptr) return "fi_prov_ini() gave no provider: it has nothing to offer here";
  if (plugin->name == nullptr || *plugin->name == 0) return "its provider has no name";
  if (std::strpbrk(plugin->name, ";:,^") != nullptr)
    return "its provider's name has a character of those in \";:,^\"";
  if (std::string_view(plugin->name).starts_with("ofi_"))
    return "it is a layer over other providers (\"ofi_\"), and layers of others are not supported";
  if (plugin->getinfo == nullptr || plugin->fabric == nullptr) return "its provider lacks getinfo or fabric";
  return nullptr;
}

fi_provider* load_file(const std::string& path) {
  // RTLD_NOW: what is missing is missed now, and said, not in the middle of a program.
  void* object = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (object == nullptr) {
    const char* why = dlerror();
    complain(path, why != nullptr ? why : "the loader gave no reason");
    return nullptr;
  }
  using Entry = fi_provider* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(object, "fi_prov_ini"));
  if (entry == nullptr) {
    complain(path, "it has no fi_prov_ini()");
    dlclose(object);
    return nullptr;
  }
  fi_provider* plugin = entry();
  if (const char* fault = fault_of(plugin)) {
    complain(path, fault);
    return nullptr;  // not unloaded: it may have started something
  }
  if (FI_VERSION_LT(plugin->fi_version, kOldestPlugin)) {
    complain(path, ("its interface is of version " + version_text(plugin->fi_version) + ", at least " +
                    version_text(kOldestPlugin) + " is needed")
                       .c_str());
    return nullptr;
  }
  return plugin;
}

void clean_up(fi_provider* plugin) {
  if (plugin->cleanup != nullptr) plugin->cleanup();
}

// fabric(7), FI_PROVIDER_PATH: "@" before the list and "+" before a file.
struct Choice {
  bool first_wins = false;  // whatever the versions are
  bool preferred = false;   // a file that stands in the list by itself
};

// Of one name there is one provider: a preferred one, else that of the higher version, and the one that came first when they are equal.
// `dropped`: those that lost, and are not used again where another entry names the same file.
void admit(fi_provider* plugin, const std::string& path, const Choice& choice, Loaded& out,
           std::vector<fi_provider*>& dropped) {
  if (std::ranges::find(dropped, plugin) != dropped.end()) return;
  const auto drop_plugin = [&](fi_provider* loser) {
    clean_up(loser);
    dropped.push_back(loser);
  };
  const auto lower = [&](const char* other, uint32_t version) {
    if (!FI_VERSION_LT(version, plugin->version)) {
      complain(path, (std::string("there is a provider \"") + other + "\" of version " +
                      version_text(version) + ", this one has " + version_text(plugin->version))
                         .c_str());
      return false;
    }
    return true;
  };
  for (Foreign& other : out.plugins) {
    if (other.plugin == plugin) return;  // the same file under two names
    if (strcasecmp(other.name(), plugin->name) != 0) continue;
    if (other.preferred || (choice.first_wins && !choice.preferred)) {
      complain(path,
               (std::string("the provider \"") + other.name() + "\" comes from " + other.path + ", which " +
                (other.preferred ? "FI_PROVIDER_PATH names with \"+\"" : "is first in FI_PROVIDER_PATH"))
                   .c_str());
      return drop_plugin(plugin);
    }
    if (!choice.preferred && !lower(other.name(), other.plugin->version)) return drop_plugin(plugin);
    log_info(kCore, FI_LOG_CORE, "%s replaces %s", path.c_str(), other.path.c_str());
    drop_plugin(other.plugin);
    other = Foreign(plugin, path, choice.preferred);
    return;
  }
  const auto ours = std::find_if(out.providers.begin(), out.providers.end(), [&](const Provider* provider) {
    return strcasecmp(provider->name, plugin->name) == 0;
  });
  if (ours != out.providers.end()) {
    if (!choice.preferred && !choice.first_wins && !lower((*ours)->name, (*ours)->version))
      return drop_plugin(plugin);
    log_info(kCore, FI_LOG_CORE, "%s replaces our provider \"%s\"", path.c_str(), (*ours)->name);
    out.providers.erase(ours);
  }
  out.plugins.emplace_back(plugin, path, choice.preferred);
  log_info(kCore, FI_LOG_CORE, "provider \"%s\" %s comes from %s", plugin->name,
           version_text(plugin->version).c_str(), path.c_str());
}

void add_layer(LayeredPtr layer, Loaded& out) {
  if (layer == nullptr) return;
  // Over a plugin that has taken the place of one of ours.
  std::erase_if(out.providers, [&](const Provider* provider) {
    return strcasecmp(provider->name, provider_of(*layer).name) == 0;
  });
  out.providers.push_back(&provider_of(*layer));
  out.layers.push_back(std::move(layer));
}

// A plugin with connected endpoints, or with datagrams, has reliable unconnected ones for free.
void add_layers(const Foreign& foreign, Loaded& out) {
  link::foreign::Source source;
  source.name = foreign.name();
  source.version = std::min(foreign.plugin->fi_version, kApiVersion);
  source.getinfo = foreign.plugin->getinfo;
  source.fabric = foreign.plugin->fabric;
  add_layer(layer_messages(source), out);
  add_layer(layer_packets(std::move(source)), out);
}

thread_local bool loading_here = false;
std::atomic<Loaded*> loaded_now{nullptr};

Loaded* load_once() {
  const char* directories = param_string(
      nullptr, "provider_path", nullptr,
      "Directories with plugins (*fi.so), with colons between; @ before them: the first plugin of "
      "a name is used; +/path/FILE: that plugin before others of its name");
  // A program that runs with more rights than its user loads no code that the user names.
  if (directories != nullptr && ::getauxval(AT_SECURE) != 0) {
    log_warn(kCore, FI_LOG_CORE,
             "FI_PROVIDER_PATH is ignored: this program runs with more rights than its user");
    directories = nullptr;
  }
  Loaded made;
  struct Loading {
    Loading() { loading_here = true; }
    ~Loading() { loading_here = false; }
  };
  {
    const Loading mark;
    load_plugins(directories, providers(), made);
  }
  Loaded& all = make_lasting<Loaded>(std::move(made));  // objects are closed from destructors of programs
  loaded_now.store(&all, std::memory_order_release);
  return &all;
}

}  // namespace

void load_plugins(const char* directories, std::span<const Provider* const> ours, Loaded& out) {
  out.providers.assign(ours.begin(), ours.end());
  std::string_view list = directories != nullptr ? directories : "";
  Choice choice{.first_wins = list.starts_with('@')};
  if (choice.first_wins) list.remove_prefix(1);
  std::vector<fi_provider*> dropped;
  const auto load = [&](const std::string& path) {
    if (fi_provider* plugin = load_file(path); plugin != nullptr) admit(plugin, path, choice, out, dropped);
  };
  // Preferred ones first: nothing that is used is replaced by them afterwards.
  for (const bool preferred : {true, false}) {
    choice.preferred = preferred;
    for (std::string_view left = list; !left.empty();) {
      const size_t end = std::min(left.find(':'), left.size());
      const std::string entry(left.substr(0, end));
      left.remove_prefix(std::min(end + 1, left.size()));
      if (entry.empty() || entry.starts_with('+') != preferred) continue;
      if (preferred) load(entry.substr(1));
      else
        for (const std::string& path : files_of(entry)) load(path);
    }
  }
  for (const Foreign& foreign : out.plugins) {
    add_layers(foreign, out);
    out.plugin_list.push_back(&foreign);
  }
}

const Loaded& loaded() {
  if (loading_here) {
    static const Loaded ours_alone{{}, {providers().begin(), providers().end()}, {}, {}};
    return ours_alone;
  }
  static const Loaded& all = *load_once();
  return all;
}

void clean_up_plugins() noexcept {
  Loaded* all = loaded_now.exchange(nullptr);
  if (all == nullptr) return;
  for (const Foreign& foreign : all->plugins) clean_up(foreign.plugin);
}

}  // namespace weft::fi
