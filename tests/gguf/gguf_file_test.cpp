#include "src/gguf/gguf_file.h"

#include <gtest/gtest.h>

#include <random>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "src/gguf/gguf_writer.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

class GgufFileTest : public ::testing::Test {
 protected:
  GgufFileTest() {
    write_gguf(path_,
               {gguf_text("general.architecture", "llama"), gguf_count("llama.block_count", 2),
                gguf_number("llama.rope.freq_base", 1e4), gguf_flag("a.flag", true),
                gguf_texts("a.texts", {"one", "", "three"}), gguf_numbers("a.numbers", {0.5, -2}),
                gguf_integers("a.integers", {-1, 7}), gguf_flags("a.flags", {true, false})},
               {{.name = "table", .shape = {3, 32}, .type = GgufType::kQ8_0},
                {.name = "gains", .shape = {5}}},
               [&](std::size_t i) { return i == 0 ? table_ : gains_; });
    text_ = read_file(path_, 1 << 20);
  }
  Tensor ramp(const Shape& shape) const {
    const Tensor tensor = Tensor::empty(shape, DType::kF32, MemoryKind::kData, stream_);
    for (std::int64_t i = 0; i < tensor.elements(); ++i)
      tensor.data<float>()[i] = static_cast<float>(i);
    return tensor;
  }
  /// The error for a file with these bytes.
  std::string refusal(const std::string& text) {
    write_text(folder_ / "other.gguf", text);
    return message_of<DataError>([&] { GgufFile file(folder_ / "other.gguf"); });
  }
  const Stream stream_ = test_stream();
  const TemporaryFolder folder_;
  const fs::path path_ = folder_ / "model.gguf";
  const Tensor table_ = ramp({3, 32}), gains_ = ramp({5});
  std::string text_;
};

TEST_F(GgufFileTest, WriteOutsideFolderThrowsCannotCreate) {
  EXPECT_THROW(write_gguf(path_ / "below.gguf", {}, {}, [](std::size_t) { return Tensor(); }),
               CannotCreate);
}

TEST_F(GgufFileTest, RecognizesTruncatedFileByExtension) {
  write_text(folder_ / "cut.gguf", "GG");
  write_text(folder_ / "cut.txt", "GG");
  EXPECT_TRUE(GgufFile::is_one(folder_ / "cut.gguf"));
  EXPECT_FALSE(GgufFile::is_one(folder_ / "cut.txt"));
  EXPECT_FALSE(GgufFile::is_one(folder_ / "absent.gguf"));
}

TEST_F(GgufFileTest, ReadsBackValuesAndTensorLayout) {
  const GgufFile file(path_);
  const auto value = [&](const char* key) { return file.values().at(key).content; };
  EXPECT_EQ(std::get<std::string>(value("general.architecture")), "llama");
  EXPECT_EQ(std::get<std::uint64_t>(value("llama.block_count")), 2u);
  EXPECT_EQ(std::get<double>(value("llama.rope.freq_base")), 1e4);
  EXPECT_TRUE(std::get<bool>(value("a.flag")));
  EXPECT_EQ(std::get<std::vector<std::string>>(value("a.texts")),
            (std::vector<std::string>{"one", "", "three"}));
  EXPECT_EQ(std::get<std::vector<double>>(value("a.numbers")), (std::vector<double>{0.5, -2}));
  EXPECT_EQ(std::get<std::vector<std::int64_t>>(value("a.integers")),
            (std::vector<std::int64_t>{-1, 7}));
  EXPECT_EQ(std::get<std::vector<bool>>(value("a.flags")), (std::vector<bool>{true, false}));
  ASSERT_EQ(file.tensors().size(), 2u);
  const GgufTensor &table = file.tensor("table"), &gains = file.tensor("gains");
  EXPECT_EQ(table.shape, (Shape{3, 32}));
  EXPECT_EQ(table.bytes(), 3u * 34);
  EXPECT_EQ(table.offset % 32, 0u);
  EXPECT_EQ(gains.offset % 32, 0u);
  float last = 0;
  std::memcpy(&last, text_.data() + gains.offset + 16, sizeof last);
  EXPECT_EQ(last, 4);
  EXPECT_THROW(file.tensor("absent"), DataError);
}

TEST_F(GgufFileTest, DoesNotOverwriteFiles) {
  EXPECT_THROW(write_gguf(path_, {}, {}, {}), CannotCreate);
  EXPECT_EQ(read_file(path_, 1 << 20), text_);
}

TEST_F(GgufFileTest, RejectsOtherFormatsWithReason) {
  EXPECT_TRUE(contains(refusal("PK\x03\x04 and more"), "does not begin with \"GGUF\""));
  EXPECT_TRUE(contains(refusal(""), "ends inside its first four bytes"));
  std::string other = text_;
  other[4] = 2;
  EXPECT_TRUE(contains(refusal(other), "has version 2; only version 3"));
  other = text_;
  std::swap(other[4], other[7]);
  EXPECT_TRUE(contains(refusal(other), "the other byte order"));
  other = text_;
  other[8] = '\x7f', other[14] = '\x7f';  // number of tensors
  EXPECT_TRUE(contains(refusal(other), "can hold"));
  EXPECT_TRUE(contains(refusal(text_.substr(0, text_.size() - 33)), "copy the file again"));
  const std::size_t type = text_.find("table") + 5 + 4 + 16;
  other = text_;
  other[type] = 10;
  EXPECT_TRUE(contains(refusal(other), "has the ggml type Q2_K, which is not supported"));
  other = text_;
  other[type + 4] = 1;
  EXPECT_TRUE(contains(refusal(other), "bytes at byte 1 of the data"));
}

TEST_F(GgufFileTest, RejectsInvalidUtf8) {
  for (const char* text : {"llama", "a.flag", "three", "gains"}) {
    std::string damaged = text_;
    damaged[damaged.find(text)] = '\xFF';
    EXPECT_NE(refusal(damaged).find("is not UTF-8"), std::string::npos) << text;
  }
}

TEST_F(GgufFileTest, RejectsFilesTruncatedAtAnyLength) {
  const std::size_t padding = 12;  // after the last tensor
  for (std::size_t bytes = 0; bytes + padding < text_.size(); bytes += 3)
    EXPECT_NE(refusal(text_.substr(0, bytes)), "") << bytes;
}

TEST_F(GgufFileTest, MutatedBytesStayInBounds) {
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    std::string other = text_;
    for (int k = 0; k < 1 + i % 4; ++k)
      other[random() % other.size()] = static_cast<char>(random());
    write_text(folder_ / "other.gguf", other);
    try {
      const GgufFile file(folder_ / "other.gguf");
      for (const GgufTensor& tensor : file.tensors())
        EXPECT_LE(tensor.offset + tensor.bytes(), other.size());
    } catch (const DataError&) {
    }
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
