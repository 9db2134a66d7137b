#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Which layers a layer may use, itself aside. Arrows only go down; a new edge is a decision, made
/// here first.
const std::map<std::string, Names> kMayUse{
    {"core", {}},
    {"files", {"core"}},
    {"audio", {"core", "files"}},
    {"synthetic", {"core"}},
    {"images", {"core", "files"}},
    {"gguf", {"core", "files", "kernels"}},
    {"chat", {"core", "files", "gguf"}},
    {"kernels", {"core"}},
    {"distributed", {"core", "kernels"}},
    {"nn", {"core", "kernels"}},
    {"models", {"core", "nn"}},
    {"optim", {"core", "kernels", "nn"}},
    {"phases", {"core", "kernels"}},
    {"memory", {"core", "kernels", "nn"}},
    {"parquet", {"core", "files"}},
    {"tables", {"core", "files", "parquet"}},
    {"data", {"core", "files", "gguf", "tables"}},
    {"series", {"core", "files", "tables", "data"}},
    {"fine_tuning", {"core", "files", "audio", "chat", "data", "tables"}},
    {"io", {"core", "files"}},
    {"observability", {"core", "files"}},
    {"watch", {"core", "files", "io", "observability"}},
    {"hugging_face", {"core", "files", "gguf", "memory", "models", "data", "io", "generation"}},
    {"gguf_export", {"core", "files", "gguf", "models", "data", "io", "hugging_face"}},
    {"generation", {"core", "files", "kernels", "nn", "models", "data"}},
    {"speech",
     {"core", "files", "models", "data", "audio", "fine_tuning", "generation", "hugging_face"}},
    {"sharding", {"core", "kernels", "distributed", "nn", "optim", "io"}},
    {"config",
     {"core", "distributed", "models", "optim", "phases", "memory", "data", "io", "observability"}},
    {"step",
     {"core", "kernels", "distributed", "nn", "optim", "phases", "memory", "sharding", "config"}},
    {"trainer",
     {"core", "kernels", "nn", "models", "optim", "phases", "memory", "data", "io", "observability",
      "hugging_face", "sharding", "config", "step"}},
    {"planning",
     {"core", "kernels", "distributed", "nn", "models", "optim", "phases", "memory", "data", "io",
      "observability", "sharding", "config", "step", "trainer"}},
    {"run_folder",
     {"core", "memory", "files", "models", "data", "io", "gguf", "hugging_face", "gguf_export",
      "config", "trainer"}},
    {"run",
     {"core",   "distributed", "nn",     "models",  "optim",         "memory",       "files",
      "data",   "fine_tuning", "tables", "io",      "observability", "hugging_face", "generation",
      "speech", "sharding",    "config", "trainer", "planning",      "run_folder"}},
    {"tasks",
     {"core", "files", "nn", "models", "synthetic", "optim", "data", "images", "tables", "series",
      "io", "hugging_face", "generation", "config", "trainer", "run_folder", "run"}},
    {"benchmark",
     {"core", "kernels", "nn", "models", "generation", "optim", "config", "trainer", "planning"}},
    {"compare",
     {"core", "distributed", "files", "io", "models", "observability", "config", "run_folder",
      "run"}},
    {"tools",
     {"core",        "kernels",     "distributed", "files",         "chat",     "data",
      "tables",      "fine_tuning", "io",          "observability", "gguf",     "hugging_face",
      "gguf_export", "generation",  "speech",      "config",        "planning", "run_folder",
      "run",         "tasks",       "benchmark",   "compare",       "watch"}},
};

/// The layers that a trainer is made of: they use each other's private headers, along the arrows.
const Names kTrainerFamily{"sharding", "config",     "step", "trainer",
                           "planning", "run_folder", "run",  "tasks"};

/// The layers that may include a third-party library, by the start of its headers' names.
const std::map<std::string, Names> kLibraries{
    {"dnnl", {"kernels"}},
    {"cublas", {"kernels"}},
    {"Eigen/", {"kernels", "phases"}},
    {"cereal/", {"io"}},
    {"xxhash", {"io"}},
    {"utf8proc", {"audio", "files"}},
    {"snappy", {"parquet"}},
    {"sodium", {"core", "distributed"}},
    {"zlib", {"parquet"}},
    {"zstd", {"parquet"}},
    {"png", {"images"}},
    {"jpeglib", {"images"}},
    {"jerror", {"images"}},
    {"boost/json",
     {"files", "chat", "tables", "data", "fine_tuning", "io", "observability", "hugging_face",
      "gguf_export", "run_folder", "run", "compare", "tools", "watch", "series", "images",
      "tasks"}},
    {"boost/beast", {"watch"}},
    {"boost/math", {"compare"}},
    {"boost/program_options", {"tools"}},
    {"boost/regex", {"hugging_face"}},
    {"cuda", {"core", "kernels"}},
    {"mpi", {"distributed"}},
};

const fs::path kRoot = HT_SOURCE_DIR;
const Names kExtensions{".h", ".cpp", ".cu", ".cuh"};
constexpr std::size_t kMostOfBothBackends = 5;

struct Include {
  int line;
  std::string name;
  bool quoted;
};

struct SourceFile {
  fs::path path;  // from the root
  std::vector<Include> includes;
};

SourceFile read_source(const fs::path& path) {
  static const std::regex pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  SourceFile file{path.lexically_relative(kRoot), {}};
  std::ifstream in(path);
  std::smatch match;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (std::regex_search(line, match, pattern))
      file.includes.push_back({number, match[2], match[1] == "\""});
  }
  return file;
}

std::vector<SourceFile> read_sources(const std::vector<std::string>& folders) {
  std::vector<SourceFile> files;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      const std::string extension = entry.path().extension();
      if (kExtensions.contains(extension)) files.push_back(read_source(entry.path()));
    }
  }
  return files;
}

/// The product's code, without tests and examples.
const std::vector<SourceFile>& product_sources() {
  static const auto files = read_sources({"include", "src", "kernels", "phases", "memory"});
  return files;
}

bool is_public(const SourceFile& file) { return file.path.native().starts_with("include/"); }

/// "include/hybrid_trainer/nn/linear.h", "src/nn/linear.cpp" -> "nn"; "kernels/cpu/x.cpp" ->
/// "kernels".
std::string layer_of(const fs::path& path) {
  auto part = path.begin();
  if (*part == "include") ++part, ++part;
  if (*part == "src") ++part;
  return *part;
}

/// The project's file that a quoted include means, by its path from `include` or the root; empty where
/// there is none.
fs::path resolved(const std::string& name) {
  for (const fs::path& base : {fs::path("include"), fs::path()}) {
    if (fs::exists(kRoot / base / name)) return (base / name).lexically_normal();
  }
  return {};
}

std::string at(const SourceFile& file, const Include& include) {
  return file.path.native() + ":" + std::to_string(include.line) + ": \"" + include.name + "\"";
}

TEST(Architecture, IncludesFollowTheLayerTable) {
  ASSERT_GT(product_sources().size(), 100u);
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    ASSERT_TRUE(kMayUse.contains(layer)) << file.path << " is in no layer of the table";
    for (const Include& include : file.includes) {
      if (!include.quoted) continue;
      const fs::path target = resolved(include.name);
      EXPECT_FALSE(target.empty()) << at(file, include) << " does not exist";
      const std::string used = target.empty() ? layer : layer_of(target);
      EXPECT_TRUE(used == layer || kMayUse.at(layer).contains(used))
          << at(file, include) << ": " << layer << " must not use " << used;
      const bool are_neighbours = kTrainerFamily.contains(layer) && kTrainerFamily.contains(used);
      EXPECT_TRUE(used == layer || are_neighbours || target.native().starts_with("include/"))
          << at(file, include) << " is private to " << used;
    }
  }
}

/// The layers whose headers each layer includes, itself aside.
std::map<std::string, Names> included_layers() {
  std::map<std::string, Names> used;
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    for (const Include& include : file.includes) {
      const fs::path target = include.quoted ? resolved(include.name) : fs::path();
      const std::string other = target.empty() ? layer : layer_of(target);
      if (other != layer && kMayUse.contains(other)) used[layer].insert(other);
    }
  }
  return used;
}

TEST(Architecture, EachLayerLinksThoseThatItIncludes) {
  const std::regex depends(R"((?:\n\s*DEPENDS|foreach\(layer)([a-z_\s]*))");
  const auto included = included_layers();
  for (const auto& [layer, used] : included) {
    EXPECT_EQ(kMayUse.at(layer), used) << layer << " may use layers that it does not include";
    const fs::path folder =
        fs::exists(kRoot / "src" / layer) ? kRoot / "src" / layer : kRoot / layer;
    std::ifstream in(folder / "CMakeLists.txt");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    std::smatch match;
    ASSERT_TRUE(std::regex_search(text, match, depends)) << folder;
    std::istringstream names(match[1]);
    const Names linked{std::istream_iterator<std::string>(names), {}};
    EXPECT_EQ(linked, used) << layer << " links other layers than it includes: correct DEPENDS in "
                            << folder / "CMakeLists.txt";
  }
}

TEST(Architecture, PublicHeadersIncludeTheStandardLibraryAlone) {
  for (const SourceFile& file : product_sources()) {
    if (!is_public(file)) continue;
    for (const Include& include : file.includes) {
      const bool standard =
          std::all_of(include.name.begin(), include.name.end(),
                      [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
      EXPECT_TRUE(include.quoted || standard) << at(file, include);
      EXPECT_TRUE(!include.quoted || include.name.starts_with("hybrid_trainer/"))
          << at(file, include);
    }
  }
}

TEST(Architecture, EachLibraryStaysInItsLayers) {
  for (const SourceFile& file : product_sources()) {
    for (const Include& include : file.includes) {
      if (include.quoted) continue;
      for (const auto& [library, layers] : kLibraries) {
        if (!include.name.starts_with(library)) continue;
        EXPECT_TRUE(layers.contains(layer_of(file.path))) << at(file, include);
      }
      const std::string folder = include.name.substr(0, include.name.find('/'));
      const bool known = folder == include.name || folder == "sys" || folder == "boost" ||
                         folder == "cereal" || folder == "Eigen" || folder == "linux";
      EXPECT_TRUE(known) << at(file, include) << " is of a library that the table does not hold";
    }
  }
}

/// Layers whose numbers come from files: they convert integers by narrow (core/narrow.h), and their
/// CMakeLists.txt, by READS_FILES, makes errors of conversions without a cast.
const Names kReadFiles{"parquet", "tables",     "images",      "audio",        "gguf",
                       "files",   "io",         "data",        "chat",         "hugging_face",
                       "watch",   "run_folder", "gguf_export", "observability"};

TEST(Architecture, ReadersOfFilesConvertIntegersByOneHelper) {
  const std::regex unchecked(
      R"(static_cast<(?:int|short|unsigned|long|uInt|std::u?int(?:8|16|32)_t)>|\bato(?:i|l|ll)\()");
  for (const SourceFile& file : product_sources()) {
    if (!kReadFiles.contains(layer_of(file.path))) continue;
    std::ifstream in(kRoot / file.path);
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      EXPECT_FALSE(std::regex_search(line, unchecked))
          << file.path << ":" << number << ": use narrow: " << line;
    }
  }
  for (const std::string& layer : kReadFiles) {
    std::ifstream in(kRoot / "src" / layer / "CMakeLists.txt");
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(text.find("ht_add_layer(" + layer + " READS_FILES"), std::string::npos) << layer;
  }
}

bool is_experiment(const fs::path& path) { return path.parent_path().filename() == "experiments"; }

/// What does not pay is registered by a row, and the rest of the product reads without it.
/// Else a limit of the user or container shows as "Resource temporarily unavailable".
TEST(Architecture, ThreadsAreStartedByStartThread) {
  static const std::regex start(R"(std::(jthread|thread|async)\()");
  const Names on_their_own{"src/core/started_thread.cpp", "src/core/thread_team.cpp"};
  for (const SourceFile& file : product_sources()) {
    if (on_their_own.contains(file.path.native())) continue;
    std::ifstream in(kRoot / file.path);
    std::string before;
    for (std::string line; std::getline(in, line); before = line)
      if (std::regex_search(line, start))
        EXPECT_NE((before + line).find("start_thread("), std::string::npos) << file.path << line;
  }
}

TEST(Architecture, ExperimentsAreIncludedWhereTheyAreRegisteredAlone) {
  Names found;
  for (const SourceFile& file : product_sources()) {
    if (is_experiment(file.path)) continue;
    for (const Include& include : file.includes) {
      if (include.quoted && is_experiment(resolved(include.name))) found.insert(file.path.native());
    }
  }
  const Names registers{"phases/skip_backward/jump_advisor.cpp",
                        "phases/skip_backward/predictor.cpp", "src/optim/make_optimizer.cpp",
                        "src/optim/speculative_optimizer.cpp"};
  EXPECT_EQ(found, registers);
}

/// So that a third backend is a matter of kernels and core.
TEST(Architecture, FewFilesKnowBothBackends) {
  const std::regex processor(R"(\bkCpu\b|\bCpu[A-Z])");
  const std::regex cuda(R"(\bkCuda\b|\bcuda_runtime\(|\bCuda[A-Z])");
  std::vector<std::string> both;
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    if (layer == "core" || layer == "kernels") continue;
    std::ifstream in(kRoot / file.path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    if (std::regex_search(text, processor) && std::regex_search(text, cuda))
      both.push_back(file.path);
  }
  EXPECT_LE(both.size(), kMostOfBothBackends) << ::testing::PrintToString(both);
}

TEST(Architecture, EveryHeaderIsGuardedAndInTheNamespace) {
  for (const SourceFile& file : product_sources()) {
    if (file.path.extension() != ".h" && file.path.extension() != ".cuh") continue;
    std::ifstream in(kRoot / file.path);
    const std::string text{std::istreambuf_iterator<char>(in), {}};
    EXPECT_NE(text.find("#pragma once"), std::string::npos) << file.path;
    EXPECT_NE(text.find("namespace hybrid_trainer"), std::string::npos) << file.path;
  }
}

TEST(Architecture, EveryScriptSaysWhichOfItsLinesFailed) {
  int scripts = 0;
  for (const fs::path& folder : {kRoot / "scripts", kRoot / ".ci"}) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream in(entry.path());
      const std::string text{std::istreambuf_iterator<char>(in), {}};
      if (!text.starts_with("#!/usr/bin/env bash")) continue;
      ++scripts;
      EXPECT_NE(text.find("strict.sh\"\n"), std::string::npos)
          << entry.path() << " does not source scripts/strict.sh";
    }
  }
  EXPECT_GE(scripts, 10);
}

}  // namespace
