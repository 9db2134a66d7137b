// A decode that cannot be recorded is enqueued every time; a computed one is never repeated.

#include "src/models/decode_recording.h"

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/models/model_family.h"
#include "tests/cuda/cuda_case.h"

namespace hybrid_trainer {
namespace {

class EmulatedDecodeRecording : public ::testing::Test {
 protected:
  /// Enqueues a decode that fails in "computing" or "recording", as `fails` says.
  void run(const std::string& fails) {
    recording_.run(
        *model_, 1, batch_,
        [&](const Batch& batch, const Stream& on) {
          const bool computes = &on == &stream_;
          ++(computes ? computed_ : recorded_);
          if (fails == (computes ? "computing" : "recording"))
            throw Error(ExitCode::kDevice, fails);
          return batch.at("tokens");
        },
        stream_);
  }
  const Stream stream_ = cuda_stream();
  const std::unique_ptr<LanguageModel> model_ =
      make_model({.layers = 1, .heads = 2, .width = 8, .context = 4, .vocabulary = 11}, 1, stream_);
  const Batch batch_{
      {{"tokens", copy_to(kernels::random_ids({1}, 11, 1, kernels::cpu_stream()), stream_)}}};
  DecodeRecording recording_;
  int computed_ = 0, recorded_ = 0;
};

TEST_F(EmulatedDecodeRecording, FailedDecodeIsNotRepeated) {
  EXPECT_THROW(run("computing"), Error);
  EXPECT_EQ(computed_, 1) << "the states of a text may have advanced";
  EXPECT_EQ(recorded_, 0);
}

TEST_F(EmulatedDecodeRecording, UnrecordableDecodeIsComputedEachTime) {
  for (int i = 0; i < 4; ++i) run("recording");
  EXPECT_EQ(computed_, 4);
  EXPECT_EQ(recorded_, 1) << "it is tried once";
}

TEST_F(EmulatedDecodeRecording, ComputesOnceThenReplays) {
  for (int i = 0; i < 4; ++i) run("");
  EXPECT_EQ(computed_, 1);
  EXPECT_EQ(recorded_, 2) << "once for the measurement, once for the recording";
}

}  // namespace
}  // namespace hybrid_trainer
