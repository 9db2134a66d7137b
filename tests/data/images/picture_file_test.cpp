#include "src/data/images/picture_file.h"

#include <gtest/gtest.h>

#include "hybrid_trainer/core/error.h"
#include "src/data/images/picture_formats.h"
#include "tests/data/images/image_golden.h"
#include "tests/support/test_files.h"

namespace hybrid_trainer {
namespace {

std::string array_of(const std::string& kind, const std::string& shape, const std::string& bytes) {
  const std::string header =
      "{'descr': '" + kind + "', 'fortran_order': False, 'shape': " + shape + "}";
  std::string file = "\x93NUMPY";
  file += std::string("\x01\x00", 2);
  file += static_cast<char>(header.size());
  file += '\0';
  return file + header + bytes;
}

class PictureFileTest : public ::testing::Test {
 protected:
  Picture read(const std::string& name, const std::string& bytes) {
    return read_picture(folder_.write(name, bytes));
  }
  std::string refusal(const std::string& bytes) {
    return message_of<DataError>([&] { read("a", bytes); });
  }
  std::string form_refusal(const std::string& bytes) {
    return message_of<DataError>([&] { read_picture_form(folder_.write("a", bytes)); });
  }
  TemporaryFolder folder_;
};

TEST_F(PictureFileTest, PixelsEqualPilConvertedToRgb) {
  const SafetensorsFile expected(image_golden("pictures.safetensors").string());
  EXPECT_EQ(expected.entries().size(), 18u);
  for (const SafetensorsEntry& entry : expected.entries()) {
    const Picture wanted = golden_picture(expected, entry.name);
    const Picture found = read_picture(image_golden(entry.name));
    EXPECT_EQ(found.height, wanted.height) << entry.name;
    EXPECT_EQ(found.width, wanted.width) << entry.name;
    EXPECT_EQ(found.pixels, wanted.pixels) << entry.name;
    const PictureForm form = read_picture_form(image_golden(entry.name));
    EXPECT_EQ(form.height * form.width, wanted.height * wanted.width) << entry.name;
  }
}

TEST_F(PictureFileTest, ReportsUnsupportedFormatByName) {
  const auto told = [](const char* name) {
    return message_of<DataError>([&] { read_picture_form(image_golden(name)); });
  };
  expect_words(told("other.webp"), {"other.webp", "is WebP", "convert 'other.webp' 'other.png'"});
  expect_words(told("other.gif"), {"is GIF"});
  expect_words(told("other.bmp"), {"is BMP"});
  expect_words(told("grey16.png"), {"16-bit grayscale"});
  expect_words(form_refusal("version https://git-lfs.github.com/spec/v1\n"), {"git lfs pull"});
  expect_words(form_refusal(""), {"is empty"});
  expect_words(form_refusal("hello"), {"not a picture"});
  EXPECT_THROW(read_picture(folder_ / "none.png"), MissingInput);
}

TEST_F(PictureFileTest, RejectsTruncatedFiles) {
  for (const char* name : {"rgb.png", "rgb.jpg", "progressive.jpg", "palette.png"}) {
    const std::string whole = read_text(image_golden(name));
    for (std::size_t bytes = 0; bytes + 30 < whole.size(); bytes += 7) {
      EXPECT_THROW(read("a", whole.substr(0, bytes)), DataError) << name << " " << bytes;
      EXPECT_THROW(read_picture_form(folder_.write("a", whole.substr(0, bytes))), DataError)
          << name << " " << bytes;
    }
    expect_words(form_refusal(whole.substr(0, whole.size() - 40)), {"truncated"});
  }
}

TEST_F(PictureFileTest, RejectsDamagedFiles) {
  std::string png = read_text(image_golden("rgb.png"));
  png[60] = static_cast<char>(png[60] ^ 0x55);
  expect_words(refusal(png), {"PNG file is damaged"});
  std::string huge = read_text(image_golden("rgb.png"));
  huge[16] = 0x00;
  huge[17] = 0x70;
  EXPECT_THROW(read("a", huge), DataError) << "a wrong checksum";
}

/// The first 41 bytes of an 8-bit grayscale PNG, with a valid checksum, which libpng verifies.
std::string png_header(std::uint32_t height, std::uint32_t width) {
  std::string chunk = "IHDR";
  for (const std::uint32_t side : {width, height})
    for (int shift = 24; shift >= 0; shift -= 8) chunk += static_cast<char>(side >> shift);
  chunk += std::string("\x08\x00\x00\x00\x00", 5);
  std::uint32_t sum = ~0u;  // CRC-32, bit by bit
  for (const char c : chunk) {
    sum ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) sum = sum >> 1 ^ (sum & 1 ? 0xEDB88320u : 0);
  }
  std::string header("\x89PNG\r\n\x1A\n\0\0\0\x0D", 12);
  header += chunk;
  for (int shift = 24; shift >= 0; shift -= 8) header += static_cast<char>(~sum >> shift);
  return header + std::string("\0\0\x10\0IDAT", 8);
}

TEST_F(PictureFileTest, RejectsSizesTooLargeForFile) {
  expect_words(refusal(png_header(20'000, 20'000)), {"20000 x 20000", "at most 178956970"});
  expect_words(refusal(png_header(13'000, 13'000)),
               {"declares 13000 x 13000 pixels in 41 bytes", "1024 per byte"});
  expect_words(refusal(png_header(1, 4000)), {"the file ends before its last pixel"});
  std::string jpeg = read_text(image_golden("rgb.jpg"));
  const std::size_t sizes = jpeg.find("\xFF\xC0") + 5;
  jpeg.replace(sizes, 4, "\x27\x10\x27\x10");
  expect_words(refusal(jpeg), {"declares 10000 x 10000", "1024 per byte"});
}

TEST_F(PictureFileTest, CorruptedBytesThrowOnlyDataError) {
  PlainRandom random;
  for (const char* name :
       {"alpha.png", "bits.png", "turned_6.jpg", "progressive.jpg", "inks.jpg"}) {
    const std::string whole = read_text(image_golden(name));
    int refused = 0;
    for (int i = 0; i < 400; ++i) {
      std::string changed = whole;
      for (int j = 0; j < 4; ++j)
        changed[random.below(whole.size())] = static_cast<char>(random.next() >> 24);
      try {
        read("a", changed);
      } catch (const DataError& error) {
        ++refused;
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      }
    }
    EXPECT_GT(refused, 20) << name;
  }
}

TEST_F(PictureFileTest, ReadsArraysAsPictures) {
  const Picture colors = read("a.npy", array_of("|u1", "(1, 2, 3)", "\x01\x02\x03\x04\x05\x06"));
  EXPECT_EQ(colors.height, 1);
  EXPECT_EQ(colors.width, 2);
  EXPECT_EQ(colors.pixels, (std::vector<std::uint8_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(read("b.npy", array_of("|u1", "(1, 2)", "\x07\x09")).pixels,
            (std::vector<std::uint8_t>{7, 7, 7, 9, 9, 9}));
  EXPECT_EQ(read("c.npy", array_of("|u1", "(1, 1, 4)", "\x07\x08\x09\x01")).pixels,
            (std::vector<std::uint8_t>{7, 8, 9}));
  const std::string fractions("\x00\x00\x00\x3F\x00\x00\x80\x3F", 8);  // 0.5 and 1
  EXPECT_EQ(read("d.npy", array_of("<f4", "(1, 2, 1)", fractions)).pixels,
            (std::vector<std::uint8_t>{128, 128, 128, 255, 255, 255}));
  expect_words(refusal(array_of("<f4", "(1, 1, 1)", std::string("\x00\x00\x00\x40", 4))),
               {"color value 2", "fractions from 0 to 1", "astype('uint8')"});
  expect_words(refusal(array_of("<i2", "(1, 1, 1)", std::string("\x00\x01", 2))),
               {"color value 256", "0 to 255"});
  expect_words(refusal(array_of("|u1", "(1, 1, 2)", "ab")), {"(1, 1, 2)", "1, 3 or 4"});
  expect_words(refusal(array_of("|u1", "(2,)", "ab")), {"(2)"});
  expect_words(refusal(array_of("|u1", "(0, 3, 3)", "")), {"0 rows"});
}

TEST(Exif, InvalidOrientationMeansUpright) {
  const std::string tiff("MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0", 22);
  EXPECT_EQ(exif_orientation(tiff), 6);
  for (std::size_t bytes = 0; bytes < tiff.size(); ++bytes)
    EXPECT_EQ(exif_orientation(tiff.substr(0, bytes)), 1) << bytes;
  std::string other = tiff;
  other[19] = 9;
  EXPECT_EQ(exif_orientation(other), 1);
  other = tiff;
  other[4] = other[5] = other[6] = static_cast<char>(0xFF);
  EXPECT_EQ(exif_orientation(other), 1);
}

}  // namespace
}  // namespace hybrid_trainer
