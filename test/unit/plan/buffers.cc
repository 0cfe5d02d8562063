// Workspace placement: buffers that live together never share bytes, and memory is reused.
#include <catch2/catch.hpp>

#include "mirage/support/hash.h"
#include "plan/buffers.h"

using namespace mirage;

static Buffer workspace(int64_t elements, DType t = DType::kF32) { return {Buffer::Kind::kWorkspace, 0, t, {elements}, {1}, 0}; }

TEST_CASE("the bytes of a buffer span its strides") {
  Buffer b{Buffer::Kind::kInput, 0, DType::kF16, {4, 8}, {100, 2}, 0};
  CHECK(b.bytes() == (300 + 14 + 1) * 2);
  Buffer scalar{Buffer::Kind::kInput, 0, DType::kF32, {}, {}, 0};
  CHECK(scalar.bytes() == 4);
}

TEST_CASE("random lifetimes never overlap in memory") {
  for (uint64_t seed = 0; seed < 200; seed++) {
    Rng rng(seed);
    std::vector<Buffer> buffers;
    std::vector<Lifetime> lives;
    for (int i = 0; i < 30; i++) {
      buffers.push_back(workspace(1 + static_cast<int64_t>(rng.below(3000)), rng.below(2) ? DType::kF32 : DType::kBool));
      const int first = static_cast<int>(rng.below(20));
      lives.push_back({first, first + static_cast<int>(rng.below(6))});
    }
    const int64_t total = place_buffers(buffers, lives);
    CHECK(total % 256 == 0);
    for (size_t i = 0; i < buffers.size(); i++) {
      CHECK(buffers[i].offset_bytes % 256 == 0);
      CHECK(buffers[i].offset_bytes + buffers[i].bytes() <= total);
      for (size_t j = 0; j < i; j++) {
        const bool together = lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
        const bool apart = buffers[i].offset_bytes + buffers[i].bytes() <= buffers[j].offset_bytes ||
                           buffers[j].offset_bytes + buffers[j].bytes() <= buffers[i].offset_bytes;
        CHECK((!together || apart));
      }
    }
  }
}

TEST_CASE("a chain of buffers needs the memory of two") {
  std::vector<Buffer> buffers;
  std::vector<Lifetime> lives;
  for (int i = 0; i < 10; i++) buffers.push_back(workspace(1024)), lives.push_back({i, i + 1});
  CHECK(place_buffers(buffers, lives) == 2 * 4096);
}

TEST_CASE("inputs and outputs take no workspace") {
  std::vector<Buffer> buffers{{Buffer::Kind::kInput, 0, DType::kF32, {64}, {1}, 0}, {Buffer::Kind::kOutput, 0, DType::kF32, {64}, {1}, 0}};
  CHECK(place_buffers(buffers, {{0, 0}, {0, 0}}) == 0);
}
