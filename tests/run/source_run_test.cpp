#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <sstream>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "src/data/examples/held_out_prompts.h"
#include "src/data/examples/row_tokens.h"
#include "src/distributed/host_ranks.h"
#include "src/run/language_data.h"
#include "src/run/run_export.h"
#include "src/run/run_files.h"
#include "tests/run/run_contracts.h"
#include "tests/support/model_folders.h"

// A small BART learns to write words backwards.
namespace hybrid_trainer {
namespace {

constexpr int kLetters = 5;

/// BART's special tokens and five letters.
std::string letter_tokenizer() {
  std::string vocabulary = R"("<s>":0,"<pad>":1,"</s>":2)", added;
  for (int letter = 0; letter < kLetters; ++letter)
    vocabulary += concat(",\"", static_cast<char>('a' + letter), "\":", letter + 3);
  int id = 0;
  for (const char* token : {"<s>", "<pad>", "</s>"})
    added += concat(added.empty() ? "" : ",", R"({"id":)", id++, R"(,"content":")", token,
                    R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    R"("special":true})");
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)",
      R"("trim_offsets":true,"use_regex":true},"post_processor":{"type":"RobertaProcessing",)",
      R"("sep":["</s>",2],"cls":["<s>",0],"trim_offsets":true,"add_prefix_space":false},)",
      R"("decoder":{"type":"ByteLevel","add_prefix_space":true,"trim_offsets":true,)",
      R"("use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)",
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)",
      R"("byte_fallback":false,"vocab":{)", vocabulary, R"(},"merges":[]}})");
}

std::string word(std::uint64_t seed) {
  std::string letters;
  const auto length = 2 + random_below({seed}, 0, 3);
  for (std::uint64_t i = 1; i <= length; ++i)
    letters += static_cast<char>('a' + random_below({seed}, i, kLetters));
  return letters;
}

std::string reversed(std::string text) {
  std::ranges::reverse(text);
  return text;
}

class SourceRun : public RunContracts {
 protected:
  SourceRun() {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig model{.family = "bart", .layers = 1, .heads = 2, .width = 32, .context = 12};
    model.vocabulary = 8;
    model.encoder = {.layers = 1, .heads = 2, .context = 10};
    model.encoder.context = model.context;  // one key of config.json sets both
    const auto made = make_model(resolved_model_config(model), 5, stream);
    export_hugging_face(*made, nullptr, scratch_ / "model", stream, model_families(), DType::kF32,
                        R"({"bos_token_id":0,"eos_token_id":2,"pad_token_id":1,)"
                        R"("decoder_start_token_id":2,"forced_eos_token_id":2})");
    write_text(scratch_ / "model/tokenizer.json", letter_tokenizer());
    std::string lines;
    for (std::uint64_t i = 0; i < 120; ++i) lines += row(word(i));
    write_text(scratch_ / "pairs.jsonl", lines);
  }
  static std::string row(const std::string& source) {
    return concat(R"({"prompt":")", source, R"(","completion":")", reversed(source), "\"}\n");
  }
  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.model.encoder.source_length = 8;
    config.data.batch_size = 8;
    config.data.layout = "apart";
    config.data.sequence_length = 8;
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config,
                               const std::string& run) const override {
    return {.config = config,
            .data = scratch_ / "pairs.jsonl",
            .run = scratch_ / run,
            .init_from = scratch_ / "model",
            .command = "test"};
  }
  /// Writes a word with the model of a run or a folder.
  static std::string written(const TrainedRun& run, const std::string& source, std::int64_t beams,
                             const Stream& stream) {
    const ModelConfig& model = run.model().config();
    Seq2SeqSettings writing = seq2seq_settings_of(model, generation_keys_of(run));
    writing.beams = beams;
    Seq2SeqGenerator writer(run.model(), writing, DType::kF32, stream);
    const EnclosedText tokens =
        enclosed_text(source, *run.tokenizer, ControlText::kAsTokens, model.encoder.context);
    return readable_text(*run.tokenizer, writer.write(tokens.tokens));
  }
};

TEST_F(SourceRun, LearnsToReverseWords) {
  HybridTrainerConfig config = SourceRun::config();
  config.training.steps = 400;
  config.optimizer.learning_rate = 5e-3;
  const TrainingRunResult result = train(config, "run");
  EXPECT_LT(*result.summary.final_validation_loss, 0.1) << console_.str();
  for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0);
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  int right = 0;
  for (std::uint64_t i = 500; i < 520; ++i)
    for (const std::int64_t beams : {1, 3})
      right += written(run, word(i), beams, stream) == reversed(word(i)) ? 1 : 0;
  EXPECT_GE(right, 36) << "right answers to 40 mostly unseen words";
  export_model(run, scratch_ / "exported", {}, stream);
  const TrainedRun again = load_hugging_face_folder(scratch_ / "exported", "fp32", stream);
  EXPECT_EQ(written(again, "abcd", 2, stream), written(run, "abcd", 2, stream));
}

/// The learning rate leaves the weights unchanged. All phases train on smoothed targets, and the
/// evaluation uses plain ones.
TEST_F(SourceRun, SmoothsOnlyTrainingTargets) {
  HybridTrainerConfig config = SourceRun::config();
  config.optimizer.learning_rate = 1e-9;
  config.optimizer.weight_decay = 0;
  const double plain = *train(config, "plain").summary.final_validation_loss;
  config.training.label_smoothing = 0.4;
  const TrainingRunResult result = train(config, "smoothed");
  EXPECT_NEAR(*result.summary.final_validation_loss, plain, 1e-5);
  for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0);
  const auto wanted = records_of(scratch_ / "plain"), found = records_of(scratch_ / "smoothed");
  ASSERT_EQ(found.size(), wanted.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NE(found[i].loss, wanted[i].loss) << name_of(found[i].phase) << i;
  config.training.label_smoothing = 0;
  EXPECT_THROW(train(config, "smoothed", true), ConfigError)
      << "its losses would not be comparable";
}

TEST_F(SourceRun, ResumeRecomputeAndRanksAreBitIdentical) {
  HybridTrainerConfig config = SourceRun::config();
  config.gradient_accumulation.micro_batches = 2;
  config.data.batch_size = 2;
  config.training.threads = 1;
  config.training.steps = 20;
  config.model.dropout = 0.1;
  train(config, "whole");
  const std::string whole = newest_checkpoint_digest(scratch_ / "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "parts", 10, 20);
  train(config, "parts", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"), whole);
  for (const double share : {0.5, 1.0}) {
    config.memory.recompute = share;
    const std::string run = concat("recomputed", share);
    train(config, run);
    EXPECT_EQ(newest_checkpoint_digest(scratch_ / run), whole);
  }
  config.memory.recompute = 0;
  config.distributed.zero = 3;
  const Interruption interruption;
  run_thread_ranks(2, [&](Communicator& ranks) {
    std::ostringstream console;
    TrainingRunSettings all = settings(config, "ranks");
    all.interruption = &interruption;
    all.ranks = &ranks;
    run_training(all, console);
  });
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "ranks"), whole);
}

/// Sources are padded, and the model ignores the padding.
TEST_F(SourceRun, LongerPaddingDoesNotChangeLoss) {
  HybridTrainerConfig config = SourceRun::config();
  config.training.steps = 4;
  const double loss = *train(config, "short").summary.final_validation_loss;
  config.model.encoder.source_length = 12;
  EXPECT_NEAR(*train(config, "long").summary.final_validation_loss, loss, 1e-5);
}

TEST_F(SourceRun, DecoderAdaptersKeepFewerActivations) {
  HybridTrainerConfig config = SourceRun::config();
  config.training.steps = 12;
  config.lora.rank = 4;
  const auto activations = [&](const std::string& targets) {
    config.lora.targets = targets;
    const std::string run = targets.substr(0, 3);
    train(config, run);
    std::size_t most = 0;
    for (const StepRecord& record : records_of(scratch_ / run))
      most = std::max(
          most, record.device_memory.peak[static_cast<std::size_t>(MemoryKind::kActivations)]);
    return most;
  };
  const std::size_t all = activations("all-linear");
  EXPECT_LT(activations("encoder_attn.q_proj"), all * 3 / 4);
  const MergedExport merged = export_merged(scratch_ / "all", scratch_ / "merged", {});
  EXPECT_LT(merged.change.largest_change, 1e-4 * merged.change.largest_logit);
}

TEST_F(SourceRun, RejectsRowsWithoutSourceTextPair) {
  const auto refusal = [&](const std::string& line) {
    write_text(scratch_ / "pairs.jsonl", line + "\n");
    try {
      train(config(), "refused");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing was thrown");
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != text.npos;
  };
  EXPECT_TRUE(contains(refusal(R"({"text":"abc"})"), "it has no prompt"));
  EXPECT_TRUE(contains(refusal(R"({"messages":[{"role":"user","content":"ab"},)"
                               R"({"role":"assistant","content":"ba"}]})"),
                       "a list of messages"));
}

TEST_F(SourceRun, ReportsTruncatedSourcesAndTexts) {
  write_text(scratch_ / "pairs.jsonl", row("abcdeabcde") + row("ab") + row("abcdeabcdeabcde"));
  HybridTrainerConfig config = SourceRun::config();
  config.training.steps = 2;
  config.data.validation_fraction = 0;
  train(config, "cut");
  EXPECT_NE(console_.str().find("2 sources are longer than 8 tokens"), std::string::npos)
      << console_.str();
  EXPECT_NE(console_.str().find("2 of 3 rows are longer than 8 tokens"), std::string::npos)
      << console_.str();
}

TEST_F(SourceRun, RejectsPreferencesAndMissingStartToken) {
  HybridTrainerConfig config = SourceRun::config();
  config.objective = "orpo";
  write_text(scratch_ / "pairs.jsonl", R"({"prompt":"ab","chosen":"ba","rejected":"ab"})");
  EXPECT_THROW(train(config, "pairs"), Error);
  std::filesystem::remove(scratch_ / "model/generation_config.json");
  std::string text = read_text(scratch_ / "model/config.json");
  const std::string key = "\"decoder_start_token_id\"";
  text.replace(text.find(key), key.size(), "\"another_token_id\"");
  write_text(scratch_ / "model/config.json", text);
  config.objective = "next_token";
  try {
    train(config, "start");
    FAIL() << "a missing start token was accepted";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("decoder_start_token_id"), std::string::npos);
  }
}

}  // namespace
}  // namespace hybrid_trainer
