#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "memory/stored_offload.h"
#include "tests/memory/content.h"

namespace hybrid_trainer {
namespace {

using testing::Content;

/// While alive, limits the files of this process to `bytes`: writes fail as on a full disk.
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

class FileMemoryTest : public ::testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::shared_ptr<MemoryPool> pool() const { return make_file_pool({}, folder_.string(), "key"); }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("file_memory_test_" + std::to_string(getpid()));
  Stream device_{MemoryPool::create("device")};
  Content content_{device_};
};

TEST_F(FileMemoryTest, LeavesNoFileNameInFolder) {
  PoolStore store(pool());
  store.keep(content_.slots(), device_);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(FileMemoryTest, FullDiskKeepsContentAndRetrySucceeds) {
  StoredOffload offload(std::make_unique<PoolStore>(pool()), true);
  {
    const FileSizeLimit limit(500000);
    const MoveOutResult result = offload.move_out(content_.slots(), device_);
    EXPECT_EQ(result.freed_bytes, 0u);
    EXPECT_NE(result.problem.find(folder_.string()), std::string::npos) << result.problem;
    EXPECT_TRUE(content_.has_its_bits());
  }
  EXPECT_EQ(offload.move_out(content_.slots(), device_).problem, "");
  offload.begin_restore();
  EXPECT_EQ(device_.pool()->use().live_total, 0u) << "nothing is copied to the device yet";
  offload.begin_return();
  offload.wait_until_restored();
  EXPECT_TRUE(content_.has_its_bits());
}

std::vector<std::uint32_t> words_of(const Tensor& tensor) {
  const auto* const words = static_cast<const std::uint32_t*>(tensor.raw());
  return {words, words + tensor.elements()};
}

Tensor counted(std::int64_t elements, std::uint32_t first, const Stream& stream) {
  const Tensor tensor = Tensor::empty({elements}, DType::kI32, MemoryKind::kData, stream);
  std::iota(tensor.data<std::int32_t>(), tensor.data<std::int32_t>() + elements, first);
  return tensor;
}

TEST_F(FileMemoryTest, DirectCopiesAgreeWithMappings) {
  const Stream file(pool());
  for (const std::int64_t elements : {1000, 300'000, 1 << 20, (1 << 20) + 7}) {
    SCOPED_TRACE(elements);
    const Tensor there = Tensor::empty({elements}, DType::kI32, MemoryKind::kData, file);
    const Tensor back = Tensor::empty({elements}, DType::kI32, MemoryKind::kData, device_);
    for (std::uint32_t round = 0; round < 3; ++round) {
      const Tensor sent = counted(elements, round, device_);
      copy(there, sent, device_);
      EXPECT_EQ(words_of(there), words_of(sent)) << "through the mapping";
      copy(back, there, device_);
      EXPECT_EQ(words_of(back), words_of(sent));
      there.data<std::int32_t>()[elements / 2] = -1;
      there.data<std::int32_t>()[elements - 1] = -2;
      copy(back, there, device_);
      EXPECT_EQ(words_of(back), words_of(there)) << "written through the mapping";
    }
    const std::int64_t cut = elements / 3;
    copy(there.rows(cut, elements), counted(elements - cut, 77, device_), device_);
    EXPECT_EQ(there.data<std::int32_t>()[cut - 1], cut - 1 + 2) << "before the part";
    EXPECT_EQ(there.data<std::int32_t>()[cut], 77);
    const Tensor beside = Tensor::empty({elements}, DType::kI32, MemoryKind::kData, file);
    copy(beside, there, device_);
    EXPECT_EQ(words_of(beside), words_of(there)) << "within the file";
  }
}

TEST_F(FileMemoryTest, PrefetchesIntoHostMemory) {
  const auto host = MemoryPool::create("host");
  StoredOffload offload(std::make_unique<PoolStore>(pool(), Pages::kSwappable, host), true);
  for (int cycle = 0; cycle < 2; ++cycle) {
    offload.move_out(content_.slots(), device_);
    EXPECT_EQ(host->use().live_total, 0u);
    offload.begin_restore();
    EXPECT_GT(host->use().live_total, 0u);
    if (cycle == 0) offload.begin_return();
    offload.wait_until_restored();
    EXPECT_TRUE(content_.has_its_bits());
    offload.release_moved_out();
    EXPECT_EQ(host->use().live_total, 0u);
  }
  EXPECT_EQ(offload.use().times, 2);
  EXPECT_GT(offload.use().restore_seconds, 0);
  EXPECT_LE(offload.use().waited_seconds, offload.use().restore_seconds + 1);
}

TEST_F(FileMemoryTest, RestoresFromFileWithoutHostMemory) {
  const auto host = MemoryPool::create("host", std::size_t{1} << 16);
  StoredOffload offload(std::make_unique<PoolStore>(pool(), Pages::kSwappable, host), true);
  offload.move_out(content_.slots(), device_);
  offload.begin_restore();
  EXPECT_EQ(host->use().live_total, 0u);
  offload.begin_return();
  offload.wait_until_restored();
  EXPECT_TRUE(content_.has_its_bits());
}

/// Size of the unnamed file that this process has open in the folder.
std::uintmax_t scratch_bytes(const std::filesystem::path& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code error;
    const auto target = std::filesystem::read_symlink(entry.path(), error);
    if (target.native().starts_with(folder.native() + "/")) return file_size(entry.path());
  }
  return 0;
}

/// Each step allocates blocks of different sizes, some of which stay. Offsets must be reused.
TEST_F(FileMemoryTest, FileDoesNotGrowOverManySteps) {
  const Stream file(pool());
  std::vector<Tensor> kept;
  std::uintmax_t after_ten = 0, most = 0;
  for (std::int64_t step = 0; step < 200; ++step) {
    std::vector<Tensor> blocks;
    for (std::int64_t i = 0; i < 6; ++i) {
      const std::int64_t bytes = 4096 * (1 + (7 * i + step) % 23);
      blocks.push_back(Tensor::zeros({bytes}, DType::kU8, MemoryKind::kData, file));
      std::memset(blocks.back().raw(), static_cast<int>(i + 1), blocks.back().bytes());
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const auto* const bytes = static_cast<const char*>(blocks[i].raw());
      ASSERT_EQ(std::count(bytes, bytes + blocks[i].bytes(), static_cast<char>(i + 1)),
                static_cast<std::ptrdiff_t>(blocks[i].bytes()));
    }
    kept.assign(blocks.begin() + 2, blocks.begin() + 4);
    blocks.clear();
    file.pool()->trim();
    most = std::max(most, scratch_bytes(folder_));
    if (step == 9) after_ten = most;
  }
  EXPECT_GT(after_ten, 0u);
  EXPECT_LE(most, 2 * after_ten);
  kept.clear();
  file.pool()->trim();
  EXPECT_EQ(scratch_bytes(folder_), 0u);
}

/// A failed allocation leaves no trace, so allocations that fit still succeed.
TEST_F(FileMemoryTest, FullDiskAllowsAllocationsThatFit) {
  const Stream file(pool());
  const Tensor before = counted(50000, 1, file);
  {
    const FileSizeLimit limit(500000);
    for (int i = 0; i < 3; ++i) {
      EXPECT_THROW(Tensor::zeros({200000}, DType::kF32, MemoryKind::kData, file), OutOfMemory);
      const Tensor fits = counted(60000, 5, file);
      EXPECT_EQ(fits.data<std::int32_t>()[59999], 5 + 59999);
    }
  }
  EXPECT_EQ(before.data<std::int32_t>()[49999], 1 + 49999);
  EXPECT_NO_THROW(Tensor::zeros({200000}, DType::kF32, MemoryKind::kData, file));
}

TEST_F(FileMemoryTest, TrimReturnsDiskSpace) {
  const auto free = [&] { return std::filesystem::space(folder_).free; };
  const Stream file(pool());
  const std::size_t bytes = std::size_t{64} << 20, before = free();
  {
    const Tensor large =
        Tensor::empty({static_cast<std::int64_t>(bytes)}, DType::kU8, MemoryKind::kData, file);
    EXPECT_LT(free(), before - bytes / 2);
  }
  file.pool()->trim();
  EXPECT_GT(free(), before - bytes / 2);
}

}  // namespace
}  // namespace hybrid_trainer
