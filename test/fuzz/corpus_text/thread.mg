block b grid(2,1,1) loop(3) {
  %0 = input 0 grid(0,-,-) loop(1) : f16[8,16]
  %1, %2 = thread (%0) {
    %0 = input 0 : f16[8,16]
    %1 = exp %0
    output 0 %1 : real
    output 1 (relu %1) : f32
  }
  output 0 (accum.sum (reduce.sum 1 %1)) grid(0,-,-) : f16
  output 1 (accum.max %2) grid(0,-,-) : real
}
