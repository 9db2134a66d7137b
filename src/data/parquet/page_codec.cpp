#include <snappy.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>
#include <algorithm>
#include <array>

#include "hybrid_trainer/core/error.h"
#include "src/core/narrow.h"
#include "src/data/parquet/encodings.h"

namespace hybrid_trainer {

namespace {

enum { kNone = 0, kSnappy = 1, kGzip = 2, kZstd = 6 };
constexpr std::size_t kMinRoom = 4 << 10;
/// A page may have kAlwaysAllowed + kMaxTimes · compressed bytes; gzip expands up to 1,032 times.
constexpr std::size_t kAlwaysAllowed = 16 << 20, kMaxTimes = 1'032;

[[noreturn]] void refuse_page(const char* codec) {
  throw DataError(concat("a page is damaged: it is not ", codec, " data of the declared size"));
}

/// Decompresses one or several consecutive members.
void decompress_gzip(std::string_view in, std::size_t size, std::string& out) {
  z_stream stream{};
  constexpr int kGzipOrZlib = 15 + 32;
  if (inflateInit2(&stream, kGzipOrZlib) != Z_OK) throw DataError("cannot initialize zlib");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> end(&stream, inflateEnd);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = narrow<uInt>(in.size(), "a page's size");
  out.clear();
  out.resize(std::min(size, std::max(kMinRoom, 4 * in.size())));
  std::size_t filled = 0;
  while (true) {
    stream.next_out = reinterpret_cast<Bytef*>(out.data() + filled);
    stream.avail_out = narrow<uInt>(out.size() - filled, "a page's size");
    const int result = inflate(&stream, Z_NO_FLUSH);
    filled = out.size() - stream.avail_out;
    if (result == Z_STREAM_END && stream.avail_in > 0) {
      if (inflateReset(&stream) != Z_OK) refuse_page("gzip");
      continue;
    }
    if (result == Z_STREAM_END) break;
    const bool is_full = filled == out.size();
    if ((result != Z_OK && result != Z_BUF_ERROR) || !is_full || filled == size)
      refuse_page("gzip");
    out.resize(std::min(size, 2 * out.size()));
  }
  if (filled != size) refuse_page("gzip");
}

void decompress_snappy(std::string_view in, std::size_t size, std::string& out) {
  std::size_t told = 0;
  if (!snappy::GetUncompressedLength(in.data(), in.size(), &told) || told != size)
    refuse_page("snappy");
  out.resize(size);
  if (!snappy::RawUncompress(in.data(), in.size(), out.data())) refuse_page("snappy");
}

/// Decompresses in one call, because a stream would allocate a window of the claimed size.
void decompress_zstd(std::string_view in, std::size_t size, std::string& out) {
  out.clear();
  for (std::size_t room = std::max(kMinRoom, 4 * in.size());; room *= 4) {
    out.resize(std::min(size, room));
    const std::size_t got = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
    if (!ZSTD_isError(got) && got == size) return;
    const bool is_short = ZSTD_getErrorCode(got) == ZSTD_error_dstSize_tooSmall;
    if (out.size() == size || !is_short) refuse_page("zstd");
  }
}

}  // namespace

void check_codec(int codec) {
  static constexpr std::array kNames{"", "", "", "LZO", "BROTLI", "LZ4", "", "LZ4_RAW"};
  if (codec == kNone || codec == kSnappy || codec == kGzip || codec == kZstd) return;
  const auto place = static_cast<std::size_t>(codec);  // huge if negative
  throw DataError(concat("is compressed with ",
                         place < kNames.size() ? kNames[place] : "an unknown codec",
                         ", which is not supported; want snappy, gzip, zstd or none"));
}

void decompress_page(int codec, std::string_view in, std::size_t size, std::string& out) {
  check_codec(codec);
  if (codec != kNone && size > kAlwaysAllowed + kMaxTimes * in.size())
    throw DataError(concat("a page is damaged: it declares ", size, " bytes in ", in.size(),
                           " compressed bytes; want at most ", kAlwaysAllowed, " plus ", kMaxTimes,
                           " per compressed byte"));
  if (codec == kSnappy) {
    decompress_snappy(in, size, out);
  } else if (size == 0) {
    out.clear();
  } else if (codec == kGzip) {
    decompress_gzip(in, size, out);
  } else if (codec == kZstd) {
    decompress_zstd(in, size, out);
  } else {
    if (in.size() != size) refuse_page("uncompressed");
    out.assign(in);
  }
}

unsigned page_checksum(std::string_view page) {
  return narrow<unsigned>(crc32_z(0, reinterpret_cast<const Bytef*>(page.data()), page.size()));
}

}  // namespace hybrid_trainer
