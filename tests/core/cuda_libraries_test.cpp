#include "src/core/libraries.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "hybrid_trainer/core/error.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

KnownLibrary fake(int major) {
  const auto version = [](const SharedLibrary& library) {
    const auto ask = library.find<int()>("ht_fake_version");
    return ask == nullptr ? std::string() : concat(ask() / 10000, ".", ask() / 100 % 100);
  };
  return {"Fake", "libht_fake.so", major, version, true, "build the tests"};
}

TEST(CudaLibraries, DescribesMatchingLibrary) {
  const CudaLibrary found = describe(fake(12), {HT_FAKE_FOLDER});
  EXPECT_TRUE(found.found);
  EXPECT_EQ(found.name, "Fake");
  EXPECT_EQ(found.version, "12.4");
  EXPECT_EQ(found.path, HT_FAKE_FOLDER "/libht_fake.so.12");
  EXPECT_EQ(found.problem, "");
}

TEST(CudaLibraries, ReportsWrongMajorVersion) {
  const CudaLibrary found = describe(fake(13), {HT_FAKE_FOLDER});
  EXPECT_TRUE(found.found);
  EXPECT_EQ(found.version, "12.4");
  EXPECT_EQ(found.problem, "Fake: " HT_FAKE_FOLDER
                           "/libht_fake.so.12 is version 12.4, want 13.x; build the tests");
}

TEST(CudaLibraries, ReportsOutdatedVersion) {
  KnownLibrary newer = fake(12);
  newer.minor = 5;
  EXPECT_EQ(describe(newer, {HT_FAKE_FOLDER}).problem,
            "Fake: " HT_FAKE_FOLDER
            "/libht_fake.so.12 is version 12.4, want 12.5 or newer; build the tests");
  newer.minor = 4;
  EXPECT_EQ(describe(newer, {HT_FAKE_FOLDER}).problem, "");
}

TEST(CudaLibraries, ReportsUnresponsiveLibrary) {
  KnownLibrary silent = fake(12);
  silent.version = [](const SharedLibrary&) { return std::string(); };
  const CudaLibrary found = describe(silent, {HT_FAKE_FOLDER});
  EXPECT_TRUE(found.found);
  EXPECT_NE(found.problem.find("does not report"), std::string::npos) << found.problem;
}

TEST(CudaLibraries, ReportsSearchedFolders) {
  const CudaLibrary found = describe(fake(40), {"/nowhere"});
  EXPECT_FALSE(found.found);
  EXPECT_EQ(found.version + found.path, "");
  EXPECT_NE(found.problem.find("in /nowhere"), std::string::npos) << found.problem;
}

/// On any machine, each library is usable or reports why not.
TEST(CudaLibraries, DescribesInstalledLibraries) {
  const auto all = find_cuda_libraries();
  ASSERT_EQ(all.size(), 4u);
  const char* const names[] = {"cuBLASLt", "cuDNN", "NCCL", "NVML"};
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].name, names[i]);
    EXPECT_EQ(all[i].found, !all[i].path.empty());
    EXPECT_TRUE(all[i].found || all[i].version.empty());
    EXPECT_TRUE(!all[i].version.empty() || !all[i].problem.empty()) << all[i].name;
    EXPECT_TRUE(!all[i].found || fs::exists(all[i].path)) << all[i].path;
  }
  if (fs::exists("/usr/local/cuda/lib64/libcublasLt.so.13")) {
    EXPECT_TRUE(all[0].version.starts_with("13.")) << all[0].version;
    EXPECT_EQ(all[0].problem, "");
  }
}

TEST(CudaLibraries, SearchesEnvironmentAndWheelFolders) {
  const fs::path base = fs::temp_directory_path() / "hybrid_trainer_wheels";
  const fs::path wheel = base / "lib/python3.12/site-packages/nvidia/cu13/lib";
  fs::create_directories(wheel);
  setenv("CUDA_HOME", "/opt/toolkit", 1);
  setenv("VIRTUAL_ENV", base.c_str(), 1);
  const auto folders = cuda_library_folders();
  unsetenv("CUDA_HOME");
  unsetenv("VIRTUAL_ENV");
  fs::remove_all(base);
  const auto has = [&](const std::string& folder) {
    return std::find(folders.begin(), folders.end(), folder) != folders.end();
  };
  EXPECT_EQ(folders.front(), "/opt/toolkit/lib64");
  EXPECT_TRUE(has("/usr/local/cuda/lib64"));
  EXPECT_TRUE(has(wheel));
}

}  // namespace
}  // namespace hybrid_trainer
