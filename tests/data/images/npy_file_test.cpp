#include "src/data/images/npy_file.h"

#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "tests/data/images/image_golden.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::filesystem::path array_path(const std::string& name) { return image_golden("npy/" + name); }

std::string npy(const std::string& header, const std::string& numbers) {
  std::string file = "\x93NUMPY";
  file += std::string("\x01\x00", 2);
  file += static_cast<char>(header.size() & 0xFF);
  file += static_cast<char>(header.size() >> 8);
  return file + header + numbers;
}

class NpyFileTest : public ::testing::Test {
 protected:
  std::string refusal(const std::string& bytes) {
    return message_of<DataError>([&] { read_npy(folder_.write("a.npy", bytes)); });
  }
  std::string refusal_of(const std::string& header, const std::string& numbers = "") {
    return refusal(npy(header, numbers));
  }
  TemporaryFolder folder_;
};

TEST_F(NpyFileTest, ReadsEachTypeByteOrderAndVersion) {
  const std::vector<float> wanted{0, 1, 2, 100, 127, 3};
  std::vector<std::string> names{"version_1", "version_2", "version_3"};
  for (const std::string kind :
       {"u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f2", "f4", "f8"}) {
    names.push_back(kind);
    if (kind[1] != '1') names.push_back("big_" + kind);
  }
  for (const std::string& name : names) {
    const NpyArray array = read_npy(array_path(name + ".npy"));
    EXPECT_EQ(array.form.shape, (std::vector<std::int64_t>{2, 3})) << name;
    EXPECT_EQ(array.values, wanted) << name;
  }
  EXPECT_EQ(read_npy(array_path("bool.npy")).values, (std::vector<float>{0, 0, 0, 1, 1, 1}));
}

TEST_F(NpyFileTest, ConvertsColumnMajorToRowMajor) {
  const NpyArray array = read_npy(array_path("columns.npy"));
  EXPECT_TRUE(array.form.is_column_major);
  EXPECT_EQ(array.form.shape, (std::vector<std::int64_t>{2, 3, 4}));
  ASSERT_EQ(array.values.size(), 24u);
  for (std::size_t i = 0; i < 24; ++i) EXPECT_EQ(array.values[i], static_cast<float>(i));
}

TEST_F(NpyFileTest, ReadsScalarsEmptyArraysAndHalves) {
  EXPECT_EQ(read_npy(array_path("scalar.npy")).values, std::vector<float>{3.5f});
  const NpyArray empty = read_npy(array_path("empty.npy"));
  EXPECT_EQ(empty.form.shape, (std::vector<std::int64_t>{0, 5}));
  EXPECT_TRUE(empty.values.empty());
  const std::vector<float> halves = read_npy(array_path("halves.npy")).values;
  EXPECT_EQ(halves[0], 0.0999755859375f);
  EXPECT_EQ(halves[1], -65504.0f);
  EXPECT_EQ(halves[2], 0x1p-24f);  // subnormal
  EXPECT_TRUE(std::isinf(halves[3]));
  EXPECT_TRUE(std::signbit(halves[4]));
}

TEST_F(NpyFileTest, RejectsFilesWithoutNumericArray) {
  const auto told = [](const char* name) {
    return message_of<DataError>([&] { read_npy(array_path(name)); });
  };
  expect_words(told("objects.npy"), {"objects.npy", "Python objects", "float32"});
  expect_words(told("texts.npy"), {"'<U2'", "want numbers"});
  expect_words(told("records.npy"), {"records with fields"});
  expect_words(told("complex.npy"), {"'<c8'"});
  expect_words(refusal("PK\x03\x04 and so on"), {"ZIP", ".npz", "numpy.load(FILE)"});
  expect_words(refusal("GIF89a and so on"), {"is GIF, not a .npy file"});
  expect_words(refusal(""), {"is empty"});
  EXPECT_THROW(read_npy(folder_ / "none.npy"), MissingInput);
}

TEST_F(NpyFileTest, RejectsMalformedHeaders) {
  const std::string sane = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n";
  const std::string two(8, '\0');
  EXPECT_EQ(read_npy(folder_.write("a.npy", npy(sane, two))).values.size(), 2u);
  expect_words(refusal_of(sane, "1234567"), {"truncated", "2 numbers", "1 follow"});
  expect_words(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': (4294967296, "
                          "4294967296, 4294967296), }"),
               {"truncated", "more numbers than a file can hold"});
  expect_words(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': "
                          "(99999999999999999999,), }"),
               {"'shape'"});
  expect_words(refusal_of("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }"),
               {"'shape'"});
  expect_words(refusal_of("{'descr': '<f4', 'fortran_order': 1, 'shape': (2,), }", two),
               {"True nor False"});
  expect_words(refusal_of("{'descr': '<f4', 'fortran_order': False}", two), {"no 'shape'"});
  expect_words(refusal_of("{'descr': '<f4', 'shape': (2,)}", two), {"no 'fortran_order'"});
  expect_words(refusal_of("{'fortran_order': False, 'shape': (2,)}", two), {"no 'descr'"});
  expect_words(refusal_of("{'descr': __import__('os'), }", two), {"got '_'"});
  expect_words(refusal_of(sane + "x", two), {"text after its end"});
  expect_words(refusal_of("{'more': 1}"), {"'more'"});
  std::string many = "{'descr': '<f4', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < 40; ++i) many += "1,";
  expect_words(refusal_of(many + ")}", two), {"over 32 dimensions"});
  std::string version = npy(sane, two);
  version[6] = 9;
  expect_words(refusal(version), {"version 9"});
  std::string long_header = npy(sane, two);
  long_header[6] = 2;
  expect_words(refusal(long_header), {"header has", "want at most"});
}

TEST_F(NpyFileTest, CorruptedFilesGiveOneLineErrors) {
  const std::string whole = read_text(array_path("columns.npy"));
  for (std::size_t bytes = 0; bytes < whole.size(); ++bytes)
    EXPECT_THROW(read_npy(folder_.write("a.npy", whole.substr(0, bytes))), DataError) << bytes;
  PlainRandom random;
  int refused = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string changed = whole;
    for (int j = 0; j < 3; ++j) changed[random.below(80)] = static_cast<char>(random.next() >> 24);
    try {
      read_npy(folder_.write("a.npy", changed));
    } catch (const DataError& error) {
      ++refused;
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace hybrid_trainer
