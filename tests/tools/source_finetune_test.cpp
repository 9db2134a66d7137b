#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "hybrid_trainer/core/error.h"
#include "tests/run/letter_tokenizer.h"
#include "tests/support/test_files.h"
#include "tests/tools/hybrid_process.h"

// The commands over a model that reads a source and writes a text.
namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

bool contains(const std::string& text, const char* part) { return text.find(part) != text.npos; }

class SourceFinetune : public ::testing::Test {
 protected:
  SourceFinetune() {
    const fs::path golden = concat(HT_TEST_DATA_DIR, "/bart_a");
    fs::create_directory(scratch_ / "model");
    for (const char* name : {"config.json", "generation_config.json", "model.safetensors"})
      fs::copy(golden / name, scratch_ / "model");
    write_text(scratch_ / "model/tokenizer.json", letter_tokenizer());
    std::string lines;
    for (const char* word : {"ab", "abc", "bca", "deda", "ce", "eab"})
      lines += concat(R"({"prompt":")", word, R"(","completion":")", word, "\"}\n");
    write_text(scratch_ / "pairs.jsonl", lines);
  }
  ProcessResult run(const std::vector<std::string>& arguments) const {
    return run_hybrid(scratch_.path(), arguments);
  }
  ProcessResult well(const std::vector<std::string>& arguments) const {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
  const TemporaryFolder scratch_;
};

TEST_F(SourceFinetune, FromPairsToTexts) {
  const ProcessResult rows = well({"rows", "pairs.jsonl", "--model", "model", "--show", "2"});
  EXPECT_EQ(rows.output, "<s>abc</s>\n</s>⟦<s>abc</s>⟧\n");
  const auto counted =
      only_object(well({"rows", "pairs.jsonl", "--model", "model", "--json"}).output);
  EXPECT_EQ(counted.at("source_tokens").as_int64(), 29);
  well({"finetune", "--model", "model", "--data", "pairs.jsonl", "--run", "tuned", "--set",
        "training.steps=3", "--device", "cpu"});
  const auto config = boost::json::parse(read_text(scratch_ / "tuned/config.json"));
  EXPECT_EQ(config.at("data").at("sequence_length").as_int64(), 8) << "6 places, in eights";
  EXPECT_EQ(config.at("model").at("encoder").at("source_length").as_int64(), 8);
  const auto loss = only_object(well({"eval", "tuned", "--data", "pairs.jsonl", "--json"}).output);
  EXPECT_EQ(loss.at("tokens").as_int64(), 29);
  const auto text = only_object(
      well({"sample", "tuned", "--prompt", "abc", "--beam", "3", "--tokens", "6", "--json"})
          .output);
  EXPECT_EQ(text.at("prompt_tokens").as_int64(), 5);
  EXPECT_LE(text.at("tokens").as_int64(), 6);
  write_text(scratch_ / "sources.txt", "abc\nde\n");
  EXPECT_TRUE(contains(well({"sample", "tuned", "--prompts", "sources.txt"}).output, "\"line\":2"));
  well({"export", "tuned", "--output", "exported"});
  EXPECT_TRUE(contains(read_text(scratch_ / "exported/README.md"), "text2text-generation"));
  well({"sample", "exported", "--prompt", "abc"});
  EXPECT_TRUE(contains(well({"plan", "--model", "model", "--set", "data.sequence_length=8"}).output,
                       "activations"));
}

/// A longer sequence is advised only while the model's context has room for it.
TEST_F(SourceFinetune, SaysWhatToDoAboutRowsThatAreTooLong) {
  write_text(scratch_ / "long.jsonl",
             concat(R"({"prompt":"ab","completion":")", std::string(30, 'a'), "\"}\n",
                    R"({"prompt":"ab","completion":"b"})", "\n"));
  const auto told = [&](const char* run, const char* setting) {
    const ProcessResult result =
        well({"finetune", "--model", "model", "--data", "long.jsonl", "--run", run, "--set",
              "training.steps=1", "--set", setting, "--device", "cpu"});
    return result.output + result.errors;
  };
  EXPECT_TRUE(contains(told("whole", "data.batch_size=1"), "the model's context has no more"));
  EXPECT_TRUE(contains(told("short", "data.sequence_length=8"), "raise data.sequence_length"));
}

TEST_F(SourceFinetune, SmoothsTargetsWhereItIsTold) {
  const std::vector<std::string> asked{
      "finetune", "--model",  "model", "--data", "pairs.jsonl",      "--run",
      "smooth",   "--device", "cpu",   "--set",  "training.steps=2", "--label-smoothing"};
  const auto with = [&](const char* share) {
    std::vector<std::string> arguments = asked;
    arguments.emplace_back(share);
    return arguments;
  };
  const ProcessResult refused = run(with("1.5"));
  EXPECT_EQ(refused.exit_code, 78);
  EXPECT_TRUE(contains(refused.errors, "training.label_smoothing: got 1.5")) << refused.errors;
  EXPECT_FALSE(fs::exists(scratch_ / "smooth"));
  well(with("0.1"));
  const auto config = boost::json::parse(read_text(scratch_ / "smooth/config.json"));
  EXPECT_EQ(config.at("training").at("label_smoothing").to_number<double>(), 0.1);
}

TEST_F(SourceFinetune, SampleSaysWhatItDoesNotDoWithASource) {
  const auto refused = [&](std::vector<std::string> more) {
    more.insert(more.begin(), {"sample", "model"});
    const ProcessResult result = run(more);
    EXPECT_EQ(result.output, "");
    EXPECT_EQ(std::count(result.errors.begin(), result.errors.end(), '\n'), 1) << result.errors;
    return result;
  };
  EXPECT_TRUE(
      contains(refused({"--prompt", "ab", "--temperature", "0.5"}).errors, "--temperature"));
  EXPECT_TRUE(contains(refused({"--prompt", "ab", "--stop", "c"}).errors, "--stop"));
  EXPECT_TRUE(contains(refused({"--chat"}).errors, "--chat"));
  EXPECT_EQ(refused({"--prompt", "ab", "--beam", "0"}).exit_code, 64);
  const std::string longer(30, 'a');
  const ProcessResult error = refused({"--prompt", longer, "--context-overflow", "error"});
  EXPECT_TRUE(contains(error.errors, "the source has 32 tokens and the encoder's context is 20"));
  EXPECT_EQ(error.exit_code, 65);
  const ProcessResult cut = well({"sample", "model", "--prompt", longer});
  EXPECT_TRUE(contains(cut.errors, "12 at its end are left out")) << cut.errors;
}

TEST_F(SourceFinetune, OtherWaysToTrainAreRefused) {
  const auto refused = [&](const std::vector<std::string>& arguments, const char* part) {
    const ProcessResult result = run(arguments);
    EXPECT_NE(result.exit_code, 0);
    EXPECT_TRUE(contains(result.errors, part)) << result.errors;
    EXPECT_FALSE(fs::exists(scratch_ / "other"));
  };
  write_text(scratch_ / "preferences.jsonl", R"({"prompt":"ab","chosen":"ab","rejected":"ba"})");
  refused({"finetune", "--model", "model", "--data", "preferences.jsonl", "--run", "other",
           "--objective", "orpo"},
          "has an encoder");
  refused({"transcribe", "model", "clip.wav"}, "hears nothing");
}

/// A decoder searches too.
TEST(SampledBeams, OfADecoderAreTheLikeliestText) {
  const auto sample = [](std::vector<std::string> more) {
    more.insert(more.begin(), {"sample", "run", "--prompt", "Line", "--tokens", "5"});
    return in_trained_folder(more).output;
  };
  EXPECT_EQ(sample({"--beam", "1", "--temperature", "0"}), sample({"--temperature", "0"}));
  const std::string searched = sample({"--beam", "4"});
  EXPECT_EQ(searched.rfind("Line", 0), 0U);
  EXPECT_EQ(sample({"--beam", "4"}), searched);
}

}  // namespace
}  // namespace hybrid_trainer
