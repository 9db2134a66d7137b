#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>
#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "kernels/products/algorithm_choice_cuda.h"
#include "kernels/products/product_cuda.h"

namespace hybrid_trainer::kernels::cuda {

namespace {

namespace fs = std::filesystem;

int alignment_of(const Tensor& tensor) {
  constexpr std::uintptr_t kMax = 256;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.raw()) | kMax;
  return static_cast<int>(address & (~address + 1));
}

constexpr const char* kFormat = "hybrid_trainer algorithms 2";
constexpr std::size_t kMaxLines = 100'000;

std::string header_of(const AlgorithmOwner& owner) {
  return concat(kFormat, "\ncublaslt ", owner.library_version, "\ndevice ", owner.device, "\n");
}

fs::path path_of(const std::string& folder, const AlgorithmOwner& owner) {
  std::string device = owner.device;
  std::replace_if(
      device.begin(), device.end(), [](unsigned char c) { return std::isalnum(c) == 0; }, '_');
  return fs::path(folder) / concat("cublaslt-", owner.library_version, "-", device, ".txt");
}

/// Parses "KEY = 8 hexadecimal words". Returns nullopt if the line is malformed.
std::optional<Algorithms::value_type> parsed(const std::string& line) {
  const std::size_t end = line.find(" = ");
  if (end == std::string::npos || end == 0) return {};
  AlgorithmBits bits{};
  std::istringstream words(line.substr(end + 3));
  words >> std::hex;
  for (std::uint64_t& word : bits)
    if (!(words >> word)) return {};
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

/// A file lock, held by one thread of one process at a time. On a file system without locks, two
/// processes may measure the same algorithms.
class Lock {
 public:
  explicit Lock(const std::string& path)
      : file_(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666)) {
    while (file_ >= 0 && flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~Lock() {
    if (file_ >= 0) close(file_);
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  int file_;
};

/// Replaces a file by renaming a new one: readers see the old or the new. Returns false on failure.
bool replace(const fs::path& path, const std::string& text) {
  std::string fresh = path.native() + ".XXXXXX";
  const int file = mkostemp(fresh.data(), O_CLOEXEC);
  if (file < 0) return false;
  const bool wrote = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  std::error_code failure;
  if (close(file) == 0 && wrote) {
    fs::rename(fresh, path, failure);
    if (!failure) return true;
  }
  fs::remove(fresh, failure);
  return false;
}

}  // namespace

ProductKind::ProductKind(const Product& product)
    : m(product.m()),
      n(product.n()),
      k(product.k()),
      transpose_a(product.transpose_a),
      transpose_b(product.transpose_b),
      inputs(product.a.dtype()),
      output(product.c.dtype()),
      adds(product.addend.defined()),
      has_bias(product.bias.defined()),
      has_aux(product.aux.defined()),
      epilogue(product.epilogue),
      alignments{alignment_of(product.a),    alignment_of(product.b),
                 alignment_of(product.c),    alignment_of(product.addend),
                 alignment_of(product.bias), alignment_of(product.aux)} {}

std::string ProductKind::text() const {
  std::string all =
      concat(m, " ", n, " ", k, transpose_a == Transpose::kYes ? " t" : " n",
             transpose_b == Transpose::kYes ? "t " : "n ", name_of(inputs), " ", name_of(output),
             adds ? " adds" : "", has_bias ? " bias" : "", has_aux ? " aux" : "", " epilogue ",
             static_cast<int>(epilogue), " aligned");
  for (const int alignment : alignments) all += concat(" ", alignment);
  return all;
}

std::string cache_folder() {
  const auto variable = [](const char* name) {
    const char* const value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  if (const auto chosen = variable("HYBRID_CACHE_DIR"); !chosen.empty()) return chosen;
  if (const auto cache = variable("XDG_CACHE_HOME"); !cache.empty())
    return fs::path(cache) / "hybrid_trainer";
  const auto home = variable("HOME");
  return home.empty() ? "" : fs::path(home) / ".cache" / "hybrid_trainer";
}

StoredAlgorithms read_algorithms(const std::string& folder, const AlgorithmOwner& owner) {
  std::error_code unknown;
  if (folder.empty() || !fs::is_regular_file(path_of(folder, owner), unknown)) return {};
  std::ifstream in(path_of(folder, owner));
  std::string header;
  std::string line;
  for (int i = 0; i < 3 && std::getline(in, line); ++i) header += line + "\n";
  StoredAlgorithms found;
  if (header == header_of(owner)) {
    while (found.algorithms.size() < kMaxLines && std::getline(in, line)) {
      if (line == concat("end ", found.algorithms.size())) return found;
      const auto entry = parsed(line);
      if (!entry) break;
      found.algorithms.insert(*entry);
    }
  }
  return {
      {},
      concat(path_of(folder, owner).native(),
             " is damaged or belongs to another device or version; algorithms are timed again")};
}

std::optional<AlgorithmBits> store_algorithm(const std::string& folder, const AlgorithmOwner& owner,
                                             const std::string& kind, const AlgorithmBits& bits,
                                             const AlgorithmBits* useless) {
  if (folder.empty()) return {};
  std::error_code failure;
  fs::create_directories(folder, failure);
  const Lock lock(path_of(folder, owner).native() + ".lock");
  Algorithms all = read_algorithms(folder, owner).algorithms;
  const auto [entry, added] = all.try_emplace(kind, bits);
  const bool replaced = !added && useless != nullptr && entry->second == *useless;
  if (!added && !replaced) return entry->second;
  entry->second = bits;
  if (!replace(path_of(folder, owner), text_of(owner, all))) return {};
  return bits;
}

}  // namespace hybrid_trainer::kernels::cuda
