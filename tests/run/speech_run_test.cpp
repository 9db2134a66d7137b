#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <sstream>

#include "hybrid_trainer/audio/wav_file.h"
#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/core/random.h"
#include "hybrid_trainer/distributed/thread_communicator.h"
#include "hybrid_trainer/hugging_face/hugging_face.h"
#include "hybrid_trainer/run_folder/run_export.h"
#include "hybrid_trainer/run_folder/run_files.h"
#include "hybrid_trainer/speech/clip_features.h"
#include "hybrid_trainer/speech/transcription.h"
#include "tests/run/tiny_run.h"

// A small Whisper model learns which word a tone stands for.
namespace hybrid_trainer {
namespace {

constexpr int kClips = 24;
constexpr std::int64_t kPlaces = 13;  // of the encoder: 0.26 s

/// Letters, a space and Whisper's special tokens, with the timestamps of kPlaces.
std::string tokenizer_text() {
  std::string vocabulary = "\"\u0120\":0", added;
  for (int letter = 0; letter < 26; ++letter)
    vocabulary += concat(",\"", static_cast<char>('a' + letter), "\":", letter + 1);
  std::vector<std::string> special{"<|endoftext|>",   "<|startoftranscript|>", "<|en|>",
                                   "<|de|>",          "<|translate|>",         "<|transcribe|>",
                                   "<|notimestamps|>"};
  for (std::int64_t i = 0; i <= kPlaces; ++i)
    special.push_back(
        concat("<|", i * 2 / 100, ".", i * 2 % 100 < 10 ? "0" : "", i * 2 % 100, "|>"));
  int id = 27;
  for (const std::string& token : special)
    added += concat(added.empty() ? "" : ",", R"({"id":)", id++, R"(,"content":")", token,
                    R"(","single_word":false,"lstrip":false,"rstrip":false,"normalized":false,)",
                    R"("special":true})");
  return concat(
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[)", added,
      R"(],"normalizer":null,"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,)",
      R"("trim_offsets":true,"use_regex":true},"post_processor":null,"decoder":{"type":"ByteLevel",)",
      R"("add_prefix_space":true,"trim_offsets":true,"use_regex":true},"model":{"type":"BPE",)",
      R"("dropout":null,"unk_token":null,"continuing_subword_prefix":null,)",
      R"("end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,"vocab":{)", vocabulary,
      R"(},"merges":[]}})");
}

class SpeechRun : public ::testing::Test {
 protected:
  SpeechRun() {
    const Stream stream(MemoryPool::create("test"));
    ModelConfig model{.family = "whisper", .layers = 1, .heads = 2, .width = 32, .context = 16};
    model.vocabulary = 48;
    model.encoder = {.layers = 1, .heads = 2, .context = kPlaces, .features = 20};
    const auto made = make_model(resolved_model_config(model), 5, stream);
    export_hugging_face(*made, nullptr, scratch_ / "model", stream);
    write_text(scratch_ / "model/tokenizer.json", tokenizer_text());
    std::string lines;
    for (int i = 0; i < kClips; ++i) {
      const auto& [word, hertz] = kWords[static_cast<std::size_t>(i) % 3];
      write_tone(scratch_ / concat(i, ".wav"), hertz, static_cast<std::uint64_t>(i));
      lines += concat(R"({"audio":")", i, R"(.wav","text":")", word, R"(","language":"en"})", "\n");
    }
    write_text(scratch_ / "clips.jsonl", lines);
  }
  static void write_tone(const std::filesystem::path& path, double hertz, std::uint64_t seed) {
    Sound sound;
    for (std::uint64_t i = 0; i < 3600; ++i) {
      const double noise = 0.02 * (to_unit_float(philox({seed, 0, 0}, i)[0]) - 0.5);
      const double angle = 2 * std::numbers::pi * hertz * static_cast<double>(i) / kSpeechRate;
      sound.samples.push_back(static_cast<float>(0.3 * std::sin(angle) + noise));
    }
    write_wav(path, sound);
  }

  HybridTrainerConfig config() const {
    HybridTrainerConfig config = tiny_config();
    config.model = read_hugging_face_model_config(scratch_ / "model", 0);
    config.data.batch_size = 4;
    config.data.layout = "apart";
    config.data.sequence_length = 10;
    config.mixed_precision.full = config.mixed_precision.warmup = "fp32";
    return config;
  }
  TrainingRunSettings settings(const HybridTrainerConfig& config, const std::string& run) const {
    return {.config = config,
            .data = scratch_ / "clips.jsonl",
            .run = scratch_ / run,
            .init_from = scratch_ / "model",
            .command = "test"};
  }
  TrainingRunResult train(const HybridTrainerConfig& config, const std::string& run,
                          bool resume = false) {
    TrainingRunSettings all = settings(config, run);
    all.resume = resume;
    console_.str("");
    return run_training(all, console_);
  }

  const std::vector<std::pair<std::string, double>> kWords{
      {"low", 400}, {"mid", 1500}, {"top", 5000}};
  const TemporaryFolder scratch_;
  std::ostringstream console_;
};

TEST_F(SpeechRun, LearnsWhichWordAToneIs) {
  HybridTrainerConfig config = SpeechRun::config();
  config.training.steps = 120;
  config.optimizer.learning_rate = 1e-2;
  config.data.mask_frames = true;
  const TrainingRunResult result = train(config, "run");
  EXPECT_LT(*result.summary.final_validation_loss, 0.1) << console_.str();
  for (const Phase phase : kAllPhases) EXPECT_GT(result.summary.phase(phase).steps, 0);
  const Stream stream(MemoryPool::create("test"));
  const TrainedRun run = load_trained_run(scratch_ / "run", stream);
  const SpeechTokens tokens = read_speech_tokens(*run.tokenizer, run.tokenizer_folder);
  ClipFeatures features(run.model().config().encoder);
  for (const auto& [word, hertz] : kWords) {
    write_tone(scratch_ / (word + ".wav"), hertz, 99);
    const Transcript heard = transcribe(run.model(), *run.tokenizer, tokens,
                                        features.of(scratch_ / (word + ".wav")), {}, stream);
    EXPECT_EQ(heard.text, word);
    EXPECT_EQ(heard.language, "en") << "of two, the one that it was taught";
  }
}

TEST_F(SpeechRun, ResumedAndOverRanksHasTheSameBits) {
  HybridTrainerConfig config = SpeechRun::config();
  config.gradient_accumulation.micro_batches = 2;
  config.data.batch_size = 2;
  config.training.threads = 1;
  config.data.mask_frames = true;
  config.training.steps = 20;
  train(config, "whole");
  const std::string whole = newest_checkpoint_digest(scratch_ / "whole");
  copy_up_to(scratch_ / "whole", scratch_ / "parts", 10, 20);
  train(config, "parts", true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"), whole);
  config.memory.recompute = 1;
  train(config, "recomputed");
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "recomputed"), whole);
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

TEST_F(SpeechRun, WithoutAdaptersInTheEncoderItKeepsNothingThere) {
  HybridTrainerConfig config = SpeechRun::config();
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
  EXPECT_LT(activations("encoder_attn.q_proj"), all / 2);
  const MergedExport merged = export_merged(scratch_ / "all", scratch_ / "merged", {});
  EXPECT_LT(merged.largest_change, 1e-4 * merged.largest_logit);
}

TEST_F(SpeechRun, NamesARowThatCannotBeHeard) {
  const auto refusal = [&](const std::string& row) {
    write_text(scratch_ / "clips.jsonl", row + "\n");
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
  EXPECT_TRUE(
      contains(refusal(R"({"audio":"none.wav","text":"low","language":"en"})"), "none.wav"));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"low"})"), "\"language\" is missing"));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"low","language":"fr"})"), "got \"fr\""));
  EXPECT_TRUE(contains(refusal(R"({"audio":"0.wav","text":"","language":"en"})"), "text"));
}

}  // namespace
}  // namespace hybrid_trainer
