#include "src/run/text_outputs.h"

#include <gtest/gtest.h>

#include <numeric>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/memory_pool.h"
#include "hybrid_trainer/models/model_family.h"

namespace hybrid_trainer {
namespace {

constexpr std::int64_t kLength = 32;

/// Rows of one to three texts, of 2 to 9 tokens each, that need several sequences.
std::vector<TextRow> rows_of_texts(std::int64_t count) {
  std::vector<TextRow> rows;
  for (std::int64_t i = 0; i < count; ++i) {
    TextRow& row = rows.emplace_back();
    for (std::int64_t text = 0; text <= i % 3; ++text)
      row.ends.push_back((row.ends.empty() ? 0 : row.ends.back()) + 2 + (5 * i + 3 * text) % 8);
    row.tokens.resize(static_cast<std::size_t>(row.ends.back()));
    std::iota(row.tokens.begin(), row.tokens.end(), static_cast<std::int32_t>(i % 30));
  }
  return rows;
}

class TextOutputsOfModel : public ::testing::Test {
 protected:
  TextOutputs outputs(const std::vector<TextRow>& rows, std::int64_t batch_size,
                      const Stream& stream) {
    const ModelConfig config{.family = "llama",
                             .layers = 2,
                             .heads = 2,
                             .width = 16,
                             .context = kLength,
                             .vocabulary = 64,
                             .pooling = "mean"};
    const std::unique_ptr<Network> network = make_network(config, 3, stream);
    return text_outputs(as_language_model(*network, "llama", "the test"),
                        PackedTexts(rows, {.sequence_length = kLength}), batch_size, DType::kF32,
                        stream);
  }
  Stream stream_{MemoryPool::create("test")};
};

TEST_F(TextOutputsOfModel, AreThoseOfEachTextAlone) {
  const std::vector<TextRow> rows = rows_of_texts(12);
  for (const std::int64_t batch_size : {1, 3, 100}) {
    const TextOutputs together = outputs(rows, batch_size, stream_);
    ASSERT_EQ(together.first.size(), rows.size());
    EXPECT_EQ(together.values.shape(), (Shape{24, 16}));
    for (std::size_t i = 0; i < rows.size(); ++i) {
      std::int64_t begin = 0;
      for (std::int64_t role = 0; role < std::ssize(rows[i].ends); ++role) {
        const std::int64_t end = rows[i].ends[static_cast<std::size_t>(role)];
        TextRow alone;
        alone.tokens.assign(rows[i].tokens.begin() + begin, rows[i].tokens.begin() + end);
        alone.ends = {end - begin};
        const TextOutputs wanted = outputs({alone}, 1, stream_);
        for (std::size_t channel = 0; channel < 16; ++channel)
          EXPECT_NEAR(together.of(i, role)[channel], wanted.of(0)[channel], 1e-5f)
              << "row " << i << ", text " << role;
        begin = end;
      }
    }
  }
}

TEST_F(TextOutputsOfModel, UseSmallerBatchesIfMemoryIsShort) {
  const std::vector<TextRow> rows = rows_of_texts(60);
  const auto in_memory = [&](const std::shared_ptr<MemoryPool>& pool) {
    const TextOutputs found = outputs(rows, 100, Stream(pool));
    const float* const values = found.values.data<float>();
    return std::vector<float>(values, values + found.values.elements());
  };
  const auto roomy = MemoryPool::create("roomy");
  const std::vector<float> wanted = in_memory(roomy);
  const std::size_t peak = roomy->use().peak_total;
  const std::vector<float> found = in_memory(MemoryPool::create("tight", peak * 2 / 3));
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], wanted[i], 1e-5f) << i;
  EXPECT_THROW(in_memory(MemoryPool::create("tiny", peak / 50)), OutOfMemory);
}

TEST(Normalized, HasNormOneUnlessAllIsZero) {
  const std::vector<float> vector{3, 0, -4}, zeros{0, 0};
  EXPECT_EQ(normalized(vector), (std::vector<float>{0.6f, 0, -0.8f}));
  EXPECT_EQ(normalized(zeros), zeros);
}

}  // namespace
}  // namespace hybrid_trainer
