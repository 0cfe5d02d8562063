kernel t {
  %x = input 0 : f16[16,64]
  %w = input 1 : f16[64,32]
  output 0 (matmul %x %w) : f16
