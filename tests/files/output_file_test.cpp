#include "src/files/output_file.h"

#include <gtest/gtest.h>

#include <set>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/core/process.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

std::ptrdiff_t entries(const TemporaryFolder& folder) {
  return std::distance(fs::directory_iterator(folder.path()), {});
}

TEST(OutputFile, WriteAtStartOverwritesFirstBytes) {
  const TemporaryFolder folder;
  write_file(folder / "a", "an older and longer text");
  OutputFile file(folder / "a");
  file.write("head body");
  file.write_at_start("HE", 2);
  file.close();
  EXPECT_EQ(read_file(folder / "a", 100), "HEad body");
}

/// A slow disk during fsync must not count as a stuck process.
TEST(OutputFile, CountsProgressDuringSync) {
  const TemporaryFolder folder;
  OutputFile file(folder / "a");
  file.write("text");
  const std::uint64_t before = progress_so_far();
  file.sync_and_close();
  EXPECT_GT(progress_so_far(), before);
  EXPECT_EQ(read_file(folder / "a", 100), "text");
}

TEST(OutputFile, MissingFolderErrorNamesPath) {
  const TemporaryFolder folder;
  EXPECT_TRUE(contains(message_of<IoError>([&] { OutputFile(folder / "absent/a"); }), "absent/a"));
}

TEST(ReplaceFile, LeavesOnlyNewFile) {
  const TemporaryFolder folder;
  replace_file(folder / "a", "old");
  replace_file(folder / "a", std::string("new\0x", 5));
  EXPECT_EQ(read_file(folder / "a", 5), std::string("new\0x", 5));
  EXPECT_EQ(entries(folder), 1);
  const std::string problem = message_of<IoError>([&] { replace_file(folder / "absent/a", ""); });
  EXPECT_TRUE(contains(problem, "absent/a: cannot create it")) << problem;
}

TEST(MakeFolders, UncreatablePathThrowsCannotCreate) {
  const TemporaryFolder folder;
  write_file(folder / "file", "");
  for (const std::string& path : {std::string("/proc/nothing/a"), (folder / "file/a").string()})
    EXPECT_TRUE(contains(message_of<CannotCreate>([&] { make_folders(path); }), path)) << path;
}

TEST(CreateFile, KeepsFileCreatedMeanwhile) {
  const TemporaryFolder folder;
  const auto create = [&](const auto& meanwhile) {
    return message_of<CannotCreate>([&] {
      create_file(folder / "a", [&](OutputFile& file) {
        file.write("ours");
        meanwhile();
      });
    });
  };
  EXPECT_TRUE(contains(create([&] { write_file(folder / "a", "theirs"); }), "a: exists already"));
  EXPECT_EQ(read_file(folder / "a", 100), "theirs");
  fs::remove(folder / "a");
  EXPECT_TRUE(contains(create([&] { fs::create_symlink("nowhere", folder / "a"); }), "exists"));
  EXPECT_TRUE(fs::is_symlink(folder / "a"));
  fs::remove(folder / "a");
  EXPECT_TRUE(contains(create([&] { fs::create_directory(folder / "a"); }), "exists already"));
  EXPECT_EQ(entries(folder), 1) << "no temporary file is left";
  fs::remove(folder / "a");
  create_file(folder / "a", [](OutputFile& file) { file.write("ours"); });
  EXPECT_EQ(read_file(folder / "a", 100), "ours");
}

/// A symbolic link at a predictable temporary name would redirect the write.
TEST(ReplaceFile, UsesUnpredictableTemporaryName) {
  const TemporaryFolder folder;
  std::set<std::string> names;
  for (int i = 0; i < 3; ++i) {
    replace_file(folder / "a", [&](OutputFile&) {
      for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
        names.insert(entry.path().filename());
    });
  }
  EXPECT_EQ(names.size(), 4u) << "the file and a different temporary name each time";
}

TEST(OutputFile, NewFileDoesNotOverwriteOrFollowLinks) {
  const TemporaryFolder folder;
  write_file(folder / "a", "old");
  fs::create_symlink("elsewhere", folder / "link");
  for (const char* name : {"a", "link"})
    EXPECT_THROW(OutputFile(folder / name, OutputFile::Existing::kRefuse), IoError) << name;
  EXPECT_EQ(read_file(folder / "a", 5), "old");
  EXPECT_FALSE(fs::exists(folder / "elsewhere"));
}

/// The exit code is that of an output that cannot be created, not of a failing disk.
TEST(OutputFile, UncreatablePathThrowsCannotCreate) {
  const TemporaryFolder folder;
  write_file(folder / "file", "text");
  fs::create_directory(folder / "folder");
  write_file(folder / "folder/inside", "text");
  for (const char* place : {"absent/a", "file/a", "folder"}) {
    EXPECT_THROW(OutputFile(folder / place), CannotCreate) << place;
    EXPECT_THROW(replace_file(folder / place, "text"), CannotCreate) << place;
  }
  for (const std::string& place : {(folder / "file/a").string(), std::string("/proc/nothing/a")})
    EXPECT_THROW(make_folders(place), CannotCreate) << place;
}

TEST(ReplaceFile, KeepsOldFileWhenWriterThrows) {
  const TemporaryFolder folder;
  replace_file(folder / "a", "old");
  EXPECT_THROW(replace_file(folder / "a",
                            [](OutputFile& file) {
                              file.write("new");
                              throw DataError("no more of it");
                            }),
               DataError);
  EXPECT_EQ(read_file(folder / "a", 5), "old");
  EXPECT_EQ(entries(folder), 1);
}

}  // namespace
}  // namespace hybrid_trainer
