#include "kernels/cuda/algorithm_cache.h"

#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer::kernels {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "hybrid_trainer algorithms 1";
constexpr std::size_t kMostLines = 100'000;

/// The first lines of a file of this owner.
std::string header_of(const AlgorithmOwner& owner) {
  return concat(kFormat, "\ncublaslt ", owner.library_version, "\ndevice ", owner.device, "\n");
}

fs::path path_of(const std::string& folder, const AlgorithmOwner& owner) {
  std::string device = owner.device;
  std::replace_if(
      device.begin(), device.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return fs::path(folder) / concat("cublaslt-", owner.library_version, "-", device, ".txt");
}

/// "KEY = 8 hexadecimal words", or nothing.
std::optional<Algorithms::value_type> parsed(const std::string& line) {
  const std::size_t end = line.find(" = ");
  if (end == std::string::npos || end == 0) return {};
  AlgorithmBits bits{};
  std::istringstream words(line.substr(end + 3));
  words >> std::hex;
  for (std::uint64_t& word : bits) {
    if (!(words >> word)) return {};
  }
  std::string rest;
  if (words >> rest) return {};
  return Algorithms::value_type(line.substr(0, end), bits);
}

std::string text_of(const AlgorithmOwner& owner, const Algorithms& algorithms) {
  std::ostringstream out;
  out << header_of(owner) << std::hex;
  for (const auto& [kind, bits] : algorithms) {
    out << kind << " =";
    for (const std::uint64_t word : bits) out << ' ' << word;
    out << '\n';
  }
  out << "end " << std::dec << algorithms.size() << '\n';
  return out.str();
}

}  // namespace

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const auto chosen = variable("HYBRID_CACHE_DIR"); !chosen.empty()) return chosen;
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty()) {
    return fs::path(cache) / "hybrid_trainer";
  }
  const auto home = variable("HOME");
  return home.empty() ? "" : fs::path(home) / ".cache" / "hybrid_trainer";
}

Algorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner) {
  std::error_code unknown;
  if (folder.empty() || !fs::is_regular_file(path_of(folder, owner), unknown)) return {};
  std::ifstream in(path_of(folder, owner));
  std::string header;
  std::string line;
  for (int i = 0; i < 3 && std::getline(in, line); ++i) header += line + "\n";
  if (header != header_of(owner)) return {};
  Algorithms found;
  while (found.size() < kMostLines && std::getline(in, line)) {
    if (line == concat("end ", found.size())) return found;
    const auto entry = parsed(line);
    if (!entry) return {};
    found.insert(*entry);
  }
  return {};  // cut off
}

bool write_algorithms(const std::string& folder, const AlgorithmOwner& owner,
                      const Algorithms& algorithms) {
  if (folder.empty()) return false;
  const fs::path path = path_of(folder, owner);
  const fs::path fresh = concat(path.native(), ".", getpid());
  std::error_code failure;
  fs::create_directories(folder, failure);
  std::ofstream out(fresh);
  out << text_of(owner, algorithms);
  out.close();
  if (out) fs::rename(fresh, path, failure);
  if (out && !failure) return true;
  fs::remove(fresh, failure);
  return false;
}

}  // namespace hybrid_trainer::kernels
