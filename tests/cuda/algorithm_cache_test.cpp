#include "kernels/cuda/algorithm_cache.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/trainer/temporary_folder.h"

namespace hybrid_trainer::kernels {
namespace {

namespace fs = std::filesystem;

const AlgorithmOwner kOwner{130100, "NVIDIA H200 (SXM)"};
const Algorithms kAlgorithms{{"64 32 16 nt bf16 bf16", {1, 2, 3, 4, 5, 6, 7, ~std::uint64_t{0}}},
                             {"8 8 8 nn f32 f32", {}}};

class AlgorithmCache : public testing::Test {
 protected:
  /// The only file in the folder.
  fs::path file() const { return *fs::directory_iterator(folder_); }
  std::string text() const {
    std::ostringstream all;
    all << std::ifstream(file()).rdbuf();
    return all.str();
  }
  void write(const std::string& text) const { std::ofstream(file()) << text; }
  Algorithms read() const { return read_algorithms(folder_, kOwner); }

  TemporaryFolder scratch_;
  std::string folder_ = scratch_ / "cache";
};

TEST_F(AlgorithmCache, ReadsWhatWasWritten) {
  EXPECT_TRUE(read().empty());
  ASSERT_TRUE(write_algorithms(folder_, kOwner, kAlgorithms));
  EXPECT_EQ(read(), kAlgorithms);
  ASSERT_TRUE(write_algorithms(folder_, kOwner, {}));
  EXPECT_TRUE(read().empty());
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(AlgorithmCache, IsForOneVersionAndDevice) {
  ASSERT_TRUE(write_algorithms(folder_, kOwner, kAlgorithms));
  EXPECT_TRUE(read_algorithms(folder_, {130101, kOwner.device}).empty());
  EXPECT_TRUE(read_algorithms(folder_, {kOwner.library_version, "NVIDIA H100"}).empty());
  // Another device whose name makes the same file.
  EXPECT_TRUE(read_algorithms(folder_, {kOwner.library_version, "NVIDIA H200 /SXM/"}).empty());
}

TEST_F(AlgorithmCache, WhatIsCutOffOrDamagedCountsAsNone) {
  ASSERT_TRUE(write_algorithms(folder_, kOwner, kAlgorithms));
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
  }
  write(whole);
  EXPECT_EQ(read(), kAlgorithms);
}

TEST_F(AlgorithmCache, AFolderThatCannotBeMadeIsNoError) {
  fs::create_directories(fs::path(folder_).parent_path());
  std::ofstream(folder_) << "a file";
  EXPECT_FALSE(write_algorithms(folder_, kOwner, kAlgorithms));
  EXPECT_TRUE(read().empty());
  EXPECT_FALSE(write_algorithms("", kOwner, kAlgorithms));
  EXPECT_TRUE(read_algorithms("", kOwner).empty());
}

TEST_F(AlgorithmCache, FolderIsThatOfTheEnvironment) {
  const char* const home = std::getenv("HOME");
  const std::string kept = home == nullptr ? "" : home;
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
  if (home != nullptr) setenv("HOME", kept.c_str(), 1);
}

}  // namespace
}  // namespace hybrid_trainer::kernels
