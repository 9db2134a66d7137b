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
#include <string_view>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Names = std::set<std::string>;

/// Layers that may include a third-party library, by the prefix of its headers.
const std::map<std::string, Names> kLibraries{
    {"dnnl", {"kernels"}},
    {"cublas", {"kernels"}},
    {"Eigen/", {"kernels", "phases"}},
    {"cereal/", {"files"}},
    {"xxhash", {"files"}},
    {"utf8proc", {"data", "files"}},
    {"snappy", {"data"}},
    {"pcre2", {"data"}},
    {"sodium", {"core"}},
    {"zlib", {"data"}},
    {"zstd", {"data"}},
    {"png", {"data"}},
    {"jpeglib", {"data"}},
    {"jerror", {"data"}},
    {"boost/json",
     {"files", "data", "observability", "models", "model_files", "run", "compare", "tools",
      "tasks"}},
    {"boost/beast", {"observability"}},
    {"boost/math", {"run"}},
    {"boost/program_options", {"tools"}},
    {"boost/regex", {"model_files"}},
    {"cuda", {"core", "kernels"}},
    {"mpi", {"distributed"}},
};

const fs::path kRoot = HT_SOURCE_DIR;
const Names kExtensions{".h", ".cpp", ".cu", ".cuh"};
constexpr std::size_t kMaxOfBothBackends = 5;

struct Include {
  int line;
  std::string name;
  bool quoted;
};

struct SourceFile {
  fs::path path;  // relative to the root
  std::vector<std::string> lines;
  std::vector<Include> includes;

  bool has(std::string_view text) const {
    return std::ranges::any_of(
        lines, [&](const std::string& line) { return line.find(text) != line.npos; });
  }
};

/// First match of a pattern in a line with one of the words, because matching patterns is slow.
std::string found_in(const std::string& line, const std::regex& pattern,
                     std::initializer_list<const char*> words) {
  if (std::none_of(words.begin(), words.end(),
                   [&](const char* word) { return line.find(word) != line.npos; }))
    return {};
  std::smatch match;
  return std::regex_search(line, match, pattern) ? match.str() : std::string();
}

SourceFile read_source(const fs::path& path) {
  static const std::regex pattern(R"(^\s*#\s*include\s*(["<])([^">]+)[">])");
  SourceFile file{path.lexically_relative(kRoot), {}, {}};
  std::ifstream in(path);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    file.lines.push_back(line);
    if (line.find("include") == line.npos || !std::regex_search(line, match, pattern)) continue;
    file.includes.push_back({static_cast<int>(file.lines.size()), match[2], match[1] == "\""});
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

/// Source files of the product, excluding tests and examples.
const std::vector<SourceFile>& product_sources() {
  static const auto files = read_sources({"include", "src", "kernels", "phases", "memory"});
  return files;
}

bool is_public(const SourceFile& file) { return file.path.native().starts_with("include/"); }

/// "include/hybrid_trainer/nn/linear.h", "src/nn/linear.cpp" -> "nn"; "kernels/x.cpp" -> "kernels".
std::string layer_of(const fs::path& path) {
  auto part = path.begin();
  if (*part == "include") ++part, ++part;
  if (*part == "src") ++part;
  return *part;
}

/// The project file of a quoted include, relative to `include` or the root; "" if there is none.
fs::path resolved(const std::string& name) {
  if (name.starts_with("kernels/generated/")) return name;  // in the build folder
  static std::map<std::string, fs::path> known;
  const auto [found, is_new] = known.try_emplace(name);
  if (!is_new) return found->second;
  for (const fs::path& base : {fs::path("include"), fs::path()}) {
    if (!fs::exists(kRoot / base / name)) continue;
    return found->second = (base / name).lexically_normal();
  }
  return {};
}

std::string at(const SourceFile& file, const Include& include) {
  return file.path.native() + ":" + std::to_string(include.line) + ": \"" + include.name + "\"";
}

std::string text_of(const fs::path& path) {
  std::ifstream in(kRoot / path);
  return {std::istreambuf_iterator<char>(in), {}};
}

/// A layer's CMakeLists.txt, whose DEPENDS lists the layers that it may use.
fs::path statement_of(const std::string& layer) {
  const fs::path below_src = fs::path("src") / layer / "CMakeLists.txt";
  return fs::exists(kRoot / below_src) ? below_src : fs::path(layer) / "CMakeLists.txt";
}

const Names& stated_layers(const std::string& layer) {
  static std::map<std::string, Names> known;
  if (const auto found = known.find(layer); found != known.end()) return found->second;
  static const std::regex depends(R"((?:\n\s*DEPENDS|foreach\(layer)([a-z_\s]*))");
  const std::string text = text_of(statement_of(layer));
  std::smatch match;
  if (!std::regex_search(text, match, depends)) return known[layer];
  std::istringstream names(match[1]);
  return known[layer] = {std::istream_iterator<std::string>(names), {}};
}

TEST(Architecture, LayersDeclareTheirDependencies) {
  ASSERT_GT(product_sources().size(), 100u);
  std::map<std::string, Names> included;
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    ASSERT_TRUE(fs::exists(kRoot / statement_of(layer))) << file.path << " is in no layer";
    included[layer];
    for (const Include& include : file.includes) {
      if (!include.quoted) continue;
      const fs::path target = resolved(include.name);
      EXPECT_FALSE(target.empty()) << at(file, include) << " does not exist";
      const std::string used = target.empty() ? layer : layer_of(target);
      if (used == layer) continue;
      included[layer].insert(used);
      EXPECT_TRUE(stated_layers(layer).contains(used))
          << at(file, include) << ": " << layer << " must not use " << used;
    }
  }
  for (const auto& [layer, used] : included)
    EXPECT_EQ(stated_layers(layer), used) << "DEPENDS in " << statement_of(layer);
}

TEST(Architecture, LayersBuildAfterTheirDependencies) {
  const std::string text = text_of("CMakeLists.txt");
  static const std::regex folder(R"(add_subdirectory\((?:src/)?([a-z_]+)\))");
  Names before;
  for (auto match = std::sregex_iterator(text.begin(), text.end(), folder);
       match != std::sregex_iterator(); ++match) {
    const std::string layer = (*match)[1];
    if (layer == "examples" || layer == "tests") continue;
    for (const std::string& used : stated_layers(layer))
      EXPECT_TRUE(before.contains(used)) << layer << " uses " << used;
    before.insert(layer);
  }
  EXPECT_GT(before.size(), 15u);
}

TEST(Architecture, PublicHeadersIncludeOnlyStandardLibrary) {
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

TEST(Architecture, LibrariesStayInTheirLayers) {
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
      EXPECT_TRUE(known) << at(file, include) << " belongs to a library that is not in the table";
    }
  }
}

/// Layers that read numbers from files convert integers with narrow. READS_FILES in their
/// CMakeLists.txt makes a conversion without a cast an error.
TEST(Architecture, FileReadersConvertIntegersWithNarrow) {
  const std::regex unchecked(
      R"(static_cast<(?:int|short|unsigned|long|uInt|std::u?int(?:8|16|32)_t)>|\bato(?:i|l|ll)\()");
  std::map<std::string, bool> reads;
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    if (!reads.contains(layer))
      reads[layer] = text_of(statement_of(layer)).find("READS_FILES") != std::string::npos;
    if (!reads[layer]) continue;
    for (const std::string& line : file.lines)
      EXPECT_EQ(found_in(line, unchecked, {"static_cast<", "ato"}), "")
          << file.path << ": use narrow: " << line;
  }
  for (const char* layer : {"data", "files", "gguf", "model_files", "observability"})
    EXPECT_TRUE(reads[layer]) << layer;
}

/// Otherwise a limit of the user or container is reported as "Resource temporarily unavailable".
TEST(Architecture, ThreadsAreStartedByStartThread) {
  static const std::regex start(R"(std::(jthread|thread|async)\()");
  for (const SourceFile& file : product_sources()) {
    if (file.path == "src/core/threads.cpp") continue;
    std::string before;
    for (const std::string& line : file.lines) {
      if (!found_in(line, start, {"std::"}).empty()) {
        EXPECT_NE((before + line).find("start_thread("), std::string::npos) << file.path << line;
      }
      before = line;
    }
  }
}

bool is_experiment(const fs::path& path) { return path.parent_path().filename() == "experiments"; }

/// Experiments are registered by a row in a table; the rest of the product does not include them.
TEST(Architecture, OnlyRegistriesIncludeExperiments) {
  Names found;
  for (const SourceFile& file : product_sources()) {
    if (is_experiment(file.path)) continue;
    for (const Include& include : file.includes) {
      if (include.quoted && is_experiment(resolved(include.name))) found.insert(file.path.native());
    }
  }
  const Names registers{"phases/skip_backward/extrapolation_advisor.cpp",
                        "src/optim/make_optimizer.cpp", "src/optim/speculative_optimizer.cpp"};
  EXPECT_EQ(found, registers);
}

/// A third backend should only need changes in kernels and core.
TEST(Architecture, FewFilesUseBothBackends) {
  const std::regex processor(R"(\bkCpu\b|\bCpu[A-Z])");
  const std::regex cuda(R"(\bkCuda\b|\bcuda_runtime\(|\bCuda[A-Z])");
  std::vector<std::string> both;
  for (const SourceFile& file : product_sources()) {
    const std::string layer = layer_of(file.path);
    if (layer == "core" || layer == "kernels") continue;
    const auto knows = [&](const std::regex& pattern, std::initializer_list<const char*> words) {
      return std::ranges::any_of(file.lines, [&](const std::string& line) {
        return !found_in(line, pattern, words).empty();
      });
    };
    if (knows(processor, {"Cpu"}) && knows(cuda, {"Cuda", "cuda_runtime("}))
      both.push_back(file.path);
  }
  EXPECT_LE(both.size(), kMaxOfBothBackends) << ::testing::PrintToString(both);
}

TEST(Architecture, EveryHeaderHasGuardAndNamespace) {
  for (const SourceFile& file : product_sources()) {
    if (file.path.extension() != ".h" && file.path.extension() != ".cuh") continue;
    EXPECT_TRUE(file.has("#pragma once")) << file.path;
    EXPECT_TRUE(file.has("namespace hybrid_trainer")) << file.path;
  }
}

TEST(Architecture, EveryBashScriptSourcesStrictMode) {
  int scripts = 0;
  for (const char* folder : {"scripts", ".ci"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRoot / folder)) {
      if (!entry.is_regular_file()) continue;
      const std::string text = text_of(entry.path().lexically_relative(kRoot));
      if (!text.starts_with("#!/usr/bin/env bash")) continue;
      ++scripts;
      EXPECT_NE(text.find("strict.sh\"\n"), std::string::npos)
          << entry.path() << " does not source scripts/strict.sh";
    }
  }
  EXPECT_GE(scripts, 10);
}

}  // namespace
