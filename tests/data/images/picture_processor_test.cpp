#include "src/data/images/picture_processor.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/images/picture_file.h"
#include "tests/data/images/image_golden.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::vector<float> values_of(const PictureProcessor& processor, const std::filesystem::path& path,
                             bool mirrors = false) {
  std::vector<float> values(static_cast<std::size_t>(processor.values()));
  processor.write(path, values, mirrors);
  return values;
}

class PictureProcessorTest : public ::testing::Test {
 protected:
  PictureSteps steps_of(const std::string& text) {
    folder_.write("preprocessor_config.json", text);
    return read_picture_steps(folder_.path());
  }
  std::string refusal_of(const std::string& text) {
    return message_of<DataError>([&] { steps_of(text); });
  }
  TemporaryFolder folder_;
};

TEST_F(PictureProcessorTest, MatchesTransformersBitForBit) {
  const SafetensorsFile expected(image_golden("processed.safetensors").string());
  EXPECT_EQ(expected.entries().size(), 6u * 3);
  for (const SafetensorsEntry& entry : expected.entries()) {
    const std::string name = entry.name.substr(0, entry.name.find('.'));
    const std::string file = entry.name.substr(name.size() + 1);
    const PictureProcessor processor(read_picture_steps(image_golden("processor_" + name)),
                                     entry.shape[0], entry.shape[1]);
    EXPECT_EQ(values_of(processor, image_golden(file)), golden_values<float>(expected, entry.name))
        << entry.name;
  }
}

TEST_F(PictureProcessorTest, ReadsLegacyKeysAndClassDefaults) {
  const PictureSteps plain = steps_of("{}");
  EXPECT_EQ(plain.height, 224);
  EXPECT_EQ(plain.filter, PictureFilter::kBilinear);
  EXPECT_FALSE(plain.crops);
  EXPECT_EQ(plain.mean[0], 0.5);
  const PictureSteps deit = steps_of(R"({"feature_extractor_type": "DeiTFeatureExtractor"})");
  EXPECT_EQ(deit.height, 256);
  EXPECT_EQ(deit.filter, PictureFilter::kBicubic);
  EXPECT_TRUE(deit.crops);
  EXPECT_EQ(deit.crop_width, 224);
  EXPECT_EQ(deit.mean[0], 0.485);
  const PictureSteps pair = steps_of(R"({"size": [32, 48], "do_center_crop": null})");
  EXPECT_EQ(pair.height, 32);
  EXPECT_EQ(pair.width, 48);
}

TEST_F(PictureProcessorTest, RejectsUnsupportedSettings) {
  expect_words(refusal_of(R"({"image_processor_type": "ConvNextImageProcessor"})"),
               {"image_processor_type", "ConvNextImageProcessor", "want ViTImageProcessor"});
  expect_words(refusal_of(R"({"size": {"longest_edge": 3}})"), {"size", "longest_edge"});
  expect_words(refusal_of(R"({"size": {"shortest_edge": 3, "longest_edge": 9}})"),
               {"only \"shortest_edge\""});
  expect_words(refusal_of(R"({"size": 0})"), {"size", "got 0"});
  expect_words(refusal_of(R"({"size": 99999999999})"), {"16384"});
  expect_words(refusal_of(R"({"resample": 7})"), {"resample", "0 to 5"});
  expect_words(refusal_of(R"({"image_mean": [1, 2]})"), {"image_mean", "three"});
  expect_words(refusal_of(R"({"image_std": [1, 0, 1]})"), {"image_std", "above 0"});
  expect_words(refusal_of(R"({"do_pad": true})"), {"do_pad"});
  expect_words(refusal_of(R"({"do_resize": "yes"})"), {"do_resize", "true or false"});
  const auto missing = message_of<MissingInput>([&] { read_picture_steps(folder_ / "nothing"); });
  expect_words(missing, {"preprocessor_config.json", "does not exist", "save_pretrained"});
}

TEST_F(PictureProcessorTest, OutputMustHaveModelSize) {
  const auto refusal = [&](const char* text) {
    return message_of<DataError>([&] { PictureProcessor(steps_of(text), 16, 16); });
  };
  expect_words(refusal(R"({"size": 224})"), {"224 x 224", "the model needs 16 x 16"});
  expect_words(refusal(R"({"size": {"shortest_edge": 16}})"), {"shortest side", "do_center_crop"});
  expect_words(refusal(R"({"size": 16, "do_center_crop": true, "crop_size": 20})"), {"20 x 20"});
  const PictureProcessor as_they_are(steps_of(R"({"do_resize": false})"), 16, 16);
  expect_words(message_of<DataError>([&] { as_they_are.check(image_golden("rgb.png")); }),
               {"21 x 34", "neither resizes nor crops"});
  expect_words(message_of<DataError>([&] { values_of(as_they_are, image_golden("rgb.png")); }),
               {"21 x 34"});
  const PictureProcessor sidewise(steps_of(R"({"do_resize": false})"), 34, 21);
  sidewise.check(image_golden("turned_6.jpg"));
  EXPECT_EQ(values_of(sidewise, image_golden("turned_6.jpg")).size(), 34u * 21 * 3);
}

TEST_F(PictureProcessorTest, PassesThroughArraysOfModelSize) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 1, 2)}";
  std::string file = std::string("\x93NUMPY\x01\x00", 8) + static_cast<char>(header.size()) + '\0';
  std::vector<float> planes{1, 2, 3, 4, 5, -6};
  file += header + std::string(reinterpret_cast<const char*>(planes.data()), 24);
  const std::filesystem::path path = folder_.write("a.npy", file);
  const PictureProcessor processor(steps_of(R"({"size": [1, 2]})"), 1, 2);
  processor.check(path);
  EXPECT_EQ(values_of(processor, path), (std::vector<float>{1, 3, 5, 2, 4, -6}));
  EXPECT_EQ(values_of(processor, path, true), (std::vector<float>{2, 4, -6, 1, 3, 5}));
  const PictureProcessor other(steps_of(R"({"size": [2, 2]})"), 2, 2);
  expect_words(message_of<DataError>([&] { other.check(path); }), {"3 x 1 x 2", "2 x 2"});
}

TEST_F(PictureProcessorTest, RejectsHugeResizedPictures) {
  const PictureProcessor cropping(
      steps_of(R"({"size": {"shortest_edge": 256}, "do_center_crop": true, "crop_size": 16})"), 16,
      16);
  std::vector<float> values(static_cast<std::size_t>(cropping.values()));
  cropping.write(Picture::of_size(1000, 10), values);
  expect_words(message_of<DataError>([&] { cropping.write(Picture::of_size(60'000, 1), values); }),
               {"60000 x 1 pixels to 15360000 x 256", "at most 33554432"});
  const PictureProcessor large(
      steps_of(R"({"size": 16384, "do_center_crop": true, "crop_size": 16})"), 16, 16);
  EXPECT_THROW(large.write(Picture::of_size(4, 4), values), DataError);
  expect_words(message_of<DataError>(
                   [&] { PictureProcessor(steps_of(R"({"rescale_factor": 1e308})"), 224, 224); }),
               {"rescale_factor", "finite"});
}

TEST_F(PictureProcessorTest, MirrorsPictureHorizontally) {
  const PictureProcessor processor(steps_of(R"({"do_resize": false})"), 21, 34);
  const std::vector<float> plain = values_of(processor, image_golden("rgb.png"));
  const std::vector<float> turned = values_of(processor, image_golden("rgb.png"), true);
  for (std::size_t y = 0; y < 21; ++y)
    for (std::size_t x = 0; x < 34; ++x)
      EXPECT_EQ(turned[(y * 34 + x) * 3], plain[(y * 34 + 33 - x) * 3]);
}

}  // namespace
}  // namespace hybrid_trainer
