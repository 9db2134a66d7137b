#include "src/files/text.h"

#include <gtest/gtest.h>

#include <iostream>

#include "hybrid_trainer/core/error.h"
#include "src/core/messages.h"
#include "src/files/json.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using namespace std::string_literals;

class ReadText : public ::testing::Test {
 protected:
  std::string text_of(const std::string& bytes) {
    write_text(folder_ / "file", bytes);
    return read_text(folder_ / "file", 1000);
  }
  std::string problem_of(const std::string& bytes) {
    return message_of<DataError>([&] { text_of(bytes); });
  }
  TemporaryFolder folder_;
};

TEST_F(ReadText, ReturnsFileContent) {
  EXPECT_EQ(text_of("a\nb"), "a\nb");
  EXPECT_EQ(text_of(""), "");
  EXPECT_EQ(text_of("\xFF"), "\xFF");
}

TEST_F(ReadText, RemovesByteOrderMark) {
  EXPECT_EQ(text_of("\xEF\xBB\xBF{\"a\": 1}"), "{\"a\": 1}");
  EXPECT_EQ(text_of("a\xEF\xBB\xBF"), "a\xEF\xBB\xBF") << "elsewhere it is a character";
}

TEST_F(ReadText, DecodesUtf16WithWarning) {
  std::ostringstream said;
  send_warnings_to(&said);
  EXPECT_EQ(text_of("\xFF\xFE"s + "h\0\xE9\0\n\0"s), "h\xC3\xA9\n");
  EXPECT_EQ(text_of("\xFE\xFF"s + "\0h\0\xE9"s), "h\xC3\xA9");
  EXPECT_EQ(text_of("\xFF\xFE\x3D\xD8\x00\xDE"s), "\xF0\x9F\x98\x80") << "a surrogate pair";
  EXPECT_EQ(text_of("\xFF\xFE\x3D\xD8h\0"s), "\xEF\xBF\xBDh") << "an unpaired surrogate";
  EXPECT_EQ(text_of("\xFF\xFEh\0x"s), "h\xEF\xBF\xBD") << "half of a code unit";
  send_warnings_to(&std::cerr);
  EXPECT_NE(said.str().find("file: is UTF-16 text"), std::string::npos) << said.str();
}

TEST_F(ReadText, RejectsBinaryFormatsWithAdvice) {
  const std::pair<std::string, std::vector<const char*>> files[] = {
      {"\x1F\x8B\x08", {"gzip", "gunzip"}},
      {"PAR1\x15", {"Parquet", "name it"}},
      {"PK\x03\x04xl/", {"zip archive"}},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:1",
       {"Git LFS pointer", "git lfs pull"}},
      {"\x28\xB5\x2F\xFD\x04", {"zstd", "unzstd"}},
      {"GGUF\x03", {"GGUF", "hybrid export"}},
      {"\xFF\xFE\0\0h\0\0\0"s, {"UTF-32", "iconv"}},
  };
  for (const auto& [bytes, said] : files) {
    const std::string problem = problem_of(bytes);
    EXPECT_TRUE(contains(problem, folder_ / "file")) << problem;
    for (const char* text : said) EXPECT_TRUE(contains(problem, text)) << problem;
  }
}

}  // namespace
}  // namespace hybrid_trainer
