// Networks of several sensors trained on the user's arrays.
#include <fstream>

#include "hybrid_trainer/core/error.h"
#include "src/files/output_file.h"
#include "src/tasks/network_data.h"
#include "tests/tasks/trident_runs.h"

namespace hybrid_trainer {
namespace {

class ArrayDataRun : public TridentRuns {
 protected:
  /// Writes an array of '<f4' or '<i4' like numpy.save.
  void write_npy(const std::string& name, const Tensor& tensor, std::int64_t examples) const {
    std::string shape = concat(examples, ",");
    for (int i = 1; i < tensor.shape().rank(); ++i) shape += concat(" ", tensor.size(i), ",");
    std::string header = concat("{'descr': '", tensor.dtype() == DType::kI32 ? "<i4" : "<f4",
                                "', 'fortran_order': False, 'shape': (", shape, "), }");
    header.resize((header.size() + 11 + 63) / 64 * 64 - 11, ' ');
    header += '\n';
    std::ofstream out(folder_ / (name + ".npy"), std::ios::binary);
    const auto bytes = static_cast<std::uint16_t>(header.size());
    out << std::string("\x93NUMPY\x01\x00", 8) << static_cast<char>(bytes & 255)
        << static_cast<char>(bytes >> 8) << header;
    const std::size_t each = tensor.bytes() / static_cast<std::size_t>(tensor.size(0));
    out.write(static_cast<const char*>(tensor.raw()),
              static_cast<std::streamsize>(each * static_cast<std::size_t>(examples)));
  }
  /// Writes the first examples drawn from the seed.
  Batch write_arrays(std::int64_t examples) {
    std::filesystem::create_directories(folder_);
    const HybridTrainerConfig config = small_config();
    for (const NetworkDataKind& kind : network_data_kinds()) {
      if (kind.family != "trident") continue;
      const auto scenes = kind.open({.config = config})->training(config).dataset;
      const Batch drawn = scenes->read(0, scenes->empty_batch(examples, stream_));
      for (const auto& [name, tensor] : drawn.tensors()) write_npy(name, tensor, examples);
      return drawn;
    }
    throw Error(ExitCode::kInternal, "no data of trident");
  }
  std::string refusal() {
    TrainingRunSettings all = settings(small_config(), "refused");
    all.data = folder_;
    try {
      run_training(all, console_);
    } catch (const Error& error) {
      EXPECT_FALSE(std::filesystem::exists(scratch_ / "refused"));
      return error.what();
    }
    return "nothing was thrown";
  }
  const std::filesystem::path folder_ = scratch_ / "arrays";
  const Stream stream_{MemoryPool::create("test")};
};

TEST_F(ArrayDataRun, TrainsAndHoldsOutLastExamples) {
  write_arrays(60);
  HybridTrainerConfig config = small_config();
  TrainingRunSettings all = settings(config, "run");
  all.data = folder_;
  const TrainingRunResult result = run_training(all, console_);
  EXPECT_EQ(result.end, RunEnd::kFinished);
  EXPECT_NE(console_.str().find("arrays: 60 examples"), std::string::npos) << console_.str();
  const TrainedRun run = load_trained_run(scratch_ / "run", stream_);
  EXPECT_EQ(score(run, {}, DType::kF32, stream_).examples, 6);
  EXPECT_FALSE(score(run, {}, DType::kF32, stream_).best_loss);
  EXPECT_EQ(score(run, folder_, DType::kF32, stream_).examples, 60)
      << "all examples of explicitly given data";
  copy_up_to(scratch_ / "run", scratch_ / "parts", 20, 40);
  all.run = scratch_ / "parts";
  all.resume = true;
  run_training(all, console_);
  EXPECT_EQ(newest_checkpoint_digest(scratch_ / "parts"),
            newest_checkpoint_digest(scratch_ / "run"));
}

TEST_F(ArrayDataRun, RejectsMismatchedOrInvalidArrays) {
  const Batch drawn = write_arrays(20);
  const auto expect = [&](const char* told) {
    const std::string text = refusal();
    EXPECT_NE(text.find(told), std::string::npos) << text;
  };
  write_npy("geo", drawn.at("geo"), 19);
  expect("geo.npy has 19 examples, but video.npy has 20");
  write_npy("geo", drawn.at("cooling"), 20);
  expect("geo.npy: got shape (20, 4), want (examples, …) with (1, 2) per example");
  write_npy("geo", drawn.at("geo"), 20);
  drawn.at("geo").data<float>()[7] = NAN;
  write_npy("geo", drawn.at("geo"), 20);
  expect("geo.npy: example 3 has nan, want finite numbers");
  drawn.at("geo").data<float>()[7] = 0;
  write_npy("geo", drawn.at("geo"), 20);
  write_npy("plume_kinds", drawn.at("plume_kinds"), 20);
  write_npy(
      "event_tokens",
      Tensor::zeros(drawn.at("event_tokens").shape(), DType::kF32, MemoryKind::kData, stream_), 20);
  EXPECT_EQ(refusal(), "nothing was thrown") << "integers may be stored as floats";
  std::filesystem::remove_all(scratch_ / "refused");
  const Tensor halves =
      Tensor::zeros(drawn.at("event_tokens").shape(), DType::kF32, MemoryKind::kData, stream_);
  halves.data<float>()[5] = 0.5f;
  write_npy("event_tokens", halves, 20);
  expect("event_tokens.npy: example 1 has 0.5, want whole numbers");
  halves.data<float>()[5] = 9;
  write_npy("event_tokens", halves, 20);
  expect("event_tokens.npy: example 1 has 9, want whole numbers from 0 to 8");
  std::filesystem::remove(folder_ / "cooling.npy");
  expect("has no cooling.npy; want a folder with video.npy, visible.npy");
  std::filesystem::remove_all(folder_);
  expect("arrays: does not exist; want a folder with video.npy");
  write_file(folder_, "not a folder");
  expect("arrays is not a folder; want a folder with video.npy");
}

}  // namespace
}  // namespace hybrid_trainer
