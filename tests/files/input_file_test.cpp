#include "hybrid_trainer/files/input_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <vector>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

TEST(InputFile, RequiresExistingRegularFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_THROW(InputFile(folder / "absent"), MissingInput);
  EXPECT_TRUE(contains(message_of<DataError>([&] { InputFile file(folder.path()); }),
                       "is not a regular file"));
  EXPECT_TRUE(contains(message_of<DataError>([&] { InputFile(folder / "pipe"); }), "pipe"));
}

TEST(InputFile, TruncationWhileOpenThrowsIoError) {
  const TemporaryFolder folder;
  write_text(folder / "a", "0123456789");
  const InputFile file(folder / "a");
  char two[2];
  file.read_at(two, 2, 8);
  EXPECT_EQ(std::string(two, 2), "89");
  std::filesystem::resize_file(folder / "a", 9);
  errno = EINTR;  // left by an earlier call, so it must be ignored
  EXPECT_TRUE(contains(message_of<IoError>([&] { file.read_at(two, 2, 8); }),
                       "ends at byte 9, but had 10"));
}

TEST(InputFile, OpensMoreFilesThanSoftLimit) {
  const TemporaryFolder folder;
  write_text(folder / "a", "x");
  rlimit limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
  if (limit.rlim_max < 300) GTEST_SKIP() << "at most " << limit.rlim_max << " files may be open";
  const rlimit few{100, limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  std::vector<InputFile> files;
  for (int i = 0; i < 200; ++i) EXPECT_NO_THROW(files.emplace_back(folder / "a")) << i;
  ::setrlimit(RLIMIT_NOFILE, &limit);
}

TEST(ReadFile, RejectsMoreBytesThanExpected) {
  const TemporaryFolder folder;
  write_text(folder / "a", "12345");
  EXPECT_EQ(read_file(folder / "a", 5), "12345");
  EXPECT_TRUE(contains(message_of<DataError>([&] { read_file(folder / "a", 4); }),
                       "has 5 bytes; want at most 4"));
  EXPECT_THROW(read_file(folder / "b", 4), MissingInput);
}

}  // namespace
}  // namespace hybrid_trainer
