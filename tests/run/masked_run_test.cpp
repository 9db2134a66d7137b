#include "hybrid_trainer/core/error.h"
#include "src/run/run_files.h"
#include "tests/run/run_over_ranks.h"

namespace hybrid_trainer {
namespace {

namespace fs = std::filesystem;

/// Encoders that predict masked tokens, through all four phases.
class MaskedRun : public RunOverRanks {
 protected:
  HybridTrainerConfig encoder(const std::string& mixers = "tb") const {
    HybridTrainerConfig of = config();
    of.model.family = "semiseparable";
    of.model.bidirectional = true;
    of.model.layers = static_cast<std::int64_t>(mixers.size());
    of.model.mixers = mixers;
    of.objective = "masked";
    of.training.evaluate_every_steps = 9;
    return of;
  }
};

TEST_F(MaskedRun, OverRanksAndResumedMatchesOneRank) {
  train(encoder(), scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  const std::vector<StepRecord> records = records_of(scratch_ / "one");
  EXPECT_TRUE(std::ranges::any_of(
      records, [](const StepRecord& one) { return one.phase == Phase::kPredict; }));
  EXPECT_LT(*records.back().validation_loss, 0.95 * *records[8].validation_loss)
      << "the loss must fall";
  for (const int ranks : {2, 4}) {
    const fs::path run = scratch_ / concat("ranks", ranks);
    HybridTrainerConfig sharded = encoder();
    sharded.distributed.zero = ranks - 1;
    train(sharded, run, ranks);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << ranks << " ranks";
    EXPECT_EQ(records_of(run).back().validation_loss, records.back().validation_loss);
    for (const char* const left : {"step-0000000040", "step-0000000030"})
      ASSERT_GT(fs::remove_all(run / "checkpoints" / left), 0u);
    train(encoder(), run, 1, true);
    EXPECT_EQ(newest_checkpoint_digest(run), wanted) << "resumed";
  }
}

TEST_F(MaskedRun, DrawsReplacementsWithinVocabulary) {
  HybridTrainerConfig of = encoder();
  of.model.vocabulary = 40;
  EXPECT_EQ(of.masking(20)->words, 20) << "of the data";
  EXPECT_EQ(of.masking(3006)->words, 39) << "data of another tokenizer";
  EXPECT_EQ(of.masking(3006)->mask_token, 39);
}

TEST_F(MaskedRun, MaskOfTheTokenizerIsPartOfTheVocabulary) {
  HybridTrainerConfig of = encoder();
  of.model.vocabulary = 40;
  of.mask_token = 4;
  EXPECT_EQ(of.data_vocabulary(), 40);
  const TemporaryFolder folder;
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nplay\n##ing\n");
  const auto tokenizer = load_tokenizer(folder.path());
  const MaskSettings masks = *of.masking(40, tokenizer.get());
  EXPECT_EQ(masks.mask_token, 4);
  EXPECT_EQ(masks.words, 40);
  EXPECT_EQ(masks.special, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
  EXPECT_TRUE(masks.continues.empty());
  of.objective = "masked_words";
  EXPECT_EQ(of.masking(40, tokenizer.get())->continues,
            (std::vector<bool>{false, false, false, false, false, false, true}));
}

TEST_F(MaskedRun, WholeWordsRequireTokensThatBeginThem) {
  HybridTrainerConfig of = encoder();
  of.model.vocabulary = 40;
  of.objective = "masked_words";
  const auto tokenizer = make_character_tokenizer("abc");
  for (const Tokenizer* const none :
       {static_cast<const Tokenizer*>(nullptr), static_cast<const Tokenizer*>(tokenizer.get())})
    expect_words(message_of<ConfigError>([&] { of.masking(40, none); }),
                 {"objective: got masked_words", none == nullptr ? "no tokenizer" : "no token of",
                  "want masked"});
}

TEST_F(MaskedRun, OfWholeWordsOverRanksAndResumedMatchesOneRank) {
  HybridTrainerConfig of = encoder();
  of.objective = "masked_words";
  train(of, scratch_ / "one", 1);
  const std::string wanted = newest_checkpoint_digest(scratch_ / "one");
  train(encoder(), scratch_ / "tokens", 1);
  EXPECT_NE(newest_checkpoint_digest(scratch_ / "tokens"), wanted);
  train(of, scratch_ / "two", 2);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "two"), wanted);
  ASSERT_GT(fs::remove_all(scratch_ / "two/checkpoints/step-0000000040"), 0u);
  train(of, scratch_ / "two", 1, true);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "two"), wanted) << "resumed";
}

TEST_F(MaskedRun, AddsMaskTokenAndReportsMaskedLoss) {
  HybridTrainerConfig of = encoder("b");
  of.training.steps = 9;
  std::string console;
  train_tiny(of, data_, scratch_ / "run", false, &console);
  const RunPaths paths{(scratch_ / "run").string()};
  EXPECT_EQ(config_of_run(paths).model.vocabulary, tokenizer_of_run(paths)->vocabulary_size() + 1);
  EXPECT_NE(console.find("masked: loss over 2 of the 16 tokens of a sequence"), console.npos)
      << console;
  EXPECT_NE(read_text(paths.report()).find("nats per masked token"), std::string::npos);
  of.model.vocabulary = tokenizer_of_run(paths)->vocabulary_size();
  try {
    train_tiny(of, data_, scratch_ / "none");
    FAIL() << "a vocabulary without the mask was accepted";
  } catch (const ConfigError& error) {
    EXPECT_NE(std::string(error.what()).find("and the mask needs one more"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer
