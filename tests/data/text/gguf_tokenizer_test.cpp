#include <gtest/gtest.h>

#include <cmath>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/data/tokenizer.h"
#include "src/gguf/gguf_writer.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

class GgufTokenizerTest : public ::testing::Test {
 protected:
  /// A file with the tokens <unk>, one, two and ▁, and the given scores.
  std::unique_ptr<Tokenizer> load(const std::string& one, const std::string& two,
                                  double score = -2) {
    const std::filesystem::path path = folder_ / concat(++files_, ".gguf");
    write_gguf(path,
               {gguf_text("tokenizer.ggml.model", "llama"),
                gguf_texts("tokenizer.ggml.tokens", {"<unk>", one, two, "▁"}),
                gguf_numbers("tokenizer.ggml.scores", {0, -1, score, -3}),
                gguf_integers("tokenizer.ggml.token_type", {2, 1, 1, 1}),
                gguf_count("tokenizer.ggml.unknown_token_id", 0)},
               {}, [](std::size_t) { return Tensor(); });
    return load_tokenizer(path);
  }
  std::string refusal(const std::string& one, const std::string& two, double score = -2) {
    return message_of<DataError>([&] { load(one, two, score); });
  }
  const TemporaryFolder folder_;
  int files_ = 0;
};

TEST_F(GgufTokenizerTest, RejectsTokensOver512Bytes) {
  EXPECT_EQ(load("a", std::string(512, 'a'))->vocabulary_size(), 4);
  expect_words(refusal("a", std::string(513, 'a')), {"token 2 has 513 bytes", "512"});
}

TEST_F(GgufTokenizerTest, RejectsNanScores) {
  expect_words(refusal("a", "aa", std::nan("")), {"scores", "token 2", "NaN"});
}

}  // namespace
}  // namespace hybrid_trainer
