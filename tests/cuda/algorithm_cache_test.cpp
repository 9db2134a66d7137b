#include "kernels/products/algorithm_choice_cuda.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer::kernels::cuda {
namespace {

namespace fs = std::filesystem;

const AlgorithmOwner kOwner{130100, "NVIDIA H200 (SXM)"};
const Algorithms kAlgorithms{{"64 32 16 nt bf16 bf16", {1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}},
                             {"8 8 8 nn f32 f32", {}}};

/// Restores an environment variable in its destructor.
class Restored {
 public:
  explicit Restored(const char* name) : name_(name) {
    if (const char* const value = std::getenv(name)) value_ = value;
  }
  ~Restored() { value_ ? setenv(name_, value_->c_str(), 1) : unsetenv(name_); }
  Restored(const Restored&) = delete;
  Restored& operator=(const Restored&) = delete;

 private:
  const char* name_;
  std::optional<std::string> value_;
};

class AlgorithmCache : public ::testing::Test {
 protected:
  /// The only file in the folder other than the lock.
  fs::path file() const {
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.path().extension() == ".txt") return entry.path();
    }
    return {};
  }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file()).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  Algorithms read() const { return read_algorithms(folder_, kOwner).algorithms; }
  bool store(const Algorithms& algorithms) const {
    for (const auto& [kind, bits] : algorithms) {
      if (!store_algorithm(folder_, kOwner, kind, bits)) return false;
    }
    return true;
  }

  TemporaryFolder scratch_;
  std::string folder_ = scratch_ / "cache";
};

TEST_F(AlgorithmCache, ReadsStoredAlgorithms) {
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(read_algorithms(folder_, kOwner).problem, "");
  ASSERT_TRUE(store(kAlgorithms));
  EXPECT_EQ(read(), kAlgorithms);
  EXPECT_EQ(read_algorithms(folder_, kOwner).problem, "");
}

TEST_F(AlgorithmCache, KeepsFirstAlgorithmUnlessReplaced) {
  const AlgorithmBits first{1}, second{2}, third{3};
  EXPECT_EQ(store_algorithm(folder_, kOwner, "kind", first), first);
  EXPECT_EQ(store_algorithm(folder_, kOwner, "kind", second), first);
  EXPECT_EQ(read(), (Algorithms{{"kind", first}}));
  // A stored algorithm that no longer fits is replaced, once.
  EXPECT_EQ(store_algorithm(folder_, kOwner, "kind", second, &first), second);
  EXPECT_EQ(store_algorithm(folder_, kOwner, "kind", third, &first), second);
}

TEST_F(AlgorithmCache, ConcurrentStoresLoseNoEntry) {
  constexpr int kThreads = 4, kKinds = 40;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kKinds; ++i) {
        const AlgorithmBits mine{static_cast<std::uint64_t>(t)};
        EXPECT_TRUE(store_algorithm(folder_, kOwner, concat("shared ", i), mine));
        EXPECT_EQ(store_algorithm(folder_, kOwner, concat("of ", t, " ", i), mine), mine);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(read().size(), static_cast<std::size_t>(kKinds * (kThreads + 1)));
}

/// Files without untimed entries, as earlier versions of the program wrote them.
TEST_F(AlgorithmCache, FileFormatStaysUnchanged) {
  ASSERT_TRUE(store({{"8 8 8 nn f32 f32", {1, 2, 3, 4, 5, 6, 7, 8}}}));
  EXPECT_EQ(text(),
            "hybrid_trainer algorithms 2\ncublaslt 130100\ndevice NVIDIA H200 (SXM)\n"
            "8 8 8 nn f32 f32 = 1 2 3 4 5 6 7 8\nend 1\n");
}

TEST_F(AlgorithmCache, SeparatesVersionsAndDevices) {
  ASSERT_TRUE(store(kAlgorithms));
  const auto empty = [&](const AlgorithmOwner& owner) {
    return read_algorithms(folder_, owner).algorithms.empty();
  };
  EXPECT_TRUE(empty({130101, kOwner.device}));
  EXPECT_TRUE(empty({kOwner.library_version, "NVIDIA H100"}));
  // A different device with the same file name.
  EXPECT_TRUE(empty({kOwner.library_version, "NVIDIA H200 /SXM/"}));
}

TEST_F(AlgorithmCache, TruncatedOrDamagedFileReadsAsEmpty) {
  ASSERT_TRUE(store(kAlgorithms));
  const std::string whole = text();
  for (std::size_t bytes = 0; bytes + 1 < whole.size(); ++bytes) {
    write(whole.substr(0, bytes));
    EXPECT_TRUE(read().empty()) << bytes;
  }
  for (const char* line : {"no words", "a = 1 2 3 4 5 6 7", "a = 1 2 3 4 5 6 7 8 9", " = 1 2",
                           "a = 1 2 3 4 5 6 7 zebra", "a = 1 2 3 4 5 6 7 11112222333344445"}) {
    std::string damaged = whole;
    damaged.insert(damaged.find("end "), std::string(line) + "\n");
    write(damaged);
    EXPECT_TRUE(read().empty()) << line;
    EXPECT_NE(read_algorithms(folder_, kOwner).problem.find(file().native() + " is damaged"),
              std::string::npos);
  }
  write(whole);
  EXPECT_EQ(read(), kAlgorithms);
}

TEST_F(AlgorithmCache, UnusableFolderDoesNotThrow) {
  fs::create_directories(fs::path(folder_).parent_path());
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(store(kAlgorithms));
  EXPECT_TRUE(read().empty());
  EXPECT_FALSE(store_algorithm("", kOwner, "kind", {}));
  EXPECT_TRUE(read_algorithms("", kOwner).algorithms.empty());
}

TEST_F(AlgorithmCache, FolderComesFromEnvironment) {
  const Restored home("HOME"), xdg("XDG_CACHE_HOME"), chosen("HYBRID_CACHE_DIR");
  setenv("HYBRID_CACHE_DIR", "/cache", 1);
  setenv("XDG_CACHE_HOME", "/xdg", 1);
  setenv("HOME", folder_.c_str(), 1);
  EXPECT_EQ(cache_folder(), "/cache");
  unsetenv("HYBRID_CACHE_DIR");
  EXPECT_EQ(cache_folder(), "/xdg/hybrid_trainer");
  unsetenv("XDG_CACHE_HOME");
  EXPECT_EQ(cache_folder(), folder_ + "/.cache/hybrid_trainer");
  unsetenv("HOME");
  EXPECT_EQ(cache_folder(), "");
}

}  // namespace
}  // namespace hybrid_trainer::kernels::cuda
