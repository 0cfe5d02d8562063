kernel all {
  %a = input 0 : f16[4,6]  %b = input 1 : bool[6]  %c = input 2 : f32[]
  %i = iota 1 [4,6]  %w = where (greater %i 2) -inf (add %a (const 24 extent 0.0*0.1))
  %r = reshape [24] (transpose (1,0) %w)  %s = slice 0 1:20:3 %r  %p = repeat 0 2 %s
  %k = concat 0 %p %s %p   %g = reduce.max 0 group 5 %k
  output 1 (clamp %g %c 1e300) : bf16
  output 0 %b : bool
  output 2 (cast_f16 (matmul %a (transpose (1,0) %a))) : f32
}
