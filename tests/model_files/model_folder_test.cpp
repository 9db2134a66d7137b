#include "src/model_files/model_folder.h"

#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "src/model_files/hugging_face/generation_config.h"
#include "src/model_files/hugging_face/hugging_face.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

TEST(ModelFolder, ReadsEachFileOnceAcrossCopies) {
  const TemporaryFolder scratch;
  write_text(scratch / "config.json", R"({"eos_token_id": 5})");
  write_text(scratch / "generation_config.json", R"({"eos_token_id": 7, "num_beams": 3})");
  write_text(scratch / "tokenizer_config.json", R"({"eos_token": "x", "chat_template": "a"})");
  write_text(scratch / "tokenizer.json", R"({"type": "bytes"})");
  const ModelFolder folder(scratch.path()), copy = folder;
  const auto ask = [&](const ModelFolder& model) {
    EXPECT_EQ(end_token_ids_in(model), (std::vector<std::int32_t>{5, 7}));
    EXPECT_EQ(read_generation_keys({model}).beams, 3);
    EXPECT_EQ(model.tokenizer()->kind(), TokenizerKind::kBytes);
    EXPECT_EQ(model.chat().chat_template->render({}, 0).text, "a");
    EXPECT_EQ(model.special_token("eos_token"), "x");
    EXPECT_EQ(model.tokenizer_files().at("tokenizer.json"), R"({"type": "bytes"})");
  };
  ask(folder);
  for (const char* name : {"config.json", "tokenizer_config.json", "tokenizer.json"})
    write_text(scratch / name, "{");
  ask(copy);
  message_of<DataError>([&] { ask(ModelFolder(scratch.path())); });
}

TEST(ModelFolder, SmallerLimitAppliesToCachedFile) {
  const TemporaryFolder scratch;
  write_text(scratch / "config.json", "{\"a\": 1}");
  const FolderFiles files(scratch.path());
  EXPECT_EQ(files.bytes("config.json", 8).size(), 8u);
  EXPECT_TRUE(contains(message_of<DataError>([&] { files.bytes("config.json", 7); }),
                       "config.json: has 8 bytes; want at most 7"));
  message_of<MissingInput>([&] { files.bytes("absent.json", 8); });
}

}  // namespace
}  // namespace hybrid_trainer
