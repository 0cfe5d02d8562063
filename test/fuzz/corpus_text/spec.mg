# a text spec
kernel lin {
  %x = input 0 : f16[16,64]  %w = input 1 : f16[64,32]  %main = input 2 : bf16[16]
  %n = div %x (sqrt (add (div (reduce.sum 1 (square %x)) (const 64 extent 0.1)) 1e-6))
  output 0 (matmul %n %w) : f16
  %z = reduce.sum 0 group 4 %x
  output 1 %z : f32
}
