#include "hybrid_trainer/hugging_face/token_ids.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

using Tokens = std::vector<std::int32_t>;

TEST(TokenIds, AreThoseOfTheFolder) {
  const TemporaryTestFolder folder;
  EXPECT_EQ(token_ids_in(folder.path()), "");
  EXPECT_EQ(end_token_ids_in(folder.path()), Tokens{});
  write_bytes(folder / "config.json", R"({"bos_token_id": 3, "eos_token_id": [5, 4], "width": 8})");
  EXPECT_EQ(token_ids_in(folder.path()), R"({"bos_token_id":3,"eos_token_id":[5,4]})");
  EXPECT_EQ(generation_end_tokens_in(folder.path()), (Tokens{5, 4}));
  write_bytes(folder / "generation_config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(generation_end_tokens_in(folder.path()), Tokens{7});
  EXPECT_EQ(end_token_ids_in(folder.path()), (Tokens{4, 5, 7}));
  for (const char* bad : {R"({"eos_token_id": "x"})", R"({"eos_token_id": -1})", "[]"}) {
    write_bytes(folder / "generation_config.json", bad);
    const std::string message = message_of<DataError>([&] { end_token_ids_in(folder.path()); });
    EXPECT_TRUE(contains(message, "generation_config.json"));
    EXPECT_TRUE(contains(message, "want"));
  }
}

TEST(TokenIds, EndTokensAreAddedWhereTheyAreMissing) {
  const std::string text = R"({"eos_token_id": [1, 2], "top_k": 3})";
  EXPECT_EQ(with_end_tokens(text, Tokens{2, 1}), text);
  const TemporaryTestFolder folder;
  write_bytes(folder / "config.json", with_end_tokens(text, Tokens{2, 9}));
  EXPECT_EQ(token_ids_in(folder.path()), R"({"eos_token_id":[1,2,9]})");
  write_bytes(folder / "config.json", with_end_tokens(R"({"eos_token_id": null})", Tokens{9}));
  EXPECT_EQ(token_ids_in(folder.path()), R"({"eos_token_id":9})");
}

}  // namespace
}  // namespace hybrid_trainer
