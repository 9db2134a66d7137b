#include <gtest/gtest.h>

#include <filesystem>

#include "hybrid_trainer/core/error.h"
#include "hybrid_trainer/files/input_file.h"
#include "memory/quantized_weight.h"
#include "src/files/safetensors.h"
#include "src/run/run_files.h"
#include "tests/support/model_folders.h"
#include "tests/support/parameters.h"
#include "tests/support/test_files.h"
#include "tests/support/test_tensors.h"

// A folder in the format of OpenAI's gpt-oss release (tests/golden/README.md).
namespace hybrid_trainer::testing {
namespace {

namespace fs = std::filesystem;

class MicroScalingFolder : public ::testing::Test {
 protected:
  /// Copies the folder with one tensor changed by `change`, or without it if that returns false.
  template <class Change>
  fs::path with_tensor(const std::string& name, const Change& change) {
    const fs::path folder = scratch_ / "changed";
    fs::remove_all(folder);
    fs::copy(folder_, folder);
    std::vector<NamedTensor> tensors;
    for (const SafetensorsEntry& entry : file_.entries()) {
      const Tensor tensor = file_.load(entry.name, MemoryKind::kData, stream_);
      if (entry.name != name || change(tensor)) tensors.push_back({entry.name, tensor});
    }
    write_safetensors(folder / "model.safetensors", tensors);
    return folder;
  }
  std::string problem_of(const fs::path& folder) {
    try {
      load_hugging_face_folder(folder, "fp32", stream_);
    } catch (const DataError& error) {
      return error.what();
    }
    return "";
  }
  const fs::path folder_ = concat(HT_TEST_DATA_DIR, "/gpt_oss_mxfp4");
  const SafetensorsFile file_{folder_ / "model.safetensors"},
      expected_{folder_ / "expected.safetensors"};
  const Stream stream_ = test_stream();
  const TemporaryFolder scratch_;
};

TEST_F(MicroScalingFolder, ExpertsMatchTransformersAndStayPacked) {
  const TrainedRun opened = load_hugging_face_folder(folder_, "mxfp4", stream_);
  std::size_t packed = 0;
  opened.model().visit_parameters([&](Parameter& parameter) {
    const bool is_packed = dynamic_cast<QuantizedWeight*>(&parameter.storage()) != nullptr;
    EXPECT_EQ(is_packed, parameter.role() == Role::kExpert) << parameter.name();
    if (!is_packed) return;
    ++packed;
    const FileTensor& part = parameter.in_files().front();
    const Tensor all =
        expected_.load("again.model." + part.name, MemoryKind::kData, stream_);  // (E, in, out)
    const std::vector<double> there = values_of(all),
                              here = values_of(wait_for_host(
                                  parameter.acquire(DType::kBF16, stream_).tensor(), stream_));
    const std::int64_t inputs = part.shape[0], outputs = part.shape[1], half = outputs / 2;
    for (std::int64_t o = 0; o < outputs; ++o) {
      const std::int64_t row = part.order.are_alike() ? o : o < half ? 2 * o : 2 * (o - half) + 1;
      for (std::int64_t i = 0; i < inputs; ++i) {
        const auto at = static_cast<std::size_t>((part.part * inputs + i) * outputs + row);
        ASSERT_EQ(here[static_cast<std::size_t>(o * inputs + i)], there[at])
            << parameter.name() << " " << o << ", " << i;
      }
    }
  });
  EXPECT_EQ(packed, 12u);
}

TEST_F(MicroScalingFolder, RoundTripIsBitIdentical) {
  const TrainedRun opened = load_hugging_face_folder(folder_, "mxfp4", stream_);
  export_hugging_face(opened.model(), nullptr, scratch_ / "out", stream_);
  const SafetensorsFile again(scratch_ / "out/model.safetensors");
  ASSERT_EQ(again.entries().size(), file_.entries().size());
  for (const SafetensorsEntry& entry : file_.entries()) {
    EXPECT_TRUE(same_bits(again.load(entry.name, MemoryKind::kData, stream_),
                          file_.load(entry.name, MemoryKind::kData, stream_)))
        << entry.name;
  }
  EXPECT_EQ(quantization_of_hugging_face(scratch_ / "out"), "mxfp4");
}

TEST_F(MicroScalingFolder, RejectsNaNExponent) {
  const std::string name = "model.layers.1.mlp.experts.down_proj_scales";
  const std::string problem = problem_of(with_tensor(name, [](const Tensor& tensor) {
    tensor.data<std::uint8_t>()[40] = 255;
    return true;
  }));
  EXPECT_NE(problem.find(name + " has the exponent 255, which means NaN"), std::string::npos)
      << problem;
}

TEST_F(MicroScalingFolder, RejectsBlocksWithoutScales) {
  const std::string name = "model.layers.0.mlp.experts.gate_up_proj_scales";
  const std::string problem = problem_of(with_tensor(name, [](const Tensor&) { return false; }));
  EXPECT_NE(problem.find(concat("has no tensor \"", name, "\"")), std::string::npos) << problem;
}

TEST_F(MicroScalingFolder, RejectsOtherQuantization) {
  try {
    load_hugging_face_folder(folder_, "nf4", stream_);
    ADD_FAILURE() << "nothing was thrown";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("(mxfp4), so they cannot be converted to nf4"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace hybrid_trainer::testing
