#include "src/files/npy.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class NpyWriterTest : public ::testing::Test {
 protected:
  std::string written(std::int64_t columns, const std::vector<std::vector<float>>& writes) {
    replace_file(folder_ / "a.npy", [&](OutputFile& file) {
      NpyWriter npy(file, columns);
      for (const std::vector<float>& rows : writes) npy.write(rows);
      npy.finish();
    });
    return read_text(folder_ / "a.npy");
  }
  TemporaryFolder folder_;
};

/// numpy.save writes the same bytes for this array (NumPy 2.4.6).
TEST_F(NpyWriterTest, EqualsNumpySave) {
  std::string wanted("\x93NUMPY\x01\x00\x76\x00", 10);
  wanted += "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }";
  wanted.resize(127, ' ');
  wanted += '\n';
  const std::vector<float> numbers{1, -2, 0.5, 4, 1e30f, -0.0f};
  wanted.append(reinterpret_cast<const char*>(numbers.data()), 24);
  EXPECT_EQ(written(2, {{1, -2, 0.5, 4}, {1e30f, -0.0f}}), wanted);
}

TEST_F(NpyWriterTest, WithoutRowsHasShapeOfNoRows) {
  const std::string file = written(7, {});
  EXPECT_EQ(file.size(), 128u);
  EXPECT_TRUE(contains(file, "'shape': (0, 7), }"));
}

TEST_F(NpyWriterTest, ErrorKeepsOldFile) {
  write_text(folder_ / "a.npy", "old");
  const std::string message = message_of<ShapeMismatch>([&] { written(2, {{1, 2}, {3, 4, 5}}); });
  expect_words(message, {"3 numbers", "rows of 2"});
  EXPECT_EQ(read_text(folder_ / "a.npy"), "old");
}

}  // namespace
}  // namespace hybrid_trainer
