#include "src/core/machine.h"

#include <gtest/gtest.h>

#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class MachineMemoryTest : public ::testing::Test {
 protected:
  MachineMemoryTest() {
    write("proc/meminfo", "MemTotal:  8000 kB\nMemFree:  10 kB\nMemAvailable:  6000 kB\n");
  }
  void write(const std::string& path, const std::string& text) const {
    std::filesystem::create_directories((root_ / path).parent_path());
    write_text(root_ / path, text);
  }
  void expect(std::size_t total, std::size_t available) const {
    const MachineMemory memory = machine_memory(root_.path());
    EXPECT_EQ(memory.total_bytes, total);
    EXPECT_EQ(memory.available_bytes, available);
  }
  TemporaryFolder root_;
};

TEST_F(MachineMemoryTest, WithoutLimitReportsMachineMemory) {
  expect(8'192'000, 6'144'000);
  write("proc/self/cgroup", "0::/job\n");
  write("sys/fs/cgroup/job/memory.max", "max\n");
  write("sys/fs/cgroup/job/memory.current", "5000000\n");
  expect(8'192'000, 6'144'000);
}

TEST_F(MachineMemoryTest, ReportsTightestCgroupLimit) {
  write("proc/self/cgroup", "0::/job/step\n");
  write("sys/fs/cgroup/job/step/memory.max", "5000000\n");
  write("sys/fs/cgroup/job/step/memory.current", "1000000\n");
  expect(5'000'000, 4'000'000);
  write("sys/fs/cgroup/job/memory.max", "4500000\n");
  write("sys/fs/cgroup/job/memory.current", "2000000\n");
  write("sys/fs/cgroup/job/memory.stat", "anon 700000\ninactive_file 500000\n");
  expect(4'500'000, 3'000'000);
}

TEST_F(MachineMemoryTest, ReadsCgroupVersion1) {
  write("proc/self/cgroup", "5:cpuset:/a\n4:memory:/a\n0::/\n");
  write("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "2000000\n");
  write("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "3000000\n");
  expect(2'000'000, 0);
}

TEST_F(MachineMemoryTest, FindsContainerLimitAtMount) {
  write("proc/self/cgroup", "0::/docker/not-to-be-seen\n");
  write("sys/fs/cgroup/memory.max", "3000000\n");
  write("sys/fs/cgroup/memory.current", "0\n");
  expect(3'000'000, 3'000'000);
}

TEST(MachineMemory, ReportsMemoryOfThisMachine) {
  const MachineMemory memory = machine_memory();
  EXPECT_GT(memory.available_bytes, 0u);
  EXPECT_LE(memory.available_bytes, memory.total_bytes);
}

}  // namespace
}  // namespace hybrid_trainer
