// Host twins of 20_region.cuh's PTX: a plain read.
namespace mo {

EMU_QUIET inline uint4 read_now(const uint4* p) { return *p; }

}  // namespace mo
