#include "generator/code_products.h"

#include <algorithm>

namespace quern {

Status supports_code_op(std::string_view family, const Problem& p, Op op) {
  if (p.op == op) return {};
  return unsupported(family, "op is " + std::string(to_string(p.op)) + ", needed " + std::string(to_string(op)));
}

Status supports_staged(std::string_view family, long long bytes, long long limit) {
  if (bytes <= limit) return {};
  return unsupported(family,
                     "a row of X takes " + std::to_string(bytes) + " bytes of shared memory, the target has " + std::to_string(limit));
}

std::string check_shared(long long bytes, long long limit) {
  if (bytes <= limit) return {};
  return "shared memory is " + std::to_string(bytes) + " bytes, needed at most " + std::to_string(limit);
}

std::string check_rows_of_x(int m, const Problem& p) {
  if (m == 1 || m <= p.m) return {};
  return "m is " + std::to_string(m) + ", needed at most the problem's " + std::to_string(p.m);
}

CodeDotGeometry least_dot(const Problem& p, int row_bytes, int pieces, int table_bytes) {
  return {.row_bytes = row_bytes,
          .pieces = pieces,
          .table_bytes = table_bytes,
          .m = 1,
          .tiles_m = static_cast<int>(p.m),
          .warps = 1,
          .lanes = 8,
          .rows = 1,
          .unroll = 1,
          .passes = 1};
}

CodeDotGeometry take_dot(ConfigReader& reader, const Problem& p, CodeDotGeometry g) {
  g.m = reader.take("m");
  g.tiles_m = static_cast<int>(ceil_div(p.m, g.m));
  g.warps = reader.take("warps");
  g.lanes = reader.take("lanes");
  g.rows = reader.take("rows");
  g.unroll = reader.take("unroll");
  g.passes = reader.take("passes");
  return g;
}

GeometryFields fields_of(const CodeDotGeometry& g) {
  return {{"row_bytes", g.row_bytes},
          {"pieces", g.pieces},
          {"table_bytes", g.table_bytes},
          {"m", g.m},
          {"tiles_m", g.tiles_m},
          {"warps", g.warps},
          {"lanes", g.lanes},
          {"rows", g.rows},
          {"unroll", g.unroll},
          {"passes", g.passes}};
}

std::string check_dot(const CodeDotGeometry& g, const Problem& p, int least_lanes, long long shared_limit) {
  if (std::string why = check_rows_of_x(g.m, p); !why.empty()) return why;
  if (g.rows * g.m > 32) return "rows * m is " + std::to_string(g.rows * g.m) + ", needed at most 32 accumulators";
  if (g.rows * g.unroll > 8) return "rows * unroll is " + std::to_string(g.rows * g.unroll) + ", needed at most 8 chunks in registers";
  // At least half of the lanes that share a row must have a chunk of it.
  if (g.lanes > least_lanes && g.lanes > 2 * g.chunks())
    return "lanes is " + std::to_string(g.lanes) + ", needed at most twice the row's " + std::to_string(g.chunks()) + " chunks";
  if (g.unroll > 1 && g.lanes * g.unroll > g.chunks())
    return "unroll is " + std::to_string(g.unroll) + ", needed no more than the row's chunks give each lane";
  if (g.passes > 1 && g.blocks_n(p.n) < 128) return "passes is " + std::to_string(g.passes) + ", needed a grid of at least 128 blocks";
  return check_shared(g.shared_bytes(), shared_limit);
}

Status supports_code_mma(std::string_view family, const Problem& p, const Target& target, bool tensor_cores) {
  if (!tensor_cores) return unsupported(family, "target is " + to_string(target) + ", needed sm_80 or later for mma m16n8k32");
  if (p.n > 2147483647LL) return unsupported(family, "n is " + std::to_string(p.n) + ", needed at most 2147483647");
  return supports_grid(family, (p.m / 8 + 1) * (p.n / 16 + 1));
}

// Seven is a factor of the lengths of many models' rows (3584, 14336, 28672).
std::vector<Parameter> mma_parameters() {
  return {{"warps", {1, 2, 4, 8}, 1},
          {"warps_k", {1, 2, 4, 8, 14, 16}, 1},
          {"frags_n", {1, 2, 4}, 1},
          {"frags_m", {1, 2, 4, 8}, 1},
          {"staged", {0, 1}, 0},
          {"stages", {1, 2, 3, 4, 6, 8}, 1},
          {"passes", {1, 2, 3, 4, 5, 6, 7, 8, 12, 16}, 1}};
}

CodeMmaGeometry take_mma(ConfigReader& reader, const Problem& p, int row_bytes, int pieces) {
  CodeMmaGeometry g{};
  g.row_bytes = row_bytes;
  g.pieces = pieces;
  g.n = static_cast<int>(p.n);
  g.warps = reader.take("warps");
  g.warps_k = reader.take("warps_k");
  g.frags_n = reader.take("frags_n");
  g.frags_m = reader.take("frags_m");
  g.tiles_m = static_cast<int>(ceil_div(p.m, g.tile_m()));
  g.x_rows = reader.take("staged") != 0 ? static_cast<int>(std::min<std::int64_t>(p.m, g.tile_m())) : 0;
  g.stages = reader.take("stages");
  g.passes = reader.take("passes");
  return g;
}

GeometryFields fields_of(const CodeMmaGeometry& g) {
  return {{"row_bytes", g.row_bytes}, {"pieces", g.pieces},   {"n", g.n},
          {"x_rows", g.x_rows},       {"tiles_m", g.tiles_m}, {"warps", g.warps},
          {"warps_k", g.warps_k},     {"frags_n", g.frags_n}, {"frags_m", g.frags_m},
          {"stages", g.stages},       {"passes", g.passes},   {"halves", g.halves}};
}

void wish_mma(DefaultChooser& choose, const Problem& p) {
  if (p.m > 8) {
    choose.wish("warps", 2);
    for (const int warps_k : {2, 4}) choose.wish("warps_k", warps_k);
    choose.wish("frags_m", 2);
    if (p.m > 16) choose.wish("frags_m", 4);
    return;
  }
  choose.wish("staged", 1);
  if (p.op == Op::matmul_int8_rows) {
    // Little is done with what is read: many small blocks.
    for (const int warps_k : {2, 4}) choose.wish("warps_k", warps_k);
    for (const int passes : {2, 3})
      if (ceil_div(p.n, 16) / passes >= 512) choose.wish("passes", passes);
    for (const int stages : {2, 3, 4}) choose.wish("stages", stages);
    return;
  }
  // One block on each of a large GPU's multiprocessors, all of its warps along K: W is on its way from the first instruction on, X is
  // staged once, and the tiles are dealt out evenly.
  constexpr std::int64_t kBlocks = 120;
  for (const int warps_k : {2, 4, 8}) choose.wish("warps_k", warps_k);
  for (const int passes : {2, 3, 4, 5, 6, 7, 8, 12, 16})
    if (ceil_div(p.n, 16) / passes >= kBlocks) choose.wish("passes", passes);
  for (const int stages : {2, 3}) choose.wish("stages", stages);
  if (p.m > 2)
    for (const int warps_k : {14, 16}) choose.wish("warps_k", warps_k);
  else
    choose.wish("stages", 4);
}

std::string check_mma(const CodeMmaGeometry& g, const Problem& p, int most_fragments, long long shared_limit) {
  if (g.warps * g.warps_k > 16) return "warps * warps_k is " + std::to_string(g.warps * g.warps_k) + ", needed at most 16";
  if (g.warps_k > 1 && g.warps_k > g.segments())
    return "warps_k is " + std::to_string(g.warps_k) + ", needed at most the row's " + std::to_string(g.segments()) + " segments";
  if (g.frags_n * g.frags_m > most_fragments)
    return "frags_n * frags_m is " + std::to_string(g.frags_n * g.frags_m) + ", needed at most " + std::to_string(most_fragments);
  if (g.frags_m > 1 && g.tile_m() >= 2 * p.m) return "8 * frags_m is " + std::to_string(g.tile_m()) + ", needed less than twice m";
  if (g.stages > 1 && !g.staged()) return "stages is " + std::to_string(g.stages) + ", needed 1 where X is not staged";
  // Rows of W that are no whole chunks begin at addresses that are no multiples of 16.
  if (g.stages > 1 && g.row_bytes % kChunkBytes != 0)
    return "stages is " + std::to_string(g.stages) + ", needed 1 where a row of W has " + std::to_string(g.row_bytes) + " bytes";
  if (g.stages > 1 && p.k_major) return "stages is " + std::to_string(g.stages) + ", needed 1 where W is k-major";
  if (g.passes > 1 && !g.staged()) return "passes is " + std::to_string(g.passes) + ", needed 1 where X is not staged";
  if (g.passes > 1 && g.blocks_n() < 4) return "passes is " + std::to_string(g.passes) + ", needed at least 4 blocks along n";
  if (g.stages > 1 && g.stages > g.passes * g.iterations() + 1)
    return "stages is " + std::to_string(g.stages) + ", needed at most one more than a warp's " +
           std::to_string(g.passes * g.iterations()) + " steps";
  if (g.halves != 0 && p.k_major) return "halves is 1, needed 0 where W is k-major";
  if (g.halves != 0 && g.frags_n * g.frags_m > 4)
    return "halves is 1, needed frags_n * frags_m of at most 4: two planes take twice the sums";
  return check_shared(g.shared_bytes(), shared_limit);
}

}  // namespace quern
