#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "memory/stored_offload.h"
#include "tests/memory/content.h"

namespace hybrid_trainer {
namespace {

using testing::Content;

/// While it lives, no file of this process grows beyond `bytes`: writing fails as on a full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FileSizeLimit() {
    setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit old_limit_{};
  void (*old_handler_)(int);
};

class FileStoreInAFolder : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("file_store_test_" + std::to_string(getpid()));
  Stream device_{MemoryPool::create("device")};
  Stream host_{MemoryPool::create("host")};
  Content content_{device_};
};

TEST_F(FileStoreInAFolder, BeginsARestoreInHostMemoryAlone) {
  StoredOffload offload(std::make_unique<FileStore>(folder_.string(), host_.pool()), true);
  const std::size_t bytes = device_.pool()->use().live_total;
  ASSERT_EQ(offload.move_out(content_.slots(), device_).problem, "");
  EXPECT_EQ(host_.pool()->use().live_total, 0u);
  offload.begin_restore();
  offload.begin_restore();
  EXPECT_EQ(device_.pool()->use().live_total, 0u);
  offload.begin_return();
  offload.wait_until_restored();
  EXPECT_EQ(host_.pool()->use().peak_total, bytes);
  EXPECT_TRUE(content_.has_its_bits());
  EXPECT_EQ(host_.pool()->use().live_total, 0u) << "the copies are no longer needed";
}

TEST_F(FileStoreInAFolder, RestoresWhereNoHostMemoryIsLeft) {
  const auto none = MemoryPool::create("host", 1000);
  StoredOffload offload(std::make_unique<FileStore>(folder_.string(), none), true);
  ASSERT_EQ(offload.move_out(content_.slots(), device_).problem, "");
  offload.begin_restore();
  offload.begin_return();
  offload.wait_until_restored();
  EXPECT_TRUE(content_.has_its_bits());
}

TEST_F(FileStoreInAFolder, LeavesNoNameBehind) {
  FileStore store(folder_.string(), host_.pool());
  store.keep(content_.slots(), device_);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileStoreInAFolder, KeepsEverythingInPlaceOnAFullDiskAndWorksAgainLater) {
  StoredOffload offload(std::make_unique<FileStore>(folder_.string(), host_.pool()), true);
  {
    const FileSizeLimit limit(500000);
    const MoveOutResult result = offload.move_out(content_.slots(), device_);
    EXPECT_EQ(result.freed_bytes, 0u);
    EXPECT_NE(result.problem.find(folder_.string()), std::string::npos) << result.problem;
    EXPECT_TRUE(content_.has_its_bits());
  }
  EXPECT_EQ(offload.move_out(content_.slots(), device_).problem, "");
  offload.begin_return();
  offload.wait_until_restored();
  EXPECT_TRUE(content_.has_its_bits());
}

TEST_F(FileStoreInAFolder, SaysThatTheFileLostItsContent) {
  FileStore store(folder_.string(), host_.pool());
  store.keep(content_.slots(), device_);
  store.forget();
  EXPECT_THROW(store.write_to(content_.tensors(), device_), IoError);
}

}  // namespace
}  // namespace hybrid_trainer
